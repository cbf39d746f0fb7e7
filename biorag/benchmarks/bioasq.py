"""Phase A of BioASQ's task B: systems measured on golden files, batch by batch, as BioASQ's evaluator does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from biorag.benchmarks.golden import PUBMED, GoldenBatch
from biorag.benchmarks.per_question import PER_QUESTION, QuestionFigures, write_figures
from biorag.benchmarks.retrieval import DEPTH, JudgedCount, held_pmids, refuse_unjudged
from biorag.benchmarks.significance import paired
from biorag.engine import open_index
from biorag.errors import UsageError, check_name
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.types import Hit, Index, OnProgress, Progress
from biorag.utils.files import write_json

MOST = 10  # documents that a submission may name for a question
EPSILON = 1e-5
# Settings of each system, from the paper's parts to the whole.
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "bm25": {"mode": "bm25", "rerank": False},
    "dense": {"mode": "dense", "rerank": False},
    "hybrid": {"mode": "hybrid", "rerank": False},
    "hybrid+rerank": {"mode": "hybrid", "rerank": True},
}
CROSS = "hybrid+cross"  # HybridRerank of the paper, run where it is asked for: it needs a cross-encoder
RERANKER = "cross:ID"
REORDERED = 10  # documents that it reorders
COMPARED = (("hybrid", "bm25"), ("hybrid", "dense"), ("hybrid+rerank", "hybrid"), (CROSS, "hybrid"))


SystemRankings: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]  # documents, best first, by batch and question


@dataclass(frozen=True, slots=True)
class RankingScore:
    """The values of one question."""

    precision: float
    recall: float
    f1: float
    average_precision: float


def score_documents(golden: Sequence[str], returned: Sequence[str]) -> RankingScore:
    """Measure a ranking of at most ten documents as BioASQ's evaluator does (`EvaluatorTask1b -phaseA -e 8`).

    AP is `Σ_r P(r)·rel(r) / min(10, |golden|)`, as of BioASQ 8. Editions 3 to 7 divide by 10, the first two by
    |golden|. It is 0 where there is no golden document.

    `golden`: relevant documents, each once; `returned`: best first, each once.

    "Evaluation measures for task B" by Malakasiotis et al., BioASQ's guidelines.
    """
    relevant = set(golden)
    hits = precisions = 0.0
    for rank, document in enumerate(returned, 1):
        if document in relevant:
            hits += 1
            precisions += hits / rank
    precision, recall = _share(hits, len(returned)), _share(hits, len(golden))
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return RankingScore(precision, recall, f1, _share(precisions, min(MOST, len(golden))))


def _share(count: float, total: float) -> float:
    return count / total if total else 0.0


def summary(scores: Sequence[RankingScore]) -> dict[str, float]:
    """Return the means over questions, at least one; GMAP is `exp(mean(log(AP + 1e-5)))`."""
    return {
        "MAP": fmean(score.average_precision for score in scores),
        "GMAP": math.exp(fmean(math.log(score.average_precision + EPSILON) for score in scores)),
        "precision": fmean(score.precision for score in scores),
        "recall": fmean(score.recall for score in scores),
        "F1": fmean(score.f1 for score in scores),
    }


def chosen_systems(names: Sequence[str]) -> list[str]:
    """Return the named systems, each once, in the paper's order; without names those of `SYSTEMS`."""
    known = (*SYSTEMS, CROSS)
    for name in names:
        check_name("system", name, known)
    return [name for name in known if name in (names or SYSTEMS)]


def settings_of(system: str, settings: RetrievalSettings) -> Mapping[str, Any]:
    """Return the settings of a system.

    "hybrid+cross" is the paper's HybridRerank (BioASQ 8, section 5.1): the best 10 of hybrid search, ordered by the
    cross-encoder of the configured chain alone, which reads whole documents.

    Raises `UsageError` if the chain has no cross-encoder for "hybrid+cross".
    """
    if system != CROSS:
        return SYSTEMS[system]
    stage = next((stage for stage in settings.stages if stage.kind.name == "cross-encoder"), None)
    if stage is None:
        raise UsageError(f"--system {CROSS} orders by a cross-encoder: name one with --reranker {RERANKER}")
    alone = {
        "reranker": f"{stage.kind.prefix}{stage.name}@{REORDERED}",
        "cross_interpolation": 0.0,
        "rerank_whole": True,
    }
    return {"mode": "hybrid", "rerank": True, "k_init": max(settings.k_init, REORDERED), **alone}


