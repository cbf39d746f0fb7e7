"""The folder of a training run: what it is a run of, how far it came, and where to go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.errors import MismatchError
from biorag.indexes.lock import LOCK, IndexLock
from biorag.training import distributed
from biorag.utils.files import write_json

MANIFEST = "training.json"
CHECKPOINTS = "checkpoints"
STATE = "trainer_state.json"
BASE = "base"  # what a reranker starts from, in ColBERT's layout; a retriever from GGUF, in transformers'


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that holds one run; `identity` is everything that determines its result.

    Of several processes of the run the first alone locks and writes it.
    """

    path: Path
    identity: Mapping[str, Any]

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.path / CHECKPOINTS

    def finished(self) -> dict[str, Any] | None:
        """Return the manifest of a run that came to its end; None if there is still something to do.

        A run that never came to a checkpoint holds nothing that could be lost, so another may take its place.

        Raises
        ------
        MismatchError
            If the folder holds something else, or a run of other data or settings.
        """
        manifest = self.path / MANIFEST
        if not manifest.is_file():
            if self.path.exists() and not (self.path.is_dir() and all(map(_is_temporary, self.path.iterdir()))):
                raise MismatchError(f"{self.path} holds something else than a training run: choose another --out")
            return None
        try:
            held = json.loads(manifest.read_bytes())
            known, complete = held["identity"], held["complete"]
        except (ValueError, KeyError, TypeError) as error:
            raise MismatchError(f"{manifest} is damaged ({error}): choose another --out") from None
        wanted = json.loads(json.dumps(self.identity))
        if known != wanted and (complete or self.last_checkpoint()):
            changed = ", ".join(_differences(known, wanted))
            raise MismatchError(f"{self.path} holds a run with other {changed}: choose another --out")
        if not complete:
            return None
        self._drop_leftovers()  # of a run that was killed while it cleaned up
        return dict(held)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; no process of this one goes on before they are.

        Raises
        ------
        ServiceError
            If another run trains into the folder.
        """
        lock = IndexLock(self.path, exclusive=True, what="training run") if distributed.is_first() else nullcontext()
        with lock:
            distributed.wait()
            yield

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a run under way."""
        self._write(False, facts)

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write and return the manifest of a run whose model lies in the folder; drop what only resuming needs."""
        distributed.wait()  # the others may still read the best checkpoint
        manifest = self._write(True, facts)
        self._drop_leftovers()
        return manifest

    def _drop_leftovers(self) -> None:
        if not distributed.is_first():
            return
        (self.path / LOCK).unlink(missing_ok=True)
        for name in (CHECKPOINTS, BASE):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def _write(self, complete: bool, facts: Mapping[str, Any]) -> dict[str, Any]:
        manifest = {"complete": complete, "identity": dict(self.identity), **facts}
        if distributed.is_first():
            write_json(self.path / MANIFEST, manifest)
        return manifest

    @property
    def base(self) -> Path:
        """Where a starting checkpoint lies that had to be written in another layout."""
        return self.path / BASE

    def last_checkpoint(self) -> Path | None:
        """Return the newest checkpoint that was written whole: its state file is the last to be written.

        The state names the best checkpoint by its path; that is set right where the folder was moved.
        """
        found = [path for path in self.checkpoints.glob("checkpoint-*") if _state(path)]
        last = max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
        if last and distributed.is_first() and (best := _state(last).get("best_model_checkpoint")):
            here = str(self.checkpoints / Path(best).name)
            write_json(last / STATE, {**_state(last), "best_model_checkpoint": here})
        return last


def _is_temporary(path: Path) -> bool:
    """Return whether a file is the lock, or what a kill left of the manifest's first writing."""
    return path.name == LOCK or path.name.startswith(f".{MANIFEST}.")


def _state(checkpoint: Path) -> dict[str, Any]:
    """Return the trainer's state of a checkpoint; empty where it was not written whole."""
    try:
        return dict(json.loads((checkpoint / STATE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _differences(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the names of values that differ, those of nested settings by themselves."""
    names = []
    for key in sorted({*known, *wanted}):
        ours, theirs = known.get(key), wanted.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            names += _differences(ours, theirs)
        elif ours != theirs:
            names.append(key)
    return names
