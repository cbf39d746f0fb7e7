"""`biorag bench answers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.engine import OpenIndex, open_index, require_generator
from biorag.errors import unknown_name
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
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


@expanded
def answers(
    dataset: Annotated[
        Path, typer.Argument(help="Folder with queries.jsonl, qrels/test.tsv and answers.jsonl, plain or gzipped.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the answers and report.json; an interrupted run resumes.")],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted")),
        options.GENERATOR,
        Flags("max_tokens", "prompt", "evidence_threshold", "seed"),
    ],
    answer: Answering = "extract",
    limit: Annotated[int | None, typer.Option(min=1, help="Questions, drawn with --seed.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure answers on questions that experts answered: BioASQ's measures, citations, abstention.

    Exact answers: accuracy and macro F1 of yes/no, accuracy and MRR of factoids, F1 of lists. Ideal answers: ROUGE-2
    and ROUGE-SU4. Sentences: which the evidence supports, and ALCE's citation recall and precision. Abstention: how
    the estimate tells a question from the same one without its gold documents. No answer is withheld here.

    Examples:

      biorag bench answers data/bioasq --name pubmed --out runs/extract

      biorag bench answers data/bioasq --answer generate --llm starter --limit 200 --out runs/starter --json
    """
    from biorag.benchmarks.answers import questions
    from biorag.utils.files import write_json

    check_method(answer)
    data = questions.sample(questions.load_answers(dataset), limit, settings.seed)
    with open_index(settings) as opened, show.progress("Questions", len(data.questions)) as advance:
        report = examine(data, opened, answer, out, advance)
    write_json(out / "report.json", report)
    if as_json:
        show.print_json(report)
    else:
        print_report(report)


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
