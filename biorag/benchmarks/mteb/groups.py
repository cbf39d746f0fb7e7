"""Named groups of mteb tasks: mteb's own, and those that papers measure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biorag.errors import unknown_name
from biorag.training.instructions import dataset_key

NDCG, SUCCESS = "ndcg_at_10", "hit_rate_at_5"


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks by mteb's names, and how they are run.

    Attributes
    ----------
    languages : ISO 639-3; only what is wholly in these; none: all that a task has
    measure : what counts in each task; empty: the task's own main measure
    splits, subsets : those of the tasks that are run; none: all
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

    @property
    def measures(self) -> dict[str, str]:
        """Task -> what counts in it, where that is the group's."""
        return dict.fromkeys(self.tasks, self.measure) if self.measure else {}

    def missing(self, measured: Collection[str]) -> dict[str, str]:
        """Return the data sets that neither mteb has nor a local task of their name is: name -> option."""
        names = set(map(dataset_key, measured))
        return {name: option for name, option in self.local.items() if dataset_key(name) not in names}

    def means(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
        """Return the averages of the main measures of rows; None where a task of an average was not measured."""
        main = {row["task"]: row["measures"][row["main"]] for row in rows}
        return {
            name: round(math.fsum(main[task] for task in tasks) / len(tasks), 6) if main.keys() >= set(tasks) else None
            for name, tasks in self.averages.items()
        }


# mteb's own benchmark "MTEB(Medical, v1)".
MEDICAL = (
    *("CUREv1", "NFCorpus", "TRECCOVID", "TRECCOVID-PL", "SciFact", "SciFact-PL", "MedicalQARetrieval"),
    *("PublicHealthQA", "MedrxivClusteringP2P.v2", "MedrxivClusteringS2S.v2", "CmedqaRetrieval", "CMedQAv2-reranking"),
)
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
BEIR_14 = (
    *("TRECCOVID", "NFCorpus", "SciFact", "SCIDOCS", "QuoraRetrieval", "ArguAna", "ClimateFEVER", "NQ"),
    *("CQADupstackRetrieval", "DBPedia", "Touche2020", "HotpotQA", "FEVER", "FiQA2018"),
)
# BiCA, Tables 2 and 9: Success@5 of four of LoTTE's five topics, on its test questions.
LOTTE = tuple(
    f"{topic}_{kind}" for kind in ("search", "forum") for topic in ("writing", "recreation", "science", "lifestyle")
)
GROUPS: Mapping[str, Group] = {
    "medical": Group(MEDICAL),
    "stm": Group(
        (*STM_MEDICAL, *STM_GENERAL),
        languages=("eng",),
        measure=NDCG,
        averages={"medical": STM_MEDICAL, "general": STM_GENERAL, "all": (*STM_MEDICAL, *STM_GENERAL)},
    ),
    "bmretriever": Group(
        (*BMRETRIEVER_RETRIEVAL, "BIOSSES"),
        averages={"retrieval": BMRETRIEVER_RETRIEVAL, "all": (*BMRETRIEVER_RETRIEVAL, "BIOSSES")},
        local=BMRETRIEVER_LOCAL,
    ),
    "beir-14": Group(BEIR_14, measure=NDCG, averages={"all": BEIR_14}),
    "lotte": Group(("LoTTE",), measure=SUCCESS, splits=("test",), subsets=LOTTE),
}


def find_group(name: str) -> Group:
    """Return a group of tasks.

    Raises
    ------
    UsageError
        If there is none of this name.
    """
    if name not in GROUPS:
        raise unknown_name("group of tasks", name, GROUPS)
    return GROUPS[name]
