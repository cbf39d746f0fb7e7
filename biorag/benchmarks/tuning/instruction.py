"""The instruction in an encoder's query prompt, and where the prompt is kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from biorag.errors import MismatchError, MissingError
from biorag.models.finding import ModelFiles, weights_hash
from biorag.models.formats.directory import MODULE_LIST
from biorag.utils.files import write_json
from biorag.utils.parsing import parsed_file

SETTINGS = "config_sentence_transformers.json"
# BMRetriever's "{task}\nQuery: ", E5's and Qwen3's "Instruct: {task}\nQuery:"; else the instruction is the prompt.
_FORM = re.compile(r"(?P<start>Instruct: )?(?P<task>.*?)(?P<end>\nQuery: ?|\s*)", re.DOTALL)


class PromptedEncoder(Protocol):
    """An encoder whose query prompt may be changed."""

    query_prompt: str


@dataclass(frozen=True, slots=True)
class PromptForm:
    """What stands before and after the instruction in a query prompt."""

    start: str = ""
    end: str = "\nQuery: "

    def prompt(self, instruction: str) -> str:
        """Return the query prompt; empty without an instruction."""
        return f"{self.start}{instruction}{self.end}" if instruction else ""


def parted(prompt: str) -> tuple[str, PromptForm]:
    """Return the instruction in a query prompt, and the form that makes the prompt of it.

    An empty prompt has BMRetriever's form.

    Xu et al. (2024), BMRetriever, arXiv:2404.18443.
    """
    match = _FORM.fullmatch(prompt)
    assert match is not None, "every text has the form"
    if not match["task"]:
        return (prompt, PromptForm(end="")) if prompt else ("", PromptForm())
    return match["task"], PromptForm(match["start"] or "", match["end"])


@dataclass(frozen=True, slots=True)
class PromptTarget:
    """The directory whose query prompt is set: the encoder's own, or a copy of one that is not the user's to change."""

    files: ModelFiles
    path: Path

    @classmethod
    def of(cls, files: ModelFiles, copy: Path) -> PromptTarget:
        """Return the encoder's directory, or `copy` where it is not the user's.

        Raises MissingError if the encoder cannot keep a prompt; MismatchError if something else has the copy's name.
        """
        target = cls(files, files.path if is_the_users(files) else copy)
        if not (files.path / MODULE_LIST).is_file():
            raise MissingError(
                f"{files.path} has no {MODULE_LIST}, and a bare transformers model keeps no prompt: save it with "
                "sentence-transformers first, or give --no-write"
            )
        if target.path.exists() and not target._is_the_encoder():
            raise MismatchError(f"{target.path} is there and is no copy of encoder {files.id!r}: choose another --out")
        return target

    def _is_the_encoder(self) -> bool:
        try:
            return weights_hash(self.path) == self.files.sha256
        except MissingError:
            return False

    def changes(self, prompts: Collection[str]) -> bool:
        """Return whether there is something to write where the encoder has had these prompts."""
        return len(prompts) > 1 or (self.path != self.files.path and self.path.exists())

    def write(self, prompt: str) -> None:
        """Set the query prompt; a copy that is there is made anew."""
        if self.path != self.files.path:
            unfinished = self.path.with_name(f"{self.path.name}.unfinished")
            for folder in (unfinished, self.path):
                shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.files.path, unfinished)
            unfinished.rename(self.path)
        write_query_prompt(self.path, prompt)


def is_the_users(files: ModelFiles) -> bool:
    """Return whether an encoder was named by its directory; a package's and the hub's are not the user's to change."""
    return Path(files.id).is_absolute()


def write_query_prompt(folder: Path, prompt: str) -> None:
    """Set a model directory's query prompt; passages are encoded as before."""
    path = folder / SETTINGS
    settings = parsed_file(dict[str, Any], path, MismatchError, "get the encoder again") if path.exists() else {}
    prompts = dict(settings.get("prompts") or {})
    default = settings.get("default_prompt_name")
    if default in prompts:  # passages may have had it from there
        prompts.setdefault("document", prompts[default])
    prompts["query"] = prompt
    write_json(path, {**settings, "prompts": prompts})
