"""Typer with our help, our sentences for mistakes, and the options that stand anywhere on a line."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from biorag.commands import help, mistakes

ANYWHERE = ("--offline", "--debug")  # options of the program, taken before and after its command
ANYWHERE_WITH_VALUE = ("--config",)


class Helpful:
    """What commands and groups share: `--help` prints a page, `--help-all` everything."""

    _help_all: Any = None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print a page of help."""
        help.print_help(self, ctx, whole=False)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the command line; a mistake on it knows its command."""
        words = list(args)  # which reading them empties
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc]
        except mistakes.WrongUsage as error:
            vars(error)["ctx"] = getattr(error, "ctx", None) or ctx
            vars(error)["words"] = words
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help-all` among them."""
        parameters = list(super().get_params(ctx))  # type: ignore[misc]
        shown = self.get_help_option(ctx)  # type: ignore[attr-defined]
        if shown is not None and self._help_all is None:
            self._help_all = copy(shown)
            self._help_all.name, self._help_all.opts = "help_all", [help.HELP_ALL]
            self._help_all.help, self._help_all.callback = "Show every option.", _print_all
        return parameters if shown is None else [*parameters, self._help_all]


def _print_all(ctx: Any, parameter: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        help.print_help(ctx.command, ctx, whole=True)
        ctx.exit()


class Command(Helpful, TyperCommand):
    """A command with our help."""


class Group(Helpful, TyperGroup):
    """A group of commands with our help, which names the nearest command to a word that is none."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise mistakes.UnknownCommandError(ctx, args[0])
        return super().resolve_command(ctx, args)


class Application(typer.Typer):
    """A Typer application whose commands are of these classes."""

    def __init__(self, **attributes: Any) -> None:
        settings = {"help_option_names": ["-h", "--help"]}
        plain = {"cls": Group, "context_settings": settings, "no_args_is_help": True, "rich_markup_mode": "rich"}
        super().__init__(**{**plain, **attributes})

    def command(self, name: str | None = None, **attributes: Any) -> Callable[[Any], Any]:
        """Return what makes a command of a function."""
        return super().command(name, **{"cls": Command, **attributes})


def hoisted(words: list[str]) -> list[str]:
    """Return a command line with the options that stand anywhere before its command."""
    before: list[str] = []
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--":
            return [*before, *rest, word, *remaining]
        if word in ANYWHERE or word.startswith(tuple(f"{option}=" for option in ANYWHERE_WITH_VALUE)):
            before.append(word)
        elif word in ANYWHERE_WITH_VALUE:
            before += [word, *[value for value in [next(remaining, None)] if value is not None]]
        else:
            rest.append(word)
    return [*before, *rest]
