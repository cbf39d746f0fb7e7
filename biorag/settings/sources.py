"""Where settings are set: command-line flag, `BIORAG_*` variable, `biorag.toml` (or `--config FILE`), default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biorag.errors import MissingError, UsageError
from biorag.settings.section import Variable, marked
from biorag.settings.settings import PLACES, Settings, checked

DEFAULT_FILE = Path("biorag.toml")
PREFIX = "BIORAG_"
AN_OPTION = "an option"  # as messages name that source


def load_settings(
    flags: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge the sources of settings, by their flat names, into checked ones.

    `flags` whose value is None were not given. `file` must exist if named; without it `biorag.toml` of
    the working directory is read if there is one.

    Raises
    ------
    MissingError
        If the named file is not there.
    UsageError
        If a file is not valid TOML, or a setting is unknown or out of range.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, settings in (
        (str(file or DEFAULT_FILE), _from_file(file)),
        ("the environment", _from_environment(environ)),
        (AN_OPTION, {name.removesuffix("_"): value for name, value in flags.items() if value is not None}),
    ):
        values.update(settings)
        sources.update(dict.fromkeys(settings, source))
    return checked(values, sources)


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    if not path.is_file():
        if file is None:
            return {}
        raise MissingError(f"configuration file {file} does not exist")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, too
        raise UsageError(f"configuration file {path} is not valid TOML: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for name, place in PLACES.items():
        variable = marked(place.field, Variable)
        value = environ.get(PREFIX + name.upper()) or (variable and environ.get(variable.name))
        if value:
            values[name] = value
    return values
