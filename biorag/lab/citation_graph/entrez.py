"""What NCBI's E-utilities answer: citations and abstracts of an index's papers, and the records of a query.

The neighbourhoods of BiCA (Sinha et al. 2025, arXiv 2511.08029): the references of the seeds, the references of these,
and the abstracts of both.
"""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from biorag.corpus.citation_graph import FILE, Graph, Papers, distinct, paper_of
from biorag.corpus.eutils import Answers, EUtils
from biorag.corpus.hardened_xml import source_text
from biorag.corpus.pubmed import ARTICLE, parse_record
from biorag.corpus.sources import GZIP_MAGIC
from biorag.errors import BadInputError, ServiceError, UsageError
from biorag.indexes.reading import stored_snippets
from biorag.lab.citation_graph.building import add, pairs_of
from biorag.types import Index, OnProgress, Progress, Snippet
from biorag.utils.files import json_line, replacing
from biorag.utils.locks import begun
from biorag.utils.outputs import first_row

SOURCE = "E-utilities"
CITES, ABSTRACT = "cites", "abstract"  # kinds of answers
SUFFIXES = (".xml", ".xml.gz")
MOST = 9_999  # records that NCBI hands out of one query
HEAD = b'<?xml version="1.0" encoding="utf-8"?>\n<!-- Fetched from PubMed by biorag -->\n<PubmedArticleSet>\n'
TAIL = b"</PubmedArticleSet>\n"
RECORD = "record"  # the kind of answers: the XML of an article, "" for the chapter of a book


# --- the papers of an index ---


def is_abstracts(beginning: bytes) -> bool:
    """Return whether a file that begins so holds abstracts that biorag fetched."""
    return first_row(beginning).get("source") == SOURCE


def indexed_papers(index: Index) -> Papers:
    """Return the papers of an index, sorted."""
    pmids = {pmid for pmid in map(paper_of, stored_snippets(index)) if pmid is not None}
    return np.array(sorted(pmids), np.uint32)


