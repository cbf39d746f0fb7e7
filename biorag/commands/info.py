"""`biorag info`: the indexes, one of them, or the settings."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.indexes import list_indexes, print_index
from biorag.settings.settings import FIELDS, Settings


@expanded
def info(
    settings: Annotated[Settings, Flags("qdrant")],
    line: CommandLine,
    name: Annotated[str | None, typer.Argument(help="Index to show. Default: list all.")] = None,
    list_settings: Annotated[bool, typer.Option("--settings", help="List the settings and their values.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the indexes, show one as 'biorag indexes show' does, or list the settings.

    Examples:

      biorag info
      biorag info demo --json
      biorag info --settings
      biorag info --settings --json
    """
    if name or line.first("qdrant"):
        print_index(settings, name, fields=False, as_json=as_json)
    elif not list_settings:
        list_indexes(settings, as_json)
    elif as_json:
        show.print_json(settings.flat_json())
    else:
        values = settings.flat_json()
        rows = [(name, str(values[name]), entry.field.description or "") for name, entry in FIELDS.items()]
        show.table("Settings (in the configuration file, or as BIORAG_NAME)", ["setting", "value", "meaning"], rows)
