"""What the user trusts: configuration files by path and hash, indexes on servers by path and URL, hosts with a key.

A file that was trusted and has changed since is not trusted any more. All of it is kept in one file, which only its
owner may read, in the platform's folder for configurations.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from platformdirs import user_config_path

from biorag.errors import UsageError
from biorag.utils.files import make_folder, write_json
from biorag.utils.parsing import parsed_file

logger = logging.getLogger(__name__)

State = Literal["trusted", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class Trusted:
    """What is trusted: SHA-256 of files by path, URLs of indexes by the path of their manifest, hosts with a key."""

    files: dict[str, str] = field(default_factory=dict)
    indexes: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def state(self, path: Path, content: bytes) -> State:
        """Return whether a configuration file is trusted as it is now."""
        sha256 = self.files.get(place_of(path))
        return "unknown" if sha256 is None else "trusted" if sha256 == _hash(content) else "changed"

    def trust(self, path: Path, content: bytes) -> None:
        """Trust a configuration file for as long as it stays as it is."""
        self.files[place_of(path)] = _hash(content)


def store() -> Path:
    """Return the file that keeps what is trusted."""
    return user_config_path("biorag") / "trusted.json"


def trusted() -> Trusted:
    """Return what is trusted.

    Raises
    ------
    UsageError
        If the file that keeps it is damaged.
    """
    path = store()
    if not path.is_file() or not path.stat().st_size:
        return Trusted()
    found: Trusted = parsed_file(Trusted, path, UsageError, "delete it, then run 'biorag config trust' again")
    return found


@contextmanager
def updated() -> Iterator[Trusted]:
    """Give what is trusted to be changed, alone, and write it."""
    path = store()
    make_folder(path.parent)
    with path.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = trusted()
        yield changed
        path.touch(mode=0o600)
        write_json(path, asdict(changed))


def trust_index(manifest: Path, url: str) -> None:
    """Record the server of an index that is made or updated here, unless it is recorded."""
    place = place_of(manifest)
    if trusted().indexes.get(place) == url:
        return
    try:
        with updated() as changed:
            changed.indexes[place] = url
    except OSError as error:
        logger.warning("that this index is yours cannot be recorded (%s): name its server each time", error)


def place_of(path: Path) -> str:
    """Return a file's place: its folder's true path and its name, so that a link elsewhere is another file."""
    return str(path.parent.resolve() / path.name)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
