"""`biorag search`."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.api.documents import search_json
from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.engine import open_index
from biorag.registries import TERMINAL
from biorag.retrieval.last_hits import keep_last_hits
from biorag.settings.settings import Settings


@expanded
def search(
    query: Annotated[list[str], typer.Argument(help="What to look for, in quotes or not.")],
    settings: Annotated[Settings, options.INDEX, options.RANKING],
    filters: options.RecordFilters,
    output: options.Output = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Find the snippets that are relevant to a query.

    Examples:

      biorag search "isoniazid neuropathy"

      biorag search "inhaled steroids" --filter 'year>=2015 and type:"Randomized Controlled Trial" and not retracted'

      biorag search "inhaled steroids in mild asthma" --format ris > asthma.ris

      biorag search "GDF15 in inflammation" --name pubmed --mode bm25 --no-rerank -k 10 --json
    """
    kind, text = options.output_kind(output, as_json), " ".join(query)
    with open_index(settings) as ready:
        ranking = ready.retriever.search(text, where=ready.checked(filters.conditions))
    keep_last_hits(settings, ranking.hits)
    if as_json:
        show.print_json(search_json(ranking, settings.retrieval.mode))
    elif kind:
        show.document(kind, ranking.hits)
    elif ranking.hits:
        show.evidence_table(text, ranking.hits)
    else:
        show.err.print("No snippet matches: try other words, --mode hybrid, or a wider --filter.")
