"""One's own papers behind hits: found by what the index recorded of them, and served only as they were indexed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from biorag.api.session import Session
from biorag.errors import MismatchError, MissingError
from biorag.faces.server.asking import WorkQueue
from biorag.faces.session_pool import SessionPool
from biorag.indexes.records import read_ledger
from biorag.indexes.store import Store
from biorag.models.finding import hash_of_file
from biorag.types import Hit, Snippet

TEXT = "text/plain; charset=utf-8"  # of web pages too: nothing in them runs
SHOWN = {".pdf": "application/pdf", **dict.fromkeys((".txt", ".md", ".markdown", ".html", ".htm", ".xhtml"), TEXT)}
DOWNLOADED = (".docx", ".epub")


class OwnFiles:
    """The papers that indexes were made of."""

    def __init__(self, pool: SessionPool, searching: WorkQueue) -> None:
        self._pool, self._searching = pool, searching
        # by document, with the time of the index that they are of
        self._known: WeakKeyDictionary[Session, tuple[str, Mapping[str, tuple[Path, str | None]]]] = WeakKeyDictionary()

    async def open(self, request: Request) -> Response:
        """Return the paper that a snippet is of."""
        index, id = (request.query_params.get(name, "") for name in ("index", "id"))
        return await self._searching.run(lambda: self._opened(index, id))

    def links(self, session: Session, hits: Sequence[Hit]) -> dict[str, str]:
        """Return the addresses of hits' papers at their pages, by the ids of snippets that have one."""
        return {
            hit.snippet.id: _address(session.name, hit.snippet) for hit in hits if self._file_of(session, hit.snippet)
        }

    def _opened(self, index: str, id: str) -> Response:
        with self._pool.lend(index) as session:
            snippets = (one for one in session.show(id).snippets if one.id == id)
            file = next(filter(None, (self._file_of(session, snippet) for snippet in snippets)), None)
        if file is None:
            raise MissingError("no paper of yours is known for this source")
        path, sha256 = file
        try:
            is_same = hash_of_file(path) == sha256
        except OSError:
            raise MissingError(f"{path.name} is no longer where it was indexed, or cannot be read") from None
        if not is_same:
            raise MismatchError(f"{path.name} is not as it was when it was indexed: index it again, then ask again")
        kind = SHOWN.get(path.suffix.lower())
        type, shown = kind or "application/octet-stream", "inline" if kind else "attachment"
        return FileResponse(path, media_type=type, filename=path.name, content_disposition_type=shown)

    def _file_of(self, session: Session, snippet: Snippet) -> tuple[Path, str | None] | None:
        """Return a snippet's paper, and its hash when it was indexed; None for that where it no longer counts."""
        if not isinstance(snippet.metadata.get("file"), str):  # which readers of papers set
            return None
        if self._known.get(session, ("",))[0] != session.updated:
            held = read_ledger(Store(session.settings).folder).files.items()
            papers = [(Path(name), file) for name, file in held if name.lower().endswith((*SHOWN, *DOWNLOADED))]
            files = {one: (path, file.sha256) for path, file in papers for one in file.documents}
            self._known[session] = session.updated, files
        return self._known[session][1].get(snippet.document)


def _address(index: str, snippet: Snippet) -> str:
    """Return the address of a snippet's paper, at its page."""
    page = snippet.metadata.get("page")
    anchor = f"#page={page}" if isinstance(page, int) else ""
    return f"/files?{urlencode({'index': index, 'id': snippet.id})}{anchor}"
