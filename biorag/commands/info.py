"""`biorag info`."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded, is_named, overridden, with_index
from biorag.commands.indexes import list_indexes
from biorag.settings import settings as fields
from biorag.settings.settings import Settings
from biorag.utils.progress import reported

FIRST = ("snippets", "documents", "created", "updated", "complete", "similarity", "blocks")  # what a reader asks first


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
    """Show the contents and making of an index, or list the indexes, or the settings.

    Of an index on a Qdrant server it shows shards, replicas, the optimizer, and what lags behind; with --qdrant the
    name may be left out where the server has one index.

    Examples:

      biorag info
      biorag info demo --json
      biorag info pubmed --fields
      biorag info pubmed --qdrant http://localhost:6333
      biorag info --settings
    """
    if list_settings:
        _show_settings(settings, as_json)
    elif not (name or list_fields or line.first("qdrant")):
        list_indexes(settings, as_json)
    else:
        chosen = overridden(settings, name=name) if name else settings if is_named(settings) else with_index(settings)
        (_show_fields if list_fields else _show_index)(chosen, as_json)


def _show_settings(settings: Settings, as_json: bool) -> None:
    values = settings.flat_json()
    if as_json:
        show.print_json(values)
        return
    rows = [(name, str(values[name]), entry.field.description or "") for name, entry in fields.FIELDS.items()]
    show.table("Settings (in the configuration file, or as BIORAG_NAME)", ["setting", "value", "meaning"], rows)


def _show_fields(settings: Settings, as_json: bool) -> None:
    from biorag.engine import open_stored
    from biorag.indexes.fields import field_counts
    from biorag.indexes.reading import stored_snippets

    with open_stored(settings) as (manifest, index), show.progress("Reading", index.count()) as advance:
        counts = field_counts(reported(stored_snippets(index), advance))
        snippets = index.count()
    if as_json:
        fields = [count.to_json() for count in counts]
        show.print_json({"name": manifest.name, "snippets": snippets, "fields": fields})
        return
    rows = [
        (count.name, count.snippets, ", ".join(f"{value} ({times:,})" for value, times in count.values))
        for count in counts
    ]
    show.table(f"Fields of index {manifest.name}", ["field", "snippets", "commonest values"], rows)


def _show_index(settings: Settings, as_json: bool) -> None:
    from biorag.indexes.progress import shortfall
    from biorag.indexes.reading import index_facts
    from biorag.indexes.store import Store

    store = Store(settings)
    manifest = store.require_manifest()
    server = store.server(manifest.store)
    facts = server.facts(manifest.name) if server else {}
    if facts and not as_json:  # before the index is opened, which fails if a shard is missing
        show.report(f"Collection {manifest.name}", facts)
    with closing(store.open(manifest)) as index:
        values = index_facts(store, manifest, index) | ({"server": facts} if facts else {})
    if not manifest.complete:
        show.err.print(f"index {manifest.name!r} is incomplete: {shortfall(store.folder)}", soft_wrap=True)
    if not as_json:
        first = {name: values[name] for name in FIRST if values.get(name)}
        values = {**first, **{name: value for name, value in values.items() if name not in FIRST and value}}
    show.report(f"Index {manifest.name}", values, as_json, hidden=("server", "name"))
