"""Small faults put into the core on purpose, one at a time, to see whether the tests notice.

Sites are found by what they say, not by where they lie: a function by its name anywhere under biorag/ (`path:name`
where the name alone is not unique), and in it the code that is changed, under whatever names of variables. A line whose
code is no longer there says what replaced it (`gone`).

    python scripts/mutations.py ROOT --list                                where each mutation lies in ROOT
    python scripts/mutations.py ROOT --apply N                             change the checkout ROOT
    python scripts/mutations.py ROOT --run OUT.jsonl [--only N,N] [--tests PATH ...]
        [--limit SECONDS] [--marks EXPRESSION]

`--run` copies the checkout for each mutation and runs the tests of the mutated module until one fails: those that
import it, then those of the commands that use it, or those of `--tests`. Each result is a JSON line of OUT: `caught`
(by a test that passes without the mutation), `survived`, `timeout`, `gone`, or `unfounded` where the test fails
anyhow. A run that was interrupted resumes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

DRAWN = Path(__file__).with_name("mutations.jsonl")
LEFT_OUT = (".git", ".venv", "__pycache__", ".*_cache", "*.egg-info")
OF_THE_PACKAGE = ("test_layers.py", "test_docs.py", "test_command_line.py")  # they name modules and test none
EVERYTHING = "search_and_ask"
# Patterns of the names of test files that hold an area besides those that import its module.
TESTS: Mapping[str, str] = {
    "mirage": "mirage* search_and_ask",
    "metrics": "*bench_retrieval *bioasq",
    "significance": "*bench_retrieval",
    "losses": "losses training train train_cross_encoder cross_encoder*",
    "sampling": "mixture instructions data *train",
    "mining": "*mine *mining",
    "hard negatives": "*mine *mining",
    "citation negatives": "*mine *mining",
    "held out": "*held_out *bench_retrieval *tune *train",
    "contamination": "*held_out *train *mine",
    "merging": "*merge*",
    "resuming": "*runs *mine *mining *train *mirage_run",
    "checksums": "*checksums edge snapshot search_and_ask",
    "files": "*files *faults store",
    "locks": "*locks store",
    "manifests": "*manifest store search_and_ask",
    "kept replies": "*cache *search_and_ask",
    "retries": "*http *eutils",
    "citation graph": "*graph",
    "pubmed": "*pubmed*",
    "updates": "*pubmed* *writing",
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One line of the list; `nth` counts, from 0, the places of the function that read like `original`."""

    number: int
    area: str
    function: str
    original: str
    mutated: str
    nth: int = 0
    gone: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """The code of a file that a mutation changes, and what it becomes."""

    path: Path
    node: ast.expr | ast.stmt
    mutated: ast.expr | ast.stmt


