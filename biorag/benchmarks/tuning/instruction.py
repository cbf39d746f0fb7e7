"""The instruction in an encoder's query prompt, and encoders with another prompt."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from biorag.models.finding import ModelFiles
from biorag.models.prompted import write_prompts

# BMRetriever's "{task}\nQuery: ", E5's and Qwen3's "Instruct: {task}\nQuery:"; else the instruction is the prompt.
_FORM = re.compile(r"(?P<start>Instruct: )?(?P<task>.*?)(?P<end>\nQuery: ?|\s*)", re.DOTALL)


class PromptedEncoder(Protocol):
    """An encoder whose query prompt may be changed."""

    query_prompt: str


@dataclass(frozen=True, slots=True)
class PromptForm:
    """The parts before and after the instruction in a query prompt."""

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


def copy_with_prompt(files: ModelFiles, folder: Path, prompt: str) -> None:
    """Write a copy of an encoder with another query prompt into a new folder."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(files.path, unfinished)
    write_prompts(unfinished, {"query": prompt})
    unfinished.rename(folder)
