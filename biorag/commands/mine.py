"""`biorag mine`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import RESUMED
from biorag.engine import open_index
from biorag.errors import UsageError, check_name, unknown_name
from biorag.registries import NEGATIVES, NegativesKind, mined_negatives
from biorag.settings.settings import Settings
from biorag.utils.registry import or_list


def _defaults() -> str:
    """Return how many negatives of a row each kind keeps."""
    return "; ".join(f"{name}: {NEGATIVES[name].per_row or 'all'}" for name in mined_negatives())


PairFiles = Annotated[
    list[Path], typer.Argument(help="JSONL of query and positive (.gz too), or folders in BEIR layout over the index.")
]
MinedKind = Annotated[
    str,
    typer.Option(
        "--negatives",
        help=f"{or_list(f'{name} ({NEGATIVES[name].summary})' for name in mined_negatives())}.",
        **choices(mined_negatives()),
    ),
]


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Which of the retriever's passages to draw from."""

    ranks: Annotated[str, typer.Option(help="retriever: FIRST-LAST, the ranks to draw from.")] = "1-50"
    margin: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="retriever: drop passages scoring above (1 - margin) · the positive's score."),
    ] = None
    mode: Annotated[
        str | None, typer.Option(help="retriever: dense or hybrid.", show_default=options.DENSE_MODES[0])
    ] = None


@dataclass(frozen=True, slots=True)
class Mined:
    """Where the rows go, and how many negatives of each are kept."""

    out: Annotated[Path, typer.Option(help="JSONL file to write; an interrupted run resumes."), RESUMED]
    per_row: Annotated[
        int | None,
        typer.Option(min=1, help="Negatives of a row, drawn from those that qualify.", show_default=_defaults()),
    ] = None
    as_json: options.Json = False


@dataclass(frozen=True, slots=True)
class Walks:
    """How the citation graph is walked."""

    paths: Annotated[int, typer.Option(min=1, max=100, help="Paths of a row.")] = 3
    path_length: Annotated[int, typer.Option(min=1, max=100, help="Papers on a path, the first included.")] = 3
    top: Annotated[int, typer.Option(min=1, max=1000, help="Nearest papers to draw the next from.")] = 5


@expanded
def mine(
    pairs: PairFiles,
    negatives: MinedKind,
    mined: Mined,
    settings: Annotated[Settings, Flags("name", "graph", "seed", "encoder", "qdrant", finds_index=True)],
    line: CommandLine,
    ranked: RankOptions,
    walks: Annotated[Walks, "Citation walks"],
    contamination: options.Contamination,
) -> None:
    """Mine negatives: for each pair of query and positive, passages of the index that do not answer the query.

    random draws uniformly over the index. bm25 takes the top 42 by BM25, removes gold and keeps the bottom 32, as in
    the M+C paper; bm25-hits takes the top 10 without gold, as in the BioASQ 8 paper. retriever takes the ranks --ranks
    of dense or hybrid search. citation walks over papers one or two citations from the positive, as in the BiCA paper.
    Every positive of a question is gold.

    Negatives that the pairs already have are ignored. A row without a qualifying passage is left out and counted.

    Examples:

      biorag mine data/bioasq --negatives bm25 --name pubmed --per-row 32 --out bm25.jsonl
      biorag mine pairs.jsonl --negatives citation --graph pubmed --name pubmed --out citation.jsonl
      biorag mine pairs.jsonl --negatives retriever --ranks 10-60 --margin 0.05 --out hard.jsonl --json
    """
    from biorag.training.citation_walks import Walk
    from biorag.training.mining import mine_pairs, plan_of

    kind = _kind(negatives, ranked.mode, line.parameters)
    walk, per_row = Walk(walks.paths, walks.path_length, walks.top), mined.per_row or kind.per_row
    plan = plan_of(negatives, settings.seed, per_row, ranked.ranks, ranked.margin, walk)
    searched = settings.replace(mode=ranked.mode or kind.modes[0], rerank=False)

    def work() -> dict[str, Any]:
        with open_index(searched) as opened:
            return mine_pairs(pairs, plan, opened, contamination.policy, mined.out, show.progress)

    show.outcome(f"{plan.kind} negatives", mined.out, work, mined.as_json, hidden=("input", "matches"))


def _kind(name: str, mode: str | None, parameters: Collection[str]) -> NegativesKind:
    """Return the kind of negatives of a name.

    Raises UsageError if it is not known, does not search in the mode, or parameters belong to another kind.
    """
    if name in NEGATIVES and NEGATIVES[name].in_batch:
        raise UsageError(
            f"{name} negatives are the passages of the other rows of a batch, so none are mined: give the pairs "
            f"themselves to 'biorag train retriever PAIRS --negatives {name}'"
        )
    check_name("kind of negatives", name, mined_negatives())
    kind = NEGATIVES[name]
    for owner in NEGATIVES.values():
        for option in owner.options:
            if option in parameters and option not in kind.options:
                flag = option.replace("_", "-")
                raise UsageError(f"--{flag} belongs to --negatives {owner.name}: leave it out for {name}")
    if mode is not None and mode not in kind.modes:
        raise unknown_name("--mode", mode, kind.modes)
    return kind
