"""What the benchmarks of answers share: the option, the run, the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import show
from biorag.engine import OpenIndex, require_generator
from biorag.errors import unknown_name
from biorag.types import OnProgress

if TYPE_CHECKING:
    from biorag.benchmarks.answers.questions import AnswerDataset
    from biorag.benchmarks.answers.systems import AnswerSystem

Answering = Annotated[
    str,
    typer.Option(
        "--answer",
        help="extract, generate (by --llm), first-sentence, bm25-sentences, or oracle (the best three sentences there "
        "are).",
    ),
]


def check_method(answer: str) -> None:
    """Refuse a name that is none of the systems'."""
    from biorag.benchmarks.answers.systems import METHODS

    if answer not in METHODS:
        raise unknown_name("way to answer", answer, METHODS)


def examine(data: AnswerDataset, opened: OpenIndex, answer: str, out: Path, advance: OnProgress) -> dict[str, Any]:
    """Ask a system the questions of a dataset, resuming in `out`, and return the report."""
    from biorag.benchmarks.answers import run
    from biorag.benchmarks.answers.systems import BASELINES

    settings = opened.settings
    estimator = opened.estimator() if answer not in BASELINES else None  # it judges the index, not the system
    determining = {**settings.retrieval.identity(), **(settings.generation.identity() if answer == "generate" else {})}
    directory = run.AnswersRun(out, run.identity(determining, opened, answer, data))
    directory.finished()  # refuses another run's folder before anything is loaded
    examination = run.Examination(_system(answer, opened), opened, estimator)
    rows = examination.ask_all(data, directory, advance)
    run.write_risk_curve(out / "risk-coverage.png", rows)
    return {**run.report(data, rows, estimator, settings.seed), "answer": answer, "config": settings.public()}


def _system(answer: str, opened: OpenIndex) -> AnswerSystem:
    from biorag.answering.answerer import EVIDENCE
    from biorag.benchmarks.answers.systems import BASELINES, GENERATE, answering

    if answer in BASELINES:
        return BASELINES[answer]
    if answer == GENERATE:
        return answering(opened.answerer(require_generator(opened.settings)), GENERATE)
    return answering(opened.answerer(None), EVIDENCE)


def print_report(report: Mapping[str, Any]) -> None:
    """Print the measures of a report as tables."""
    title = f"{report['dataset']}: {report['questions']} questions, {report['answer']}"
    rows = [
        (part, name, value)
        for part, found in (*report["exact"].items(), ("ideal", report["ideal"]), ("abstention", report["abstention"]))
        for name, value in _shown(found or {})
    ]
    show.table(title, ["answers", "measure", "value"], rows)
    sentences = report["sentences"]
    shares = [(name, f"{value:.4f}") for name, value in sentences.items() if isinstance(value, float)]
    show.table(f"{sentences['n']} sentences", ["measure", "value"], shares)


def _shown(found: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the names and values of measures, with intervals where there are."""
    shown = []
    for name, value in found.items():
        if isinstance(value, Mapping) and value.get("interval"):
            low, high = value["interval"]
            shown.append((name, f"{value.get('mean', value.get('value')):.4f} ({low:.4f} to {high:.4f})"))
        elif isinstance(value, float):
            shown.append((name, f"{value:.4f}"))
        elif isinstance(value, int):
            shown.append((name, str(value)))
    return shown
