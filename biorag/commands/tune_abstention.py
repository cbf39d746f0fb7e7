"""`biorag tune abstention`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.engine import open_index
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.outputs import begins_with_key, is_plot, results_folder


@expanded
def abstention(
    dataset: Annotated[list[Path], typer.Argument(help="Folders in BEIR layout, whose snippets the index holds.")],
    out: Annotated[Path, typer.Option(help="Folder of the coefficients, report.json and the curves.")],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "mode", "k", "include_retracted")),
        Flags("seed"),
    ],
    outside: Annotated[
        list[Path] | None,
        typer.Option(help="JSONL file of questions (_id, text) that the index cannot answer. Repeatable."),
    ] = None,
    report_share: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="Share of the questions to report on; the rest is fitted on.")
    ] = 0.5,
    write: Annotated[
        bool, typer.Option("--write/--no-write", help="Store the coefficients beside the index, where ask uses them.")
    ] = True,
    as_json: options.Json = False,
) -> None:
    """Fit when ask withholds an answer, on questions with their gold snippets in the index and out of it.

    Each question is searched twice: as it is, and without the documents of its gold snippets. A logistic regression
    over the scores tells the two apart, isotonic regression makes its output a probability, and the threshold is the
    one that answers 90 % of the answerable questions. Measures are those of questions that were not fitted on.

    Examples:

      biorag tune abstention data/bioasq data/pubmedqa --name pubmed --out runs/abstention

      biorag tune abstention data/bioasq --outside elsewhere.jsonl --out runs/abstention --no-write --json
    """
    from biorag.answering.abstention.estimator import FILE
    from biorag.benchmarks.tuning import abstention as tuning
    from biorag.corpus.datasets import load_dataset
    from biorag.utils.files import write_json
    from biorag.utils.plots import require_matplotlib

    require_matplotlib()
    data = tuning.AbstentionData([load_dataset(path) for path in dataset], tuning.read_outside(outside or ()))
    files = {FILE: begins_with_key("format"), "report.json": begins_with_key("questions"), "curves.png": is_plot}
    with (
        results_folder(out, files, [*dataset, *(outside or ())]),
        open_index(settings.replace(mode="hybrid")) as opened,
    ):
        with show.progress("Questions", data.searches) as advance:
            parts = tuning.split(tuning.examples(data, opened, advance), report_share, settings.seed)
        command = " ".join(
            ["biorag tune abstention", *(path.name for path in dataset), *_flags(outside, report_share, settings)]
        )
        found = tuning.coefficients(parts, opened, data.names, command)
        report = {
            **tuning.report(found, parts.reported, settings.seed),
            "config": settings.public(),
            "command": command,
        }
        found.save(out / FILE)
        if write:
            found.save(opened.folder / FILE)
        report["written"] = str(opened.folder / FILE) if write else None
        tuning.write_curves(out / "curves.png", found, parts.reported)
        write_json(out / "report.json", report)
    if as_json:
        show.print_json(report)
    else:
        _print(report)


def _flags(outside: list[Path] | None, report_share: float, settings: Settings) -> list[str]:
    files = [f"--outside {path.name}" for path in outside or ()]
    return [*files, f"--report-share {report_share:g}", f"--seed {settings.seed}"]


def _print(report: Mapping[str, Any]) -> None:
    rows = [
        (part, name, f"{found['value']:.4f}", " to ".join(f"{end:.4f}" for end in found["interval"] or ()))
        for part, measures in report["measures"].items()
        for name, found in measures.items()
    ]
    show.table("Questions that were not fitted on", ["questions", "measure", "value", "95 % interval"], rows)
    answered = [(name, f"{share:.1%}") for name, share in report["answered"].items()]
    show.table(f"Answered at the threshold of {report['threshold']:.3f}", ["questions", "share"], answered)
    if report["written"]:
        show.err.print(f"the coefficients are written to {report['written']}", soft_wrap=True)
