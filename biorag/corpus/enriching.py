"""Records of papers that say little of themselves, asked for by name, kept beside the index and joined with the papers.

Crossref REST API: `/works/{doi}`, `/works?query.bibliographic=`. Entrez Programming Utilities Help, NCBI: see `eutils`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx

from biorag.corpus.eutils import EUtils
from biorag.corpus.joining import title_key
from biorag.corpus.pubmed import parse_record
from biorag.corpus.readers import beir_record, read_snippets
from biorag.corpus.references import csl_fields, csl_title
from biorag.corpus.sources import Source, reader_of
from biorag.errors import BadInputError, OfflineError, ServiceError
from biorag.references.escaping import in_url
from biorag.settings.services import ServiceSettings
from biorag.types import Progress, Snippet
from biorag.utils.files import json_line, sha256_of, write_text
from biorag.utils.http import BoundedTransport, Retries
from biorag.utils.network import Server, without_credentials
from biorag.utils.parsing import parse_json
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

FACTS = ("authors", "year", "journal")  # a paper that lacks one is asked about
PAUSE = 1.0  # seconds between two requests: Crossref lets anybody search once a second
ROWS = 5  # works found by a title, of which one alone must have it: not a "Letter to the editor"
PREPRINT = "posted-content"  # Crossref's type; what was published later has the same title
LONGEST = 1000  # characters of a title that are sent
NOT_JOINED = ("abstract", "version", "revised", "references")  # fields of a record that are not the paper's
# Returns the record of a paper with this title and these facts; None if there is none. Raises `ServiceError`.
Find = Callable[[str, Mapping[str, Any]], Snippet | None]


def crossref(services: ServiceSettings) -> Find:
    """Return how records are found at Crossref."""
    return Crossref(services.server(services.crossref, "crossref"))


def pubmed(services: ServiceSettings) -> Find:
    """Return how records are found at PubMed."""
    return PubMed(EUtils(services.server(services.eutils, "eutils")))


class Crossref:
    """Finds records at Crossref: by DOI, else by a title that is the same word for word."""

    def __init__(self, server: Server) -> None:
        self._url = without_credentials(server.url.rstrip("/"))
        self._next = 0.0
        headers = {"User-Agent": f"biorag/{installed_versions(['biorag']).get('biorag', '')}"}
        transport = BoundedTransport(self._url, server.timeout)
        self._http = httpx.Client(timeout=server.timeout, auth=server.auth, transport=transport, headers=headers)
        self._retries = Retries(f"the server at {self._url}", "try again later", server.retries)

    def __call__(self, title: str, facts: Mapping[str, Any]) -> Snippet | None:
        """Return the record of a paper."""
        works: list[Mapping[str, Any]] = []
        if "/" in (doi := str(facts.get("doi") or "")):  # which every DOI has; ".." names another path
            works = self._asked(f"works/{in_url(doi)}", {}, lambda message: [message])
        if not works and (key := title_key(title)):
            query = {"query.bibliographic": title[:LONGEST], "rows": str(ROWS)}
            found = self._asked("works", query, lambda message: message["items"])
            works = [work for work in found if key in (title_key(csl_title(work)), _title_alone(work))]
            works = [work for work in works if work.get("type") != PREPRINT] or works
        return _record_of_work(works[0]) if len(works) == 1 else None

    def _asked(self, path: str, query: Mapping[str, str], read: Callable[[Any], list[Any]]) -> list[Mapping[str, Any]]:
        """Return the works of an answer; none of one that says that there are none."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        request = self._http.build_request("GET", f"{self._url}/{path}", params=query)
        response = self._retries(request, self._http.send)
        self._next = time.monotonic() + PAUSE
        if response.status_code == HTTPStatus.NOT_FOUND:
            return []
        try:
            if response.is_success:
                return [work for work in read(parse_json(response.content)["message"]) if isinstance(work, dict)]
        except (ValueError, KeyError, TypeError):
            pass
        raise self._retries.refusal(response, ", not works of Crossref's: check --crossref")


