"""`biorag doctor`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.settings.settings import Settings


@expanded
def doctor(settings: Settings, as_json: options.Json = False) -> None:
    """Check what is installed, which models are present, and whether a question works from end to end.

    Examples:

      biorag doctor

      biorag doctor --json
    """
    from biorag.diagnosis import diagnose

    checks = diagnose(settings)
    if as_json:
        show.print_json({"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]})
    else:
        rows = [("ok" if check.ok else "FAILS", check.name, check.detail) for check in checks]
        show.table("Doctor", ["", "what", "found"], rows)
    if not all(check.ok for check in checks):
        raise typer.Exit(4)
