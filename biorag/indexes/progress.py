"""The progress record of an indexing run: how far it is durable, and which batch was being written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from biorag.errors import MismatchError, MissingError
from biorag.types import Count
from biorag.utils.files import write_json
from biorag.utils.parsing import parsed_file

PROGRESS = "progress.json"


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """`done` of the corpus's snippets, in its order, are durable; `batch` are the ids being written.

    A run that resumes writes all of `batch` again, so that they are encoded together as they would have been: a
    text's vector differs in its last bits with the texts beside it.
    """

    done: Count = 0
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
    try:
        progress: IndexingProgress = parsed_file(
            IndexingProgress, folder / PROGRESS, MismatchError, "delete it, then run the same command again"
        )
    except MissingError:
        return IndexingProgress()
    return progress


def clear_progress(folder: Path) -> None:
    """Remove the record of a run that has ended."""
    (folder / PROGRESS).unlink(missing_ok=True)
