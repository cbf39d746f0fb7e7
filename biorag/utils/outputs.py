"""The files that biorag writes, as they are known again: by how they begin, or by the manifest beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.utils.files import BEGINNING, check_replaceable
from biorag.utils.parsing import parse_json, read_beginning

REJECTS = ["file", "line", "reason", "text"]  # fields of a rejects file's rows, in their order
MEASURES = (["id", "text", "metrics", "top"], ["id", "set", "metrics"])  # of files of measures by question
RUN_TAG = "biorag"
# The manifests of run directories.
MANIFESTS = ("manifest.json", "run.json", "points.json", "training.json", "merge.json", "export.json", "vectors.json")
DATA_SET = "data_set"  # begins the identity of data that biorag made to be read, as others' data are
BESIDE = ".manifest.json"  # ends the name of a resumable file's manifest


def is_rejects(beginning: bytes) -> bool:
    """Return whether a file that begins so holds rejected lines."""
    return list(first_row(beginning)) == REJECTS


def is_per_question(beginning: bytes) -> bool:
    """Return whether a file that begins so holds measures by question."""
    return list(first_row(beginning)) in MEASURES


def is_run(beginning: bytes) -> bool:
    """Return whether a file that begins so is a TREC run file of ours."""
    fields = beginning.splitlines()[0].split()
    return (len(fields), fields[1:2], fields[-1:]) == (6, [b"Q0"], [RUN_TAG.encode()])


def is_lock(beginning: bytes) -> bool:
    """Return whether a file that begins so is the lock of a folder: empty, or naming who holds it."""
    return not beginning or list(first_row(beginning)) == ["pid", "host", "since"]


def begins_with_key(*names: str) -> Callable[[bytes], bool]:
    """Return a predicate that tells whether a file begins as a JSON object whose first key is one of these."""
    return lambda beginning: beginning.startswith(tuple(f'{{\n  "{name}": '.encode() for name in names))


def is_own(path: Path, root: Path) -> bool:
    """Return whether biorag wrote a file below `root`, other than a data set: rejects, measures, or part of a run."""
    if path.with_name(path.name + BESIDE).is_file() or path.name.endswith(BESIDE):
        return True
    folders = [path.parent, *path.parent.parents]
    within = folders[: folders.index(root) + 1] if root in folders else folders[:1]
    if any(_is_of_results(folder / name) for folder in within for name in MANIFESTS):
        return True
    if path.name in MANIFESTS and _is_manifest(path):
        return True
    beginning = _beginning(path)
    return is_rejects(beginning) or is_per_question(beginning)


def check_results(folder: Path, files: Mapping[str, Callable[[bytes], bool]], inputs: Sequence[Path] = ()) -> None:
    """Raise `UsageError` if results in a folder would replace an input, or a file that biorag did not write.

    Each of the files, by its path in the folder, comes with what tells an earlier one of ours by its beginning.
    """
    for name, is_ours in files.items():
        check_replaceable(folder / name, "result", is_ours, inputs)


def _is_manifest(path: Path) -> bool:
    text = _beginning(path) if path.is_file() else b""
    return b'"identity": {' in text or begins_with_key("settings")(text)


def _is_of_results(path: Path) -> bool:
    """Return whether a file is the manifest of a run's results; that of a data set is not."""
    return _is_manifest(path) and f'"identity": {{\n    "{DATA_SET}": '.encode() not in _beginning(path)


def _beginning(path: Path) -> bytes:
    """Return how a file begins; nothing of one that cannot be read."""
    try:
        return read_beginning(path, BEGINNING)
    except OSError:
        return b""


def first_row(beginning: bytes) -> dict[str, Any]:
    """Return the JSON object that a file's first line is; an empty one of anything else."""
    try:
        row = parse_json(beginning.partition(b"\n")[0])
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
