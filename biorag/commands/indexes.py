"""`biorag indexes`: list, show, rename, delete, clean, export, import; `biorag info`; `snapshot`, an old name."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import CommandLine, Flags, expanded, is_named, overridden, with_index
from biorag.commands.outputs import Writes
from biorag.registries import PARTS
from biorag.settings.settings import FIELDS, Settings
from biorag.settings.sources import load_settings
from biorag.utils.files import disk_bytes
from biorag.utils.progress import reported
from biorag.utils.text import cut

FIRST = ("snippets", "documents", "created", "updated", "complete", "similarity", "blocks")  # what a reader asks first
LONGEST = 60  # characters of a field's value, which may be a list of headings

app = Application(help="List, show, rename, delete, copy, clean, export and import indexes.", no_args_is_help=False)
Name = Annotated[str, typer.Argument(help="Name of an index.")]
File = Annotated[Path, typer.Argument(help="The file of an exported index.")]


@app.callback(invoke_without_command=True)
def indexes(ctx: typer.Context, as_json: options.Json = False) -> None:
    """List the indexes: snippets, size on disk, encoder, state and the day of the last change.

    Examples:

      biorag indexes
      biorag indexes show demo
      biorag indexes rename pubmed pubmed-2025
      biorag indexes delete demo
      biorag indexes copy pubmed pubmed-served --qdrant http://localhost:6333
      biorag indexes clean --dry-run
      biorag indexes export pubmed.tar.gz --name pubmed
      biorag indexes import pubmed.tar.gz --name restored
    """
    if ctx.invoked_subcommand is not None:
        return
    list_indexes(load_settings({"offline": ctx.obj["offline"]}, ctx.obj["config"]), as_json)


@app.command("list")
@expanded
def list_all(settings: Annotated[Settings, Flags()], as_json: options.Json = False) -> None:
    """List the indexes, as 'biorag indexes' alone does.

    Examples:

      biorag indexes list
      biorag indexes list --json
    """
    list_indexes(settings, as_json)


def list_indexes(settings: Settings, as_json: bool) -> None:
    """Print the indexes under the home."""
    from biorag.indexes.catalogue import home_bytes, summaries

    listed, parts = [asdict(summary) for summary in summaries(settings)], home_bytes(settings)
    if as_json:
        show.print_json({"home": str(settings.home), "indexes": listed, "bytes": sum(parts.values()), "parts": parts})
    elif listed:
        columns = ["name", "snippets", "MB", "encoder", "store", "state", "changed"]
        for summary in listed:
            summary |= {"bytes": f"{summary['bytes'] / 1e6:,.1f}", "updated": (summary["updated"] or "")[:10] or None}
        rows = [["unknown" if value is None else value for value in summary.values()] for summary in listed]
        show.table(f"Indexes in {settings.indexes}", columns, rows)
        shares = ", ".join(f"{name} {size / 1e6:,.1f}" for name, size in parts.items())
        show.err.print(f"{sum(parts.values()) / 1e6:,.1f} MB in {settings.home}: {shares}", soft_wrap=True)
    else:
        show.err.print(f"No index in {settings.indexes} yet: try 'biorag index demo'.")


@app.command("show")
@expanded
def show_index(
    settings: Annotated[Settings, Flags("qdrant")],
    index: Annotated[str | None, typer.Argument(help="Name of an index; may be left out if there is one.")] = None,
    fields: Annotated[
        bool, typer.Option("--fields", help="List the fields of its snippets, with their commonest values.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show the contents and making of an index.

    Of an index on a Qdrant server it shows shards, replicas, the optimizer, and what lags behind.

    Examples:

      biorag indexes show demo
      biorag indexes show demo --json
      biorag indexes show pubmed --fields
      biorag indexes show pubmed --qdrant http://localhost:6333
    """
    print_index(settings, index, fields, as_json)


def print_index(settings: Settings, name: str | None, fields: bool, as_json: bool) -> None:
    """Print the facts of an index, or the fields of its snippets; raises `MissingError` if there is none."""
    chosen = overridden(settings, name=name) if name else settings if is_named(settings) else with_index(settings)
    (_print_fields if fields else _print_facts)(chosen, as_json)


def _print_fields(settings: Settings, as_json: bool) -> None:
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
    values = [", ".join(f"{cut(str(value), LONGEST)} ({times:,})" for value, times in count.values) for count in counts]
    rows = [(count.name, count.snippets, commonest) for count, commonest in zip(counts, values, strict=True)]
    show.table(f"Fields of index {manifest.name}", ["field", "snippets", "commonest values"], rows)


def _print_facts(settings: Settings, as_json: bool) -> None:
    from biorag.indexes.reading import index_facts
    from biorag.indexes.records import shortfall
    from biorag.indexes.store import Store

    store = Store(settings)
    manifest = store.require_manifest()
    collection = store.collection(manifest.store)
    facts = collection.facts() if collection else {}
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


@app.command()
@expanded
def delete(
    index: Name, settings: Annotated[Settings, Flags()], yes: options.Yes = False, as_json: options.Json = False
) -> None:
    """Delete an index, on its server too; not while another process uses it, and no folder that is not an index.

    Examples:

      biorag indexes delete demo
      biorag indexes delete pubmed-2024 --yes --json
    """
    from biorag.indexes.catalogue import known_index, remove_index

    settings = overridden(settings, name=index)
    manifest = known_index(settings)
    size = disk_bytes(settings.indexes / index)
    held = f"{manifest.snippets:,} snippets, {size / 1e6:,.1f} MB" if manifest else f"damaged, {size / 1e6:,.1f} MB"
    url = manifest.store.get("url") if manifest else None
    options.confirm(f"Delete index {index!r} ({held}{f', also at {url}' if url else ''})?", yes)
    kept = remove_index(settings)
    if as_json:
        show.print_json({"name": index, "deleted": True, "bytes": size, "kept": list(map(str, kept))})
    else:
        show.err.print(f"Index {index!r} is deleted", soft_wrap=True)
    if kept:
        show.err.print(f"kept, since biorag did not write it: {', '.join(map(str, kept))}", soft_wrap=True)