def measure_documents(
    batches: Sequence[GoldenBatch], systems: Sequence[str], settings: Settings, out: Path | None, progress: Progress
) -> dict[str, Any]:
    """Return the report of phase A; each system's submissions are written into `out` as its questions are answered.

    Raises `BadInputError` if the index has hardly any of the golden documents; `UsageError` as `settings_of` does.
    """
    changes = {name: settings_of(name, settings.retrieval) for name in systems}
    reranks = any(change["rerank"] for change in changes.values())
    bm25_alone = all(change["mode"] == "bm25" for change in changes.values())
    questions = sum(len(batch.questions) for batch in batches)
    runs = {}
    with (
        open_index(settings.replace(rerank=reranks, mode="bm25" if bm25_alone else "hybrid")) as ready,
        progress("Questions", questions * len(systems)) as advance,
    ):
        covered = coverage(batches, ready.index, ready.manifest.encoder.dimension)
        held, total = (sum(row[key] for row in covered) for key in ("documents_in_index", "documents"))
        judged = JudgedCount(held, total - held)
        refuse_unjudged(judged, ", ".join(batch.name for batch in batches), ready.manifest.name)
        retriever = ready.retriever.with_cache()
        for name in systems:
            runs[name] = answer(batches, retriever.variant(**changes[name]), advance)
            if out:
                for batch in batches:
                    write_submission(out / name / f"{batch.name}.json", batch, runs[name][batch.name])
        index = ready.fingerprint()
        config = {key: value for key, value in ready.settings.public().items() if key not in ("mode", "rerank")}
    if out:
        write_figures(out / PER_QUESTION, question_rows(batches, runs))
    facts = {"index": index, "questions": questions, "coverage": covered, "config": config}
    return {**facts, **report(batches, runs, settings.seed)}


def answer(batches: Sequence[GoldenBatch], retriever: Retriever, on_progress: OnProgress) -> SystemRankings:
    """Return the first ten documents of every question: PMIDs, each once; hits without one are skipped."""
    return {
        batch.name: {
            question.id: documents_of(ranking.hits)
            for question, ranking in search_questions(retriever, batch.questions, DEPTH, on_progress=on_progress)
        }
        for batch in batches
    }


def documents_of(hits: Sequence[Hit]) -> list[str]:
    """Return the PMIDs of the first ten records of a ranking."""
    return list(dict.fromkeys(str(hit.snippet.pmid) for hit in hits if hit.snippet.pmid is not None))[:MOST]


def coverage(batches: Sequence[GoldenBatch], index: Index, dimension: int) -> list[dict[str, Any]]:
    """Return how many golden documents of each batch the index holds; `dimension` is that of its vectors."""
    rows = []
    for batch in batches:
        golden = {document for question in batch.questions for document in question.documents}
        counts = {"documents": len(golden), "documents_in_index": len(held_pmids(index, dimension, golden) & golden)}
        rows.append({"batch": batch.name, "questions": len(batch.questions), **counts})
    return rows


def report(batches: Sequence[GoldenBatch], runs: Mapping[str, SystemRankings], seed: int) -> dict[str, Any]:
    """Return each system's measures by batch with their unweighted mean, and the comparisons of `COMPARED`."""
    scores = {system: _scores(batches, rankings) for system, rankings in runs.items()}
    averages = {
        system: [score.average_precision for batch in scored for score in batch] for system, scored in scores.items()
    }
    return {
        "systems": {system: _system(batches, scored) for system, scored in scores.items()},
        "comparisons": [
            {"ours": ours, "theirs": theirs, **asdict(paired(averages[ours], averages[theirs], seed))}
            for ours, theirs in COMPARED
            if ours in scores and theirs in scores
        ],
    }


def _scores(batches: Sequence[GoldenBatch], rankings: SystemRankings) -> list[list[RankingScore]]:
    """Return the values of each question, by batch."""
    return [
        [score_documents(question.documents, rankings[batch.name][question.id]) for question in batch.questions]
        for batch in batches
    ]


def question_rows(batches: Sequence[GoldenBatch], runs: Mapping[str, SystemRankings]) -> Iterator[QuestionFigures]:
    """Yield every question with its average precision under each system's figures of the report."""
    for batch in batches:
        for question in batch.questions:
            metrics = {
                f"systems.{system}.{figure}.documents.MAP": score_documents(
                    question.documents, rankings[batch.name][question.id]
                ).average_precision
                for system, rankings in runs.items()
                for figure in ("mean", f"batches.{batch.name}")
            }
            yield {"id": question.id, "set": batch.name, "metrics": metrics}


def _system(batches: Sequence[GoldenBatch], scores: Sequence[Sequence[RankingScore]]) -> dict[str, Any]:
    measured = [summary(scored) for scored in scores]
    return {
        "batches": [{"batch": batch.name, "documents": row} for batch, row in zip(batches, measured, strict=True)],
        "mean": {"documents": {name: fmean(row[name] for row in measured) for name in measured[0]}},
    }


def write_submission(path: Path, batch: GoldenBatch, rankings: Mapping[str, Sequence[str]]) -> None:
    """Write the JSON that BioASQ's evaluator takes."""
    rows = [
        {
            "id": question.id,
            "body": question.text,
            "type": question.type,
            "documents": [PUBMED + document for document in rankings[question.id]],
            "snippets": [],
        }
        for question in batch.questions
    ]
    write_json(path, {"questions": rows})
