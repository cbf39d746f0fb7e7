"""`biorag info`: the settings, and the old name of `biorag indexes` and `indexes show`."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.indexes import list_indexes, print_index
from biorag.settings import settings as fields
from biorag.settings.settings import Settings


@expanded
def info(
    settings: Annotated[Settings, Flags("qdrant")],
    line: CommandLine,
    name: Annotated[str | None, typer.Argument(help="Name of an index; by default all are listed.")] = None,
    list_settings: Annotated[bool, typer.Option("--settings", help="List all settings and their values.")] = False,
    list_fields: Annotated[
        bool, typer.Option("--fields", help="List the fields of an index's snippets, with their commonest values.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show the settings; of an index, the same as 'biorag indexes show'.

    Examples:

      biorag info --settings
      biorag info --settings --json
    """
    if list_settings:
        _show_settings(settings, as_json)
    elif not (name or list_fields or line.first("qdrant")):
        show.renamed("info", "indexes")
        list_indexes(settings, as_json)
    else:
        show.renamed("info NAME", "indexes show NAME")
        print_index(settings, name, list_fields, as_json)


def _show_settings(settings: Settings, as_json: bool) -> None:
    values = settings.flat_json()
    if as_json:
        show.print_json(values)
        return
    rows = [(name, str(values[name]), entry.field.description or "") for name, entry in fields.FIELDS.items()]
    show.table("Settings (in the configuration file, or as BIORAG_NAME)", ["setting", "value", "meaning"], rows)
