"""Result files in the layout that MIRAGE's scorer reads, and the identity of the run that wrote them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from biorag.errors import BadInputError
from biorag.utils.files import json_text, write_json, write_text
from biorag.utils.parsing import parsed, read_regular
from biorag.utils.runs import ResumableRun, changed_keys
from biorag.utils.text import whole

LONGEST = 200  # characters of a folder's name; file systems take 255


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of a run lie.

    That is `{out}/{task}/rag_{k}/{llm}/{corpus}/{retriever}/{split}_{id}.json`, or without retrieval
    (`retriever` None) `{out}/{task}/cot/{llm}/{split}_{id}.json`.
    """

    out: Path
    llm: str
    k: int
    corpus: str
    retriever: str | None

    def folder(self, task: str) -> Path:
        """Return the folder of one task's files."""
        llm = _part(self.llm)
        if self.retriever is None:
            return self.out / task / "cot" / llm
        return self.out / task / f"rag_{self.k}" / llm / _part(self.corpus) / _part(self.retriever)

    def file(self, task: str, question_id: str) -> Path:
        """Return one question's file; the split is `dev` for medmcqa, `test` otherwise."""
        split = "dev" if task == "medmcqa" else "test"
        return self.folder(task) / f"{split}_{question_id}.json"


def _part(name: str) -> str:
    """Return a name that is one folder, also where a model's is a path, or a chain of rerankers of several."""
    part = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip(".-") or "model"
    if len(part) <= LONGEST:
        return part
    return f"{part[: LONGEST - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def write_result(path: Path, reply: str) -> None:
    """Write one question's file: a JSON list whose first string is the reply."""
    write_text(path, json_text([whole(reply)]))


def read_result(path: Path) -> str | None:
    """Return the reply of a question's file; None if it is not answered yet.

    Raises
    ------
    BadInputError
        If the file is there but is not a JSON list that begins with a string.
    """
    try:
        replies = parsed(Annotated[list[Any], Field(min_length=1)], read_regular(path))
        return str(parsed(str, json_text(replies[0])))
    except FileNotFoundError:
        return None
    except (ValueError, NotADirectoryError):
        raise BadInputError(f"result file {path} is damaged: delete it, and it is made again") from None


class ResultDirectory(ResumableRun[dict[str, Any]]):
    """A directory of result files, whose manifest is the identity alone."""

    kind = "MIRAGE run"
    manifest_name = "run.json"
    head = dict[str, Any]

    def result(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the identity."""
        return dict(values)

    def changed(self, values: Mapping[str, Any]) -> list[str]:
        """Return the keys of the identity that differ."""
        return changed_keys(values, self.identity)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the directory, with this identity in it; see `check_nothing_else`, `locked` and `finished`."""
        self.check_nothing_else()
        with self.locked():
            if self.finished() is None:
                write_json(self.manifest, self.identity)
            yield
