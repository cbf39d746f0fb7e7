"""Figures of the structure of a checkout, to be compared before and after a change.

    python scripts/measure_structure.py [ROOT] [--json]

prints one line for each figure: modules of biorag/ and at its root, its lines and those of biorag/commands/,
functions of more than 40 lines, with more than 8 parameters, and commands with more than 12, runs of six lines of
code that stand at more than one place and the lines that these cover, local names that say nothing, names that
several public classes share, core dependencies and extras, and the lines of tests/, scripts/ and docs/. With `--json`
it prints one JSON document, which also names each function, class and local that it counted.

Lines are lines of Python files, as they are. A function goes from `def` to its end, docstring included; `self` and
`cls` are not counted as parameters. In the runs, blank lines, comments, imports, docstrings and lines that only close
brackets are left out, and so is indentation.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LONGEST, PARAMETERS, COMMAND_PARAMETERS, RUN = 40, 8, 12, 6
VAGUE = frozenset({"found", "each", "place", "given", "said"})
_CLOSING = re.compile(r"[)\]}]+[,:]?")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file; `name` is its path from the checkout."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return len(self.text.splitlines())


@dataclass(frozen=True, slots=True)
class Structure:
    """What was found: `FILE:LINE name` of functions, and the files that define a shared class name.

    `repeated_runs` counts distinct runs, `repeated_lines` every line that is in one; `vague_locals` counts each name
    once in a function.
    """

    modules: int
    root_modules: tuple[str, ...]
    lines_of_commands: int
    lines: int
    long_functions: tuple[str, ...]
    functions_with_many_parameters: tuple[str, ...]
    commands_with_many_parameters: tuple[str, ...]
    repeated_runs: int
    repeated_lines: int
    vague_locals: Mapping[str, int]
    shared_class_names: Mapping[str, Sequence[str]]
    dependencies: int
    extras: int
    test_files: int
    test_lines: int
    script_lines: int
    doc_lines: int


def sources(root: Path, folder: str) -> list[Source]:
    """Return the Python files below a folder of a checkout."""
    read = ((path, path.read_text(encoding="utf-8")) for path in sorted((root / folder).rglob("*.py")))
    return [Source(str(path.relative_to(root)), text, ast.parse(text)) for path, text in read]


def functions(source: Source) -> Iterator[Function]:
    """Yield all functions of a file, methods and nested ones too."""
    return (node for node in ast.walk(source.tree) if isinstance(node, Function))


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters."""
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    names = [argument.arg for argument in listed if argument]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def count_parameters(function: Function) -> int:
    """Return how many parameters a function has."""
    return len(parameters(function))


def code_lines(source: Source) -> list[tuple[int, str]]:
    """Return the lines that count in runs, with their numbers."""
    left_out: set[int] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(_numbers(node))
        elif isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            left_out.update(_numbers(node.body[0]))
    numbered = ((number, line.strip()) for number, line in enumerate(source.text.splitlines(), 1))
    return [
        (number, line)
        for number, line in numbered
        if line and number not in left_out and not line.startswith("#") and not _CLOSING.fullmatch(line)
    ]


def _numbers(statement: ast.stmt) -> range:
    """Return the numbers of a statement's lines."""
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def repetitions(package: Sequence[Source]) -> tuple[int, int]:
    """Return how many distinct runs of `RUN` lines stand at more than one place, and how many lines are in them."""
    starts: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    code = [code_lines(source) for source in package]
    for file, lines in enumerate(code):
        for start in range(len(lines) - RUN + 1):
            starts[tuple(line for _, line in lines[start : start + RUN])].append((file, start))
    repeated = [places for places in starts.values() if len(places) > 1]
    covered = {(file, start + offset) for places in repeated for file, start in places for offset in range(RUN)}
    return len(repeated), len(covered)


def vague_locals(package: Sequence[Source]) -> dict[str, int]:
    """Return in how many functions each name of `VAGUE` is a variable or a parameter; a nested one counts by itself."""
    counts = dict.fromkeys(sorted(VAGUE), 0)
    for source in package:
        for function in functions(source):
            own = {argument for argument in parameters(function) if argument in VAGUE}
            pending: list[ast.AST] = list(function.body)
            while pending:
                node = pending.pop()
                if isinstance(node, Function):
                    continue
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
                    own.add(node.id)
                elif isinstance(node, ast.Lambda):
                    own |= {argument.arg for argument in node.args.args} & VAGUE
                pending += ast.iter_child_nodes(node)
            for name in own:
                counts[name] += 1
    return counts


