"""Encoders with other texts before queries and passages, kept where sentence-transformers looks for them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.errors import MismatchError, MissingError
from biorag.models.adapter import write_adapted
from biorag.models.finding import ADAPTED, WEIGHTS, ModelFiles, find_encoder
from biorag.models.formats.directory import MODULE_LIST, READING
from biorag.utils.files import make_folder, scratch_folder, sha256_of, sha256_of_json, write_json
from biorag.utils.parsing import parsed_file

SETTINGS = "config_sentence_transformers.json"


def written_once(home: Path, sources: Sequence[ModelFiles], changes: Any, write: Callable[[Path], None]) -> ModelFiles:
    """Return the encoder that `write` makes of others in a folder of `home`, once.

    The folder is named by the models, and by a hash of them and of the `changes` to them, values of JSON.
    """
    names = "+".join(re.sub(r"[^A-Za-z0-9._-]", "-", Path(files.id).name) for files in sources)
    folder = home / f"{names[:150]}-{sha256_of_json(changes)[:12]}"
    if not folder.is_dir():
        make_folder(home)
        with scratch_folder(home) as scratch:
            draft = scratch / "model"
            write(draft)
            if not folder.is_dir():  # another process may have been faster
                draft.rename(folder)
    return find_encoder(str(folder))


def check_keeps_prompt(files: ModelFiles, instead: str) -> None:
    """Raise MissingError for a bare transformers model, which cannot keep a prompt; `instead` is what else to do."""
    if not (files.path / MODULE_LIST).is_file():
        raise MissingError(
            f"{files.path} has no {MODULE_LIST}, and a bare transformers model keeps no prompt: save it with "
            f"sentence-transformers first, or {instead}"
        )


def prompted(files: ModelFiles, prompts: Mapping[str, str], home: Path) -> ModelFiles:
    """Return a copy of an encoder with these prompts, by `query` and `document`, in a folder of `home`, made once.

    Raises `MissingError` if the model cannot keep a prompt.
    """
    check_keeps_prompt(files, "leave --instruct out")
    changes = [files.sha256, files.configuration(), dict(prompts)]
    return written_once(home, [files], changes, lambda folder: copy_prompted(files, folder, prompts))


def copy_prompted(files: ModelFiles, folder: Path, prompts: Mapping[str, str]) -> None:
    """Write a copy of an encoder with these prompts, an adapter's changes in its weights.

    An index takes the copy for the encoder.
    """
    shutil.copytree(files.path, folder)
    if files.adapter:
        write_adapted(folder / WEIGHTS, files.adapter)
        write_json(folder / ADAPTED, {"weights": sha256_of(folder / WEIGHTS), "identity": files.sha256})
    if files.max_tokens:
        write_json(folder / READING, files.settings(READING))
    write_prompts(folder, prompts)


def write_prompts(folder: Path, prompts: Mapping[str, str]) -> None:
    """Set some of a model directory's prompts, by `query` and `document`; the other texts are encoded as before."""
    path = folder / SETTINGS
    settings = parsed_file(dict[str, Any], path, MismatchError, "get the encoder again") or {}
    own = dict(settings.get("prompts") or {})
    default = settings.get("default_prompt_name")
    if default in own:  # which passages may use
        own.setdefault("document", own[default])
    write_json(path, {**settings, "prompts": {**own, **prompts}})
