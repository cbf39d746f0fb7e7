"""Encoders with another query prompt."""

from __future__ import annotations

import shutil
from pathlib import Path

from biorag.models.finding import ModelFiles
from biorag.models.prompted import copy_prompted


def copy_with_prompt(files: ModelFiles, folder: Path, prompt: str) -> None:
    """Write a copy of an encoder with another query prompt into a new folder."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    copy_prompted(files, unfinished, {"query": prompt})
    unfinished.rename(folder)
