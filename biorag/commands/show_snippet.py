"""`biorag show`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from biorag.commands import options, show, show_answer
from biorag.commands.groups import CommandLine, Flags, expanded, is_named, with_index
from biorag.corpus.sentences import terms
from biorag.settings.settings import Settings

DIGITS = 5  # of a rank, at most; longer numbers are PMIDs


@expanded
def show_snippet(
    which: Annotated[
        str, Argument(metavar="ID|N", help="Id or PMID of a snippet, or N for the N-th hit of the last search.")
    ],
    settings: Annotated[Settings, options.NAMED_INDEX, Flags("qdrant", "graph")],
    line: CommandLine,
    mark: Annotated[str | None, Option(help="Words to mark in the text.")] = None,
    as_json: options.Json = False,
) -> None:
    """Print a whole snippet with its reference and the known facts of its study.

    A number up to that of the hits of the last 'biorag search' or 'biorag ask' is a rank, and the index is theirs; with
    --name it is always an id or a PMID.

    Examples:

      biorag show 1
      biorag show 29768149 --name pubmed --mark "formoterol asthma"
      biorag show 29768149 --name pubmed --json
    """
    from biorag.api.session import Session

    if line.value("name") is None:
        settings, which = _of_last_hits(settings, which)
    with Session(settings) as session:
        snippets = session.show(which)
    words = mark or ""
    show.result(snippets.to_json(words), as_json, lambda _: show_answer.snippets(snippets, terms(words)))


def _of_last_hits(settings: Settings, which: str) -> tuple[Settings, str]:
    """Return the index and the id of the last hit of a rank; the settings and the name as they are for all others."""
    from biorag.retrieval.last_hits import last_hits

    is_rank = which.isascii() and which.isdigit() and len(which) <= DIGITS and int(which) > 0
    hits = last_hits(settings) if is_rank else None
    if hits is None or int(which) > len(hits.ids):
        return settings if is_named(settings) else with_index(settings), which
    return settings.replace(name=hits.index), hits.ids[int(which) - 1]
