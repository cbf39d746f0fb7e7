"""The models that recipes name, and the shapes of their weights, without the weights."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from biorag.models.finding import ModelFiles
from biorag.recipes.recipe import ExperimentRecipe, NamedModel
from biorag.utils.parsing import parse_toml

FILE = Path(__file__).with_name("models.toml")
SEQ2SEQ = "seq2seq:"  # before the id of a model that writes questions
OPTIONS = ("--base", "--encoder", "--query-encoder", "--passage-encoder", "--model", "--reranker")
BYTES = {"F32": 4}


@cache
def packaged() -> Mapping[str, NamedModel]:
    """Return the models of `models.toml` by their ids."""
    return TypeAdapter(dict[str, NamedModel]).validate_python(parse_toml(FILE.read_bytes(), str(FILE)))


def models_of(recipe: ExperimentRecipe) -> Mapping[str, NamedModel]:
    """Return the models that a recipe may name: the packaged ones and its own."""
    return {**packaged(), **recipe.models}


def models_in(words: tuple[str, ...]) -> list[str]:
    """Return the models that a command names: ids, or folders of steps."""
    if words[:2] == ("models", "convert"):
        return [words[2]]
    return [value.removeprefix(SEQ2SEQ) for option, value in pairwise(words) if option in OPTIONS]


def named_in(words: tuple[str, ...]) -> list[str]:
    """Return the Hugging Face ids that a command names a model by."""
    values = models_in(words)
    return [value for value in values if value.count("/") == 1 and not value.startswith((".", "/", "~", "{"))]


def configuration(model: NamedModel) -> Any:
    """Return transformers' configuration of a model."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**model.config)


@contextmanager
def headers_of(id: str, model: NamedModel) -> Iterator[ModelFiles]:
    """Yield a model's folder as it would be on this machine, but that its weights are a hole in a file.

    Estimates read headers alone, so they are those of the real model.
    """
    import torch
    from transformers import AutoModel

    config = configuration(model)
    with torch.device("meta"):
        backbone = AutoModel.from_config(config)
    header: dict[str, Any] = {}
    size = 0
    for name, weight in backbone.named_parameters():
        end = size + BYTES["F32"] * math.prod(weight.shape)
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [size, end]}
        size = end
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory(prefix="biorag-") as name:
        folder = Path(name)
        config.save_pretrained(folder)
        with (folder / "model.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + size)
        yield ModelFiles(id, "", folder, "")
