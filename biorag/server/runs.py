"""The finished benchmark runs of a folder: listed, and looked up in that list, so that no request names a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from biorag.benchmarks.mirage.records import QUESTIONS, QuestionRow, counts, read_questions
from biorag.errors import MissingError

DEPTH = 3  # folders below the one that is named
PAGE = 25  # questions


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some questions of a run, those that are left of all by a choice."""

    name: str
    scores: dict[str, dict[str, int]]
    rows: Sequence[QuestionRow]
    chosen: int
    page: int

    @property
    def pages(self) -> int:
        """How many pages the chosen questions take."""
        return max(1, -(-self.chosen // PAGE))


def run_names(folder: Path | None) -> dict[str, Path]:
    """Return the folders that hold a run's questions, by their path below `folder`; links are not followed."""
    if folder is None:
        return {}
    found: dict[str, Path] = {}
    level = [folder]
    for _ in range(DEPTH + 1):
        for run in level:
            file = run / QUESTIONS
            if file.is_file() and not file.is_symlink():
                found[run.relative_to(folder).as_posix() if run != folder else folder.resolve().name] = run
        level = [path for run in level for path in _folders(run)]
    return dict(sorted(found.items()))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def run_page(folder: Path | None, name: str, task: str, result: str, words: str, page: int) -> RunPage:
    """Return a page of a run's questions: of a task, right or wrong, with these words; empty for all.

    Raises
    ------
    MissingError
        If the folder holds no such run.
    BadInputError
        If the run is damaged.
    """
    runs = run_names(folder)
    if name not in runs:
        raise MissingError("there is no such run: choose one of the list")
    rows = _read(runs[name], (runs[name] / QUESTIONS).stat().st_mtime_ns)
    chosen = [row for row in rows if _is_chosen(row, task, result, words.lower())]
    page = min(max(1, page), max(1, -(-len(chosen) // PAGE)))
    return RunPage(name, counts(rows), chosen[(page - 1) * PAGE : page * PAGE], len(chosen), page)


@lru_cache(maxsize=2)
def _read(run: Path, changed: int) -> tuple[QuestionRow, ...]:
    """Return a run's questions; they are read again once the file has changed."""
    return tuple(read_questions(run))


def _is_chosen(row: QuestionRow, task: str, result: str, words: str) -> bool:
    if (task and row["task"] != task) or (result and row["right"] != (result == "right")):
        return False
    return not words or words in f"{row['id']} {row['question']} {row['reply']}".lower()
