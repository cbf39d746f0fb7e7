"""The progress record of an indexing run: how far it is durable, and which batch was being written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from biorag.errors import MismatchError
from biorag.utils.files import write_json

PROGRESS = "progress.json"


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """`done` of the corpus's snippets, in its order, are durable; `batch` are the ids being written.

    A run that resumes writes all of `batch` again, so that they are encoded together as they would have been: a
    text's vector differs in its last bits with the texts beside it.
    """

    done: int = 0
    batch: tuple[str, ...] = ()


def write_progress(folder: Path, progress: IndexingProgress) -> None:
    """Record progress, durably."""
    write_json(folder / PROGRESS, asdict(progress))


def read_progress(folder: Path) -> IndexingProgress:
    """Return what an interrupted run recorded; nothing done where there is no record.

    Raises
    ------
    MismatchError
        If the record is damaged.
    """
    path = folder / PROGRESS
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return IndexingProgress(int(values["done"]), tuple(values["batch"]))
    except FileNotFoundError:
        return IndexingProgress()
    except (ValueError, KeyError, TypeError):
        raise MismatchError(f"{path} is damaged: delete it, then run the same command again") from None


def clear_progress(folder: Path) -> None:
    """Remove the record of a run that has ended."""
    (folder / PROGRESS).unlink(missing_ok=True)
