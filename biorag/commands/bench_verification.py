"""`biorag bench verification`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.settings.settings import Settings


@expanded
def verification(
    dataset: Annotated[Path, typer.Argument(help="Folder with queries.jsonl, qrels/ and answers.jsonl[.gz].")],
    out: Annotated[Path, typer.Option(help="Folder for claims.jsonl and report.json; an interrupted run resumes.")],
    settings: Annotated[Settings, Flags("name", "qdrant", "seed", finds_index=True)],
    half: Annotated[str, typer.Option(help="all, development or test questions, by a hash of their ids.")] = "all",
    verifier: options.Verifier = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Largest number of questions.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure how well the check of claims tells true sentences from falsified ones.

    The true ones are sentences of the snippets that the ideal answers repeat, verbatim and slightly reworded. Each is
    falsified in up to three of seven ways: negation, direction, number, unit, name, hedge, population; and a true
    sentence of another question is held against snippets that do not say it. Reported for comparison: the answers'
    sentences as they were written, which need not stand in any one snippet.

    Examples:

      biorag bench verification data/bioasq --name pubmed --half test --out runs/verification
      biorag bench verification data/pubmedqa --name pubmed --limit 100 --out runs/conclusions --json
    """
    from biorag.benchmarks.verification import claims, run
    from biorag.engine import load_checker, open_stored
    from biorag.utils.files import write_json

    checker = load_checker(verifier, settings)
    with open_stored(settings) as (manifest, index):
        todo = claims.read_claims(dataset, index.fetch, half, settings.seed, limit)
        fingerprint = manifest.fingerprint()
    config = {"half": half, "limit": limit, "seed": settings.seed}
    identity = {"dataset": dataset.resolve().name, "index": fingerprint, **config, "verifier": checker.identity()}
    with show.progress("Claims", len(todo)) as advance:
        rows = run.judge_all(out, identity, todo, checker, advance)
    report = run.report(rows, dataset.resolve().name, {**config, "verifier": verifier}, settings.seed)
    write_json(out / "report.json", report)
    show.result(report, as_json, _print)


def _print(report: Mapping[str, Any]) -> None:
    columns = ["kind", "claims", "supported", "unsupported", "contradicted", "accuracy", "95 %"]
    rows = [
        (
            kind,
            shares["claims"],
            *(f"{shares[column]:.1%}" for column in ("supported", "unsupported", "contradicted", "accuracy")),
            "{:.1%} to {:.1%}".format(*shares["interval"]),
        )
        for kind, shares in report["kinds"].items()
    ]
    show.table(f"{report['dataset']}: {report['claims']} claims", columns, rows)
