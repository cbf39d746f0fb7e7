"""References from NCBI's E-utilities, for papers whose references no file has.

Entrez Programming Utilities Help, NCBI: `elink`, by id, with the link `pubmed_pubmed_refs`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
from pydantic import Field

from biorag.citation_graph.building import add
from biorag.citation_graph.coverage import paper_of
from biorag.citation_graph.graph import Graph, read_manifest
from biorag.citation_graph.rows import LARGEST, Keys, distinct, edge_keys
from biorag.errors import ServiceError
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


class ELink:
    """Asks what papers cite, no faster than NCBI allows.

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
        transport = BoundedTransport(self._url, server.timeout)
        self._http = httpx.Client(timeout=server.timeout, auth=server.auth, transport=transport)
        advice = "run the same command again later: what was answered is kept"
        self._retries = Retries(f"the server at {self._url}", advice, server.retries)

    def cited(self, pmids: Sequence[int]) -> dict[int, list[int]]:
        """Return what papers cite; those that the answer leaves out are left out."""
        form = {"dbfrom": "pubmed", "db": "pubmed", "linkname": LINK, "retmode": "json", "tool": "biorag", **self._key}
        body = {**form, "id": [str(pmid) for pmid in pmids]}
        request = self._http.build_request("POST", f"{self._url}/elink.fcgi", data=body)
        response = self._retries(request, self._send)
        if not response.is_success:
            raise ServiceError(f"the server at {self._url} {self._retries.said(response)}: check --eutils and the key")
        try:
            answer: _Answer = parsed(_Answer, response.content, "ignore")
        except ValueError:
            raise ServiceError(
                f"the server at {self._url} {self._retries.said(response)}, not a list of links: check --eutils"
            ) from None
        cited = {int(links.ids[0]): links.cited() for links in answer.linksets}
        return {pmid: cited[pmid] for pmid in pmids if pmid in cited}

    def _send(self, request: httpx.Request) -> httpx.Response:
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause
        return self._http.send(request)


class KeptAnswers:
    """Answers on disk, a line each; what a kill tore is skipped, and asked for again."""

    def __init__(self, path: Path) -> None:
        self._path = path

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
        if self._path.is_file():
            with self._path.open("rb") as stream:
                for line in stream:
                    try:
                        kept: _Kept = parsed(_Kept, line)
                    except ValueError:
                        continue
                    if kept.pmid in pmids:
                        answers[kept.pmid] = list(kept.cites)
        return answers

    def keep(self, answers: Mapping[int, Sequence[int]]) -> None:
        """Append answers, durably."""
        make_folder(self._path.parent)
        lines = [json.dumps({"pmid": pmid, "cites": list(cited)}) + "\n" for pmid, cited in answers.items()]
        with self._path.open("ab") as stream:
            # The line's end first: the last line may have been torn.
            stream.write(("\n" + "".join(lines)).encode())
            stream.flush()
            os.fsync(stream.fileno())


def fill_gaps(folder: Path, index: Index, link: ELink, kept: KeptAnswers, on_progress: OnProgress) -> Filled:
    """Add to the graph in a folder what those papers of an index cite that it has no references of; alone.

    Raises
    ------
    ServiceError
        If another process is asking, or writes the graph; or as `ELink` does.
    """
    started = time.perf_counter()
    with kept.alone():
        before = read_manifest(folder)
        pmids = {pmid for pmid in map(paper_of, stored_snippets(index)) if pmid is not None}
        papers = np.array(sorted(pmids), np.uint32)
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
