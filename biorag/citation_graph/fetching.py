"""What a PubMed query finds, from NCBI's E-utilities into one file of PubMed XML that `biorag index` reads.

While a run is under way its records stand in `OUT.part`, and `OUT.part.json` says how far they go.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from biorag.citation_graph.abstracts import file_of
from biorag.citation_graph.eutils import EUtils, KeptAnswers, QueryResult
from biorag.corpus.hardened_xml import source_text
from biorag.corpus.pubmed import ARTICLE, read_records
from biorag.corpus.sources import GZIP_MAGIC, DamagedSourceError, Source
from biorag.errors import BadInputError, MismatchError, ServiceError, UsageError
from biorag.types import Progress, Sha256
from biorag.utils.files import replacing, sha256_of_json, write_json
from biorag.utils.parsing import parsed, read_regular

BATCH = 200  # records of one request
MOST = 9_999  # records that NCBI hands out of one query
HEAD = b'<?xml version="1.0" encoding="utf-8"?>\n<!-- Fetched from PubMed by biorag -->\n<PubmedArticleSet>\n'
TAIL = b"</PubmedArticleSet>\n"
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The result of a fetch.

    Of the records that the query `found`, `asked` were asked for: `records` are in the file, of which `kept` were there
    from an interrupted run; `books` are chapters, which have no abstract in PubMed's form, and `missing` did not come.
    """

    query: str
    out: str
    found: int
    asked: int
    records: int
    kept: int
    books: int
    missing: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _State:
    """How far the records in `OUT.part` go; `identity` is the hash of what determines them."""

    identity: Sha256
    asked: Count = 0
    records: Count = 0
    books: Count = 0
    bytes: Count = 0


def is_fetched(beginning: bytes) -> bool:
    """Return whether a file that begins so holds records that biorag fetched."""
    if beginning.startswith(GZIP_MAGIC):
        try:
            beginning = gzip.GzipFile(fileobj=io.BytesIO(beginning)).read1(len(HEAD))
        except (EOFError, OSError):
            return False
    return beginning.startswith(HEAD)


def fetch_query(
    query: str, out: Path, limit: int | None, link: EUtils, kept: KeptAnswers, progress: Progress
) -> FetchedRecords:
    """Write the records of a query, or the first of them; alone. A killed run resumes with the batch it was at.

    Raises
    ------
    BadInputError
        If PubMed refuses the query, or finds nothing.
    UsageError
        If it finds more than NCBI hands out, and there is no limit.
    MismatchError
        If an interrupted run was for another query, or what PubMed finds has changed since.
    ServiceError
        If another process is asking; or as `EUtils` does.
    """
    started = time.perf_counter()
    with kept.alone():
        result = link.search(query, MOST)
        asked = _checked(query, result, limit)
        identity = sha256_of_json({"query": query, "limit": limit, "pmids": result.pmids[:asked]})
        part = out.with_name(f"{out.name}.part")
        state = before = _resumed(part, identity)
        with progress("Fetching records", asked) as advance:
            advance(state.asked)
            while state.asked < asked:
                count = min(BATCH, asked - state.asked)
                state = _append(part, state, link.found_articles(result, state.asked, count), count)
                advance(count)
        _finish(part, out)
    return FetchedRecords(
        query=query,
        out=str(out),
        found=result.count,
        asked=asked,
        records=state.records,
        kept=before.records,
        books=state.books,
        missing=asked - state.records - state.books,
        seconds=round(time.perf_counter() - started, 3),
    )


def _checked(query: str, result: QueryResult, limit: int | None) -> int:
    """Return how many records are to be asked for."""
    if not result.count:
        raise BadInputError(f"PubMed finds no record for {query!r:.200}: check the query's spelling and fields")
    if limit is None and result.count > MOST:
        raise UsageError(
            f"the query finds {result.count:,} records, and NCBI hands out the first {MOST:,} of a query: narrow it, "
            "as by AND 2024[dp], or give --limit"
        )
    asked = min(result.count, MOST, limit or MOST)
    if not result.webenv or len(result.pmids) < asked:
        raise ServiceError("the E-utilities kept no history of the search: run the same command again later")
    return asked


def _state_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _resumed(part: Path, identity: str) -> _State:
    """Return how far an interrupted run went; what a kill tore after that is cut off."""
    path = _state_file(part)
    if not path.exists():
        return _State(identity)
    next_step = f"delete {path} to start again"
    try:
        state: _State = parsed(_State, read_regular(path))
        whole = part.is_file() and part.stat().st_size >= state.bytes
    except ValueError as error:
        raise MismatchError(f"{path} is damaged ({error}): {next_step}") from None
    if not whole:
        raise MismatchError(f"{part} is shorter than {path} says: {next_step}")
    if state.identity != identity:
        raise MismatchError(
            f"{part} was begun for another query or limit, or PubMed finds other records since: {next_step}"
        )
    return state


def _append(part: Path, state: _State, content: bytes, asked: int) -> _State:
    """Append the articles of an answer, durably."""
    articles, books = [], 0
    for element in _elements(content):
        if element.tag == ARTICLE:
            articles.append(source_text(element).encode() + b"\n")
        else:
            books += 1
    with part.open("r+b" if state.bytes else "wb") as stream:
        stream.seek(state.bytes)
        stream.truncate()
        stream.write(b"".join(articles))
        stream.flush()
        os.fsync(stream.fileno())
        end = stream.tell()
    after = _State(state.identity, state.asked + asked, state.records + len(articles), state.books + books, end)
    write_json(_state_file(part), asdict(after))
    return after


def _elements(content: bytes) -> Iterator[Any]:
    try:
        with file_of(content) as path:
            for _, element in read_records(Source("efetch", path)):
                yield element
    except DamagedSourceError as error:
        raise ServiceError(
            f"the E-utilities did not answer with PubMed's XML ({error.reason}): run the same command again later"
        ) from None


def _finish(part: Path, out: Path) -> None:
    """Write the file of the records; gzipped by its name, without time or name, so that the bytes are the same."""
    with replacing(out) as target:
        if out.name.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed:
                _write(part, packed)  # type: ignore[arg-type]
        else:
            _write(part, target)
    _state_file(part).unlink()
    part.unlink()


def _write(part: Path, target: BinaryIO) -> None:
    target.write(HEAD)
    with part.open("rb") as records:
        shutil.copyfileobj(records, target)
    target.write(TAIL)
