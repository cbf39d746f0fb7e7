"""Encoders with another query prompt."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from biorag.errors import MismatchError, MissingError
from biorag.models.finding import ModelFiles
from biorag.models.formats.directory import MODULE_LIST
from biorag.utils.files import write_json
from biorag.utils.parsing import parsed_file

SETTINGS = "config_sentence_transformers.json"


def check_keeps_prompt(files: ModelFiles) -> None:
    """Raise MissingError for a bare transformers model, which cannot keep a prompt."""
    if not (files.path / MODULE_LIST).is_file():
        raise MissingError(
            f"{files.path} has no {MODULE_LIST}, and a bare transformers model keeps no prompt: save it with "
            "sentence-transformers first, or give --no-write"
        )


def copy_with_prompt(files: ModelFiles, folder: Path, prompt: str) -> None:
    """Write a copy of an encoder with another query prompt into a new folder."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(files.path, unfinished)
    write_query_prompt(unfinished, prompt)
    unfinished.rename(folder)


def write_query_prompt(folder: Path, prompt: str) -> None:
    """Set a model directory's query prompt; passages are encoded as before."""
    path = folder / SETTINGS
    settings = parsed_file(dict[str, Any], path, MismatchError, "get the encoder again") if path.exists() else {}
    prompts = dict(settings.get("prompts") or {})
    default = settings.get("default_prompt_name")
    if default in prompts:  # which passages may use
        prompts.setdefault("document", prompts[default])
    prompts["query"] = prompt
    write_json(path, {**settings, "prompts": prompts})
