"""Retrieval measured on BEIR-layout questions, by ir-measures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
from ir_measures import AP, RR, R, Success, nDCG

from biorag.corpus.datasets import Dataset, Qrels
from biorag.pipeline import Retriever
from biorag.types import Condition, OnProgress

DEPTH = 100
CUTOFFS = (3, 5, 10, 20, 100)
# "success@k", at least one relevant snippet in the top k, is what the M+C paper calls Recall@k.
MEASURES = {
    "nDCG@10": nDCG @ 10,
    "MAP@10": AP @ 10,
    "MRR@10": RR @ 10,
    **{f"success@{k}": Success @ k for k in CUTOFFS},
    **{f"R@{k}": R @ k for k in CUTOFFS},
}
TAG = "biorag"


@dataclass(frozen=True, slots=True)
class Measured:
    """Rankings of a dataset (question -> snippet ids, best first) and what they come to."""

    dataset: Dataset
    run: Mapping[str, Sequence[str]]
    metrics: Mapping[str, float]
    per_question: Mapping[str, Mapping[str, float]]
    timings_ms: Mapping[str, Mapping[str, float]]


def _summary(milliseconds: Sequence[float]) -> dict[str, float]:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {
        "mean": round(float(np.mean(milliseconds)), 3),
        "p50": round(float(p50), 3),
        "p95": round(float(p95), 3),
    }


def measure(dataset: Dataset, retriever: Retriever, where: tuple[Condition, ...], on_progress: OnProgress) -> Measured:
    """Retrieve the top 100 for each question and compute the measures and the milliseconds of each stage.

    A question for which nothing is found counts with zeros.
    """
    run: dict[str, list[str]] = {}
    stages: dict[str, list[float]] = {}
    for question in dataset.questions:
        ranking = retriever.search(question.text, DEPTH, where)
        run[question.id] = [hit.snippet.id for hit in ranking.hits]
        for stage, milliseconds in ranking.timings_ms.items():
            stages.setdefault(stage, []).append(milliseconds)
        on_progress(1)
    metrics, per_question = evaluate(dataset.qrels, run)
    return Measured(dataset, run, metrics, per_question, {stage: _summary(times) for stage, times in stages.items()})


def evaluate(qrels: Qrels, run: Mapping[str, Sequence[str]]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the measures over all questions of `qrels`, and for each of them.

    Parameters
    ----------
    qrels : question -> snippet -> relevance
    run : question -> snippet ids, best first
    """
    scored = {question: dict(zip(ids, run_scores(len(ids)), strict=True)) for question, ids in run.items()}
    names = {measure: name for name, measure in MEASURES.items()}
    per_question: dict[str, dict[str, float]] = {question: dict.fromkeys(MEASURES, 0.0) for question in qrels}
    for metric in ir_measures.iter_calc(list(MEASURES.values()), qrels, scored):
        per_question[metric.query_id][names[metric.measure]] = float(metric.value)
    metrics = {name: float(np.mean([values[name] for values in per_question.values()])) for name in MEASURES}
    return metrics, per_question


def run_scores(length: int) -> list[float]:
    """Return falling scores for a ranking: 1/rank.

    Reranked hits and the first-stage hits below them are on different scales, so a run file holds these.
    """
    return [round(1.0 / rank, 9) for rank in range(1, length + 1)]


def write_run(path: Path, run: Mapping[str, Sequence[str]]) -> None:
    """Write a TREC run file: `qid Q0 docid rank score tag`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        for question, ids in run.items():
            for rank, (id, score) in enumerate(zip(ids, run_scores(len(ids)), strict=True), 1):
                stream.write(f"{question} Q0 {id} {rank} {score} {TAG}\n")


def write_per_question(path: Path, measured: Measured) -> None:
    """Write one JSON line per question: its text, its measures and its top ten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        for question in measured.dataset.questions:
            row: dict[str, Any] = {
                "id": question.id,
                "text": question.text,
                "metrics": measured.per_question[question.id],
                "top": measured.run[question.id][:10],
            }
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
