"""The records that match a PubMed query, from NCBI's E-utilities into one file of PubMed XML for `biorag index`."""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from biorag.corpus.eutils import Answers, EUtils
from biorag.corpus.hardened_xml import source_text
from biorag.corpus.pubmed import ARTICLE
from biorag.corpus.sources import GZIP_MAGIC
from biorag.errors import BadInputError, ServiceError, UsageError
from biorag.types import Progress
from biorag.utils.files import check_replaceable, replacing

SUFFIXES = (".xml", ".xml.gz")
MOST = 9_999  # records that NCBI hands out of one query
HEAD = b'<?xml version="1.0" encoding="utf-8"?>\n<!-- Fetched from PubMed by biorag -->\n<PubmedArticleSet>\n'
TAIL = b"</PubmedArticleSet>\n"
RECORD = "record"  # the kind of answers: the XML of an article, "" for the chapter of a book


def check_fetch(query: str, out: Path, force: bool) -> None:
    """Refuse an empty query, and a file of another kind, or, without `force`, one that biorag did not fetch."""
    if not out.name.endswith(SUFFIXES):
        raise UsageError(f"--out {out} is PubMed XML: name a file that ends in {' or '.join(SUFFIXES)}")
    if not query.strip():
        raise UsageError("the query is empty: write what PubMed's search box takes")
    check_replaceable(out, "file of PubMed records", _is_fetched, (), force)


def _is_fetched(beginning: bytes) -> bool:
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
