"""Mistakes on the command line, each in one sentence that names the option and the nearest right one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from biorag.commands.help import spellings
from biorag.errors import nearest

# What Typer raises for a command line that it cannot read; not all versions of it name the class.
WrongUsage: type[Exception] = typer.BadParameter.__bases__[0]
NO_ARGUMENTS = "NoArgsIsHelpError"  # whose help is printed already


class UnknownCommandError(Exception):
    """A word that is not a command where one is expected."""

    def __init__(self, ctx: Any, word: str) -> None:
        super().__init__(word)
        self.ctx, self.word = ctx, word


def sentence(error: Any, everywhere: Iterable[str] = ()) -> str:
    """Return a mistake in one sentence.

    Parameters
    ----------
    error : what Typer raised, or an `UnknownCommandError`
    everywhere : options that every command takes
    """
    ctx = error.ctx
    path = ctx.command_path if ctx else "biorag"
    if isinstance(error, UnknownCommandError):
        return _unknown_command(path, error.word, list(ctx.command.commands))
    if ctx is not None and type(error).__name__ == "NoSuchOption":
        return _unknown_option(ctx, error.option_name, everywhere)
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{path}: {message[:1].lower()}{message[1:]}: see '{path} --help'"


def _unknown_command(path: str, word: str, commands: list[str]) -> str:
    near = nearest(word, commands)
    if near:
        return f"{path} has no command {word!r}: did you mean '{path} {near}'?"
    listed = f"use one of {', '.join(commands)}" if path != "biorag" else "'biorag --help' lists the commands"
    return f"{path} has no command {word!r}: {listed}"


def _unknown_option(ctx: Any, option: str, everywhere: Iterable[str]) -> str:
    path = ctx.command_path
    known = spellings(ctx.command.get_params(ctx))
    near = nearest(option, sorted([*known, *everywhere], key=len))  # the longer of two spellings counts
    if near:
        return f"{path} has no option {option}: did you mean {near}?"
    return f"{path} has no option {option}: '{path} --help-all' lists them"
