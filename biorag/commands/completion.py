"""Completion in the shell: values of choices, names of indexes and models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer

from biorag.errors import BioragError
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings

WIDEST = 26  # characters of choices that help shows as the option's value
Completer = Callable[[typer.Context, str], list[str]]


def choices(values: Iterable[str]) -> dict[str, Any]:
    """Return the keywords of `typer.Option` by which help and the shell name the values that it takes.

    A registry may have got further values when the shell asks.
    """
    listed = "|".join(values)
    shown = {"metavar": listed} if listed and len(listed) <= WIDEST else {}
    return {**shown, "autocompletion": completer(lambda settings: values)}


def choices_in(target: str) -> dict[str, Any]:
    """Return the same for values that stand at "module:name", in a module that is imported when the shell asks."""

    def values(settings: Settings) -> Iterable[str]:
        module, _, name = target.partition(":")
        listed: Iterable[str] = getattr(import_module(module), name)
        return listed

    return {"autocompletion": completer(values)}


def completer(values: Callable[[Settings], Iterable[str]]) -> Completer:
    """Return a completer of the values that begin as the word does; none if the settings cannot be read."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        logging.disable()  # a log line would appear amid the user's command line
        with suppress(BioragError, OSError, ImportError):
            settings = load_settings({}, ctx.find_root().params.get("file"))
            return [value for value in values(settings) if value.startswith(incomplete)]
        return []

    return complete


def _indexes(settings: Settings) -> list[str]:
    from biorag.indexes.store import index_names

    return index_names(settings)


def encoders(settings: Settings) -> list[str]:
    """Return the names of the models that encode or rerank."""
    from biorag.models.finding import hub_models

    return [STARTER, *hub_models()]


def _rerankers(settings: Settings) -> list[str]:
    names = encoders(settings)[1:]
    return ["encoder", *names, *(f"cross:{name}" for name in names)]


def bases(settings: Settings) -> list[str]:
    """Return the names of models that training may start from."""
    from biorag.models.finding import STARTER_LLM

    return [*encoders(settings), STARTER_LLM]


OF_SETTINGS: dict[str, Completer] = {
    "name": completer(_indexes),
    "graph": completer(lambda settings: sorted(path.name for path in settings.graphs.glob("*") if path.is_dir())),
    "encoder": completer(encoders),
    "reranker": completer(_rerankers),
    "llm": completer(lambda settings: (STARTER, "none")),
}
