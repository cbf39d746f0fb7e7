"""One's own papers behind hits: found by what the index recorded of them, and served only as they were indexed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

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

    async def open(self, request: Request) -> Response:
        """Return the paper that a snippet is of."""
        index, id = (request.query_params.get(name, "") for name in ("index", "id"))
        return await self._searching.run(lambda: self._opened(index, id))

    def links(self, session: Session, hits: Sequence[Hit]) -> dict[str, str]:
        """Return the addresses of hits' papers at their pages, by the ids of snippets that have one."""
        return {hit.snippet.id: _address(session.name, hit.snippet) for hit in hits if _file_of(session, hit.snippet)}

    def _opened(self, index: str, id: str) -> Response:
        with self._pool.lend(index) as session:
            snippets = (one for one in session.show(id).snippets if one.id == id)
            file = next(filter(None, (_file_of(session, snippet) for snippet in snippets)), None)
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


def _file_of(session: Session, snippet: Snippet) -> tuple[Path, str | None] | None:
    """Return a snippet's paper, and its hash when it was indexed; None for that where it no longer counts."""
    is_of_file = isinstance(snippet.metadata.get("file"), str)  # which readers of papers set
    return session.fact(_papers).get(snippet.document) if is_of_file else None


def _papers(session: Session) -> Mapping[str, tuple[Path, str | None]]:
    """Return the papers that an index was made of, with their hashes, by document."""
    held = read_ledger(Store(session.settings).folder).files.items()
    papers = [(Path(name), file) for name, file in held if name.lower().endswith((*SHOWN, *DOWNLOADED))]
    return {one: (path, file.sha256) for path, file in papers for one in file.documents}


def _address(index: str, snippet: Snippet) -> str:
    """Return the address of a snippet's paper, at its page."""
    page = snippet.metadata.get("page")
    anchor = f"#page={page}" if isinstance(page, int) else ""
    return f"/files?{urlencode({'index': index, 'id': snippet.id})}{anchor}"
