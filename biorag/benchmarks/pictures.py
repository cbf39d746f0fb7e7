"""Plots of the reports of `biorag bench`, for `--plot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from biorag.benchmarks.similarity import EDGES
from biorag.utils.plots import Interval, IntervalPanel, LinePanel, Panel, StackPanel

Report = Mapping[str, Any]


def accuracies(report: Report) -> list[Panel]:
    """Return MIRAGE's accuracies by task with their intervals, and beside each what guessing has."""
    tasks = report["tasks"]
    right = [Interval(score["accuracy"], *score["interval"]) for score in tasks.values()]
    guessed = [Interval(score["chance"]) for score in tasks.values()]
    return [IntervalPanel("MIRAGE", "accuracy", list(tasks), {"accuracy": right, "by chance": guessed})]


def measures(report: Report) -> list[Panel]:
    """Return the measures of retrieval, and how far each is from another run's, where there is one to compare with."""
    metrics = report["metrics"]
    means = {"": [Interval(value) for value in metrics.values()]}
    panels: list[Panel] = [IntervalPanel(report["dataset"], "mean over questions", list(metrics), means, bars=True)]
    if comparison := report.get("comparison"):
        tests = comparison["measures"]
        gains = [Interval(test["difference"], test["low"], test["high"]) for test in tests.values()]
        panels.append(IntervalPanel(f"Against {comparison['run']}", "difference", list(tests), {"": gains}, line=0.0))
    return panels


def stages(report: Report) -> list[Panel]:
    """Return the milliseconds of one question, by stage, of biorag and of the baselines that were timed."""
    timed, mode = report["stages"], report["settings"]["mode"]
    milliseconds = {
        "encode": timed["encode_queries"].get("1", {}).get("mean", 0.0) * (mode != "bm25"),
        "first stage": timed["first_stage"][mode].get("1", {}).get("mean", 0.0),
        "rerank": (timed["rerank"] or {}).get("mean", 0.0),
        "fetch": timed["fetch"]["mean"],
        "generate": ((timed["generation"] or {}).get("generate") or {}).get("mean", 0.0),
    }
    shown = {name: value for name, value in milliseconds.items() if value}
    rows, table = [f"biorag, {mode}"], {name: [value] for name, value in shown.items()}
    for name, kind, timing in (
        ("rank_bm25", "first stage", timed["first_stage"].get("rank_bm25", {}).get("1")),
        ("colbert-ai", "rerank", timed["rerank_colbert_ai"]),
    ):
        if timing:
            rows.append(name)
            table = {stage: [*values, timing["mean"] if stage == kind else 0.0] for stage, values in table.items()}
    return [StackPanel("One question", "milliseconds", rows, table)]


def certainty(report: Report) -> list[Panel]:
    """Return risk by coverage, and how often evidence of a probability answers; none without questions to withhold."""
    if not (abstention := report["abstention"]):
        return []
    risk = {"in the order of the estimate": abstention["risk_coverage"]}
    reliable = {"questions": abstention["reliability"]}
    return [
        LinePanel("Risk and coverage", "share answered", "share of these without evidence", risk),
        LinePanel("Reliability", "probability of an answer", "share with evidence", reliable, diagonal=True),
    ]


def distributions(report: Report) -> list[Panel]:
    """Return how cosines of relevant and of other snippets are distributed, as shares of pairs."""
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    lines = {
        kind: [
            (float(x), count / report[kind]["pairs"]) for x, count in zip(centres, report[kind]["bars"], strict=True)
        ]
        for kind in ("positive", "negative")
    }
    return [LinePanel(report["dataset"], "cosine of question and snippet", "share of pairs", lines)]


PICTURES: Mapping[str, Callable[[Report], Sequence[Panel]]] = {
    "mirage": accuracies,
    "retrieval": measures,
    "latency": stages,
    "answers": certainty,
    "similarity": distributions,
}
