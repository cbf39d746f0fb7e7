"""Mistakes on the command line, each said in one sentence that names the option and the nearest right one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import typer

from biorag.commands.help import name_of, spellings
from biorag.errors import nearest

# What Typer raises for a command line that it cannot read; not all versions of it name the class.
WrongUsage: type[Exception] = typer.BadParameter.__bases__[0]
NO_ARGUMENTS = "NoArgsIsHelpError"  # whose help is printed already


class UnknownCommandError(Exception):
    """A word in the place of a command that is none."""

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
    if ctx is None:
        return str(error.format_message())
    parameter = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and parameter is not None:
        return f"{path} needs {_named(parameter)}: {_see(path)}"
    if type(error).__name__ == "NoSuchOption":
        return _unknown_option(ctx, error.option_name, everywhere)
    if type(error).__name__ == "BadOptionUsage":
        return _without_value(ctx, error)
    message = error.message.strip().rstrip(".")
    if extra := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return f"{path} takes no further argument {extra[1]!r}: {_see(path)}"
    if parameter is not None:
        value = _value_of(parameter, getattr(error, "words", ()))
        return f"{_named(parameter)}{value}: {message.partition(', unable to')[0]}: {_see(path)}"
    return f"{path}: {message[:1].lower()}{message[1:]}: {_see(path)}"


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


def _without_value(ctx: Any, error: Any) -> str:
    option = error.option_name
    parameter = next(
        (part for part in ctx.command.get_params(ctx) if option in (*part.opts, *part.secondary_opts)), None
    )
    if parameter is None or "not take" in error.message:
        return f"{option} takes no value: write {option} alone"
    values = (parameter.metavar or "").replace("|", ", ")
    return f"{option} needs a value{f': {values}' if values else ''}: {_see(ctx.command_path)}"


def _value_of(parameter: Any, words: Sequence[str]) -> str:
    """Return the value that an option was given on the command line, in quotes after a space; empty if not found."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        for option in parameter.opts:
            if word == option and after:
                return f" {after!r}"
            if word.startswith(f"{option}=") and option.startswith("--"):
                return f" {word.partition('=')[2]!r}"
    return ""


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return name_of(parameter)
    return str(parameter.metavar or parameter.name).upper()


def _see(path: str) -> str:
    return f"see '{path} --help'"
