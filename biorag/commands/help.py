"""What `--help` and `--help-all` print: a page with the commonest options, or every option."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

PAGE = 45  # lines: a command whose whole help is longer shows its common options
EXAMPLES = 3  # of a command, on a page
HELP_ALL = "--help-all"
# The commonest options, in the order in which help shows them; a required option is always shown.
COMMON = (
    *("--name", "--option", "--base", "--out", "--port", "--llm", "--mode", "--k", "--rerank", "--filter"),
    *("--on-bad-line", "--keep-missing"),
    *("--negatives", "--guard", "--epochs", "--batch-size", "--learning-rate", "--limit", "--format"),
    *("--json", "--config", "--offline", HELP_ALL),
)
OPTIONS, ARGUMENTS, COMMANDS = "Options", "Arguments", "Commands"  # panels
KINDS = {"int": "INT", "integer": "INT", "float": "NUMBER", "path": "PATH", "str": "TEXT", "text": "TEXT"}
Row = tuple[str, str]  # a name and its meaning


def help_text(command: Any, ctx: Any, whole: bool) -> str:
    """Return the help of a command: all of it if `whole`, or if that is a page at most."""
    everything = _text(command, ctx, whole=True)
    return everything if whole or everything.count("\n") <= PAGE else _text(command, ctx, whole=False)


def _text(command: Any, ctx: Any, whole: bool) -> str:
    formatter = ctx.make_formatter()
    formatter.write(f"Usage: {ctx.command_path} {' '.join(_usage(command, ctx))}\n\n")
    description, _, examples = inspect.cleandoc(command.help or "").partition("Examples:")
    formatter.write_text(description.strip())
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    if lines:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in lines[: None if whole else EXAMPLES]))
    parameters = [parameter for parameter in command.get_params(ctx) if not getattr(parameter, "hidden", False)]
    options = sorted((parameter for parameter in parameters if parameter.param_type_name == "option"), key=_rank)
    common = [option for option in options if whole or option.required or name_of(option) in COMMON]
    arguments = [
        (_placeholder(parameter), _explained(parameter))
        for parameter in parameters
        if parameter.param_type_name == "argument"
    ]
    panels: dict[str, list[Row]] = {ARGUMENTS: arguments, **_commands(command, ctx, whole), OPTIONS: []}
    for option in common:
        panel = getattr(option, "rich_help_panel", None) if whole else None
        spelled = sorted(option.opts, key=len) + sorted(option.secondary_opts, key=len)
        row = ", ".join(spelled) + _value(option), _explained(option)
        panels.setdefault(panel if isinstance(panel, str) else OPTIONS, []).append(row)
    for title, rows in panels.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
    seldom = [] if whole else [name for name, kind in _kinds(command).items() if getattr(kind, "seldom", False)]
    if hidden := len(options) - len(common):
        seldom.insert(0, f"{hidden} more {'option' if hidden == 1 else 'options'}")
    if seldom:
        formatter.write(f"\n{', '.join(seldom)}: {ctx.command_path} {HELP_ALL}\n")
    return str(formatter.getvalue())


def name_of(option: Any) -> str:
    """Return the longest spelling of an option."""
    return max((str(spelling) for spelling in option.opts), key=len)


def _rank(option: Any) -> tuple[bool, int]:
    name = name_of(option)
    return not option.required, COMMON.index(name) if name in COMMON else len(COMMON)


def _usage(command: Any, ctx: Any) -> Iterator[str]:
    parameters = command.get_params(ctx)
    for option in parameters:
        if option.param_type_name == "option" and option.required:
            yield f"{name_of(option)}{_value(option)}"
    yield "[OPTIONS]"
    for argument in parameters:
        if argument.param_type_name == "argument":
            yield _placeholder(argument) if argument.required else f"[{_placeholder(argument)}]"
    if hasattr(command, "commands"):
        yield "COMMAND [ARGS]..."


def _kinds(command: Any) -> Mapping[str, Any]:
    """Return the kinds of a group's commands that are imported when they run."""
    return getattr(command, "kinds", None) or {}


def _commands(command: Any, ctx: Any, whole: bool) -> dict[str, list[Row]]:
    """Return the commands of a group by panel; on a page not the seldom ones, nor two words whose first is one too."""
    panels: dict[str, list[Row]] = {}
    kinds = _kinds(command)
    for name, kind in kinds.items():
        is_second = " " in name and name.partition(" ")[0] in kinds
        if whole or not (is_second or getattr(kind, "seldom", False)):
            panels.setdefault(getattr(kind, "panel", COMMANDS), []).append((name, kind.summary))
    if kinds or not hasattr(command, "commands"):
        return panels
    children = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
    return {COMMANDS: [(name, _short(child)) for name, child in children if not child.hidden]}


def _short(command: Any) -> str:
    """Return a command's description in a line."""
    first = inspect.cleandoc(command.help or "").partition("\n\n")[0]
    return str(command.short_help or " ".join(first.split()))


def _value(option: Any) -> str:
    """Return the placeholder of an option's value: its choices or type; nothing for a switch."""
    if getattr(option, "is_flag", False):
        return ""
    return f" {option.metavar or _kind(option)}"


def _kind(parameter: Any) -> str:
    kind = str(parameter.bare_type() if hasattr(parameter, "bare_type") else parameter.type.name)
    kind = kind.removeprefix("list[").removesuffix("]").rpartition(".")[2].lower()
    return KINDS.get(kind, kind.upper())


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("[]{}.")
    return f"{name}..." if argument.nargs != 1 else name


def _explained(parameter: Any) -> str:
    bounds = parameter if hasattr(parameter, "min") else getattr(parameter, "type", None)
    least, most = getattr(bounds, "min", None), getattr(bounds, "max", None)
    notes = [f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None]
    if len(notes) == 2:
        notes = [f"{least} to {most}"]
    if default := _default(parameter):
        notes.append(f"default: {default}")
    if parameter.required and parameter.param_type_name == "option":
        notes.append("required")
    return " ".join([" ".join((parameter.help or "").split()), *(f"[{note}]" for note in notes)])


def _default(parameter: Any) -> str:
    """Return a default as a user would write it; empty for none."""
    default = parameter.default
    if isinstance(parameter.show_default, str):
        text = parameter.show_default
    elif not parameter.show_default or default is None or callable(default):
        text = ""
    else:
        text = ", ".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    if getattr(parameter, "is_flag", False) and parameter.show_default:
        off = parameter.secondary_opts[0] if parameter.secondary_opts else ""
        return (name_of(parameter) if text.lower() == "true" else off).lstrip("-")
    return text


def spellings(parameters: Iterable[Any]) -> list[str]:
    """Return all spellings of options."""
    return [
        spelling
        for parameter in parameters
        if parameter.param_type_name == "option"
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    ]
