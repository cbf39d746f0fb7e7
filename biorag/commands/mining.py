"""`biorag mine`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.engine import open_index
from biorag.errors import UsageError, unknown_name
from biorag.settings.settings import Settings

RETRIEVER, CITATION = "retriever", "citation"
# The options that belong to one kind, as they are named in the code.
OWN = {
    CITATION: ("graph", "paths", "path_length", "top", "max_similarity", "exclude_citing"),
    RETRIEVER: ("ranks", "margin", "mode"),
}
RANKS = "1-50"
PER_ROW = 8
PATHS = "Citation walks"


def mine(
    ctx: typer.Context,
    pairs: Annotated[
        list[Path],
        typer.Argument(help="JSONL of query and positive (.gz too), or folders in BEIR layout over the index."),
    ],
    negatives: Annotated[
        str, typer.Option(help="random, bm25, retriever (the index's own encoder's predictions) or citation.")
    ],
    out: Annotated[Path, typer.Option(help="JSONL file to write; an interrupted run resumes.")],
    name: options.Name = None,
    per_row: Annotated[
        int | None,
        typer.Option(
            min=1, help="Negatives of a row, drawn from those that qualify.", show_default=f"{PER_ROW}; citation: all"
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="retriever: FIRST-LAST, the ranks to draw from.", show_default=RANKS)
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="retriever: drop what scores above (1 - margin) · the positive's score."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="retriever: dense or hybrid.", show_default=options.DENSE_MODES[0])
    ] = None,
    graph: options.GraphName = None,
    paths: Annotated[
        int | None, typer.Option(min=1, max=100, help="Paths of a row.", show_default="3", rich_help_panel=PATHS)
    ] = None,
    path_length: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help="Papers on a path, its first one too.", show_default="3", rich_help_panel=PATHS
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Nearest papers to draw the next from.", show_default="5", rich_help_panel=PATHS
        ),
    ] = None,
    max_similarity: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Drop papers with a higher cosine with the positive.", rich_help_panel=PATHS),
    ] = None,
    exclude_citing: Annotated[
        bool, typer.Option("--exclude-citing", help="Drop papers that cite the positive.", rich_help_panel=PATHS)
    ] = False,
    guard: Annotated[
        list[Path] | None, typer.Option(help="Benchmark whose questions must not be trained on. Repeatable.")
    ] = None,
    drop_contaminated: Annotated[
        bool, typer.Option("--drop-contaminated", help="Leave out rows that --guard finds, instead of stopping.")
    ] = False,
    seed: options.Seed = None,
    encoder: options.Encoder = None,
    qdrant: options.Qdrant = None,
    as_json: options.Json = False,
) -> None:
    """Mine negatives: for each pair of query and positive, passages of the index that do not answer the query.

    random draws uniformly over the index. bm25 takes the top 42 by BM25, removes gold and keeps the bottom 32, as in
    the M+C paper. retriever takes the ranks --ranks of dense or hybrid search. citation walks over what the positive
    cites and what that cites, as in the BiCA paper. Every positive of a question is gold.

    Negatives that the pairs already have are left aside. A row for which nothing qualifies is left out and counted.

    Examples:

      biorag mine data/bioasq --negatives bm25 --name pubmed --per-row 32 --out bm25.jsonl

      biorag mine pairs.jsonl --negatives retriever --ranks 10-60 --margin 0.05 --out hard.jsonl --json

      biorag mine pairs.jsonl --negatives citation --graph pubmed --name pubmed --out citation.jsonl

      biorag mine pairs.jsonl --negatives random --guard benchmark.json --drop-contaminated --out random.jsonl
    """
    from biorag.training.contamination import ContaminationPolicy
    from biorag.training.negatives.kinds import plan_of
    from biorag.training.negatives.mining import Walk
    from biorag.training.negatives.run import mine_pairs

    started = time.perf_counter()
    settings = _configured(ctx, negatives)
    steps: dict[str, Any] = {"paths": paths, "length": path_length, "top": top, "max_similarity": max_similarity}
    walk = Walk(exclude_citing=exclude_citing, **{name: value for name, value in steps.items() if value is not None})
    default = None if negatives == CITATION else PER_ROW
    plan = plan_of(negatives, settings.seed, per_row or default, RANKS if ranks is None else ranks, margin, walk)
    if out.is_dir():
        raise UsageError(f"{out} is a folder: name a file to write")
    policy = ContaminationPolicy(tuple(guard or ()), drop_contaminated)
    with open_index(settings) as opened:
        mined = mine_pairs(pairs, plan, opened, policy, out, show.progress)
    report = {"out": str(out), **mined.to_json(), "seconds": round(time.perf_counter() - started, 3)}
    if as_json:
        show.print_json(report)
    else:
        rows = [(key, value) for key, value in report.items() if key not in ("input", "matches")]
        show.table(f"{plan.kind} negatives", ["", ""], rows)


def _configured(ctx: typer.Context, kind: str) -> Settings:
    """Return the configuration of the first stage that a kind needs; none of them reranks."""
    from biorag.training.negatives.kinds import KINDS

    if kind not in KINDS:
        raise unknown_name("kind of negatives", kind, KINDS)
    for owner, names in OWN.items():
        for option in names:
            given = ctx.params[option]
            if owner != kind and given is not None and given is not False:
                flag = option.replace("_", "-")
                raise UsageError(f"--{flag} belongs to --negatives {owner}: leave it out for {kind}")
    mode = ctx.params["mode"]
    if kind == RETRIEVER:
        return options.configured(ctx, mode=options.dense_mode(mode), rerank=False)
    return options.configured(ctx, mode="bm25", rerank=False)
