"""`biorag bench answers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings

Answering = Annotated[
    str,
    typer.Option(
        "--answer",
        help="How to answer: extract, generate (by --llm), first-sentence, bm25-sentences, or oracle (the best three "
        "sentences in the evidence).",
    ),
]


@expanded
def answers(
    dataset: Annotated[Path, typer.Argument(help="Folder with queries.jsonl, qrels/test.tsv, answers.jsonl[.gz].")],
    out: Annotated[Path, typer.Option(help="Folder for the answers and report.json; an interrupted run resumes.")],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted")),
        options.GENERATOR,
        Flags("max_tokens", "prompt", "evidence_threshold", "seed"),
    ],
    answer: Answering = "extract",
    limit: Annotated[int | None, typer.Option(min=1, help="Number of questions, drawn with --seed.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure answers on questions that experts answered: BioASQ's measures, citations, abstention.

    Exact answers: accuracy and macro F1 of yes/no, accuracy and MRR of factoids, F1 of lists. Ideal answers: ROUGE.
    Sentences: the share that the evidence supports, and ALCE's citation recall and precision. Abstention: how well the
    estimate tells a question from the same one without its gold documents. No answer is withheld.

    Examples:

      biorag bench answers data/bioasq --name pubmed --out runs/extract
      biorag bench answers data/bioasq --answer generate --llm starter --limit 200 --out runs/starter --json
    """
    from biorag.benchmarks.answers import questions, run, systems
    from biorag.engine import open_index
    from biorag.utils.files import write_json

    systems.check_method(answer)
    data = questions.sample(questions.load_answers(dataset), limit, settings.seed)
    with open_index(settings) as opened, show.progress("Questions", len(data.questions)) as advance:
        report = run.examine(data, opened, answer, out, advance)
    write_json(out / "report.json", report)
    show.result(report, as_json, print_report)


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
