"""Systems held against golden files: batch by batch, and over all questions pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from biorag.benchmarks.bioasq.golden import Batch
from biorag.benchmarks.bioasq.measures import MEASURES, ScoredDoc, score_documents, score_snippets, summary
from biorag.benchmarks.bioasq.submission import Response, response
from biorag.benchmarks.retrieval import DEPTH, Judged, held_pmids, refuse_unjudged
from biorag.benchmarks.significance import paired
from biorag.engine import OpenIndex
from biorag.errors import UsageError, unknown_name
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.settings.retrieval import RetrievalSettings
from biorag.types import Index, OnProgress, Vectors

# Settings of each system, from the paper's parts to the whole.
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "bm25": {"mode": "bm25", "rerank": False},
    "dense": {"mode": "dense", "rerank": False},
    "hybrid": {"mode": "hybrid", "rerank": False},
    "hybrid+rerank": {"mode": "hybrid", "rerank": True},
}
CROSS = "hybrid+cross"  # HybridRerank of the paper, run where it is asked for: it needs a cross-encoder
RERANKER = "cross:ID"
REORDERED = 10  # documents that it orders anew
TITLES = {
    "bm25": "BM25",
    "dense": "dual encoder",
    "hybrid": "hybrid",
    "hybrid+rerank": "hybrid + rerank",
    CROSS: "hybrid + cross-encoder",
}
COMPARED = (("hybrid", "bm25"), ("hybrid", "dense"), ("hybrid+rerank", "hybrid"), (CROSS, "hybrid"))


@dataclass(frozen=True, slots=True)
class Run:
    """One system's responses, by batch and question id."""

    system: str
    responses: Mapping[str, Mapping[str, Response]]


def chosen_systems(names: Sequence[str]) -> list[str]:
    """Return the systems asked for, each once, in the paper's order; those of `SYSTEMS` for none."""
    known = (*SYSTEMS, CROSS)
    for name in names:
        if name not in known:
            raise unknown_name("system", name, known)
    return [name for name in known if name in (names or SYSTEMS)]


def settings_of(system: str, settings: RetrievalSettings) -> Mapping[str, Any]:
    """Return what a system changes of the configured retrieval.

    "hybrid+cross" is the paper's HybridRerank (BioASQ 8, section 5.1): the best 10 of hybrid search in the order of a
    cross-encoder's scores, to which no earlier score is added. The cross-encoder is that of the configured chain.

    Raises
    ------
    UsageError
        If "hybrid+cross" is asked for, and the chain has no cross-encoder.
    """
    if system != CROSS:
        return SYSTEMS[system]
    stage = next((stage for stage in settings.stages if stage.kind.name == "cross-encoder"), None)
    if stage is None:
        raise UsageError(f"--system {CROSS} orders by a cross-encoder: name one with --reranker {RERANKER}")
    alone = {"reranker": f"{stage.kind.prefix}{stage.name}@{REORDERED}", "cross_interpolation": 0.0}
    return {"mode": "hybrid", "rerank": True, "k_init": max(settings.k_init, REORDERED), **alone}


def answer(
    system: str, batches: Sequence[Batch], retriever: Retriever, whole_records: bool, on_progress: OnProgress
) -> Run:
    """Retrieve for every question of every batch."""
    found: dict[str, dict[str, Response]] = {}
    for batch in batches:
        found[batch.name] = {
            question.id: response(question.text, ranking.hits, whole_records)
            for question, ranking in search_questions(retriever, batch.questions, DEPTH, on_progress=on_progress)
        }
    return Run(system, found)


def coverage(batches: Sequence[Batch], opened: OpenIndex) -> list[dict[str, Any]]:
    """Return how many golden documents of each batch the index holds."""
    probe = np.ones(opened.manifest.encoder.dimension, np.float32)
    return [
        {
            "batch": batch.name,
            "questions": len(batch.questions),
            "documents": len(golden_documents(batch)),
            "documents_in_index": len(indexed_documents(batch, opened.index, probe)),
        }
        for batch in batches
    ]


def check_coverage(rows: Sequence[Mapping[str, Any]], opened: OpenIndex) -> None:
    """Refuse an index with hardly any of the golden documents; raises as `refuse_unjudged` does."""
    held, total = (sum(row[key] for row in rows) for key in ("documents_in_index", "documents"))
    refuse_unjudged(Judged(held, total - held), ", ".join(row["batch"] for row in rows), opened.manifest.name)


def golden_documents(batch: Batch) -> set[str]:
    """Return the golden documents of all questions of a batch."""
    return {document for question in batch.questions for document in question.documents}


def indexed_documents(batch: Batch, index: Index, probe: Vectors) -> set[str]:
    """Return which of a batch's golden documents the index holds.

    Parameters
    ----------
    probe : any vector of the index's dimension
    """
    golden = golden_documents(batch)
    return held_pmids(index, len(probe), golden) & golden


def report(batches: Sequence[Batch], runs: Sequence[Run], seed: int) -> dict[str, Any]:
    """Return each system's measures by batch with their unweighted mean, and the comparisons of `COMPARED`."""
    documents = {run.system: _documents(batches, run) for run in runs}
    return {
        "systems": {run.system: _system(batches, run, documents[run.system]) for run in runs},
        "comparisons": [
            {"ours": ours, "theirs": theirs, **_compared(documents[ours], documents[theirs], seed)}
            for ours, theirs in COMPARED
            if ours in documents and theirs in documents
        ],
    }


def _documents(batches: Sequence[Batch], run: Run) -> list[list[ScoredDoc]]:
    return [
        [
            score_documents(question.documents, run.responses[batch.name][question.id].documents)
            for question in batch.questions
        ]
        for batch in batches
    ]


def _system(batches: Sequence[Batch], run: Run, documents: Sequence[Sequence[ScoredDoc]]) -> dict[str, Any]:
    passages = [found for responses in run.responses.values() for each in responses.values() for found in each.passages]
    unknown = sum(passage.span is None for passage in passages)
    measured = [summary(scores) for scores in documents]
    placed = [_snippets(batch, run) for batch in batches] if unknown < len(passages) else None
    return {
        "batches": [
            {"batch": batch.name, "documents": measured[place], "snippets": placed[place] if placed else None}
            for place, batch in enumerate(batches)
        ],
        "mean": {"documents": _mean(measured), "snippets": _mean(placed) if placed else None},
        "returned_snippets": len(passages),
        "offsets_unknown": unknown,
    }


def _snippets(batch: Batch, run: Run) -> dict[str, float]:
    responses = run.responses[batch.name]
    return summary([score_snippets(question.snippets, responses[question.id].spans) for question in batch.questions])


def _mean(summaries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the unweighted mean over the batches."""
    return {name: float(np.mean([each[name] for each in summaries])) for name in MEASURES}


def _compared(ours: Sequence[Sequence[ScoredDoc]], theirs: Sequence[Sequence[ScoredDoc]], seed: int) -> dict[str, Any]:
    """Compare the average precision of documents over the questions of all batches."""
    mine, others = ([score.average_precision for batch in side for score in batch] for side in (ours, theirs))
    return asdict(paired(mine, others, seed))
