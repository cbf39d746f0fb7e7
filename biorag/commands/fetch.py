"""`biorag fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.errors import UsageError
from biorag.settings.settings import Settings

SUFFIXES = (".xml", ".xml.gz")


@expanded
def fetch(
    query: Annotated[str, typer.Argument(help="Query, as PubMed's search box takes it.")],
    out: Annotated[Path, typer.Option("--out", help="File to write, .xml or .xml.gz; an interrupted run resumes.")],
    settings: Annotated[Settings, Flags("eutils")],
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, max=9999, help="Take the first records only, as PubMed orders them.")
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Fetch the records of a PubMed query from NCBI's E-utilities into a file for 'biorag index'.

    Three requests a second, each for 200 records; ten with NCBI_API_KEY. NCBI hands out at most 9,999 records of a
    query: for more, take the baseline files.

    Examples:

      biorag fetch "isoniazid AND neuropathy" --out isoniazid.xml.gz
      biorag fetch "GDF15 AND inflammation" --out gdf15.xml --limit 500 --json
    """
    from biorag.citation_graph.eutils import EUtils, kept_answers
    from biorag.citation_graph.fetching import fetch_query, is_fetched
    from biorag.utils.files import check_replaceable

    if not out.name.endswith(SUFFIXES):
        raise UsageError(f"--out {out} is PubMed XML: name a file that ends in {' or '.join(SUFFIXES)}")
    if not query.strip():
        raise UsageError("the query is empty: write what PubMed's search box takes")
    check_replaceable(out, "file of PubMed records", is_fetched, (), force)
    link = EUtils(settings.services.server(settings.services.eutils, "eutils"))
    with kept_answers(settings.cache / "eutils.sqlite") as answers:
        report = fetch_query(query, out, limit, link, answers, show.progress)
    show.report(f"PubMed records in {out}", report, as_json)
