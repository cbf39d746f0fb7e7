"""`biorag bench similarity`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.engine import open_index
from biorag.settings.settings import Settings


@expanded
def similarity(
    dataset: Annotated[Path, Argument(help="Folder with queries.jsonl and qrels/test.tsv (BEIR layout).")],
    settings: Annotated[Settings, options.INDEX, Flags("seed", "precision")],
    plot: options.Plot = None,
    as_json: options.Json = False,
) -> None:
    """Compare the cosines of questions with relevant snippets to those with others, drawn at random.

    The further apart both are, the better the encoder of the index tells what is relevant.

    Examples:

      biorag bench similarity data/scifact --name scifact
      biorag bench similarity data/scifact --name scifact --plot runs/plots --json
    """
    from biorag.benchmarks.similarity import measure_similarity
    from biorag.corpus.datasets import load_dataset

    data = load_dataset(dataset)
    searching = settings.replace(mode="dense", rerank=False)
    with open_index(searching) as opened, show.progress("Pairs", None) as advance:
        report = measure_similarity(data, opened.index, opened.load_encoder(), settings.seed, advance)
    show.result(report, as_json, _print)
    show.pictures("similarity", report, plot)


def _print(report: Mapping[str, Any]) -> None:
    columns = {"pair": "pair", "pairs": "pairs", **{name: f"{{{name}:.3f}}" for name in ("mean", "std", "p5", "p95")}}
    rows = [{"pair": kind, **report[kind]} for kind in ("positive", "negative")]
    show.listing(f"{report['dataset']}: cosines", columns, rows)
    show.err.print(f"Apart by {report['separation']:.3f}; a relevant one is larger in {report['auc']:.1%} of all pairs")