@cache
def functions(root: Path) -> list[tuple[Path, str, ast.FunctionDef]]:
    """Return each function of the package with its file and its name, `Class.method` for a method."""
    listed = []
    for path in sorted((root / "biorag").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            members = node.body if isinstance(node, ast.ClassDef) else [node]
            listed += [(path, owner + item.name, item) for item in members if isinstance(item, ast.FunctionDef)]
    return listed


def read_drawn(path: Path) -> list[Mutation]:
    """Return the mutations of a list."""
    return [Mutation(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _code(text: str) -> ast.expr | ast.stmt:
    """Return code as the statement or expression that it is."""
    statement = ast.parse(text).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def _variables(node: ast.AST) -> list[ast.Name]:
    """Return the names of a piece of code but those of called functions."""
    called = {child.func for child in ast.walk(node) if isinstance(child, ast.Call)}
    return [child for child in ast.walk(node) if isinstance(child, ast.Name) and child not in called]


def _nameless(node: ast.AST) -> str:
    """Return code without the names of its variables."""
    node = copy.deepcopy(node)
    for variable in _variables(node):
        variable.id = "_"
    return ast.unparse(node)


def _nodes(function: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the statements and expressions of a function, in the order of its text; of `call()` the call alone."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.expr | ast.stmt) and not isinstance(child, ast.Expr):
            yield child
        yield from _nodes(child)


def locate(root: Path, mutation: Mutation) -> Site | None:
    """Return the place of a mutation in a checkout; None if the code is no longer there.

    Code that reads the same comes before code with other names of variables.
    """
    hint, _, name = mutation.function.rpartition(":")
    original, mutated = _code(mutation.original), _code(mutation.mutated)
    candidates = [
        (path, function)
        for path, known, function in functions(root)
        if known == name and hint in str(path.relative_to(root).with_suffix(""))
    ]
    for read in (ast.unparse, _nameless):
        for path, function in candidates:
            same = [node for node in _nodes(function) if read(node) == read(original)]
            if same:
                node = same[min(mutation.nth, len(same) - 1)]
                pairs = zip(_variables(original), _variables(node), strict=True)
                renamed = {old.id: new.id for old, new in pairs}
                for variable in _variables(mutated):
                    variable.id = renamed.get(variable.id, variable.id)
                return Site(path, node, mutated)
    return None


def mutate(site: Site) -> None:
    """Change a file: the code of one node, all else as it was."""
    node = site.node
    assert node.end_lineno is not None and node.end_col_offset is not None, "read from a file"
    lines = site.path.read_bytes().splitlines(keepends=True)
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    text = ast.unparse(site.mutated)
    code = f"({text})" if isinstance(site.mutated, ast.expr) else text
    content = b"".join(lines)
    site.path.write_bytes(content[:begin] + code.encode() + content[end:])


def tests_of(root: Path, path: Path, area: str) -> list[str]:
    """Return the test files for a module: its own, those that import it, the smallest first, then the area's."""
    dotted = str(path.relative_to(root).with_suffix("")).replace("/", ".")
    package, _, stem = dotted.rpartition(".")
    imports = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(package)} import .*\b{stem}\b")
    files = [file for file in (root / "tests").rglob("test_*.py") if file.name not in OF_THE_PACKAGE]
    files.sort(key=lambda file: (file.name != f"test_{stem}.py", file.stat().st_size, file))
    direct = [file for file in files if imports.search(file.read_text(encoding="utf-8"))]
    patterns = [f"test_{stem}.py", *(f"test_{name}.py" for name in TESTS.get(area, EVERYTHING).split())]
    named = [file for pattern in patterns for file in files if file.match(pattern)]
    return [str(file.relative_to(root)) for file in dict.fromkeys([*direct, *named])]


def pytest(root: Path, tests: Sequence[str], limit: float, marks: str) -> tuple[int | None, str]:
    """Run tests in a checkout until one fails; return the exit code, None past the limit, and the output."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-m", marks, *tests]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        output.seek(0)
        return code, output.read()


def judged(
    root: Path, mutation: Mutation, tests: Sequence[str], limit: float = 300.0, marks: str = ""
) -> dict[str, Any]:
    """Return what becomes of one mutation of a checkout."""
    if mutation.gone:
        return {"status": "gone", "by": mutation.gone}
    if not (site := locate(root, mutation)):
        return {"status": "gone"}
    chosen = list(tests) or tests_of(root, site.path, mutation.area)
    at = f"{site.path.relative_to(root)}:{site.node.lineno}"
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        clean, mutated = Path(folder, "clean"), Path(folder, "mutated")
        shutil.copytree(root, mutated, ignore=shutil.ignore_patterns(*LEFT_OUT))
        mutate(replace(site, path=mutated / site.path.relative_to(root)))
        started = time.monotonic()
        code, output = pytest(mutated, chosen, limit, marks)
        result = {"at": at, "tests": chosen, "seconds": round(time.monotonic() - started, 1)}
        if code in (0, None):
            return {"status": "timeout" if code is None else "survived", **result}
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        by = failed[1] if failed else output[-500:]
        shutil.copytree(root, clean, ignore=shutil.ignore_patterns(*LEFT_OUT))
        passes = failed is not None and pytest(clean, [failed[1]], limit, marks)[0] == 0
        return {"status": "caught" if passes else "unfounded", "by": by, **result}


def run(root: Path, drawn: Sequence[Mutation], out: Path, tests: Sequence[str], limit: float, marks: str) -> None:
    """Judge each mutation that is not in the file yet, and append the results."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    done = {json.loads(line)["number"] for line in lines}
    for mutation in drawn:
        if mutation.number in done:
            continue
        facts = {"number": mutation.number, "area": mutation.area, "function": mutation.function}
        line = json.dumps(facts | judged(root, mutation, tests, limit, marks), ensure_ascii=False)
        with out.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def listing(root: Path, drawn: Iterable[Mutation]) -> Iterator[str]:
    """Yield a line for each mutation: where it lies, and what it changes."""
    for mutation in drawn:
        site = None if mutation.gone else locate(root, mutation)
        at = f"{site.path.relative_to(root)}:{site.node.lineno}" if site else f"gone {mutation.gone or ''}".strip()
        code = (ast.unparse(site.node), ast.unparse(site.mutated)) if site else (mutation.original, mutation.mutated)
        change = " -> ".join(code).replace("\n", " ")
        yield f"{mutation.number:2} {mutation.area}: {mutation.function} {at}\n     {change}\n"


def main() -> None:
    """List, apply or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).parent.parent, help="a checkout")
    parser.add_argument("--drawn", type=Path, default=DRAWN, help="the list")
    parser.add_argument("--only", default="", help="numbers of mutations, separated by commas; default all")
    parser.add_argument("--tests", nargs="*", default=[], help="test files instead of the mutated module's")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of one mutation")
    parser.add_argument("--marks", default="", help="as pytest's -m, such as 'not slow'")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true")
    what.add_argument("--apply", type=int, metavar="N")
    what.add_argument("--run", type=Path, metavar="OUT")
    options = parser.parse_args()
    root = options.root.resolve()
    only = {int(number) for number in options.only.split(",") if number}
    drawn = [mutation for mutation in read_drawn(options.drawn) if not only or mutation.number in only]
    if options.list:
        sys.stdout.writelines(listing(root, drawn))
    elif options.run:
        run(root, drawn, options.run, options.tests, options.limit, options.marks)
    else:
        site = locate(root, next(mutation for mutation in drawn if mutation.number == options.apply))
        if not site:
            parser.exit(4, f"mutation {options.apply} has no place in {root}\n")
        mutate(site)


if __name__ == "__main__":
    main()
