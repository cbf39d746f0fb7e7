"""What `--help` and `--help-all` print: a page with the commonest options, or every option there is."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from biorag.commands.show import ShowingConsole

PAGE, WIDTH = 45, 80  # lines and columns of a page: a command whose whole help is longer shows its common options
EXAMPLES = 3  # of a command, on a page
LEFT = 26  # columns of an option's name; a longer one stands on a line of its own
HELP_ALL = "--help-all"
# The commonest options, in the order in which help shows them; a required option is always shown.
COMMON = (
    *("--name", "--option", "--base", "--out", "--ray", "--llm", "--mode", "--k", "--k-init", "--rerank", "--filter"),
    *("--negatives", "--guard", "--epochs", "--batch-size", "--learning-rate", "--limit", "--format"),
    *("--json", "--config", "--offline", "--help"),
)
OPTIONS, ARGUMENTS, COMMANDS = "Options", "Arguments", "Commands"  # panels
KINDS = {"int": "INT", "integer": "INT", "float": "NUMBER", "path": "PATH", "str": "TEXT", "text": "TEXT"}


class HelpRow(NamedTuple):
    """A line of help: a name and its meaning."""

    name: str
    text: str


def print_help(command: Any, ctx: Any, whole: bool) -> None:
    """Print the help of a command: a page, or the `whole` of it."""
    console = ShowingConsole(highlight=False)
    wanted = lines(command, ctx, console.width, whole or fits_a_page(command, ctx))
    for line in wanted:
        console.print(line, soft_wrap=True)


def fits_a_page(command: Any, ctx: Any) -> bool:
    """Return whether the whole help of a command is a page at most."""
    return sum(1 for _ in lines(command, ctx, WIDTH, whole=True)) <= PAGE


def lines(command: Any, ctx: Any, width: int, whole: bool) -> Iterator[Text]:
    """Yield the lines of a command's help."""
    yield Text(f"Usage: {ctx.command_path} {' '.join(_usage(command, ctx))}", style="bold")
    yield from _prose(command, width, whole)
    shown = [parameter for parameter in command.get_params(ctx) if not getattr(parameter, "hidden", False)]
    options = sorted((part for part in shown if part.param_type_name == "option"), key=_rank)
    common = options if whole else [option for option in options if option.required or name_of(option) in COMMON]
    arguments = [HelpRow(_placeholder(part), _explained(part)) for part in shown if part.param_type_name == "argument"]
    panels: dict[str, list[HelpRow]] = {ARGUMENTS: arguments, **_commands(command, ctx, whole), OPTIONS: []}
    for option in common:
        panel = getattr(option, "rich_help_panel", None) if whole else None
        spelled = sorted(option.opts, key=len) + sorted(option.secondary_opts, key=len)
        row = HelpRow(", ".join(spelled) + _value(option), _explained(option))
        panels.setdefault(panel if isinstance(panel, str) else OPTIONS, []).append(row)
    for title, rows in panels.items():
        yield from _panel(title, rows, width)
    seldom = [] if whole else [name for name, kind in _kinds(command).items() if getattr(kind, "seldom", False)]
    if hidden := len(options) - len(common):
        seldom.insert(0, f"{hidden} more {'option' if hidden == 1 else 'options'}")
    if seldom:
        yield Text("")
        yield Text(f"{', '.join(seldom)}: {ctx.command_path} {HELP_ALL}", style="dim")


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


def _prose(command: Any, width: int, whole: bool) -> Iterator[Text]:
    """Yield a command's description and its examples; on a page the first of them."""
    explained, _, examples = inspect.cleandoc(command.help or "").partition("Examples:")
    for paragraph in explained.strip().split("\n\n"):
        yield Text("")
        for line in textwrap.wrap(" ".join(paragraph.split()), width, **_WHOLE_WORDS):
            yield Text(line)
    shown = [line.strip() for line in examples.splitlines() if line.strip()]
    if shown:
        yield Text("")
        yield Text("Examples:", style="bold")
    for example in shown if whole else shown[:EXAMPLES]:
        for line in _continued(example, width):
            yield Text(line)


def _continued(example: str, width: int) -> Iterator[str]:
    r"""Yield the lines of an example, broken by `\` so that it can be copied."""
    line = "  "
    for word in _words(example):
        if len(line) + len(word) + 2 > width and line.strip():
            yield f"{line} \\"
            line = " " * 6
        line += f"{' ' * bool(line.strip())}{word}"
    yield line


def _words(example: str) -> Iterator[str]:
    """Yield the words of a shell line; a quoted text is one."""
    word = ""
    for part in example.split(" "):
        word = f"{word} {part}" if word else part
        if word.count('"') % 2 == 0 and word.count("'") % 2 == 0:
            yield word
            word = ""
    if word:
        yield word


def _kinds(command: Any) -> Mapping[str, Any]:
    """Return the kinds of a group's commands that are imported when they run."""
    return getattr(command, "kinds", None) or {}


def _commands(command: Any, ctx: Any, whole: bool) -> dict[str, list[HelpRow]]:
    """Return the commands of a group by panel; on a page not the seldom ones, nor two words whose first is one too."""
    panels: dict[str, list[HelpRow]] = {}
    kinds = _kinds(command)
    for name, kind in kinds.items():
        is_second = " " in name and name.partition(" ")[0] in kinds
        if whole or not (is_second or getattr(kind, "seldom", False)):
            panels.setdefault(getattr(kind, "panel", COMMANDS), []).append(HelpRow(name, kind.summary))
    if kinds or not hasattr(command, "commands"):
        return panels
    children = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
    return {COMMANDS: [HelpRow(name, _short(child)) for name, child in children if not child.hidden]}


def _short(command: Any) -> str:
    """Return a command's description in a line."""
    first = inspect.cleandoc(command.help or "").partition("\n\n")[0]
    return str(command.short_help or " ".join(first.split()))


_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _panel(title: str, rows: Sequence[HelpRow], width: int) -> Iterator[Text]:
    """Yield a heading and its rows: names on the left, texts beside them."""
    if not rows:
        return
    left = min(LEFT, max(len(row.name) for row in rows))
    yield Text("")
    yield Text(f"{title}:", style="bold")
    for name, text in rows:
        wrapped = textwrap.wrap(text, width - left - 4, **_WHOLE_WORDS) or [""]
        if len(name) > left:
            yield Text(f"  {name}", style="cyan")
        else:
            yield Text.assemble((f"  {name:<{left}}", "cyan"), "  ", wrapped.pop(0))
        for line in wrapped:
            yield Text(f"{'':{left + 4}}{line}")


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
