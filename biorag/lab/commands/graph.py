"""`biorag graph build`, `info` and `fill`, and `biorag fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import Writes
from biorag.settings.settings import Settings

app = Application(help="The citation graph that 'biorag mine --negatives citation' walks.")


@app.command()
@expanded
def build(
    sources: Annotated[
        list[Path],
        Argument(help="PubMed XML, Open Citation Collection CSV, BEIR's qrels (.tsv), all .gz too, or folders."),
    ],
    settings: Annotated[Settings, Flags("graph")],
    as_json: options.Json = False,
) -> None:
    """Build a citation graph from files, or add them to an existing one; a file is read only once.

    Of qrels it links the papers that are relevant to one question, where no citations can be had.

    Examples:

      biorag graph build open_citation_collection.csv.gz
      biorag graph build pubmed-baseline/ pubmed-updates/ --graph pubmed --json
    """
    from biorag.lab.citation_graph.building import build as build_graph
    from biorag.lab.citation_graph.building import find_citations

    files = find_citations([str(source) for source in sources])
    with show.progress("Reading citations", None) as advance:
        built = build_graph(settings.graphs / settings.graph, files, advance)
    show.report(f"Graph {built['graph']}", built, as_json)


@app.command()
@expanded
def info(settings: Annotated[Settings, Flags("graph")], as_json: options.Json = False) -> None:
    """Show how many papers of a graph cite, how many citations it has, and the files that it was made of.

    Examples:

      biorag graph info
      biorag graph info --graph pubmed --json
    """
    from biorag.corpus.citation_graph import open_graph

    graph = open_graph(settings)
    papers, edges = graph.size()
    values = {"graph": settings.graph, "papers": papers, "edges": edges, "sources": graph.history}
    show.report(f"Graph {settings.graph}", values, as_json)


@app.command()
@expanded
def fill(
    settings: Annotated[Settings, Flags("name", "graph", "eutils", finds_index=True)],
    abstracts: Annotated[
        Path | None,
        Option(help="JSONL file to write: the papers one and two citations away, with abstracts."),
        Writes("file of abstracts", ".lab.citation_graph.entrez:is_abstracts"),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Ask NCBI's E-utilities for the references of an index's papers that the graph lacks.

    With --abstracts, also for the references of the papers they cite, and the abstracts of both, as in BiCA: a corpus
    to index with the papers. Nothing is asked twice. Three requests a second, ten with NCBI_API_KEY.

    Examples:

      biorag graph fill --name pubmed --graph pubmed --eutils http://localhost:8000 --json
      biorag graph fill --name seeds --graph seeds --abstracts neighbours.jsonl
    """
    from biorag.corpus.eutils import EUtils, kept_answers
    from biorag.engine import open_index
    from biorag.lab.citation_graph import entrez

    link = EUtils(settings.services.server(settings.services.eutils, "eutils"))
    with (
        open_index(settings.replace(mode="bm25", rerank=False)) as ready,
        kept_answers(settings.cache / "eutils.sqlite") as answers,
        show.progress("Asking the E-utilities", None) as advance,
    ):
        graph = entrez.GraphFiller(settings.graphs / settings.graph, link, answers, advance)
        papers = entrez.indexed_papers(ready.index)
        report = graph.fetch_neighbourhoods(papers, abstracts) if abstracts else graph.fill_gaps(papers)
    show.report(f"Graph {settings.graph}", {"graph": settings.graph, "index": settings.index.name, **report}, as_json)


@expanded
def fetch(
    query: Annotated[str, Argument(help="Query, as PubMed's search box takes it.")],
    out: Annotated[
        Path,
        Option(help="File to write, .xml or .xml.gz; an interrupted run resumes."),
        Writes("file of PubMed records", ".lab.citation_graph.entrez:is_fetched"),
    ],
    settings: Annotated[Settings, Flags("eutils")],
    limit: Annotated[
        int | None, Option(min=1, max=9999, help="Take only the first records, in PubMed's order.")
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Fetch the records of a PubMed query from NCBI's E-utilities into a file for 'biorag index'.

    NCBI hands out at most 9,999 records of a query: for more, take the baseline files.

    Examples:

      biorag fetch "isoniazid AND neuropathy" --out isoniazid.xml.gz
      biorag fetch "GDF15 AND inflammation" --out gdf15.xml --limit 500 --json
    """
    from biorag.corpus.eutils import EUtils, kept_answers
    from biorag.lab.citation_graph.entrez import check_fetch, fetch_query

    check_fetch(query, out)
    link = EUtils(settings.services.server(settings.services.eutils, "eutils"))
    with kept_answers(settings.cache / "eutils.sqlite") as answers:
        report = fetch_query(query, out, limit, link, answers, show.progress)
    show.report(f"PubMed records in {out}", report, as_json)
