"""Tasks as mteb evaluates them: its own by name, and local ones made from files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ir_measures
import mteb
from datasets import Dataset
from ir_measures import RR, R
from mteb.abstasks import AbsTask
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from biorag.benchmarks.mteb.groups import Group, find_group
from biorag.benchmarks.mteb.local import CONCEPTS, MENTIONS, read_corpus, read_linking, read_pairs
from biorag.corpus.datasets import corpus_file
from biorag.errors import MissingError, ServiceError, UsageError
from biorag.types import Question
from biorag.utils.files import sha256_of

SPLIT = "test"
LANGUAGE = "eng-Latn"
LINKED = {"mrr_at_5": RR @ 5, "recall_at_1": R @ 1, "recall_at_5": R @ 5}
UNSAFE = re.compile(r"[^\w.-]+")


class Local:
    """What tasks from local files have in common: read when loaded, named and versioned by their files.

    `main` is the measure that counts, `measures` those reported, by mteb's names.
    """

    kind: str
    main: str
    measures: Sequence[str]
    data_loaded = False
    dataset: Any = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.metadata = _metadata(self, path)
        super().__init__()

    def files(self) -> list[Path]:
        """Return the files that the task is made from."""
        return [self._path]

    def load_data(self, *_: Any, **__: Any) -> None:
        """Read the files; for errors see the readers in `local`."""
        if not self.data_loaded:
            self.dataset = self.read()
            self.data_loaded = True

    def unload_data(self) -> None:
        """Give the memory back; mteb's own way forgets the metadata, too."""
        self.dataset, self.data_loaded = None, False

    def read(self) -> dict[str, Any]:
        """Return the data as mteb's tasks of this kind have it."""
        raise NotImplementedError


class LocalRetrieval(Local, AbsTaskRetrieval):  # type: ignore[misc]
    """A folder in BEIR's layout with its corpus: find the relevant snippets of each question."""

    kind, main = "Retrieval", "ndcg_at_10"
    measures: Sequence[str] = (
        *("ndcg_at_10", "map_at_10", "mrr_at_10", "recall_at_10", "recall_at_100"),
        *("ndcg_at_20", "recall_at_5", "recall_at_20", "hit_rate_at_5"),
    )
    candidates = False

    def files(self) -> list[Path]:
        """Return corpus, questions and judgements."""
        return [corpus_file(self._path), self._path / "queries.jsonl", self._path / "qrels" / f"{SPLIT}.tsv"]

    def read(self) -> dict[str, Any]:
        """Read the folder; see `read_corpus`."""
        found = read_corpus(self._path, SPLIT)
        corpus = [{"id": each.id, "title": each.title, "text": each.content} for each in found.snippets]
        top_ranked = found.candidates if self.candidates else None
        return _retrieval(corpus, found.dataset.questions, found.dataset.qrels, top_ranked)


class LocalRecommendation(LocalRetrieval):
    """A folder in BEIR's layout: order the snippets that were judged for each query, as RELISH's articles are.

    The measures go over the whole ranking: MAP takes every relevance above 0 alike, nDCG takes it as the gain.
    """

    kind, main = "Reranking", "map_at_1000"
    measures = ("map_at_1000", "ndcg_at_1000", "ndcg_at_10")
    candidates = True


class LocalLinking(Local, AbsTaskRetrieval):  # type: ignore[misc]
    """Entity linking: find the concept that a mention means, which ranks where the best of its names does."""

    kind, main = "Retrieval", "concept_recall_at_1"
    measures = tuple(f"concept_{name}" for name in LINKED)

    def files(self) -> list[Path]:
        """Return concepts and mentions."""
        return [self._path / CONCEPTS, self._path / MENTIONS]

    def read(self) -> dict[str, Any]:
        """Read the folder; see `read_linking`."""
        found = read_linking(self._path)
        ids = {concept: [f"{concept}#{place}" for place in range(len(names))] for concept, names in found.names.items()}
        self._meant = found.qrels
        self._concept = {id: concept for concept, listed in ids.items() for id in listed}
        corpus = [
            {"id": id, "title": "", "text": name}
            for concept, names in found.names.items()
            for id, name in zip(ids[concept], names, strict=True)
        ]
        qrels = {mention: {id: 1 for concept in meant for id in ids[concept]} for mention, meant in found.qrels.items()}
        return _retrieval(corpus, found.mentions, qrels, None)

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: Mapping[str, Mapping[str, float]], **_: Any
    ) -> dict[str, float]:
        """Return MRR@5, Recall@1 and Recall@5 of concepts."""
        run = {mention: concept_scores(found, self._concept) for mention, found in results.items()}
        found = ir_measures.calc_aggregate(list(LINKED.values()), self._meant, run)
        return {f"concept_{name}": float(found[measure]) for name, measure in LINKED.items()}


class LocalSimilarity(Local, AbsTaskSTS):  # type: ignore[misc]
    """A file of sentence pairs: Spearman's correlation of the vectors' similarity with people's scores."""

    kind, main = "STS", "cosine_spearman"
    measures = ("cosine_spearman", "spearman", "cosine_pearson")

    def read(self) -> dict[str, Any]:
        """Read the file; see `read_pairs`."""
        pairs = read_pairs(self._path)
        scores = [pair.score for pair in pairs]
        self.min_score, self.max_score = min(scores), max(scores)
        return {SPLIT: Dataset.from_list([asdict(pair) for pair in pairs])}


