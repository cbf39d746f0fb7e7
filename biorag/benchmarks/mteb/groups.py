"""Named groups of mteb tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biorag.errors import unknown_name


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks by mteb's names, and the languages (ISO 639-3) they are run in; none: all that a task has."""

    tasks: Sequence[str]
    languages: Sequence[str]


# mteb's own benchmark "MTEB(Medical, v1)".
MEDICAL = (
    *("CUREv1", "NFCorpus", "TRECCOVID", "TRECCOVID-PL", "SciFact", "SciFact-PL", "MedicalQARetrieval"),
    *("PublicHealthQA", "MedrxivClusteringP2P.v2", "MedrxivClusteringS2S.v2", "CmedqaRetrieval", "CMedQAv2-reranking"),
)
# Twelve medical and general retrieval tasks in English, after Synthesize-Train-Merge (arXiv 2602.04731).
STM = (
    *("CUREv1", "MedicalQARetrieval", "NFCorpus", "PublicHealthQA", "SciFact", "TRECCOVID"),
    *("ArguAna", "FiQA2018", "NQ", "QuoraRetrieval", "SCIDOCS", "Touche2020Retrieval.v3"),
)
GROUPS: Mapping[str, Group] = {"medical": Group(MEDICAL, ()), "stm": Group(STM, ("eng",))}


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