def shared_class_names(package: Sequence[Source]) -> dict[str, list[str]]:
    """Return the names that several public classes of the package have, and where these are."""
    files: dict[str, list[str]] = defaultdict(list)
    for source in package:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(source.name)
    return {name: named for name, named in sorted(files.items()) if len(named) > 1}


def length(function: Function) -> int:
    """Return the lines of a function."""
    return len(_numbers(function))


def above(package: Sequence[Source], size: Callable[[Function], int], most: int) -> tuple[str, ...]:
    """Return the functions whose `size` is more than `most`."""
    return tuple(
        f"{source.name}:{function.lineno} {function.name}"
        for source in package
        for function in functions(source)
        if size(function) > most
    )


def text_lines(root: Path, folder: str, pattern: str = "*") -> int:
    """Return the lines of all text files below a folder."""
    paths = (path for path in (root / folder).rglob(pattern) if path.is_file() and "__pycache__" not in path.parts)
    return sum(path.read_bytes().count(b"\n") for path in paths)


def measure(root: Path) -> Structure:
    """Return the figures of a checkout."""
    package, tests = sources(root, "biorag"), sources(root, "tests")
    commands = [source for source in package if source.name.startswith("biorag/commands/")]
    runs, covered = repetitions(package)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Structure(
        modules=len(package),
        root_modules=tuple(source.name for source in package if source.name.count("/") == 1),
        lines_of_commands=sum(source.lines for source in commands),
        lines=sum(source.lines for source in package),
        long_functions=above(package, length, LONGEST),
        functions_with_many_parameters=above(package, count_parameters, PARAMETERS),
        commands_with_many_parameters=above(commands, count_parameters, COMMAND_PARAMETERS),
        repeated_runs=runs,
        repeated_lines=covered,
        vague_locals=vague_locals(package),
        shared_class_names=shared_class_names(package),
        dependencies=len(project["dependencies"]),
        extras=len(project["optional-dependencies"]),
        test_files=len(tests),
        test_lines=sum(source.lines for source in tests),
        script_lines=text_lines(root, "scripts"),
        doc_lines=text_lines(root, "docs", "*.md"),
    )


def table(structure: Structure) -> str:
    """Return one line a figure."""
    vague, shared = structure.vague_locals, structure.shared_class_names
    rows = {
        "modules of biorag/": structure.modules,
        "modules at the root of biorag/": len(structure.root_modules),
        "lines of biorag/commands/": structure.lines_of_commands,
        "lines of biorag/": structure.lines,
        f"functions of more than {LONGEST} lines": len(structure.long_functions),
        f"functions with more than {PARAMETERS} parameters": len(structure.functions_with_many_parameters),
        f"commands with more than {COMMAND_PARAMETERS} parameters": len(structure.commands_with_many_parameters),
        f"repeated runs of {RUN} lines": structure.repeated_runs,
        "lines in repeated runs": structure.repeated_lines,
        f"locals named {', '.join(vague)}": sum(vague.values()),
        "names shared by public classes": len(shared),
        "classes that share a name": sum(map(len, shared.values())),
        "core dependencies": structure.dependencies,
        "extras": structure.extras,
        "files of tests/": structure.test_files,
        "lines of tests/ (Python)": structure.test_lines,
        "lines of scripts/ (all files)": structure.script_lines,
        "lines of docs/ (Markdown)": structure.doc_lines,
    }
    return "".join(f"{name:<50}{figure:>8,}\n" for name, figure in rows.items())


def main() -> None:
    """Print the figures of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).parent.parent, help="a checkout")
    parser.add_argument("--json", action="store_true", help="one JSON document, with what was counted")
    options = parser.parse_args()
    structure = measure(options.root.resolve())
    sys.stdout.write(json.dumps(asdict(structure), indent=2) + "\n" if options.json else table(structure))


if __name__ == "__main__":
    main()
