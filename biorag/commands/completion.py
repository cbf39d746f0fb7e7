"""Completion in the shell: values of choices, and names of indexes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import typer

from biorag.errors import BioragError
from biorag.settings.sources import load_settings

WIDEST = 26  # characters of choices that help shows as the option's value


def choices(values: Iterable[str]) -> dict[str, Any]:
    """Return the keywords of `typer.Option` by which help and the shell name the values that it takes."""
    listed = "|".join(values)
    shown = {"metavar": listed} if listed and len(listed) <= WIDEST else {}
    return {**shown, "autocompletion": lambda incomplete: _beginning(values, incomplete)}


def index_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an index; to nothing if the settings cannot be read."""
    from biorag.indexes import store

    logging.disable()  # a log line would appear amid the user's command line
    with suppress(BioragError, OSError):
        return _beginning(store.index_names(load_settings({}, ctx.find_root().params.get("file"))), incomplete)
    return []


def _beginning(values: Iterable[str], word: str) -> list[str]:
    return [value for value in values if value.startswith(word)]
