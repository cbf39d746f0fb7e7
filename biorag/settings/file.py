"""The configuration file as its user wrote it: one setting changed, comments and order kept."""

from __future__ import annotations

from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from biorag.errors import UsageError
from biorag.settings.sources import LARGEST
from biorag.utils.files import write_text
from biorag.utils.parsing import read_regular
from biorag.utils.text import showable

TUNED = "biorag tune "  # what a comment of ours begins with, so that the next one takes its place


def write_setting(path: Path, name: str, value: float | int, found: str) -> None:
    """Set `name` in a TOML file, created if needed, with a comment that says how the value was chosen.

    A comment that stood there is kept after ours.

    Raises
    ------
    UsageError
        If the file is not valid TOML, or nobody may write it: replacing it would pass that over.
    """
    target = path.resolve()  # a link stays one
    if target.exists() and not target.stat().st_mode & 0o222:
        raise UsageError(f"configuration file {path} is read-only: allow writing, or leave it as it is (--no-write)")
    try:
        document = tomlkit.parse(read_regular(target, LARGEST).decode("utf-8") if target.exists() else "")
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"configuration file {path} is not valid TOML: {error}") from None
    before = document[name].trivia.comment.lstrip("# ") if name in document else ""
    theirs = before.partition(" # ")[2] if before.startswith(TUNED) else before
    item = tomlkit.item(value)
    item.comment(TUNED + " ".join(showable(found).split()) + (f" # {theirs}" if theirs else ""))
    if name in document:
        document[name] = item
    else:
        document.append(name, item)
    write_text(target, tomlkit.dumps(document))
