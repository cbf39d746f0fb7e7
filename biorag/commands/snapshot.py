"""`biorag snapshot save` and `load`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.settings.settings import Settings
from biorag.utils.files import check_is_no_input

app = Application(help="Save an embedded index as one file, and restore it.")

File = Annotated[Path, typer.Argument(help="The snapshot.")]


@app.command()
@expanded
def save(
    file: File,
    settings: Annotated[Settings, Flags("name", finds_index=True)],
    line: CommandLine,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write an index into one file with the SHA-256 of every part; readers can continue meanwhile.

    Examples:

      biorag snapshot save pubmed-2026-11-21.tar.gz --name pubmed
      biorag snapshot save backup.tar.gz --json
    """
    from biorag.indexes import snapshot
    from biorag.indexes.store import Store

    check_is_no_input(file, [settings.indexes, line.configuration])
    with show.progress("Saving", None) as advance:
        saved = snapshot.save(Store(settings), file, advance, force)
    show.report(f"Saved {saved.name}", asdict(saved), as_json)


@app.command()
@expanded
def load(
    file: File, settings: Annotated[Settings, Flags("name")], line: CommandLine, as_json: options.Json = False
) -> None:
    """Restore an index from a snapshot; it is verified first, and an existing index is not replaced.

    Examples:

      biorag snapshot load pubmed-2026-11-21.tar.gz
      biorag snapshot load pubmed-2026-11-21.tar.gz --name pubmed-old --json
    """
    from biorag.indexes import snapshot

    with show.progress("Loading", None) as advance:
        loaded = snapshot.load(settings, line.value("name"), file, advance)
    show.report(f"Loaded {loaded.name}", asdict(loaded), as_json)
