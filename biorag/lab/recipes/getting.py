"""Getting the inputs of a recipe: files are downloaded, data sets of the hub fetched by its own program, `hf`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal
from urllib.parse import urlsplit

import httpx

from biorag.corpus.sources import DEMO
from biorag.errors import MismatchError, MissingError, ServiceError, check_name
from biorag.lab.recipes.recipe import ExperimentRecipe
from biorag.settings.services import ServiceSettings
from biorag.types import Progress
from biorag.utils.files import check_output, disk_bytes, make_folder, replacing, require_room, sha256_of
from biorag.utils.http import EXCERPT, ReplyRefusedError, Retries
from biorag.utils.network import Server, is_server, proxy_of, without_credentials

HUB = "hf download "  # the only program that a recipe's file has run
STDERR = 2
MB = 1_000_000
PAGES = (".html", ".htm")
Way = Literal["download", "hub", "by hand"]


@dataclass(frozen=True, slots=True)
class WantedInput:
    """A missing input, and how it is got: `get` is a file's URL, a command, or what a person reads."""

    name: str
    path: str
    what: str
    gigabytes: float
    licence: str
    way: Way
    get: str
    sha256: str

    @property
    def description(self) -> str:
        """The path, the data set, and where to get it."""
        return f"{self.path} ({'; '.join(filter(None, (self.what, self.get)))})"


def wanted_inputs(recipe: ExperimentRecipe, scale: str, data: Path, names: Sequence[str] = ()) -> list[WantedInput]:
    """Return the missing inputs of a scale, all that it needs or those of these names.

    Raises `UsageError` if there is no such scale, or it has no such input.
    """
    check_name("scale", scale, recipe.scales)
    paths = recipe.scales[scale].paths(data)
    for name in names:
        check_name("input", name, paths)
    wanted = []
    for name, path in paths.items():
        described = recipe.inputs[name]
        is_wanted = name in names if names else not described.option
        is_there = Path(path).exists() and not part_of(Path(path)).exists()
        if is_wanted and path != DEMO and not is_there:
            get = described.get.replace("{data}", shlex.quote(str(data)))
            size, licence = described.gigabytes, described.licence
            way = _way(described.get, path)
            wanted.append(WantedInput(name, path, described.what, size, licence, way, get, described.sha256))
    return wanted


def _way(get: str, path: str) -> Way:
    """Return how an input is got; a URL is a file's if it is all there is and ends as the path does."""
    if get.startswith(HUB):
        return "hub"
    suffix = Path(path).suffix
    is_file = is_server(get) and len(get.split()) == 1 and PurePosixPath(urlsplit(get).path).suffix == suffix != ""
    return "download" if is_file else "by hand"


def require_room_for(wanted: Sequence[WantedInput], data: Path) -> None:
    """Raise `ServiceError` unless the disk has room for what is missing of these inputs."""
    folder = next(folder for folder in (data, *data.absolute().parents) if folder.is_dir())
    needed = sum(max(0, int(lacking.gigabytes * 1e9) - _held(Path(lacking.path))) for lacking in wanted)
    require_room(folder, needed)


def _held(path: Path) -> int:
    """Return the bytes that an earlier run got."""
    return disk_bytes(path) if path.is_dir() else 0


def part_of(path: Path) -> Path:
    """Return the file that lies beside a path until the hub's program has ended well."""
    return path.with_name(f"{path.name}.part")


def get_input(wanted: WantedInput, services: ServiceSettings, progress: Progress) -> None:
    """Get an input that a program can get; the hub's program resumes what was interrupted.

    Raises `ServiceError` if the server or the program fails, `MismatchError` if a file has another SHA-256.
    """
    path = Path(wanted.path)
    check_output(path, is_folder=True)
    if wanted.way == "download":
        _download(Server(wanted.get, services.timeout, services.retries), path, wanted.sha256, progress)
        return
    _run_hub(wanted.get, path)
    if wanted.sha256 and path.is_file() and sha256_of(path) != wanted.sha256:
        raise MismatchError(f"{path} does not have the published SHA-256: delete it, then run the same command again")
    part_of(path).unlink()


def _download(server: Server, path: Path, sha256: str, progress: Progress) -> None:
    """Download a file, which takes its place once it is whole."""
    url = without_credentials(server.url)
    advice = f"run the same command again, or put the file at {path} by hand"
    retries = Retries(f"the server of {url}", advice, server.retries, is_complete=lambda _: True)
    transport = httpx.HTTPTransport(proxy=proxy_of(server.url) or None)
    client = httpx.Client(timeout=server.timeout, transport=transport, follow_redirects=True)
    with client, replacing(path) as stream:
        request = client.build_request("GET", server.url, headers={"Accept-Encoding": "identity"})
        response = retries(request, partial(_send, client, stream, path, progress))
        if not response.is_success:
            raise retries.refusal(response, f": {advice}")
        stream.flush()
        if sha256 and (actual := sha256_of(Path(stream.name))) != sha256:
            raise MismatchError(
                f"{url} has the SHA-256 {actual[:12]}, not {sha256[:12]} as published, and is not kept: {advice}"
            )


def _send(
    client: httpx.Client, stream: BinaryIO, path: Path, progress: Progress, request: httpx.Request
) -> httpx.Response:
    """Ask for a file and write it; of a failure the beginning is read."""
    with closing(client.send(request, stream=True)) as response:
        if not response.is_success:
            response._content = next(response.iter_bytes(EXCERPT), b"")  # as `response.read()` keeps it
            return response
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", ""):
            raise ReplyRefusedError("its reply is compressed, which was not asked for")
        if "html" in response.headers.get("Content-Type", "") and path.suffix not in PAGES:
            raise ReplyRefusedError("its reply is a page, not a file")
        stream.seek(0)
        stream.truncate()
        try:
            _write(response, stream, path, progress)
        except httpx.RemoteProtocolError:
            raise httpx.ReadError("the file broke off") from None
    return response


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


def _run_hub(command: str, path: Path) -> None:
    """Run `hf download`, with the part beside the path meanwhile, which may be there long before all of it is."""
    program = shutil.which("hf", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise MissingError("hf, the program of the Hugging Face hub, is not there: run pip install huggingface_hub")
    words = [program, *shlex.split(command)[1:]]
    # Where hf does not reach the hub it ends well with what is in the folder, but for a dry run.
    if subprocess.run([*words, "--dry-run"], capture_output=True, check=False).returncode:
        raise ServiceError(
            f"the hub does not give what '{command}' asks for: check the connection and, for a gated set, HF_TOKEN, "
            "then run the same command again"
        )
    make_folder(path.parent)
    part_of(path).touch()
    code = subprocess.run(words, stdout=STDERR, check=False).returncode
    if code or not path.exists():
        fault = f"ended with code {code}" if code else f"wrote no {path}"
        raise ServiceError(f"'{command}' {fault}: see what it says above, then run the same command again")
