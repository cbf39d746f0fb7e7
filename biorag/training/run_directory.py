"""The directory of a training run, how far the run came, and the processes that train together into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from biorag.errors import BadInputError, BioragError
from biorag.models.finding import check_model_name
from biorag.settings.settings import WITHOUT_EFFECT, Settings
from biorag.utils.files import require_room, write_json
from biorag.utils.locks import LOCK
from biorag.utils.parsing import parse_json, read_regular
from biorag.utils.runs import RunDirectory, changed_keys

CHECKPOINTS = "checkpoints"
STATE = "trainer_state.json"
ROWS = "rows"  # the columns of the rows, which the trainer reads from the disk
BASE = "base"  # where training starts: a reranker in ColBERT's layout, a retriever from GGUF in transformers'


def process_count() -> int:
    """Return how many processes train together, one a device, as accelerate or torchrun starts them."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def is_first_process() -> bool:
    """Return whether this process is the one that locks, writes and prints."""
    return process_count() == 1 or int(os.environ.get("RANK", 0)) == 0


def wait_for_processes() -> None:
    """Wait until every process is here; the first call joins the others and takes this process's device."""
    if process_count() == 1:
        return
    from accelerate import PartialState

    from biorag.models.loading import best_device

    PartialState(cpu=best_device() == "cpu").wait_for_everyone()


def first_decides(answer: bool) -> bool:
    """Return the first process's answer to a question that all are asked at once."""
    if process_count() == 1:
        return answer
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast

    return bool(broadcast(torch.tensor(int(answer), device=PartialState().device)))


class Best(TypedDict):
    """The best evaluation of a run; without held-out rows there is none."""

    metric: str
    value: float | None
    step: int | None


class Trained(TypedDict):
    """What a manifest tells of a run that is complete."""

    rows: int
    steps: int
    final_loss: float | None
    best: Best
    seconds: float
    guard: NotRequired[dict[str, Any]]


class TrainingRun(RunDirectory):
    """A directory that holds one training run.

    Of several processes only the first locks and writes it.
    """

    kind = "training run"
    manifest_name = "training.json"
    facts = Trained

    @property
    def base(self) -> Path:
        """Where a starting checkpoint is that had to be written in another layout."""
        return self.path / BASE

    def changed(self, values: Mapping[str, Any]) -> list[str]:
        """Return the differences; none for a run without a checkpoint, which another may replace without loss.

        A setting that a manifest does not have is newer than it, and had the effect of its default; one that changes
        memory and time alone, which manifests had once, does not count.
        """
        stored = dict(values["identity"])
        effective = {name: value for name, value in stored.get("settings", {}).items() if name not in WITHOUT_EFFECT}
        stored["settings"] = {**Settings().training.identity(), **effective}
        changed = changed_keys(stored, self.identity)
        return changed if values["complete"] or self.last_checkpoint() else []

    def finished(self) -> dict[str, Any] | None:
        """Return the manifest of a complete run; see `RunDirectory.finished`."""
        manifest = super().finished()
        if manifest:
            self._drop_leftovers()  # of a run that was killed while it cleaned up
        return manifest

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out, and processes of this one together; see `check_model_name`, `require_room`."""
        check_model_name(self.path)
        with super().locked() if is_first_process() else nullcontext():
            wait_for_processes()
            try:
                yield
            except Exception as error:
                if not isinstance(error, BioragError):
                    require_room(self.path, 0)  # which a full disk has not, whatever a library says of it
                raise

    def save(self, complete: bool, **facts: Any) -> dict[str, Any]:
        """Return the manifest, which the first process writes."""
        return super().save(complete, **facts) if is_first_process() else self.values(complete, facts)

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write and return the manifest of a run whose model is written; delete the files that only resuming needs."""
        wait_for_processes()  # the others may still read the best checkpoint
        manifest = super().finish(facts)
        self._drop_leftovers()
        return manifest

    def _drop_leftovers(self) -> None:
        if not is_first_process():
            return
        (self.path / LOCK).unlink(missing_ok=True)
        for name in (CHECKPOINTS, ROWS, BASE):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def last_checkpoint(self) -> Path | None:
        """Return the newest checkpoint that was written whole: its state file is written last.

        The state names the best checkpoint by its path, which is corrected if the directory was moved.
        """
        complete = [path for path in (self.path / CHECKPOINTS).glob("checkpoint-*") if _state(path)]
        last = max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
        if last and is_first_process() and (best := _state(last).get("best_model_checkpoint")):
            best_path = str(self.path / CHECKPOINTS / Path(best).name)
            write_json(last / STATE, {**_state(last), "best_model_checkpoint": best_path})
        return last


def _state(checkpoint: Path) -> dict[str, Any]:
    """Return the trainer's state of a checkpoint; empty where it was not written whole."""
    try:
        return dict(parse_json(read_regular(checkpoint / STATE)))
    except (OSError, ValueError, TypeError, BadInputError):
        return {}
