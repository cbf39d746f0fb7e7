"""Getting the inputs of a recipe: files are downloaded, data sets of the hub fetched by its own program, `hf`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from biorag.corpus.sources import DEMO
from biorag.errors import MismatchError, MissingError, ServiceError, check_name
from biorag.lab.recipes.downloading import download, part_of
from biorag.lab.recipes.recipe import ExperimentRecipe
from biorag.settings.services import ServiceSettings
from biorag.types import Progress
from biorag.utils.files import check_output, disk_bytes, make_folder, require_room, sha256_of
from biorag.utils.network import Server, is_server

HUB = "hf download "  # the only program that a recipe's file has run
STDERR = 2
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
    part = part_of(path)
    return (part.stat().st_size if part.is_file() else 0) + (disk_bytes(path) if path.is_dir() else 0)


def get_input(wanted: WantedInput, services: ServiceSettings, progress: Progress) -> None:
    """Get an input that a program can get; an interrupted run is resumed.

    Raises `ServiceError` if the server or the program fails, `MismatchError` if a file has another SHA-256.
    """
    path = Path(wanted.path)
    check_output(path, is_folder=True)
    if wanted.way == "download":
        server = Server(wanted.get, services.timeout, services.retries)
        download(server, path, wanted.sha256, progress)
        return
    _run_hub(wanted.get, path)
    if wanted.sha256 and path.is_file() and sha256_of(path) != wanted.sha256:
        raise MismatchError(f"{path} does not have the published SHA-256: delete it, then run the same command again")
    part_of(path).unlink()


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
