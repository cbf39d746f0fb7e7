"""`biorag search`."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.commands import options, show, show_answer
from biorag.commands.groups import expanded
from biorag.registries import TERMINAL
from biorag.settings.settings import Settings


@expanded
def search(
    query: Annotated[list[str], typer.Argument(help="Query, in quotes or not.")],
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
    from biorag.api.session import Session
    from biorag.retrieval.last_hits import keep_last_hits

    format, text = options.output_format(output, as_json), " ".join(query)
    with Session(settings) as session:
        result = session.search(text, **filters.arguments)
    keep_last_hits(settings, result.hits)
    if as_json:
        show.print_json(result.to_json())
    elif format:
        show.out.file.write(result.to(format))
    elif result.hits:
        show_answer.evidence_table(text, result.hits)
    else:
        show.err.print("No snippet matches: try other words, --mode hybrid, or a wider --filter.")
