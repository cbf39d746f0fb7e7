"""`biorag mine`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.graph import GraphName
from biorag.engine import OpenIndex, encoder_files, load_encoder, open_index
from biorag.errors import UsageError, unknown_name
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.contamination import Match
    from biorag.training.negatives.citation import CitedPapers
    from biorag.training.negatives.mining import MiningPlan
    from biorag.training.negatives.triplets import MiningReport
    from biorag.types import Encoder, TrainingRow

RETRIEVER, CITATION = "retriever", "citation"
# The options that belong to one kind, as they are named in the code.
OWN = {
    CITATION: ("graph", "paths", "path_length", "top", "max_similarity", "exclude_citing"),
    RETRIEVER: ("ranks", "margin", "mode"),
}
MODES = ("dense", "hybrid")
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
    mode: Annotated[str | None, typer.Option(help="retriever: dense or hybrid.", show_default=MODES[0])] = None,
    graph: GraphName = None,
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
    from biorag.training.rows import read_rows

    started = time.perf_counter()
    settings = _configured(ctx, negatives)
    plan = _plan(ctx, settings)
    if out.is_dir():
        raise UsageError(f"{out} is a folder: name a file to write")
    with open_index(settings) as ready:
        rows, cleaning = read_rows(pairs, ready.index.fetch)
        clean, matches = kept_out(rows, guard, drop_contaminated)
        papers = _papers(clean, plan, settings, ready)
        counts = _mined(clean, plan, settings, ready, papers, out)
    report = {
        "out": str(out),
        "kind": plan.kind,
        **asdict(counts),
        "per_row_mean": round(counts.negatives / counts.rows, 2) if counts.rows else 0.0,
        **({"reach": asdict(papers.reach(clean))} if papers else {}),
        "contaminated": len(rows) - len(clean),
        "matches": [asdict(match) for match in matches],
        "input": asdict(cleaning),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if as_json:
        show.print_json(report)
    else:
        show.table(
            f"{plan.kind} negatives", ["", ""], [row for row in report.items() if row[0] not in ("input", "matches")]
        )


def kept_out(
    rows: Sequence[TrainingRow], guards: Sequence[Path] | None, drop: bool
) -> tuple[list[TrainingRow], list[Match]]:
    """Return the rows without questions of the guarded benchmarks, and what matched; if not to drop, list and stop."""
    from biorag.training.contamination import ContaminationError, Guard, guarded

    if not guards:
        if drop:
            raise UsageError("--drop-contaminated needs --guard FILE: name the benchmark to keep out")
        return list(rows), []
    try:
        return guarded(rows, Guard(guards), drop)
    except ContaminationError as error:
        for match in error.matches:
            show.err.print(f"{match.similarity:.2f}  {match.query}", soft_wrap=True)
        raise


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
        if mode is not None and mode not in MODES:
            raise unknown_name("--mode", mode, MODES)
        return options.configured(ctx, mode=mode or MODES[0], rerank=False)
    return options.configured(ctx, mode="bm25", rerank=False)


def _plan(ctx: typer.Context, settings: Settings) -> MiningPlan:
    from biorag.training.negatives.mining import MiningPlan, Walk
    from biorag.training.negatives.retriever import parse_ranks

    asked = ctx.params
    kind, per_row = asked["negatives"], asked["per_row"]
    if kind == CITATION:
        names = {"paths": "paths", "length": "path_length", "top": "top", "max_similarity": "max_similarity"}
        given = {field: asked[option] for field, option in names.items() if asked[option] is not None}
        return MiningPlan(kind, per_row, settings.seed, walk=Walk(exclude_citing=asked["exclude_citing"], **given))
    text = RANKS if asked["ranks"] is None else asked["ranks"]
    ranks = parse_ranks(text) if kind == RETRIEVER else None
    return MiningPlan(kind, PER_ROW if per_row is None else per_row, settings.seed, ranks, asked["margin"])


def _papers(rows: Sequence[TrainingRow], plan: MiningPlan, settings: Settings, ready: OpenIndex) -> CitedPapers | None:
    """Return the positives' neighbourhoods; None for a kind that needs none."""
    if plan.walk is None:
        return None
    from biorag.citation_graph.graph import open_graph
    from biorag.training.negatives.citation import CitedPapers

    return CitedPapers(open_graph(settings), ready.index, rows, plan.walk.exclude_citing)


def _mined(
    rows: Sequence[TrainingRow],
    plan: MiningPlan,
    settings: Settings,
    ready: OpenIndex,
    papers: CitedPapers | None,
    out: Path,
) -> MiningReport:
    """Mine what is not mined yet."""
    from biorag.training.negatives import mining
    from biorag.training.negatives.kinds import KINDS, Collaborators
    from biorag.training.negatives.retriever import require_positives
    from biorag.training.negatives.triplets import TripletFile

    file = TripletFile(out, _identity(rows, plan, settings, ready, papers))
    if counts := file.finished():
        return counts
    if plan.margin is not None:
        require_positives(ready.index, rows)

    def encoder() -> Encoder:
        return load_encoder(
            encoder_files(settings, ready.manifest), ready.manifest.similarity, settings.retrieval.precision
        )

    kind = KINDS[plan.kind](plan, Collaborators(ready.index, ready.retriever, rows, encoder, papers))
    with show.progress("Mining", len(rows)) as advance:
        return mining.mine(rows, kind, plan, file, advance)


def _identity(
    rows: Sequence[TrainingRow], plan: MiningPlan, settings: Settings, ready: OpenIndex, papers: CitedPapers | None
) -> dict[str, Any]:
    """Return what determines the mined file."""
    from biorag.training.negatives.triplets import fingerprint
    from biorag.utils.versions import installed_versions

    return {
        **asdict(plan),
        **settings.retrieval.first_stage(),
        "index": ready.fingerprint(),
        "graph": papers and papers.graph.manifest.sha256,
        "pairs": fingerprint(rows),
        "versions": installed_versions(),
    }