@app.command()
@expanded
def rename(
    index: Name,
    new: Annotated[str, typer.Argument(help="The new name.")],
    settings: Annotated[Settings, Flags()],
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Rename an index; not while another process uses it.

    Benchmarks and training runs that were begun over it do not resume under the new name.

    Examples:

      biorag indexes rename default pubmed
      biorag indexes rename pubmed pubmed-2025 --yes --json
    """
    from biorag.indexes.catalogue import known_index, rename_index

    settings = overridden(settings, name=index)
    known_index(settings)
    options.confirm(f"Rename index {index!r} to {new!r}?", yes)
    rename_index(settings, new)
    message = f"Index {index!r} is {new!r} now"
    show.result({"name": new, "renamed_from": index}, as_json, lambda _: show.err.print(message, soft_wrap=True))


@app.command()
@expanded
def copy(
    index: Name,
    new: Annotated[str, typer.Argument(help="Name of the copy.")],
    settings: Annotated[Settings, Flags("qdrant", "shards", "replicas", "on_disk")],
    as_json: options.Json = False,
) -> None:
    """Copy an index, vectors and all: onto the server that --qdrant names, or without it into this home.

    Nothing is encoded. The same command completes a copy that was killed.

    Examples:

      biorag indexes copy pubmed pubmed-served --qdrant http://localhost:6333
      biorag indexes copy pubmed-served pubmed-here
    """
    from biorag.indexes.catalogue import copy_index
    from biorag.indexes.store import Store

    source, target = Store(settings.replace(name=index, qdrant=None)), Store(overridden(settings, name=new))
    manifest = source.require_manifest()
    target.check_layout(target.manifest())
    with show.progress("Copying", manifest.snippets) as advance:
        copied = copy_index(source, target, advance)
    show.report(f"Copied {index} to {new}", copied.shown(), as_json)


@app.command()
@expanded
def clean(
    settings: Annotated[Settings, Flags()],
    run: Annotated[
        Path | None, typer.Option(help="--out of a sweep or recipe, whose indexes and models go too; the report stays.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Remove what is left over: unused exports, what killed commands left, old replies; of a sweep what its steps made.

    What goes only saves time and is made again when it is needed. What a process uses stays, and so do indexes.

    Examples:

      biorag indexes clean --dry-run
      biorag indexes clean --run runs/ablation
    """
    leftovers = PARTS["leftovers"].load()(settings, run)
    size, removes = sum(leftover.bytes for leftover in leftovers), bool(leftovers) and not dry_run
    if not as_json and not leftovers:
        show.err.print(f"Nothing is left over in {settings.home}", soft_wrap=True)
    elif not as_json:
        rows = [(one.what, len(one.files) or 1, f"{one.bytes / 1e6:,.1f}", one.path) for one in leftovers]
        show.table(f"Left over: {size / 1e6:,.1f} MB", ["what", "number", "MB", "folder"], rows)
    if removes:
        options.confirm(f"Remove these {size / 1e6:,.1f} MB?", yes)
        PARTS["remove leftovers"].load()(settings, leftovers, run)
    if as_json:
        folders = [asdict(one) | {"path": str(one.path), "files": list(map(str, one.files))} for one in leftovers]
        show.print_json({"home": str(settings.home), "folders": folders, "bytes": size, "removed": removes})


@app.command("export")
@expanded
def export_index(
    file: Annotated[Path, typer.Argument(help="File to write."), Writes("snapshot", ".indexes.snapshot:is_snapshot")],
    settings: Annotated[Settings, Flags("name", finds_index=True)],
    force: options.Force = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Write an index into one file with the SHA-256 of every part; readers can continue meanwhile.

    It asks before it replaces an earlier export.

    Examples:

      biorag indexes export pubmed-2026-11-21.tar.gz --name pubmed
      biorag indexes export backup.tar.gz --json
    """
    from biorag.indexes import snapshot
    from biorag.indexes.store import Store

    if file.is_file() and file.stat().st_size:
        options.confirm(f"Replace {file}?", yes or force)
    with show.progress("Saving", None) as advance:
        saved = snapshot.save(Store(settings), file, advance, force)
    show.report(f"Saved {saved.name}", asdict(saved), as_json)


@app.command("import")
@expanded
def import_index(
    file: File, settings: Annotated[Settings, Flags("name")], line: CommandLine, as_json: options.Json = False
) -> None:
    """Restore an index from the file of `export`; it is verified first, and an existing index is not replaced.

    Examples:

      biorag indexes import pubmed-2026-11-21.tar.gz
      biorag indexes import pubmed-2026-11-21.tar.gz --name pubmed-old --json
    """
    from biorag.indexes import snapshot

    with show.progress("Loading", None) as advance:
        loaded = snapshot.load(settings, line.value("name"), file, advance)
    show.report(f"Loaded {loaded.name}", asdict(loaded), as_json)


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


old_names = Application(help="The old name of 'biorag indexes export' and 'import'.")
old_names.command("save")(export_index)
old_names.command("load")(import_index)
