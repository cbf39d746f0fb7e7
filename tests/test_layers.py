"""The layers of the package, held by reading every import statement in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import biorag

ROOT = Path(biorag.__file__).parent
FACADE = ("biorag", "biorag.api.library")  # the Python interface, imported when it is asked for

# A name covers the module and everything in it. A module imports from its own layer or a lower one.
LAYERS = [
    ["biorag", "biorag.types", "biorag.errors", "biorag.registries", "biorag.utils"],
    ["biorag.settings"],
    ["biorag.corpus", "biorag.models", "biorag.prompts", "biorag.references"],
    ["biorag.indexes", "biorag.generators"],
    ["biorag.retrieval"],
    ["biorag.answering"],
    ["biorag.engine", "biorag.indexing"],
    ["biorag.training"],
    ["biorag.benchmarks"],
    ["biorag.api"],
    ["biorag.commands"],
    # The wings.
    ["biorag.papers", "biorag.papers.files"],
    [
        "biorag.faces",
        "biorag.faces.chat",
        "biorag.faces.outside",
        "biorag.faces.session_pool",
        "biorag.faces.mcp_server",
    ],
    [
        "biorag.lab",
        *(f"biorag.lab.{part}" for part in ("citation_graph", "conversion", "merging", "mteb", "synthesis")),
    ],
    ["biorag.papers.manuscripts", "biorag.faces.server", "biorag.lab.tuning", "biorag.lab.scale"],
    ["biorag.lab.merging"],
    ["biorag.lab.recipes"],
    ["biorag.papers.commands", "biorag.faces.commands", "biorag.lab.commands"],
    ["biorag.cli", "biorag.__main__"],
]
WINGS = ("biorag.lab", "biorag.papers", "biorag.faces")
# Where a heavy or replaceable library may be imported.
COMMANDS = ("biorag.commands", "biorag.cli", *(f"{wing}.commands" for wing in WINGS))
OWNERS = {
    "torch": ("biorag.models", "biorag.training", "biorag.generators", "biorag.benchmarks.latency", "biorag.lab"),
    "transformers": ("biorag.models", "biorag.training", "biorag.lab"),
    "sentence_transformers": ("biorag.models", "biorag.training", "biorag.lab"),
    "safetensors": ("biorag.models", "biorag.training"),
    "datasets": ("biorag.training", "biorag.lab.mteb"),
    "mteb": ("biorag.lab.mteb", "biorag.lab.commands.bench_mteb"),
    "colbert": ("biorag.models",),
    "peft": ("biorag.training",),
    "gguf": ("biorag.training", "biorag.models", "biorag.generators"),
    "gepa": ("biorag.lab.tuning",),
    "sklearn": ("biorag.benchmarks", "biorag.training.evaluators"),
    "scipy": ("biorag.benchmarks",),
    "pyarrow": ("biorag.lab.scale",),
    "ray": ("biorag.lab.scale",),
    "qdrant_client": ("biorag.indexes",),
    "qdrant_edge": ("biorag.indexes",),
    "llama_cpp": ("biorag.generators",),
    "huggingface_hub": ("biorag.models",),
    "onnxruntime": ("biorag.models",),
    "threadpoolctl": ("biorag.models",),
    "lxml": ("biorag.corpus", "biorag.papers"),
    "pypdf": ("biorag.papers",),
    "fastapi": ("biorag.faces.server",),
    "uvicorn": ("biorag.faces.server",),
    "jinja2": ("biorag.faces.server",),
    "mcp": ("biorag.faces.mcp_server", "biorag.faces.server"),
    "matplotlib": ("biorag.utils.plots",),
    "tomlkit": ("biorag.settings",),
    **dict.fromkeys(("rich", "click", "typer"), COMMANDS),
}
# A PDF is read in a process of its own, whose output is a pipe.
PRINTERS = (*COMMANDS, "biorag.papers.files.pdf", "biorag.papers.files.pdf_pages")


@cache
def modules() -> dict[str, ast.Module]:
    trees = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("biorag", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return trees


def targets(tree: ast.Module) -> Iterator[str]:
    """Yield the full names of everything a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules() else str(node.module)


def covers(name: str, module: str) -> bool:
    return module == name or (name != "biorag" and module.startswith(f"{name}."))


@cache
def imports() -> dict[str, set[str]]:
    return {name: set(targets(tree)) - {name} for name, tree in modules().items()}


@cache
def graph() -> dict[str, set[str]]:
    return {
        name: {target for target in found if covers("biorag", target.partition(".")[0])}
        for name, found in imports().items()
    }


def layer_of(module: str) -> int:
    places = {name: level for level, names in enumerate(LAYERS) for name in names}
    named = max((name for name in places if covers(name, module)), key=len, default="")
    assert named and (named not in WINGS or named == module), f"{module} is in no layer: place it in LAYERS"
    return places[named]


def wing_of(module: str) -> str:
    return next((wing for wing in WINGS if covers(wing, module)), "")


def test_a_wing_is_imported_by_itself_alone():
    """The core takes what it needs of a wing by a registry, and so no wing needs another."""
    pairs = {(name, target) for name, found in graph().items() for target in found if wing_of(target)}
    assert {(name, target) for name, target in pairs if wing_of(name) != wing_of(target)} == set()


def test_no_module_imports_from_a_higher_layer_or_one_that_is_not_there():
    assert {(name, target) for name, found in graph().items() for target in found if target not in modules()} == set()
    higher = {
        (module, target)
        for module, found in graph().items()
        for target in found
        if layer_of(target) > layer_of(module) and (module, target) != FACADE
    }
    assert higher == set()


def test_there_are_no_import_cycles():
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for target in sorted(graph()[module]):
                visit(target, (*trail, module))
            done.add(module)

    for module in modules():
        visit(module, ())


@pytest.mark.parametrize("package", OWNERS)
def test_a_heavy_package_is_imported_by_its_owners_alone(package):
    importers = {name for name, found in imports().items() if any(target.split(".")[0] == package for target in found)}
    assert {name for name in importers if not any(covers(owner, name) for owner in OWNERS[package])} == set()


def printing(tree: ast.Module) -> list[str]:
    """Return the calls in a module that write to the terminal: print, rich consoles, echo, the standard streams."""
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "Console"):
            calls.append(node.func.id)
        elif isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "stdout", "Console", "rprint"):
            calls.append(node.attr)
    return calls


def test_only_the_command_line_prints():
    assert sorted(printing(ast.parse("import sys\ndef f():\n    print(1)\n    sys.stdout.write('x')\n"))) == [
        "print",
        "stdout",
    ]
    writers = {name for name, tree in modules().items() if printing(tree)}
    assert {name for name in writers if not any(covers(printer, name) for printer in PRINTERS)} == set()


def test_the_package_root_imports_nothing_but_the_environment():
    assert {target for target in imports()["biorag"] if target != FACADE[1]} <= {"importlib", "os", "typing"}
