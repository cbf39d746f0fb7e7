"""References and records from NCBI's E-utilities.

Entrez Programming Utilities Help, NCBI: `elink`, by id, with the link `pubmed_pubmed_refs`; `esearch`, with history;
`efetch`, as XML.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
from pydantic import Field

from biorag.citation_graph.building import add
from biorag.citation_graph.coverage import paper_of
from biorag.citation_graph.graph import Graph, Papers, read_manifest
from biorag.citation_graph.rows import LARGEST, Keys, distinct, edge_keys
from biorag.errors import BadInputError, ServiceError
from biorag.indexes.reading import stored_snippets
from biorag.types import Index, OnProgress
from biorag.utils.batched import batched
from biorag.utils.files import make_folder, try_lock
from biorag.utils.network import Server, without_credentials
from biorag.utils.parsing import parsed
from biorag.utils.retries import Retries
from biorag.utils.transport import BoundedTransport

LINK = "pubmed_pubmed_refs"
BATCH = 200  # papers of one request
LARGEST_RECORDS = 64 << 20  # bytes of the records of one request
PER_SECOND, PER_SECOND_WITH_KEY = 3, 10  # requests, by NCBI's rules
Written = int | Annotated[str, Field(pattern="^[0-9]{1,18}$")]  # a number as it is, or as text
Pmid = Annotated[int, Field(gt=0, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class _Links:
    linkname: str
    links: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class _LinkSet:
    ids: Annotated[tuple[Written, ...], Field(min_length=1)]
    linksetdbs: tuple[_Links, ...] = ()

    def cited(self) -> list[int]:
        """Return what the paper cites; nothing where there are no links of the kind."""
        links = [int(link) for group in self.linksetdbs if group.linkname == LINK for link in group.links]
        return [pmid for pmid in links if 0 < pmid <= LARGEST]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is read of an answer of elink."""

    linksets: tuple[_LinkSet, ...]


@dataclass(frozen=True, slots=True)
class _SearchResult:
    count: Written
    webenv: str = ""
    querykey: Written = 0
    idlist: tuple[Written, ...] = ()
    ERROR: str = ""


@dataclass(frozen=True, slots=True)
class _SearchAnswer:
    """What is read of an answer of esearch."""

    esearchresult: _SearchResult


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query found: how many records, the first of their PMIDs, and where NCBI keeps all for a while."""

    count: int
    pmids: tuple[int, ...]
    webenv: str
    query_key: str


@dataclass(frozen=True, slots=True)
class _Kept:
    pmid: Pmid
    cites: tuple[Pmid, ...]


@dataclass(frozen=True, slots=True)
class Filled:
    """The result of filling gaps.

    Of the index's papers those that were `lacking` references: `kept` answers were there from before, `asked` were
    asked for, `unanswered` left out of the answers. `empty` have no references there either.
    """

    papers: int
    lacking: int
    kept: int
    asked: int
    unanswered: int
    empty: int
    edges: int
    added: int
    seconds: float


class EUtils:
    """Asks what papers cite, for their records, and what a query finds, no faster than NCBI allows.

    Raises
    ------
    ServiceError
        If the server does not answer, after retries with backoff, or answers something else.
    OfflineError
        In offline mode, unless its URL was named on the command line.
    """

    def __init__(self, server: Server) -> None:
        self._url = without_credentials(server.url.rstrip("/"))
        self._key = {"api_key": server.api_key} if server.api_key else {}
        self._pause = 1 / (PER_SECOND_WITH_KEY if server.api_key else PER_SECOND)
        self._next = 0.0
        transport = BoundedTransport(self._url, server.timeout, larger={"/efetch.fcgi": LARGEST_RECORDS})
        self._http = httpx.Client(timeout=server.timeout, auth=server.auth, transport=transport)
        advice = "run the same command again later: what was answered is kept"
        named = f"the server at {self._url}"
        self._retries = Retries(named, advice, server.retries)
        self._retries_of_records = Retries(
            named, advice, server.retries, expected="PubMed XML", is_complete=_is_pubmed_xml
        )

    def cited(self, pmids: Sequence[int]) -> dict[int, list[int]]:
        """Return what papers cite; those that the answer leaves out are left out."""
        form = {"dbfrom": "pubmed", "db": "pubmed", "linkname": LINK, "retmode": "json"}
        response = self._asked(self._retries, "elink.fcgi", {**form, "id": [str(pmid) for pmid in pmids]})
        try:
            answer: _Answer = parsed(_Answer, response.content, "ignore")
        except ValueError:
            raise ServiceError(
                f"the server at {self._url} {self._retries.said(response)}, not a list of links: check --eutils"
            ) from None
        cited = {int(links.ids[0]): links.cited() for links in answer.linksets}
        return {pmid: cited[pmid] for pmid in pmids if pmid in cited}

    def search(self, query: str, most: int) -> QueryResult:
        """Return what a PubMed query finds, with up to `most` PMIDs.

        Raises
        ------
        BadInputError
            If PubMed refuses the query.
        """
        form = {"db": "pubmed", "term": query, "usehistory": "y", "retmode": "json", "retmax": str(most)}
        response = self._asked(self._retries, "esearch.fcgi", form)
        try:
            result = parsed(_SearchAnswer, response.content, "ignore").esearchresult
        except ValueError:
            raise ServiceError(
                f"the server at {self._url} {self._retries.said(response)}, not a result of a search: check --eutils"
            ) from None
        if result.ERROR:
            raise BadInputError(f"PubMed refuses the query {query!r:.200} ({result.ERROR:.200}): change it")
        pmids = tuple(map(int, result.idlist[:most]))
        return QueryResult(int(result.count), pmids, result.webenv, str(result.querykey))

    def found_articles(self, result: QueryResult, start: int, count: int) -> bytes:
        """Return `count` records of what a query found, from `start` on, as PubMed's XML."""
        history = {"WebEnv": result.webenv, "query_key": result.query_key}
        form = {"db": "pubmed", "retmode": "xml", "retstart": str(start), "retmax": str(count), **history}
        return self._asked(self._retries_of_records, "efetch.fcgi", form).content

    def articles(self, pmids: Sequence[int]) -> bytes:
        """Return the records of papers as PubMed's XML; those that PubMed does not have are left out."""
        ids = ",".join(map(str, pmids))
        form = {"db": "pubmed", "retmode": "xml", "id": ids}
        return self._asked(self._retries_of_records, "efetch.fcgi", form).content

    def _asked(self, retries: Retries, tool: str, form: Mapping[str, str | list[str]]) -> httpx.Response:
        body = {**form, "tool": "biorag", **self._key}
        response = retries(self._http.build_request("POST", f"{self._url}/{tool}", data=body), self._send)
        if not response.is_success:
            raise ServiceError(f"the server at {self._url} {self._retries.said(response)}: check --eutils and the key")
        return response

    def _send(self, request: httpx.Request) -> httpx.Response:
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause
        return self._http.send(request)