# The options of `biorag bench mteb` that name files, and the tasks they make.
KINDS: Mapping[str, type[Local]] = {
    "local": LocalRetrieval,
    "similarity": LocalSimilarity,
    "linking": LocalLinking,
    "recommendation": LocalRecommendation,
}


def local_tasks(paths: Mapping[str, Sequence[Path]]) -> list[Local]:
    """Return the tasks of files, read; `paths` by the keys of `KINDS`.

    Raises
    ------
    MissingError, BadInputError
        If a file is not there, or does not read.
    UsageError
        If two tasks have one name.
    """
    tasks = [KINDS[kind](path) for kind, named in paths.items() for path in named]
    for task in tasks:
        task.load_data()
    names = [task.metadata.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two local tasks are named {name!r}, as their files: rename one")
    return tasks


def named_tasks(names: Sequence[str], languages: Sequence[str], group: Group | None = None) -> list[AbsTask]:
    """Return mteb's own tasks, not yet loaded; of a group in its languages, unless some are given.

    Raises
    ------
    UsageError
        If mteb has no task of a name, or it is not of text alone, or has nothing in the languages.
    """
    found = []
    group = group or Group(())
    options = {
        "languages": list(languages or group.languages) or None,
        "exclusive_language_filter": bool(group.languages) and not languages,
        "eval_splits": list(group.splits) or None,
        "hf_subsets": list(group.subsets) or None,
    }
    for name in dict.fromkeys(names):
        try:
            task = mteb.get_task(name, **options)
        except KeyError as error:
            raise UsageError(f"mteb has no task {name!r}: {_reason(error)}") from None
        except ValueError:
            asked = ", ".join(languages or group.languages)
            raise UsageError(
                f"task {name!r} has nothing in the language {asked}: give codes of three letters, as eng"
            ) from None
        if task.metadata.modalities != ["text"]:
            raise UsageError(f"task {name!r} is of {', '.join(task.metadata.modalities)}: biorag encodes text alone")
        found.append(task)
    return found


def load(task: AbsTask, offline: bool) -> None:
    """Load a task's data, from the hub's cache or the hub.

    Raises
    ------
    MissingError
        If it is not in the cache and biorag is offline.
    ServiceError
        If it cannot be downloaded.
    """
    try:
        task.load_data()
    except OSError as error:
        name = task.metadata.name
        if offline:
            raise MissingError(
                f"task {name!r} needs data that is not on this machine: run it once without --offline, or give files "
                "of your own with --local"
            ) from error
        raise ServiceError(
            f"the data of task {name!r} could not be downloaded ({_reason(error)}): try again with a connection, or "
            "give files of your own with --local"
        ) from error


def concept_scores(scores: Mapping[str, float], concepts: Mapping[str, str]) -> dict[str, float]:
    """Return concept -> best score of its names; `concepts` is name id -> concept."""
    best: dict[str, float] = {}
    for name, score in scores.items():
        concept = concepts[name]
        best[concept] = max(score, best.get(concept, score))
    return best


def _reason(error: Exception) -> str:
    lines = str(error.args[0] if error.args else error).strip().splitlines()
    return lines[0].removeprefix("KeyError: ").rstrip(".?") if lines else type(error).__name__


def _retrieval(
    corpus: Sequence[Mapping[str, str]],
    questions: Sequence[Question],
    qrels: Mapping[str, Mapping[str, int]],
    top_ranked: Mapping[str, Sequence[str]] | None,
) -> dict[str, Any]:
    """Return the one split of a task as mteb's retrieval tasks have it."""
    asked = [{"id": question.id, "text": question.text} for question in questions]
    return {
        "default": {
            SPLIT: {
                "corpus": Dataset.from_list(list(corpus)),
                "queries": Dataset.from_list(asked),
                "relevant_docs": {id: dict(found) for id, found in qrels.items()},
                "top_ranked": top_ranked,
            }
        }
    }


def _metadata(task: Local, path: Path) -> TaskMetadata:
    """Return what mteb wants to know of a task; its revision is the hash of the files."""
    files = task.files()
    for file in files:
        if not file.is_file():
            raise MissingError(f"{file} is not there: docs/mteb.md says which files a local task has")
    revision = hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()[:16]
    resolved = path.resolve()
    name = UNSAFE.sub("-", resolved.stem if path.is_file() else resolved.name)
    return TaskMetadata(
        dataset={"path": name, "revision": revision},
        name=name,
        description=f"{type(task).__name__} from local files",
        type=task.kind,
        category="t2t",
        eval_splits=[SPLIT],
        eval_langs=[LANGUAGE],
        main_score=task.main,
    )


def chosen_tasks(
    names: Sequence[str], group: str | None, languages: Sequence[str], paths: Mapping[str, Sequence[Path]]
) -> list[Any]:
    """Return the tasks, local ones first: they fail at once if they do.

    Raises
    ------
    UsageError
        If a local task has the name of one of mteb's.
    """
    local = local_tasks(paths)
    grouped = find_group(group) if group else None
    listed = named_tasks(names, languages)
    if grouped:
        listed += named_tasks([name for name in grouped.tasks if name not in names], languages, grouped)
    taken = {task.metadata.name for task in listed}
    for task in local:
        if task.metadata.name in taken:
            raise UsageError(f"{task.metadata.name!r} is a task of mteb's too: rename the folder")
    return [*local, *listed]
