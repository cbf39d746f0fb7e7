"""A client of NCBI's E-utilities, and their answers, kept on disk so that nothing is asked for twice.

Entrez Programming Utilities Help, NCBI: `elink`, by id, with the link `pubmed_pubmed_refs`; `esearch`; `efetch`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from biorag.corpus.citation_graph import LARGEST, faults_named
from biorag.corpus.hardened_xml import elements_of
from biorag.corpus.pubmed import PUBMED
from biorag.corpus.sources import DamagedSourceError
from biorag.errors import BadInputError, ServiceError
from biorag.types import OnProgress
from biorag.utils.files import make_folder
from biorag.utils.http import BoundedTransport, Retries
from biorag.utils.network import Server, without_credentials
from biorag.utils.parsing import parse_json
from biorag.utils.progress import batched

LINK = "pubmed_pubmed_refs"
BATCH = 200  # papers of one request
LARGEST_RECORDS = 64 << 20  # bytes of the records of one request
PER_SECOND, PER_SECOND_WITH_KEY = 3, 10  # requests, by NCBI's rules
T = TypeVar("T")


class EUtils:
    """A client for citations, records and queries, no faster than NCBI allows.

    Raises `ServiceError` if the server, after retries, gives no usable answer, `OfflineError` in offline mode.
    """

    def __init__(self, server: Server) -> None:
        self._url = without_credentials(server.url.rstrip("/"))
        self._key = {"api_key": server.api_key} if server.api_key else {}
        self._pause = 1 / (PER_SECOND_WITH_KEY if server.api_key else PER_SECOND)
        self._next = 0.0
        transport = BoundedTransport(self._url, server.timeout, LARGEST_RECORDS)
        self._http = httpx.Client(timeout=server.timeout, auth=server.auth, transport=transport)
        named, advice = f"the server at {self._url}", "run the same command again later: what was answered is kept"
        self._retries = Retries(named, advice, server.retries)
        self._xml_retries = Retries(named, advice, server.retries, expected="PubMed XML", is_complete=_is_pubmed_xml)

    def cited(self, pmids: Sequence[int]) -> dict[int, list[int]]:
        """Return the papers that each paper cites; those missing from the answer are left out."""
        form = {"dbfrom": "pubmed", "db": "pubmed", "linkname": LINK, "retmode": "json"}
        answer = self._asked_json("elink.fcgi", {**form, "id": list(map(str, pmids))}, _cited, "a list of links")
        return {pmid: answer[pmid] for pmid in pmids if pmid in answer}

    def search(self, query: str, most: int) -> tuple[int, list[int]]:
        """Return how many papers match a query, and the first `most`; raises `BadInputError` at a bad query."""
        form = {"db": "pubmed", "term": query, "retmode": "json", "retmax": str(most)}
        matches, pmids, error = self._asked_json("esearch.fcgi", form, _matches, "a result of a search")
        if error:
            raise BadInputError(f"PubMed refuses the query {query!r:.200} ({error:.200}): change it")
        return matches, pmids

    def records(self, pmids: Sequence[int]) -> Iterator[Any]:
        """Yield the records of papers as elements of PubMed's XML; those that PubMed does not have are left out."""
        form = {"db": "pubmed", "retmode": "xml", "id": ",".join(map(str, pmids))}
        content = self._asked(self._xml_retries, "efetch.fcgi", form).content
        try:
            yield from elements_of([content], "efetch", PUBMED)
        except DamagedSourceError as error:
            raise ServiceError(
                f"the E-utilities did not answer with PubMed's XML ({error.reason}): check --eutils"
            ) from None

    def _asked_json(self, tool: str, form: Mapping[str, str | list[str]], read: Callable[[Any], T], expected: str) -> T:
        """Return the result of `read` for an answer; it may fail."""
        response = self._asked(self._retries, tool, form)
        try:
            return read(parse_json(response.content))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise self._retries.refusal(response, f", not {expected}: check --eutils") from None

    def _asked(self, retries: Retries, tool: str, form: Mapping[str, str | list[str]]) -> httpx.Response:
        body = {**form, "tool": "biorag", **self._key}
        response = retries(self._http.build_request("POST", f"{self._url}/{tool}", data=body), self._send)
        if not response.is_success:
            raise self._retries.refusal(response, ": check --eutils and the key")
        return response

    def _send(self, request: httpx.Request) -> httpx.Response:
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause
        return self._http.send(request)


def _cited(answer: Any) -> dict[int, list[int]]:
    """Return the papers that each paper cites, from an answer of elink."""
    cited = {}
    for links in answer["linksets"]:
        groups = [group["links"] for group in links.get("linksetdbs", ()) if group["linkname"] == LINK]
        cited[int(links["ids"][0])] = [int(link) for group in groups for link in group if 0 < int(link) <= LARGEST]
    return cited


def _matches(answer: Any) -> tuple[int, list[int], str]:
    """Return how many papers match a query, the first of them, and why PubMed refuses it, from an answer of esearch."""
    result = answer["esearchresult"]
    pmids = [pmid for pmid in map(int, result.get("idlist", ())) if 0 < pmid <= LARGEST]
    return int(result["count"]), pmids, str(result.get("ERROR", ""))


def _is_pubmed_xml(response: httpx.Response) -> bool:
    """Return whether an answer that succeeded ends as efetch's do: a cut one may have lost records."""
    return not response.is_success or response.content.rstrip().endswith(b"</PubmedArticleSet>")


class Answers:
    """Answers of the E-utilities about papers, as JSON by kind and PMID."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read(self, kind: str, pmids: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """Yield the answers about those papers that were asked about, in the order of `pmids`."""
        for pmid in pmids:
            query = self._connection.execute("SELECT answer FROM answers WHERE kind = ? AND pmid = ?", (kind, pmid))
            if row := query.fetchone():
                yield pmid, json.loads(row[0])

    def ask(
        self,
        kind: str,
        pmids: Sequence[int],
        question: Callable[[list[int]], Mapping[int, Any]],
        on_progress: OnProgress,
    ) -> int:
        """Ask about those papers that are not answered yet, keeping each batch; return how many that were."""
        known = {pmid for pmid, _ in self.read(kind, pmids)}
        missing = [pmid for pmid in pmids if pmid not in known]
        for batch in batched(missing, BATCH):
            rows = [(kind, pmid, json.dumps(answer)) for pmid, answer in question(batch).items()]
            with self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)
            on_progress(len(batch))
        return len(missing)

    def forget(self, kind: str, pmids: Iterable[int]) -> None:
        """Delete answers that a later run is to ask for again."""
        with self._connection:
            self._connection.executemany(
                "DELETE FROM answers WHERE kind = ? AND pmid = ?", ((kind, pmid) for pmid in pmids)
            )


@contextmanager
def kept_answers(path: Path) -> Iterator[Answers]:
    """Open the file of answers, and keep other processes from asking: NCBI's rules count all requests together.

    Raises `ServiceError` if another process is asking, or at a full disk, `MismatchError` if the file is damaged.
    """
    make_folder(path.parent)
    table = "answers (kind TEXT, pmid INTEGER, answer TEXT, PRIMARY KEY (kind, pmid)) WITHOUT ROWID"
    with faults_named(path, "delete it"), closing(sqlite3.connect(path, timeout=0)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = exclusive")
            connection.executescript(f"BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS {table}; COMMIT;")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            busy = "another biorag process is asking the E-utilities: run the same command again when it ends"
            raise ServiceError(busy) from None
        yield Answers(connection)
