"""How a bi-encoder makes one vector of its token vectors: pooling, and a linear projection after it."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling

from biorag.errors import UsageError, unknown_name
from biorag.models.loading import has_towers

# As `--pooling` names them, and the library: the first token's vector, the mean of all, the last token's.
POOLINGS = {"cls": "cls", "mean": "mean", "last": "lasttoken"}


def with_pooling(model: SentenceTransformer, pooling: str) -> SentenceTransformer:
    """Return a model that pools in another way than it did; a bare transformer gets a pooling.

    Raises
    ------
    UsageError
        If the pooling is unknown, or the model has two towers.
    """
    if pooling not in POOLINGS:
        raise unknown_name("--pooling", pooling, POOLINGS)
    _require_one_tower(model, "--pooling")
    others = [module for module in list(model)[1:] if not isinstance(module, Pooling)]
    pool = Pooling(model[0].get_embedding_dimension(), POOLINGS[pooling])
    return _of_modules(model, [model[0], pool, *others])


def with_projection(model: SentenceTransformer, dimension: int, seed: int) -> SentenceTransformer:
    """Return a model whose pooled vector goes through a linear layer, drawn with the seed, to `dimension` numbers.

    As the BioASQ 8 hybrid system projects [CLS] to 768 dimensions (section 2.1).

    Raises
    ------
    UsageError
        If the model has a projection already, two towers, or no pooling.
    """
    _require_one_tower(model, "--projection")
    modules = list(model)
    if any(isinstance(module, Dense) for module in modules):
        raise UsageError("--projection: the base has a projection, which is trained further: leave the option out")
    place = next((number for number, module in enumerate(modules) if isinstance(module, Pooling)), None)
    if place is None:
        raise UsageError("--projection: the base has no pooling whose vector could be projected: name a transformer")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = Dense(modules[place].get_embedding_dimension(), dimension, activation_function=None)
    return _of_modules(model, [*modules[: place + 1], layer, *modules[place + 1 :]])


def _require_one_tower(model: SentenceTransformer, option: str) -> None:
    if has_towers(model):
        raise UsageError(f"{option} changes one transformer, and the base has two towers: leave it out")


def _of_modules(model: SentenceTransformer, modules: list[Any]) -> SentenceTransformer:
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=dict(model.prompts))
