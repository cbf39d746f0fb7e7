"""`biorag snapshot`: the old name of `biorag indexes export` and `import`."""

from __future__ import annotations

import typer

from biorag.commands import indexes, show
from biorag.commands.application import Application

NOW = {"save": "export", "load": "import"}

app = Application(help="The old name of 'biorag indexes export' and 'import'.")
app.command("save")(indexes.export_index)
app.command("load")(indexes.import_index)


@app.callback()
def name_the_new(ctx: typer.Context) -> None:
    """Say the new name of a command of the group."""
    if ctx.invoked_subcommand in NOW:
        show.renamed(f"snapshot {ctx.invoked_subcommand}", f"indexes {NOW[ctx.invoked_subcommand]}")
