"""`biorag indexes`: list, delete and rename."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import Flags, expanded, overridden
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings

app = Application(help="List, delete and rename indexes.", no_args_is_help=False)
Name = Annotated[str, typer.Argument(help="Name of an index.")]


@app.callback(invoke_without_command=True)
def indexes(ctx: typer.Context, as_json: options.Json = False) -> None:
    """List the indexes: snippets, size on disk, encoder and state.

    Examples:

      biorag indexes
      biorag indexes --json
      biorag indexes delete demo
      biorag indexes rename pubmed pubmed-2025
    """
    if ctx.invoked_subcommand is not None:
        return
    list_indexes(load_settings({"offline": ctx.obj["offline"]}, ctx.obj["config"]), as_json)


def list_indexes(settings: Settings, as_json: bool) -> None:
    """Print the indexes under the home."""
    from biorag.indexes.catalogue import summaries

    listed = [asdict(summary) for summary in summaries(settings)]
    if as_json:
        show.print_json({"home": str(settings.home), "indexes": listed})
    elif listed:
        columns = ["name", "snippets", "MB", "encoder", "store", "state"]
        rows = [
            [f"{value / 1e6:,.1f}" if key == "bytes" else "unknown" if value is None else value for key, value in row]
            for row in (summary.items() for summary in listed)
        ]
        show.table(f"Indexes in {settings.indexes}", columns, rows)
    else:
        show.err.print(f"No index in {settings.indexes} yet: try 'biorag index demo'.")


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
    from biorag.utils.files import disk_bytes

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
    if as_json:
        show.print_json({"name": new, "renamed_from": index})
    else:
        show.err.print(f"Index {index!r} is {new!r} now", soft_wrap=True)
