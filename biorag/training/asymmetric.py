"""Asymmetric encoders: one tower for queries, another for passages (sentence-transformers' Router)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles
from biorag.models.loading import has_towers
from biorag.training.data import LABEL

QUERY, DOCUMENT = "query", "document"


def with_towers(model: SentenceTransformer) -> SentenceTransformer:
    """Return an encoder whose two towers are copies of a model; one that has towers is returned as it is."""
    if has_towers(model):
        return model
    passages = list(model)
    return _like(model, [Router.for_query_document(deepcopy(passages), passages)])


def without_unit_length(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model without the layers that make all vectors unit length, those of its towers included."""
    first, *others = _without_normalize(model)
    if has_towers(model):
        towers = {name: _without_normalize(modules) for name, modules in first.sub_modules.items()}
        first = Router(towers, **first.get_config_dict())
    return _like(model, [first, *others])


def tower_of(model: SentenceTransformer, columns: Iterable[str]) -> Mapping[str, str]:
    """Return the tower that reads each column of texts (label is none); empty if one transformer reads all texts."""
    if not has_towers(model):
        return {}
    return {name: QUERY if name == "query" else DOCUMENT for name in columns if name != LABEL}


def require_single_tower(files: ModelFiles) -> None:
    """Refuse a base with two towers where one transformer reads queries and passages.

    Raises
    ------
    MissingError
        Naming a tower to take.
    """
    if files.has_towers:
        raise MissingError(f"base {files.id!r} has two towers: name one of them, such as {files.reads_passages()}")


def _without_normalize(modules: Iterable[Any]) -> list[Any]:
    return [module for module in modules if not isinstance(module, Normalize)]


def _like(model: SentenceTransformer, modules: list[Any]) -> SentenceTransformer:
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=dict(model.prompts))
