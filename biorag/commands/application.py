"""Typer with commands imported when they run, our help, our sentences for mistakes, and options that stand anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from biorag.commands import help
from biorag.errors import UsageError, nearest
from biorag.utils.registry import Kind, Registry

ANYWHERE = ("--offline", "--debug")  # options of the program, taken before and after its command
ANYWHERE_WITH_VALUE = ("--config",)
# What Typer raises for a command line that it cannot read; not all versions of it name the class.
WrongUsage: type[Exception] = typer.BadParameter.__bases__[0]
MOST_NAMED = 12  # options, in a message
NO_ARGUMENTS = "NoArgsIsHelpError"  # whose help is printed already


@dataclass(frozen=True, kw_only=True)
class CommandKind(Kind):
    """A command: its target is the function, a Typer application of several, or a registry of such kinds."""

    panel: str = help.COMMANDS  # the heading of the help under which it is listed
    seldom: bool = False  # whether a page of help only names it


class Helpful:
    """What commands and groups share: pages of help, and one sentence for a line that cannot be read."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, all of it for `--help-all`."""
        formatter.write(help.help_text(self, ctx, whole=help.HELP_ALL in ctx.meta))

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option for help."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.help = "Show the commonest options, or all."
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the command line; raises `UsageError` if it cannot be read."""
        if help.HELP_ALL in args:
            ctx.meta[help.HELP_ALL] = True
        try:
            words = args[: args.index("--")] if "--" in args else args
            has_name = "--name" in help.spellings(self.get_params(ctx))  # type: ignore[attr-defined]
            # Of an option given twice Typer takes the last, as scripts expect.
            if has_name and sum(word.partition("=")[0] == "--name" for word in words) > 1:
                raise UsageError(f"{ctx.command_path} takes --name once: ask one index at a time")
            if any(word == "" or word.endswith("=") for word in args) and not ctx.resilient_parsing:
                self._refuse_empty(ctx, args)
            return super().parse_args(ctx, args)  # type: ignore[misc]
        except WrongUsage as error:
            if type(error).__name__ == NO_ARGUMENTS:
                raise
            raise UsageError(_sentence(error, ctx)) from None

    def _refuse_empty(self: Any, ctx: Any, args: list[str]) -> None:
        """Raise `UsageError` at an empty value, which of a path or a model would be the current folder."""
        values, *_ = self.make_parser(ctx).parse_args(args=list(args))
        for option in self.get_params(ctx):
            given = values.get(option.name)
            if "" in (given if isinstance(given, list | tuple) else [given]):
                is_argument = option.param_type_name == "argument"
                name = (option.metavar or option.name.upper()) if is_argument else help.name_of(option)
                raise UsageError(f"{name} is empty: give it a value{'' if is_argument else ', or leave it out'}")


class Command(Helpful, TyperCommand):
    """A command with our help."""


class Group(Helpful, TyperGroup):
    """A group of commands with our help, which suggests the nearest command for an unknown one.

    Parameters
    ----------
    kinds : its commands, imported when they are asked for; None if Typer knows them
    """

    def __init__(self, *, kinds: Registry[Any] | None = None, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.kinds = kinds
        if kinds is not None:
            self.commands = cast(MutableMapping[str, Any], LazyCommands(kinds))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first words name; a name of two words, as of `tune prompt`, goes first."""
        if (longer := " ".join(args[:2])) in self.commands:
            args = [longer, *args[2:]]
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UsageError(_unknown_command(ctx.command_path, args[0], list(self.commands)))
        return super().resolve_command(ctx, args)


class LazyCommands(Mapping[str, Any]):
    """The commands of a registry, each imported when it is asked for."""

    def __init__(self, kinds: Registry[Any]) -> None:
        self._kinds = kinds

    def __getitem__(self, name: str) -> Any:
        loaded = self._kinds[name].load()
        if isinstance(loaded, Registry):
            return Group(name=name, kinds=loaded, help=self._kinds[name].summary, **PLAIN)
        if isinstance(loaded, typer.Typer):
            group = get_group(loaded)
            group.name = name
            return group
        single = Application()
        single.command(name, cls=Command)(loaded)
        return get_command(single)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


PLAIN = {"context_settings": {"help_option_names": ["-h", "--help", help.HELP_ALL]}, "no_args_is_help": True}


class Application(typer.Typer):
    """A Typer application whose commands are of these classes."""

    def __init__(self, **attributes: Any) -> None:
        plain = {"cls": Group, "add_completion": False, "pretty_exceptions_enable": False, **PLAIN}
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


def _sentence(error: Any, ctx: Any) -> str:
    """Return a mistake that Typer found in one sentence."""
    path = ctx.command_path
    if type(error).__name__ == "NoSuchOption":
        known = [*help.spellings(ctx.command.get_params(ctx)), *ANYWHERE, *ANYWHERE_WITH_VALUE]
        near = nearest(error.option_name, sorted(known, key=len))  # the longer of two spellings counts
        advice = f"did you mean {near}?" if near else f"'{path} {help.HELP_ALL}' lists them"
        return f"{path} has no option {error.option_name}: {advice}"
    message = " ".join(error.format_message().split()).rstrip(".")
    if message.startswith("Got unexpected extra argument"):
        params = ctx.command.get_params(ctx)
        options = [one for one in help.spellings(params) if one.startswith("--") and not one.startswith("--help")]
        taken = " ".join(one.metavar or one.name.upper() for one in params if one.param_type_name == "argument")
        message += f" beside its options {', '.join(options)}" if len(options) < MOST_NAMED else ""
        message += f"; it takes {taken}, in quotation marks if of several words" if taken else ""
    return f"{path}: {message[:1].lower()}{message[1:]}: see '{path} --help'"


def _unknown_command(path: str, word: str, commands: list[str]) -> str:
    near = nearest(word, commands)
    if near:
        return f"{path} has no command {word!r}: did you mean '{path} {near}'?"
    listed = f"use one of {', '.join(commands)}" if path != "biorag" else "'biorag --help' lists the commands"
    return f"{path} has no command {word!r}: {listed}"
