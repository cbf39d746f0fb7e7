"""The file of the records of a corpus or a data set that could not be read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from biorag.corpus.readers import Reject
from biorag.utils.files import BEGINNING, json_line, replacing
from biorag.utils.outputs import check_results, is_rejects
from biorag.utils.parsing import read_beginning

REJECTS = "rejects.jsonl"  # beside the manifest


class RejectsFile:
    """Writes rejected lines with their reasons as JSONL; without a path counts them.

    If it is checked, it may take the place neither of inputs nor of files that biorag did not write.
    `first` are the files with rejected lines, each with its first; a `lenient` caller takes damaged files as they are.
    """

    def __init__(self, path: Path | None, is_checked: bool = True, lenient: bool = False) -> None:
        self.path = path
        self.lenient = lenient
        self.first: dict[str, str] = {}
        self.count = 0
        self.damaged: list[str] = []
        self._is_checked = is_checked
        self._stream: BinaryIO | None = None

    @contextmanager
    def written(self, corpus: Sequence[Path]) -> Iterator[None]:
        """Take the rejects of a survey, which replace an earlier one's; raises `UsageError` at another file."""
        if self.path is None:
            yield
            return
        if self._is_checked:
            check_results(self.path.parent, {self.path.name: is_rejects}, corpus)
        with TemporaryFile() as self._stream:
            try:
                yield
            finally:  # a corpus without a snippet has rejects, too
                self._stream.seek(0)
                if self.count:
                    with replacing(self.path) as target:
                        shutil.copyfileobj(self._stream, target)
                elif self.path.is_file() and is_rejects(read_beginning(self.path, BEGINNING)):
                    self.path.unlink()

    def __call__(self, reject: Reject) -> None:
        """Take one rejected line, or one for several."""
        self.count += reject.records
        self.first.setdefault(reject.file, f"{reject.file}, {reject.unit} {reject.line}: {reject.reason}")
        if reject.damaged:
            self.damaged.append(f"{reject.file}, {reject.unit} {reject.line}: {reject.reason}")
        if self._stream:
            row = {"file": reject.file, "line": reject.line, "reason": reject.reason, "text": reject.text}
            self._stream.write(json_line(row))
