"""The models that recipes name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic import TypeAdapter

from biorag.lab.recipes.recipe import ExperimentRecipe, NamedModel
from biorag.utils.parsing import parse_toml

FILE = Path(__file__).with_name("models.toml")
SEQ2SEQ = "seq2seq:"  # before the id of a model that writes questions
OPTIONS = ("--base", "--encoder", "--query-encoder", "--passage-encoder", "--model", "--reranker")


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
