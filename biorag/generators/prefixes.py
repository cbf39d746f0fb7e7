"""llama.cpp's state after a prompt's fixed beginning, kept on disk, so that a new process need not evaluate it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError
from biorag.utils.files import replacing
from biorag.utils.parsing import read_regular

logger = logging.getLogger(__name__)

MOST = 16  # files
MOST_BYTES = 512 << 20  # of all files
DIGEST = hashlib.sha256().digest_size
SUFFIX = ".state"


class PrefixStates:
    """The states of one model, a file for each prefix; several processes may share the folder.

    A file is the SHA-256 of a state, then the state. One that is damaged is ignored and replaced; where the folder
    cannot be written, nothing is kept. Beyond `MOST` files or `MOST_BYTES` the ones longest unused are removed.

    Parameters
    ----------
    identity : all that determines a state besides the prefix: JSON values
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self._folder = folder
        self._identity = identity

    def read(self, prefix: Sequence[int]) -> bytes | None:
        """Return the state after these tokens; None where there is none, or none that is whole."""
        path = self._path(prefix)
        try:
            content = read_regular(path, MOST_BYTES)
        except FileNotFoundError:
            return None
        except (BadInputError, OSError) as error:
            logger.warning("the evaluated prefix %s cannot be read (%s): it is evaluated again", path, error)
            return None
        digest, state = content[:DIGEST], content[DIGEST:]
        if hashlib.sha256(state).digest() != digest:
            logger.warning("the evaluated prefix %s is damaged: it is made again", path)
            return None
        self._mark_used(path)
        return state

    def write(self, prefix: Sequence[int], state: bytes) -> None:
        """Keep the state after these tokens."""
        if DIGEST + len(state) > MOST_BYTES:
            return
        path = self._path(prefix)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                path.unlink()  # a pipe or a device would be written to, not replaced
            with replacing(path) as stream:
                stream.write(hashlib.sha256(state).digest())
                stream.write(state)
            self._remove_unused()
        except OSError as error:
            logger.info("the evaluated prefix cannot be kept (%s)", error)

    def _path(self, prefix: Sequence[int]) -> Path:
        key = hashlib.sha256(json.dumps([self._identity, list(prefix)], sort_keys=True).encode()).hexdigest()
        return self._folder / f"{key}{SUFFIX}"

    def _mark_used(self, path: Path) -> None:
        try:
            os.utime(path)
        except OSError as error:
            logger.debug("%s cannot be marked as used: %s", path, error)

    def _remove_unused(self) -> None:
        """Remove the files longest unused that are too many, or too large together."""
        total = 0
        states = [(path.stat(), path) for path in self._folder.glob(f"*{SUFFIX}")]
        newest_first = sorted(states, key=lambda entry: entry[0].st_mtime_ns, reverse=True)
        for count, (status, path) in enumerate(newest_first, 1):
            total += status.st_size
            if count > MOST or total > MOST_BYTES:
                path.unlink(missing_ok=True)
