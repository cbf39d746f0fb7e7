"""Command lines as the program reads them, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from biorag.settings.settings import FIELDS

if TYPE_CHECKING:
    from biorag.recipes.changes import CommandUse


def read_line(root: Any, words: Sequence[str]) -> CommandUse:
    """Return what the words after `biorag` ask of the program whose context is `root`.

    Raises UsageError if they name a command or an option that it does not have, or lack one that it needs.
    """
    from biorag.recipes.changes import CommandUse

    command, rest, path = root.command, list(words), []
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(root, rest)
        path.append(name)
    context = command.make_context(" ".join(path), rest, parent=root)
    values = {name.removesuffix("_"): value for name, value in context.params.items()}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    typed = {name.removesuffix("_") for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    given = {name: value for name, value in values.items() if name in FIELDS and name in typed}
    return CommandUse(" ".join(path), frozenset(values.keys() & FIELDS.keys()), given, values)
