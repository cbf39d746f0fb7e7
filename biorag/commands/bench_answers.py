"""`biorag bench answers` and `biorag bench verification`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.errors import check_name
from biorag.settings.settings import Settings
from biorag.utils.files import write_json


@expanded
def answers(
    dataset: Annotated[
        Path,
        Argument(help="Folder with queries.jsonl, qrels/test.tsv, answers.jsonl[.gz]; or BioASQ's golden file."),
    ],
    out: Annotated[Path, Option(help="Folder for the answers and report.json; an interrupted run resumes."), FOLDER],
    settings: Annotated[
        Settings,
        options.INDEX,
        options.RANKING,
        options.WEIGHTS,
        options.GENERATOR,
        options.READER,
        Flags("max_tokens", "prompt", "seed"),
    ],
    answer: Annotated[str, Option(help="How to answer: extract, or generate (by --llm).")] = "extract",
    limit: Annotated[int | None, Option(min=1, help="Number of questions, drawn with --seed.")] = None,
    plot: options.Plot = None,
    as_json: options.Json = False,
) -> None:
    """Measure answers on questions that experts answered: BioASQ's measures, citations, abstention.

    Yes, no and ideal answers are scored as BioASQ does, sentences by their support in the evidence, abstention by how
    well it tells a question from the same one without its gold documents. No answer is withheld.

    Examples:

      biorag bench answers data/bioasq --name pubmed --out runs/extract
      biorag bench answers 8B1_golden.json --name pubmed --out runs/8B1
      biorag bench answers data/bioasq --answer generate --llm starter --limit 200 --out runs/starter --json
    """
    from biorag.benchmarks.answers import METHODS, examine
    from biorag.benchmarks.golden import load_answers
    from biorag.engine import open_index

    check_name("way to answer", answer, METHODS)
    data = load_answers(dataset).sample(limit, settings.seed)
    with open_index(settings) as opened, show.progress("Questions", len(data.questions)) as advance:
        report = examine(data, opened, answer, out, advance)
    write_json(out / "report.json", report)
    show.result(report, as_json, _print_report)
    show.pictures("answers", report, plot)


def _print_report(report: Mapping[str, Any]) -> None:
    """Print the measures of a report, means with their intervals."""
    named = {**report["exact"], "ideal": report["ideal"], "sentences": report["sentences"]}
    sections = {**named, "abstention": report["abstention"]}
    rows = [
        (section, name, _shown(value)) for section, values in sections.items() for name, value in (values or {}).items()
    ]
    how = f"{report['answer']}, reader {report['config']['reader']}"
    title = f"{report['dataset']}: {report['questions']} questions, {how}"
    show.table(title, ["answers", "measure", "value"], [row for row in rows if row[2]])


def _shown(value: Any) -> str:
    """Return a measure's value, with its interval if it has one; empty for other values."""
    if isinstance(value, Mapping) and value.get("interval"):
        low, high = value["interval"]
        return f"{value.get('mean', value.get('value')):.4f} ({low:.4f} to {high:.4f})"
    return f"{value:.4f}" if isinstance(value, float) else str(value) if isinstance(value, int) else ""


@expanded
def verification(
    sets: Annotated[
        list[Path],
        Argument(help="JSONL files, gzipped or not, of claims that people labelled."),
    ],
    out: Annotated[Path, Option(help="Folder for claims.jsonl and report.json; an interrupted run resumes."), FOLDER],
    settings: Annotated[Settings, Flags("name", "qdrant", "seed", "reader", "reader_model", finds_index=True)],
    limit: Annotated[int | None, Option(min=1, help="Maximum number of claims per file.")] = None,
    weighed: Annotated[bool, Option("--weigh", help="Find the evidence in the index, as 'biorag weigh' does.")] = False,
    as_json: options.Json = False,
) -> None:
    """Measure how well the check of claims tells true ones from false ones.

    Rows have id, claim, title, sentences and label (supports, contradicts, neither).

    Examples:

      biorag bench verification claims/scifact.jsonl.gz claims/check_covid.jsonl.gz --out runs/people
      biorag bench verification claims/scifact.jsonl.gz --weigh --name scifact --out runs/weighed
    """
    from biorag.benchmarks.verification import examine
    from biorag.benchmarks.weighing import examine_weighing

    measure = examine_weighing if weighed else examine
    report = measure(sets, settings, limit, out, show.progress)
    write_json(out / "report.json", report)
    show.result(report, as_json, _print_verdicts)


def _print_verdicts(report: Mapping[str, Any]) -> None:
    if "weighing" in report:
        _print_weighed(report)
    else:
        for name, measured in report["sets"].items():
            _print_set(name, measured)


def _print_weighed(report: Mapping[str, Any]) -> None:
    columns = {
        **{"precision": "{precision:.3f}", "recall": "{recall:.3f}", "F1": "{f1:.3f}"},
        **{f"{side} recall@3": f"{{{side}[recall@3]:.3f}}" for side in ("supporting", "opposing")},
        "weighted MRR": "{weighted_MRR:.3f}",
    }
    show.listing(f"{report['claims']} claims, weighed", columns, [report["weighing"]])


def _print_set(name: str, measured: Mapping[str, Any]) -> None:
    """Print the measures of a set of labelled claims: a line a label, then of all, then of guesses without reading."""
    labels, floor = measured["labels"], measured["floor"]
    rows = [
        [label, of["claims"], *(f"{of[score]:.3f}" for score in ("precision", "recall", "f1")), *of["called"].values()]
        for label, of in labels.items()
    ]
    low, high = measured["interval"]
    points = {"as called": measured["support"], "at most 3 % false": measured.get("support_at_3_percent")}
    values = {
        "macro-F1": f"{measured['macro_f1']:.3f} ({low:.3f} to {high:.3f})",
        f"macro-F1, always {floor['label']!r}": f"{floor['always']:.3f}",
        "macro-F1, drawn by base rates": f"{floor['base_rates']:.3f}",
        **{
            f"supports found, {how}": f"{point['recall']:.1%}, with {point['false_support']:.1%} of the others"
            for how, point in points.items()
            if point
        },
    }
    if calibration := measured.get("calibration"):
        values["calibration error"] = f"{calibration['error']:.3f} of {calibration['claims']} with probabilities"
    called = [f"called {label}" for label in labels]
    show.table(f"{name}: {measured['claims']} claims", ["label", "claims", "precision", "recall", "F1", *called], rows)
    show.table(f"{name}: all labels", ["", ""], list(values.items()))
