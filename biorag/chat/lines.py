"""What a line of a conversation says: a question, or a slash command with its argument; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from biorag.errors import UsageError, unknown_name

COMMANDS = {
    "/help": "this list",
    "/show N": "the whole snippet of hit N, or of an id or a PMID",
    "/cite N [FORMAT]": "the reference of hit N, of the cited hits without N: vancouver, bibtex, ris, csl-json …",
    "/filter CONDITION": "search only what fulfils it, such as year>=2020; /filter shows it, /filter off clears it",
    "/options A=… B=…": "options of the next question",
    "/save FILE": "write the conversation as Markdown, with its citations",
    "/new": "begin a new conversation: what was asked is forgotten, the filter stays",
    "/quit": "end, as Ctrl-D does",
}
NAMES = tuple(usage.partition(" ")[0] for usage in COMMANDS)
_OPTION = re.compile(r"(?:^|\s)(?=[^\s=]+=)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line: a command and its argument, or with an empty command a question."""

    command: str
    argument: str


def parse_line(text: str) -> Line:
    """Return what a line says.

    Raises
    ------
    UsageError
        If it begins with a slash, and is not a command; the nearest one is named.
    """
    text = text.strip()
    if not text.startswith("/"):
        return Line("", text)
    name, _, argument = text.partition(" ")
    if name.lower() not in NAMES:
        raise unknown_name("command", name, NAMES)
    return Line(name.lower(), argument.strip())


def parse_options(text: str) -> dict[str, str]:
    """Return options by their letters from `A=thiamine B=vitamin B6`.

    Raises
    ------
    UsageError
        If a part has no `=`, or a letter is given twice.
    """
    options: dict[str, str] = {}
    for part in filter(None, map(str.strip, _OPTION.split(text))):
        letter, equals, option = part.partition("=")
        if not equals or letter in options:
            raise UsageError(f"option {part!r} cannot be read: write /options A=thiamine B=pyridoxine")
        options[letter] = option
    return options