@dataclass(frozen=True)
class GraphFiller:
    """Adds answers of the E-utilities to the graph in a folder."""

    folder: Path
    link: EUtils
    answers: Answers
    on_progress: OnProgress = lambda _: None

    def fill_gaps(self, papers: Papers) -> dict[str, Any]:
        """Add the citations of the papers that the graph lacks, and report.

        Of the papers `lacking` references, `asked` had not been asked about before, and `unanswered` are missing from
        the answers.
        """
        started = time.perf_counter()
        graph = Graph(self.folder) if (self.folder / FILE).is_file() else None
        before = graph.size()[1] if graph else 0
        lacking = (papers[~np.isin(papers, graph.pmids())] if graph else papers).tolist()
        begun.add("citations")
        asked = self.answers.ask(CITES, lacking, self.link.cited, self.on_progress)
        cited = dict(self.answers.read(CITES, lacking))
        pairs = pairs_of([(pmid, other) for pmid, others in cited.items() for other in others])
        edges = add(self.folder, SOURCE, pairs) if pairs.size else before
        return {
            "papers": papers.size,
            "lacking": len(lacking),
            "asked": asked,
            "unanswered": len(lacking) - len(cited),
            "edges": edges,
            "added": edges - before,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def fetch_neighbourhoods(self, seeds: Papers, out: Path) -> dict[str, Any]:
        """Write the abstracts of the papers one and two citations away from an index's papers, the seeds, and report.

        `references` reports on the citations of the seeds, `further` on those of the papers they cite; the graph gets
        both. Of the papers `one_hop` and `two_hop` away, `asked` had not been asked about before, `without` have no
        abstract, and `written` are in the file, which is made from kept answers, so that a killed run resumes.
        """
        started = time.perf_counter()
        references = self.fill_gaps(seeds)
        one_hop = np.setdiff1d(self._cited(seeds), seeds)
        further = self.fill_gaps(one_hop)
        two_hop = np.setdiff1d(self._cited(one_hop), np.union1d(seeds, one_hop))
        wanted = sorted([*one_hop.tolist(), *two_hop.tolist()])
        asked = self.answers.ask(ABSTRACT, wanted, lambda batch: abstracts(self.link, batch), self.on_progress)
        written = 0
        with replacing(out) as stream:
            for _, snippet in self.answers.read(ABSTRACT, wanted):
                if snippet is not None:
                    stream.write(json_line(snippet))
                    written += 1
        return {
            "out": str(out),
            "references": references,
            "further": further,
            "one_hop": one_hop.size,
            "two_hop": two_hop.size,
            "asked": asked,
            "without": len(wanted) - written,
            "written": written,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _cited(self, papers: Papers) -> Papers:
        """Return the papers that some papers cite, distinct and sorted."""
        if not (self.folder / FILE).is_file():
            return papers[:0]
        return distinct(np.concatenate([papers[:0], *map(Graph(self.folder).cited, papers.tolist())]))


def abstracts(link: EUtils, pmids: Sequence[int]) -> dict[int, dict[str, Any] | None]:
    """Return papers as lines that `biorag index` reads; None for a paper without an abstract, or without a record."""
    records: dict[int, dict[str, Any] | None] = dict.fromkeys(pmids)
    for element in link.records(pmids):
        try:
            snippet = parse_record(element)
        except ValueError:
            continue  # neither title nor abstract
        if isinstance(snippet, Snippet) and snippet.pmid in records and snippet.metadata.get("abstract"):
            own = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "PMID": snippet.pmid}
            records[snippet.pmid] = {**own, "source": SOURCE, **snippet.metadata}
    return records


# --- the records of a query ---


def check_fetch(query: str, out: Path) -> None:
    """Refuse an empty query, and a file of another kind."""
    if not out.name.endswith(SUFFIXES):
        raise UsageError(f"--out {out} is PubMed XML: name a file that ends in {' or '.join(SUFFIXES)}")
    if not query.strip():
        raise UsageError("the query is empty: write what PubMed's search box takes")


def is_fetched(beginning: bytes) -> bool:
    """Return whether a file that begins so is one of PubMed records that biorag fetched."""
    if beginning.startswith(GZIP_MAGIC):
        try:
            beginning = gzip.GzipFile(fileobj=io.BytesIO(beginning)).read1(len(HEAD))
        except (EOFError, OSError):
            return False
    return beginning.startswith(HEAD)


def fetch_query(
    query: str, out: Path, limit: int | None, link: EUtils, answers: Answers, progress: Progress
) -> dict[str, Any]:
    """Write the records that match a query, or the first `limit` of them, and report; a killed run resumes.

    Of the records `found`, `asked` were asked for and `records` are in the file; `books` are chapters, which have no
    abstract in PubMed's form, and `missing` did not come. Answers are kept only until the file is written, since PubMed
    revises its records. Raises `BadInputError` without a match, `UsageError` if NCBI does not hand out that many.
    """
    started = time.perf_counter()
    matches, pmids = link.search(query, MOST)
    if not matches:
        raise BadInputError(f"PubMed finds no record for {query!r:.200}: check the query's spelling and fields")
    if limit is None and matches > MOST:
        raise UsageError(
            f"the query finds {matches:,} records, and NCBI hands out the first {MOST:,} of a query: narrow it, "
            "as by AND 2024[dp], or give --limit"
        )
    if len(pmids) < min(matches, MOST):
        raise ServiceError("the E-utilities listed fewer papers than they counted: run the same command again later")
    pmids = pmids[:limit]
    begun.add("records")
    with progress("Fetching records", len(pmids)) as advance:
        asked = answers.ask(RECORD, pmids, lambda batch: _records(link, batch), advance)
        advance(len(pmids) - asked)
    with replacing(out) as stream:
        records = _write(stream, out.name.endswith(".gz"), (xml for _, xml in answers.read(RECORD, pmids) if xml))
    books = sum(not xml for _, xml in answers.read(RECORD, pmids))
    answers.forget(RECORD, pmids)
    return {
        "query": query,
        "out": str(out),
        "found": matches,
        "asked": len(pmids),
        "records": records,
        "books": books,
        "missing": len(pmids) - records - books,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _records(link: EUtils, pmids: Sequence[int]) -> dict[int, str]:
    """Return the XML of the papers that PubMed has, "" for the chapter of a book."""
    records = {}
    for element in link.records(pmids):
        is_article = element.tag == ARTICLE
        pmid = element.findtext("MedlineCitation/PMID" if is_article else "BookDocument/PMID", "").strip()
        if pmid.isdecimal() and int(pmid) in pmids:
            records[int(pmid)] = source_text(element) if is_article else ""
    return records


def _write(target: BinaryIO, zipped: bool, records: Iterable[str]) -> int:
    """Write the file, and return its number of records; a gzip without time or name, so that its bytes are the same."""
    if zipped:
        with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed:
            return _write(cast(BinaryIO, packed), False, records)
    target.write(HEAD)
    written = 0
    for xml in records:
        target.write(xml.encode() + b"\n")
        written += 1
    target.write(TAIL)
    return written
