"""What commands write: options say so in their annotation, and one check keeps every output off what a user has."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo

from biorag.errors import UsageError
from biorag.utils.files import BEGINNING, check_output, check_place, check_replaceable
from biorag.utils.outputs import is_own
from biorag.utils.parsing import read_beginning
from biorag.utils.registry import Kind

MODELS = frozenset({"encoder", "llm", "reader", "base", "query_encoder", "passage_encoder"})  # texts that may be paths


@dataclass(frozen=True, slots=True)
class Writes:
    """Marks an option whose path a command writes: a `kind` of file, whose earlier ones `target` tells.

    `target`, written as a registry's, is a predicate of the first `most` bytes. A file without a kind resumes, and its
    run tells whether it is its own, as it does of a folder; a folder with a kind gets files of these `names`, where {}
    stands for the command's.
    """

    kind: str = ""
    target: str = ""
    most: int = BEGINNING
    is_folder: bool = False
    names: tuple[str, ...] = ()

    def is_ours(self, beginning: bytes) -> bool:
        """Return whether a file that begins so is an earlier one, or empty."""
        return not beginning or (bool(self.target) and bool(Kind(self.kind, self.target, "").load()(beginning)))

    def files(self, path: Path, command: str) -> list[Path]:
        """Return the files that a command writes for a path, as far as they are known."""
        return [path / name.format(command) for name in self.names] if self.is_folder else [path]


RESUMED, FOLDER = Writes(), Writes(is_folder=True)


def mark_of(option: inspect.Parameter) -> Writes | None:
    """Return what an option writes; None if it is no output."""
    return next((mark for mark in getattr(option.annotation, "__metadata__", ()) if isinstance(mark, Writes)), None)


def check_outputs(options: Mapping[str, inspect.Parameter], values: Mapping[str, Any], command: str) -> None:
    """Raise `UsageError` if an output of a command is an input, another output, part of the home, or another's file.

    `--force` replaces another's file, but nothing else. A new file may lie in a folder that is read.
    Raises `OSError` where none can be made.
    """
    outputs = {name: mark for name, option in options.items() if (mark := mark_of(option)) and values[name]}
    inputs = [path for name in options.keys() - outputs.keys() for path in _read(name, options[name], values[name])]
    force = values.get("force")
    files = {name: mark.files(values[name], command) for name, mark in outputs.items()}
    for name, mark in outputs.items():
        twins = {os.path.realpath(file) for other in outputs if other != name for file in files[other]}
        if mark.is_folder:
            check_output(values[name], inputs, is_folder=True)
            if not values[name].exists():
                check_place(values[name])
        for path in files[name]:
            if os.path.realpath(path) in twins:
                raise UsageError(f"{path} is named for two outputs: name a file for each")
            read = [one for one in inputs if one.is_file() or not _is_known(path, mark, one)]
            if mark.kind:
                check_replaceable(path, mark.kind, mark.is_ours, read, force, mark.most)
            else:
                check_output(path, read)
            if not path.exists() or (mark.kind and path.is_file()):  # a run that is there may be complete
                check_place(path)


def _read(name: str, option: inspect.Parameter, value: Any) -> Iterator[Path]:
    """Yield the paths that the value of an option or argument may name."""
    marks = getattr(option.annotation, "__metadata__", ())
    is_text = name in MODELS or any(isinstance(mark, ArgumentInfo) for mark in marks)
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Path) or (is_text and isinstance(one, str) and "\0" not in one):
            yield Path(one)


def _is_known(path: Path, mark: Writes, folder: Path) -> bool:
    """Return whether an output in a folder that is read is new, or an earlier one."""
    return not path.is_file() or is_own(path, folder) or mark.is_ours(read_beginning(path, mark.most))