def _title_alone(work: Mapping[str, Any]) -> str:
    """Return the key of a work's title without its subtitle."""
    return title_key(csl_title({"title": work.get("title")}))


def _record_of_work(work: Mapping[str, Any]) -> Snippet | None:
    """Return a work as the record of a paper; None without a title."""
    title, fields = csl_title(work), csl_fields(work)
    return Snippet(str(fields.get("doi") or title), title, title, None, fields) if title else None


class PubMed:
    """Finds records at PubMed: by PMID, else by DOI, else by a title that is the same word for word."""

    def __init__(self, link: EUtils) -> None:
        self._link = link

    def __call__(self, title: str, facts: Mapping[str, Any]) -> Snippet | None:
        """Return the record of a paper."""
        doi, key = str(facts.get("doi") or "").lower(), title_key(title)
        if pmid := facts.get("pmid"):
            return next(self._records([int(pmid)]), None)
        quoted = doi.replace('"', "")
        for query, is_it in (
            (f'"{quoted}"[doi]' if doi else "", lambda one: str(one.metadata.get("doi", "")).lower() == doi),
            (f"{_plain(title[:LONGEST])}[ti]" if key else "", lambda one: title_key(one.title) == key),
        ):
            records = filter(is_it, self._records(self._searched(query)) if query else ())
            if len(same := list(records)) == 1:
                return same[0]
        return None

    def _searched(self, query: str) -> list[int]:
        try:
            return self._link.search(query, ROWS)[1][:ROWS]
        except BadInputError:  # a title that PubMed cannot read as a query
            return []

    def _records(self, pmids: Sequence[int]) -> Iterator[Snippet]:
        for element in self._link.records(pmids) if pmids else ():
            try:
                record = parse_record(element)
            except ValueError:  # the chapter of a book, or a record without a title
                continue
            if isinstance(record, Snippet) and record.title and record.pmid in pmids:
                yield record


def _plain(text: str) -> str:
    """Return a text without what PubMed takes for the signs of a query."""
    return " ".join(re.sub(r"[\[\]\"*:()&|]", " ", text).split())


def with_records(sources: Sequence[Source], folder: Path) -> list[Source]:
    """Return sources, each paper with the record of it that was fetched into this folder."""
    fetched = ((source, _file_of(source, folder)) for source in sources)
    return [replace(source, record=file) if file and file.is_file() else source for source, file in fetched]


def _file_of(source: Source, folder: Path) -> Path | None:
    """Return the file for the record of a paper, by the paper's content; None of what is not a paper."""
    try:
        return folder / f"{sha256_of(source.path)}.jsonl" if reader_of(source).paper else None
    except (BadInputError, OSError):  # its reading names the fault
        return None


def enrich(sources: Sequence[Source], find: Find, folder: Path, progress: Progress) -> None:
    """Ask for a record of each paper that lacks authors, year or journal; keep those found in a folder.

    A service that fails ends the asking with a warning, and what was found stays. Raises `OfflineError`.
    """
    papers = {source: file for source in sources if (file := _file_of(source, folder)) and not file.is_file()}
    asked = records_found = 0
    try:
        with progress("Asking for records", len(papers)) as advance:
            for source, file in papers.items():
                paper = next(read_snippets(source, lambda reject: None), None)
                if paper and not all(paper.metadata.get(name) for name in FACTS):
                    asked += 1
                    record = find(paper.title, {**paper.metadata, "pmid": paper.pmid})
                    records_found += record is not None
                    _keep(record, file)
                advance(1)
    except OfflineError:
        raise
    except ServiceError as error:
        logger.warning("%s; the papers that are left stay as they are", error)
    logger.info("records found of papers that lack authors, year or journal: %d of %d", records_found, asked)


def _keep(record: Snippet | None, file: Path) -> None:
    if record:
        fields = {name: value for name, value in record.metadata.items() if name not in NOT_JOINED}
        write_text(file, json_line(beir_record(replace(record, content=record.title, metadata=fields))).decode())
