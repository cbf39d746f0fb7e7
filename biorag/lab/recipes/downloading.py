"""Downloading a file: resumed where it broke off, checked, and put in its place once it is whole."""

from __future__ import annotations

import os
import re
from contextlib import closing
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

import httpx

from biorag.errors import MismatchError, ServiceError
from biorag.types import Progress
from biorag.utils.files import make_folder, require_room, sha256_of, sync_folder, try_lock, write_text
from biorag.utils.http import EXCERPT, ReplyRefusedError, Retries
from biorag.utils.locks import begun
from biorag.utils.network import Server, proxy_of, without_credentials
from biorag.utils.parsing import opened_regular

MB = 1_000_000
PAGES = (".html", ".htm")
FROM = re.compile(r"bytes ([0-9]{1,18})-")


def part_of(path: Path) -> Path:
    """Return the file that lies beside a path until all that is downloaded to the path is there."""
    return path.with_name(f"{path.name}.part")


def download(server: Server, path: Path, sha256: str, progress: Progress) -> None:
    """Download the file at a server's URL to a path; what an earlier run left of it, in the part beside it, is kept.

    A part is resumed if the server says that the file is still the same (`If-Range`, RFC 9110, 13.1.5), or its SHA-256
    is known. Raises `ServiceError` if the server does not give it, or another process is downloading it;
    `MismatchError` if its SHA-256 is another.
    """
    make_folder(path.parent)
    part = part_of(path)
    with opened_regular(part, "ab") as stream:
        if not try_lock(stream):
            raise ServiceError(f"another process is downloading {path}: wait until it has ended")
        begun.add("download")
        _fill(stream, server, path, bool(sha256), progress)
        stream.flush()
        os.fsync(stream.fileno())
        if sha256 and (actual := sha256_of(part)) != sha256:
            stream.truncate(0)
            raise MismatchError(
                f"{without_credentials(server.url)} has the SHA-256 {actual[:12]}, not {sha256[:12]} as published, and "
                "is not kept: run the same command again, or put the published file there by hand"
            )
        part.replace(path)
    _version_of(path).unlink(missing_ok=True)
    sync_folder(path.parent)


def _fill(stream: BinaryIO, server: Server, path: Path, is_known: bool, progress: Progress) -> None:
    """Write what a part lacks, in as many tries as the server may take."""
    url = without_credentials(server.url)
    advice = f"run the same command again, which resumes, or put the file at {path} by hand"
    retries = Retries(f"the server of {url}", advice, server.retries, is_complete=lambda _: True)
    transport = httpx.HTTPTransport(proxy=proxy_of(server.url) or None)
    with httpx.Client(timeout=server.timeout, transport=transport, follow_redirects=True) as client:
        request = client.build_request("GET", server.url, headers={"Accept-Encoding": "identity"})
        response = retries(request, partial(_send, client, stream, path, is_known, progress))
    if not response.is_success:
        raise retries.refusal(response, f": {advice}")


def _send(
    client: httpx.Client, stream: BinaryIO, path: Path, is_known: bool, progress: Progress, request: httpx.Request
) -> httpx.Response:
    """Ask for the rest of a part and write it; of a failure the beginning is read."""
    size, version = stream.seek(0, os.SEEK_END), _version_of(path)
    same = version.read_text(encoding="utf-8") if version.is_file() else ""
    request.headers.pop("Range", None)
    if size and (same or is_known):
        request.headers["Range"] = f"bytes={size - 1}-"  # the last byte again: a whole part has no rest
        request.headers.update({"If-Range": same} if same else {})
    with closing(client.send(request, stream=True)) as response:
        if not response.is_success:
            response._content = next(response.iter_bytes(EXCERPT), b"")  # as `response.read()` keeps it
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                stream.truncate(0)
            return response
        start = _start(response, size, path)
        stream.truncate(start)
        if start == 0:
            write_text(version, _same(response))
        try:
            _write(response, stream, path, progress)
        except httpx.RemoteProtocolError:
            raise httpx.ReadError("the file broke off") from None
    return response


def _start(response: httpx.Response, size: int, path: Path) -> int:
    """Return where in the file a reply begins; raise `ReplyRefusedError` if it is not what was asked for."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", ""):
        raise ReplyRefusedError("its reply is compressed, which was not asked for")
    if "html" in response.headers.get("Content-Type", "") and path.suffix not in PAGES:
        raise ReplyRefusedError("its reply is a page, not a file")
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        return 0
    begins = FROM.match(response.headers.get("Content-Range", ""))
    if begins is None or int(begins[1]) != size - 1:
        raise ReplyRefusedError("its reply is another part of the file than was asked for")
    return size - 1


def _write(response: httpx.Response, stream: BinaryIO, path: Path, progress: Progress) -> None:
    length = response.headers.get("Content-Length", "")
    left, done = int(length) if length.isdecimal() else 0, 0
    require_room(path.parent, left)
    with progress(f"Downloading {path.name}, MB", left // MB or None) as advance:
        for piece in response.iter_raw():
            stream.write(piece)
            if whole := (done + len(piece)) // MB - done // MB:
                advance(whole)
            done += len(piece)


def _version_of(path: Path) -> Path:
    """Return the file that keeps what tells whether a file has changed on its server."""
    return path.with_name(f"{path.name}.part.version")


def _same(response: httpx.Response) -> str:
    """Return what `If-Range` takes of a reply: its strong ETag, or its date; "" if it has neither."""
    tag, date = (str(response.headers.get(name, "")) for name in ("ETag", "Last-Modified"))
    return tag if tag.startswith('"') else date
