"""`biorag show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from biorag.api.documents import snippets_json
from biorag.commands import options, show, show_document
from biorag.commands.groups import Flags, Given, expanded
from biorag.corpus.sentences import terms
from biorag.engine import open_stored
from biorag.errors import MissingError, OfflineError, UsageError
from biorag.references.facts import facts_of
from biorag.references.reference import reference_of
from biorag.settings.settings import Settings
from biorag.types import Snippet


@expanded
def show_snippet(
    which: Annotated[
        str, typer.Argument(metavar="ID|N", help="Id or PMID of a snippet, or N for the N-th hit of the last search.")
    ],
    settings: Annotated[Settings, options.NAMED_INDEX, Flags("qdrant", "graph")],
    given: Given,
    mark: Annotated[str | None, typer.Option(help="Words to mark in the text.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open its page on PubMed in the browser.")] = False,
    as_json: options.Json = False,
) -> None:
    """Print a whole snippet with its reference, and what is known of the study behind it.

    A number up to that of the hits of the last 'biorag search' or 'biorag ask' is a rank, and the index is theirs; with
    --name it is always an id or a PMID.

    Examples:

      biorag show 1

      biorag show 29768149 --name pubmed --mark "formoterol asthma"

      biorag show 2 --open

      biorag show 29768149 --name pubmed --json
    """
    settings, id = _meant(which, settings, named=given.value("name") is not None)
    snippets = _found(settings, id)
    page = _page(settings, snippets[0]) if open_page else ""
    cited = _times_cited(settings, snippets)
    facts = [facts_of(snippet, cited.get(snippet.pmid or 0)) for snippet in snippets]
    words = terms(mark or "")
    if as_json:
        show.print_json(snippets_json(settings.index.name, snippets, facts, words))
    else:
        for snippet, fact in zip(snippets, facts, strict=True):
            show_document.document(snippet, fact, words)
    if page:
        _open(page)


def _meant(which: str, settings: Settings, named: bool) -> tuple[Settings, str]:
    """Return the settings with the index that is meant, and the id of the snippet; of a rank the last hit's."""
    from biorag.retrieval.last_hits import last_hits

    if named or not (which.isascii() and which.isdigit() and len(which) < 6) or int(which) == 0:
        return settings, which
    kept = last_hits(settings)
    if kept is None or int(which) > len(kept.ids):
        return settings, which
    return settings.replace(name=kept.index), kept.ids[int(which) - 1]


def _found(settings: Settings, id: str) -> list[Snippet]:
    """Return the snippet of an id, or those of a PMID.

    Raises
    ------
    MissingError
        If there is none.
    """
    from biorag.indexes.reading import named_snippets

    with open_stored(settings) as (manifest, index):
        if found := named_snippets(index, id, manifest.encoder.dimension):
            return found
    raise MissingError(
        f"index {settings.index.name!r} has no snippet {id!r}: give an id or a PMID of it, name another index with "
        "--name, or search and give the number of a hit"
    )


def _times_cited(settings: Settings, snippets: Sequence[Snippet]) -> dict[int, int]:
    """Return how many papers of the local graph cite each PMID; nothing where there is no graph."""
    from biorag.citation_graph.graph import FILE, open_graph

    pmids = {snippet.pmid for snippet in snippets if snippet.pmid}
    if not pmids or not (settings.graphs / settings.graph / FILE).is_file():
        return {}
    graph = open_graph(settings)
    return {pmid: graph.times_cited(pmid) for pmid in pmids}


def _page(settings: Settings, snippet: Snippet) -> str:
    """Return the address of a snippet's page.

    Raises
    ------
    UsageError
        If neither its PMID nor its DOI is known.
    OfflineError
        In offline mode.
    """
    url = reference_of(snippet).url
    if not url:
        raise UsageError(f"snippet {snippet.id!r} has neither PMID nor DOI: leave --open out")
    if settings.services.offline:
        raise OfflineError(f"offline: {url} is not opened: leave --open out, or turn --offline (BIORAG_OFFLINE) off")
    return url


def _open(url: str) -> None:
    """Open a page in the browser, and say so."""
    import webbrowser

    show.err.print(f"opening {url} in the browser", soft_wrap=True)
    if not webbrowser.open(url):
        show.err.print("no browser was found: open the address yourself")
