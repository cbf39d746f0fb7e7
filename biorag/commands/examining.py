"""What the benchmarks of answers share: the option and the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from biorag.commands import show

Answering = Annotated[
    str,
    typer.Option(
        "--answer",
        help="How to answer: extract, generate (by --llm), first-sentence, bm25-sentences, or oracle (the best three "
        "sentences in the evidence).",
    ),
]


def print_report(report: Mapping[str, Any]) -> None:
    """Print the measures of a report as tables."""
    title = f"{report['dataset']}: {report['questions']} questions, {report['answer']}"
    parts = {**report["exact"], "ideal": report["ideal"], "abstention": report["abstention"]}
    rows = [(part, name, value) for part, measures in parts.items() for name, value in _shown(measures or {})]
    show.table(title, ["answers", "measure", "value"], rows)
    sentences = report["sentences"]
    shares = [(name, f"{value:.4f}") for name, value in sentences.items() if isinstance(value, float)]
    show.table(f"{sentences['n']} sentences", ["measure", "value"], shares)


def _shown(measures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of measures, with their intervals."""
    for name, value in measures.items():
        if isinstance(value, Mapping) and value.get("interval"):
            low, high = value["interval"]
            yield name, f"{value.get('mean', value.get('value')):.4f} ({low:.4f} to {high:.4f})"
        elif isinstance(value, (int, float)):
            yield name, f"{value:.4f}" if isinstance(value, float) else str(value)
