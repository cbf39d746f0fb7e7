"""mteb's tasks by name, and the groups of them that papers measure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mteb
from mteb.abstasks import AbsTask

from biorag.errors import UsageError
from biorag.training.instructions import dataset_key

NDCG, SUCCESS = "ndcg_at_10", "hit_rate_at_5"


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks by mteb's names, and how they are run.

    Attributes
    ----------
    languages : ISO 639-3 codes; only subsets wholly in these; empty for all
    measure : the measure that counts in each task; empty for the task's own main measure
    splits, subsets : those of the tasks to run; empty for all
    averages : name -> the tasks of a mean
    local : data sets that mteb does not have -> the option that reads them from files
    """

    tasks: Sequence[str]
    languages: Sequence[str] = ()
    measure: str = ""
    splits: Sequence[str] = ()
    subsets: Sequence[str] = ()
    averages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    local: Mapping[str, str] = field(default_factory=dict)

    def missing(self, measured: Collection[str]) -> dict[str, str]:
        """Return the data sets that neither mteb nor a local task of their name provides: name -> option."""
        names = set(map(dataset_key, measured))
        return {name: option for name, option in self.local.items() if dataset_key(name) not in names}

    def means(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
        """Return the averages of the main measures of rows; None if a task of an average was not measured."""
        main = {row["task"]: row["measures"][row["main"]] for row in rows}
        return {
            name: round(math.fsum(main[task] for task in tasks) / len(tasks), 6) if main.keys() >= set(tasks) else None
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
BMRETRIEVER_LOCAL = {
    **dict.fromkeys(("BioASQ", "PubMedQA", "iCliniq"), "--local"),
    **dict.fromkeys(("DrugBank", "MeSH"), "--linking"),
    "RELISH": "--recommendation",
}
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
        local=BMRETRIEVER_LOCAL,
    ),
    "beir-14": TaskGroup(BEIR_14, measure=NDCG, averages={"all": BEIR_14}),
    "lotte": TaskGroup(("LoTTE",), measure=SUCCESS, splits=("test",), subsets=LOTTE),
}


def named_tasks(names: Sequence[str], languages: Sequence[str], group: TaskGroup | None = None) -> list[AbsTask]:
    """Return mteb's own tasks, not yet loaded; of a group in its languages, unless some are named.

    Raises `UsageError` if mteb has no task of a name, or it is not of text alone, or has nothing in the languages.
    """
    tasks = []
    group = group or TaskGroup(())
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
            raise UsageError(f"mteb has no task {name!r}: {error.args[0].strip().splitlines()[0]}") from None
        except ValueError:
            codes = ", ".join(languages or group.languages)
            raise UsageError(
                f"task {name!r} has nothing in the language {codes}: use codes of three letters, as eng"
            ) from None
        if task.metadata.modalities != ["text"]:
            raise UsageError(f"task {name!r} is of {', '.join(task.metadata.modalities)}: biorag encodes text alone")
        tasks.append(task)
    return tasks