def _is_pubmed_xml(response: httpx.Response) -> bool:
    """Return whether an answer that succeeded ends as efetch's do: a cut one may have lost records."""
    return not response.is_success or response.content.rstrip().endswith(b"</PubmedArticleSet>")


class KeptLines:
    """Answers on disk, a line each; what a kill tore is skipped, and asked for again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> Iterator[bytes]:
        """Yield the lines."""
        if self._path.is_file():
            with self._path.open("rb") as stream:
                yield from stream

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, durably."""
        make_folder(self._path.parent)
        lines = [json.dumps(row) + "\n" for row in rows]
        with self._path.open("ab") as stream:
            # The line's end first: the last line may have been torn.
            stream.write(("\n" + "".join(lines)).encode())
            stream.flush()
            os.fsync(stream.fileno())


class KeptAnswers(KeptLines):
    """What papers cite, as was answered."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from asking meanwhile: NCBI's rules count the requests of all together.

        Raises
        ------
        ServiceError
            If another process is asking.
        """
        make_folder(self._path.parent)
        with self._path.open("ab") as stream:
            if not try_lock(stream):
                raise ServiceError(
                    "another biorag process is asking the E-utilities: run the same command again when it ends"
                )
            yield

    def read(self, pmids: Set[int]) -> dict[int, list[int]]:
        """Return what was answered for papers."""
        answers = {}
        for line in self.lines():
            try:
                kept: _Kept = parsed(_Kept, line)
            except ValueError:
                continue
            if kept.pmid in pmids:
                answers[kept.pmid] = list(kept.cites)
        return answers

    def keep(self, answers: Mapping[int, Sequence[int]]) -> None:
        """Append answers, durably."""
        self.append({"pmid": pmid, "cites": list(cited)} for pmid, cited in answers.items())


def fill_gaps(folder: Path, index: Index, link: EUtils, kept: KeptAnswers, on_progress: OnProgress) -> Filled:
    """Add to the graph in a folder what those papers of an index cite that it has no references of; alone.

    Raises
    ------
    ServiceError
        If another process is asking, or writes the graph; or as `EUtils` does.
    """
    with kept.alone():
        return fill_papers(folder, indexed_papers(index), link, kept, on_progress)


def indexed_papers(index: Index) -> Papers:
    """Return the papers of an index, sorted."""
    pmids = {pmid for pmid in map(paper_of, stored_snippets(index)) if pmid is not None}
    return np.array(sorted(pmids), np.uint32)


def fill_papers(folder: Path, papers: Papers, link: EUtils, kept: KeptAnswers, on_progress: OnProgress) -> Filled:
    """Add to the graph in a folder what those papers cite that it has no references of; see `fill_gaps`."""
    started = time.perf_counter()
    before = read_manifest(folder)
    lacking = papers[~Graph(folder).citing(papers)] if before else papers
    answers = kept.read(set(lacking.tolist()))
    known = len(answers)
    missing = [pmid for pmid in lacking.tolist() if pmid not in answers]
    for batch in batched(missing, BATCH):
        cited = link.cited(batch)
        kept.keep(cited)
        answers |= cited
        on_progress(len(batch))
    keys = _edges(answers)
    after = add(folder, "E-utilities", keys) if keys.size else before
    return Filled(
        papers=papers.size,
        lacking=lacking.size,
        kept=known,
        asked=len(missing),
        unanswered=lacking.size - len(answers),
        empty=sum(not cited for cited in answers.values()),
        edges=after.edges if after else 0,
        added=(after.edges if after else 0) - (before.edges if before else 0),
        seconds=round(time.perf_counter() - started, 3),
    )


def _edges(answers: Mapping[int, Sequence[int]]) -> Keys:
    pairs = np.array([(pmid, other) for pmid, cited in answers.items() for other in cited], np.uint64).reshape(-1, 2)
    return distinct(edge_keys(pairs[:, 0], pairs[:, 1]))
