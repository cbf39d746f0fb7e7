"""Write the snapshots of the command line, after `write.py` and as that is started.

Those in the repository were written by biorag 0.1.0 at commit d87b5f6:

- `commands.json`: every command's options, their types, defaults and panels
- `keys.json`: the keys and types of every JSON document, and of the files written, of the commands in `documents.py`
- `values.json`: those values of the documents that are the same on every machine
- `refusals.json`: the exit codes of command lines that are refused, and what their sentences name

A command, an option or a JSON key that is added on purpose is added here by hand; what is there never changes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import typer.main

from biorag.cli import app
from tests.compatibility.documents import REFUSED, observed, prepare_refusals, prepared, refusal
from tests.compatibility.frozen import write_json

TYPES = {"text": "str", "integer": "int", "integer range": "int", "float range": "float", "boolean": "bool"}


def commands() -> dict[str, dict[str, Any]]:
    """Return every command's parameters by its words: options by their longest flag, arguments as help names them."""
    return dict(_walk(typer.main.get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    parameters = {}
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        name = max(parameter.opts, key=len) if is_option else (parameter.metavar or parameter.name).lower()
        parameters[name] = _described(parameter, is_option)
    found = [(" ".join(words), parameters)]
    for name, child in getattr(command, "commands", {}).items():
        found += _walk(child, (*words, name))
    return found


def _described(parameter: Any, is_option: bool) -> dict[str, Any]:
    """Return what a user depends on; what is not set is left out."""
    default = _default(parameter)
    bounded = getattr(parameter, "type", parameter)
    facts = {
        "flags": sorted(parameter.opts) if is_option else [],
        "off": sorted(parameter.secondary_opts),
        "type": _type(parameter),
        "min": getattr(bounded, "min", None),
        "max": getattr(bounded, "max", None),
        "required": parameter.required,
        "multiple": getattr(parameter, "multiple", False),
        "nargs": parameter.nargs if parameter.nargs != 1 else None,
        "is_flag": getattr(parameter, "is_flag", False),
        "default": default,
        "shown_default": _shown(parameter, default),
        "panel": getattr(parameter, "rich_help_panel", None),
        "hidden": getattr(parameter, "hidden", False),
    }
    return {key: value for key, value in facts.items() if value is not None and value is not False and value != []}


def _type(parameter: Any) -> str:
    """Return the type of a value; Typer 0.29 has left Click, whose types had names."""
    if descriptor := getattr(parameter, "type_descriptor", None):
        if descriptor.choices:
            return "|".join(map(str, descriptor.choices))
        annotation = descriptor.annotation
        annotation = next(iter(getattr(annotation, "__args__", ())), annotation)
        return str(annotation.__name__).lower()
    kind = parameter.type
    return "|".join(kind.choices) if hasattr(kind, "choices") else TYPES.get(kind.name, kind.name)


def _default(parameter: Any) -> Any:
    """Return the default of a parameter; None where there is none, or where it is an empty list."""
    default = parameter.default
    if type(default).__name__ == "Sentinel" or default in (None, (), []):
        return None
    return default if isinstance(default, bool | int | float | str) else str(default)


def _shown(parameter: Any, default: Any) -> str | None:
    """Return the default that help shows."""
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    return str(default) if shown and default is not None and default is not False else None


def main() -> None:
    """Write all snapshots."""
    write_json("commands.json", commands())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepared(folder)
        prepare_refusals(folder)
        refusals = []
        for words, names in REFUSED:
            exit_code, sentence = refusal(words, folder)
            lacking = [name for name in names if name not in sentence]
            assert exit_code and not lacking, (words, exit_code, lacking, sentence)
            refusals.append({"command": list(words), "exit_code": exit_code, "names": list(names)})
        write_json("refusals.json", refusals)
        found = observed(folder)
    write_json("keys.json", {name: case["keys"] for name, case in found.items()})
    write_json("values.json", {name: case["values"] for name, case in found.items() if case["values"]})


if __name__ == "__main__":
    main()
