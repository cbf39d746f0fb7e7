"""A file that a killed run goes on with: beside it the manifest of all that determines its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from biorag.errors import MismatchError, ServiceError
from biorag.utils.files import sha256_of, try_lock, write_json

NEXT_STEP = "choose another --out"


def changed_keys(known: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Return the keys in which an identity that was read back differs from the one that is wanted now."""
    wanted = json.loads(json.dumps(identity))
    return sorted(key for key in {*known, *wanted} if known.get(key) != wanted.get(key))


@dataclass(frozen=True, slots=True)
class ResumableFile:
    """A JSONL file that grows by whole lines; `identity` is everything that determines its bytes."""

    path: Path
    identity: Mapping[str, Any]

    @property
    def manifest(self) -> Path:
        """Where the identity is kept, and whether the file is complete."""
        return self.path.with_name(f"{self.path.name}.manifest.json")

    def held_counts(self) -> Mapping[str, int] | None:
        """Return the counts of a file that is complete; None if there is still something to do.

        Raises
        ------
        MismatchError
            If the file is of other settings, has no manifest, or was changed since.
        """
        if not self.path.exists():
            return None
        if not self.manifest.is_file():
            raise MismatchError(f"{self.path} is there, but not with the manifest of what made it: {NEXT_STEP}")
        try:
            held = json.loads(self.manifest.read_bytes())
            known, complete = dict(held["identity"]), held["complete"]
            counts = dict(held["counts"]) if complete else None
        except (ValueError, KeyError, TypeError) as error:
            raise MismatchError(f"{self.manifest} is damaged ({error}): {NEXT_STEP}") from None
        if changed := changed_keys(known, self.identity):
            raise MismatchError(f"{self.path} was made with other {', '.join(changed)}: {NEXT_STEP}")
        if complete and sha256_of(self.path) != held.get("sha256"):
            raise MismatchError(f"{self.path} was changed after it was made: {NEXT_STEP}, or delete it")
        return counts

    def whole_lines(self) -> Iterator[bytes]:
        """Yield the lines that have an end; a last one without was torn by a kill."""
        if self.path.is_file():
            with self.path.open("rb") as stream:
                yield from (line for line in stream if line.endswith(b"\n"))

    @contextmanager
    def appending(self) -> Iterator[BinaryIO]:
        """Open an incomplete file to go on with it, alone, having written its manifest.

        Raises
        ------
        ServiceError
            If another process is writing it.
        """
        self.save(complete=False)
        with self.path.open("ab") as stream:
            if not try_lock(stream):
                raise ServiceError(
                    f"{self.path} is being written by another biorag process: wait for that to end, or {NEXT_STEP}"
                )
            yield stream

    def save(self, complete: bool, **facts: Any) -> None:
        """Write the manifest."""
        write_json(self.manifest, {"complete": complete, "identity": dict(self.identity), **facts})

    def complete(self, counts: Mapping[str, int]) -> None:
        """Mark the file as complete."""
        self.save(complete=True, counts=dict(counts), sha256=sha256_of(self.path))

    def remove(self) -> None:
        """Delete the file, then its manifest."""
        self.path.unlink(missing_ok=True)
        self.manifest.unlink(missing_ok=True)
