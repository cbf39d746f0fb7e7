"""The progress record of an indexing run: the durable part, the batch being written, and torn documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from biorag.errors import MismatchError
from biorag.types import Count
from biorag.utils.files import write_json
from biorag.utils.parsing import parsed_file

PROGRESS = "progress.json"
SHOWN = 3  # names in a message


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """`done` of the corpus's snippets, in its order, are durable; `batch` are the ids being encoded or written.

    A run that resumes writes all of `batch` again, so that they are encoded together as they would have been: a
    text's vector differs in its last bits with the texts beside it.

    `torn` are the documents that an interrupted run may have left half written, each with the file it came from: some
    blocks missing, old ones beside new ones, or an old text with a new vector. They stay in the record until they are
    written again.
    """

    done: Count
    batch: tuple[str, ...]
    torn: Mapping[str, str]


def write_progress(folder: Path, progress: IndexingProgress) -> None:
    """Record progress, durably."""
    write_json(folder / PROGRESS, asdict(progress))


def read_progress(folder: Path) -> IndexingProgress:
    """Return what an interrupted run recorded; nothing done where there is no record.

    Raises `MismatchError` if the record is damaged.
    """
    advice = "delete it, then run the same command again"
    progress: IndexingProgress | None = parsed_file(IndexingProgress, folder / PROGRESS, MismatchError, advice)
    return progress or IndexingProgress(0, (), {})


def clear_progress(folder: Path) -> None:
    """Remove the record of a run that has ended."""
    (folder / PROGRESS).unlink(missing_ok=True)


def shortfall(folder: Path) -> str:
    """Return what an incomplete index in a folder lacks, as far as is recorded, and the next step."""
    try:
        torn = read_progress(folder).torn
    except MismatchError as error:
        return str(error)
    return torn_note(torn) if torn else "its last indexing run was interrupted: run the same command again"


def torn_note(torn: Mapping[str, str]) -> str:
    """Return how many documents are torn, the first of them, and what makes them whole."""
    files = _few(filter(None, torn.values())) or "the interrupted corpus"
    return f"{len(torn):,} document{' is' if len(torn) == 1 else 's are'} torn ({_few(torn)}): index {files} again"


def _few(names: Iterable[str]) -> str:
    """Return the first few names in order, and how many more there are."""
    first = sorted(set(names))
    more = f" and {len(first) - SHOWN:,} more" if len(first) > SHOWN else ""
    return ", ".join(first[:SHOWN]) + more
