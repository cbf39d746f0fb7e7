"""The tasks that can be measured: mteb's by name, the groups of them in papers, and folders in BEIR's layout."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mteb
from datasets import Dataset
from mteb.abstasks import AbsTask
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from biorag.corpus.datasets import corpus_file, load_dataset, read_qrels
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, MissingError, UsageError, check_name
from biorag.utils.files import sha256_of

SPLIT = "test"
UNSAFE = re.compile(r"[^\w.-]+")
NDCG, SUCCESS = "ndcg_at_10", "hit_rate_at_5"


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks by mteb's names, and how they are run."""

    tasks: Sequence[str]
    languages: Sequence[str] = ()  # ISO 639-3 codes; only subsets wholly in these; empty for all
    measure: str = ""  # that counts in each task; empty for the task's own main measure
    splits: Sequence[str] = ()  # of the tasks; empty for all
    subsets: Sequence[str] = ()  # of the tasks; empty for all
    averages: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name -> the tasks of a mean

    def means(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
        """Return the averages of the main measures of rows; None if a task of an average was not measured."""
        main = {row["task"]: row["measures"][row["main"]] for row in rows}
        known = {task for task, value in main.items() if value is not None}
        return {
            name: round(math.fsum(main[task] for task in tasks) / len(tasks), 6) if known >= set(tasks) else None
            for name, tasks in self.averages.items()
        }


def _of_benchmark(name: str, but: str = "") -> list[str]:
    """Return the tasks of one of mteb's own benchmarks."""
    names = [task.metadata.name for task in mteb.get_benchmark(name).tasks]
    return [task for task in names if task != but]


# Synthesize-Train-Merge (Khattab et al. 2026, arXiv 2602.04731), Table 11: nDCG@10 of twelve tasks in English.
STM_MEDICAL = (
    *("FeedbackQARetrieval", "MedicalQARetrieval", "CUREv1", "PublicHealthQA", "NFCorpus", "TRECCOVID", "SciFact"),
)
STM_GENERAL = ("SCIDOCS", "NanoFEVERRetrieval", "ArguAna", "NanoQuoraRetrieval", "FiQA2018")
# BMRetriever (Xu et al. 2024, arXiv 2404.18443), Tables 2, 3 and 10; of the eleven data sets mteb has five.
BMRETRIEVER_RETRIEVAL = ("NFCorpus", "SciFact", "SCIDOCS", "TRECCOVID")
# BiCA (Sinha et al. 2025, arXiv 2511.08029), Tables 1 and 10: BEIR's fourteen without MS MARCO.
BEIR_14 = _of_benchmark("BEIR", but="MSMARCO")
# BiCA, Tables 2 and 9: Success@5 of four of LoTTE's five topics, on its test questions.
LOTTE = tuple(
    f"{topic}_{kind}" for kind in ("search", "forum") for topic in ("writing", "recreation", "science", "lifestyle")
)
GROUPS: Mapping[str, TaskGroup] = {
    "medical": TaskGroup(_of_benchmark("MTEB(Medical, v1)")),
    "stm": TaskGroup(
        (*STM_MEDICAL, *STM_GENERAL),
        languages=("eng",),
        measure=NDCG,
        averages={"medical": STM_MEDICAL, "general": STM_GENERAL, "all": (*STM_MEDICAL, *STM_GENERAL)},
    ),
    "bmretriever": TaskGroup(
        (*BMRETRIEVER_RETRIEVAL, "BIOSSES"),
        averages={"retrieval": BMRETRIEVER_RETRIEVAL, "all": (*BMRETRIEVER_RETRIEVAL, "BIOSSES")},
    ),
    "beir-14": TaskGroup(BEIR_14, measure=NDCG, averages={"all": BEIR_14}),
    "lotte": TaskGroup(("LoTTE",), measure=SUCCESS, splits=("test",), subsets=LOTTE),
}


def find_group(name: str) -> TaskGroup:
    """Return a group of tasks; UsageError for an unknown name."""
    check_name("group of tasks", name, GROUPS)
    return GROUPS[name]


def named_task(name: str, languages: Sequence[str], group: TaskGroup) -> AbsTask:
    """Return one of mteb's own tasks, not yet loaded, in the group's languages unless `languages` are named.

    Raises `UsageError` if mteb has no task of the name, or it is not of text alone, or has nothing in the languages.
    """
    try:
        task = mteb.get_task(
            name,
            languages=list(languages or group.languages) or None,
            exclusive_language_filter=bool(group.languages) and not languages,
            eval_splits=list(group.splits) or None,
            hf_subsets=list(group.subsets) or None,
        )
    except KeyError as error:
        raise UsageError(f"mteb has no task {name!r}: {error.args[0].strip().splitlines()[0]}") from None
    except ValueError:
        codes = ", ".join(languages or group.languages)
        raise UsageError(
            f"task {name!r} has nothing in the language {codes}: use codes of three letters, such as eng"
        ) from None
    if task.metadata.modalities != ["text"]:
        raise UsageError(f"task {name!r} is of {', '.join(task.metadata.modalities)}: biorag encodes text alone")
    return task


def chosen_tasks(
    names: Sequence[str],
    group: TaskGroup | None,
    languages: Sequence[str],
    local: Sequence[Path],
    judged_only: Sequence[Path],
) -> list[AbsTask]:
    """Return the tasks, those of local folders first: they fail at once if they do.

    Raises `UsageError` if two have the same name.
    """
    tasks = [*map(LocalRetrieval, local), *(LocalRetrieval(folder, judged_only=True) for folder in judged_only)]
    tasks += [named_task(name, languages, TaskGroup(())) for name in dict.fromkeys(names)]
    if group:
        tasks += [named_task(name, languages, group) for name in group.tasks if name not in names]
    taken = [task.metadata.name for task in tasks]
    if twice := next((name for name in taken if taken.count(name) > 1), None):
        raise UsageError(f"two tasks are named {twice!r}: rename the folder")
    return tasks


class LocalRetrieval(AbsTaskRetrieval):  # type: ignore[misc]
    """A folder with `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`, named after it and versioned by its files.

    With `judged_only` each query orders the snippets judged for it, as RELISH's articles are, rather than all.

    Raises MissingError or BadInputError if a file is not there or cannot be read.
    """

    data_loaded = False
    dataset: Any = None

    def __init__(self, folder: Path, judged_only: bool = False) -> None:
        self._folder, self._judged_only = folder, judged_only
        files = [corpus_file(folder), folder / "queries.jsonl", folder / "qrels" / f"{SPLIT}.tsv"]
        for file in files:
            if not file.is_file():
                raise MissingError(f"{file} is not there: docs/mteb.md lists the files of a local task")
        name = UNSAFE.sub("-", folder.resolve().name)
        revision = hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()[:16]
        self.metadata = TaskMetadata(
            dataset={"path": name, "revision": revision},
            name=name,
            description="A local folder",
            type="Reranking" if judged_only else "Retrieval",
            category="t2t",
            eval_splits=[SPLIT],
            eval_langs=["eng-Latn"],
            main_score="map_at_1000" if judged_only else NDCG,
        )
        super().__init__()
        self.load_data()

    def load_data(self, *_: Any, **__: Any) -> None:
        """Read the folder."""
        if not self.data_loaded:
            self.dataset = {"default": {SPLIT: self._read()}}
            self.data_loaded = True

    def unload_data(self) -> None:
        """Free the memory; mteb's own method also drops the metadata."""
        self.dataset, self.data_loaded = None, False

    def _read(self) -> dict[str, Any]:
        """Return the split in the form of mteb's retrieval tasks."""
        path, data = corpus_file(self._folder), load_dataset(self._folder, SPLIT)
        snippets = {snippet.id: snippet for snippet in read_snippets(Source(str(path), path))}
        if not any(id in snippets for grades in data.qrels.values() for id in grades):
            raise BadInputError(f"{path} holds none of the judged snippets: check that the ids match")
        candidates = None
        if self._judged_only:
            judged = read_qrels(self._folder / "qrels" / f"{SPLIT}.tsv", lowest=0)
            candidates = {
                question.id: [id for id in judged[question.id] if id in snippets] for question in data.questions
            }
        documents = [
            {"id": snippet.id, "title": snippet.title, "text": snippet.content} for snippet in snippets.values()
        ]
        return {
            "corpus": Dataset.from_list(documents),
            "queries": Dataset.from_list([{"id": question.id, "text": question.text} for question in data.questions]),
            "relevant_docs": {id: dict(grades) for id, grades in data.qrels.items()},
            "top_ranked": candidates,
        }
