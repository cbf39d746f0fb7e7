"""The layers of DESIGN.md, held by reading every import statement of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import biorag

ROOT = Path(biorag.__file__).parent

# A name covers the module and everything in it. A module imports from its own layer or a lower one.
LAYERS = [
    ["biorag", "biorag.types", "biorag.errors", "biorag.registries", "biorag.utils"],
    ["biorag.settings"],
    ["biorag.corpus", "biorag.models", "biorag.prompts", "biorag.references"],
    ["biorag.indexes", "biorag.generators", "biorag.citation_graph"],
    ["biorag.retrieval"],
    ["biorag.answering"],
    ["biorag.engine", "biorag.diagnosis"],
    ["biorag.training"],
    ["biorag.benchmarks"],
    ["biorag.recipes"],
    ["biorag.conversion"],
    ["biorag.scale"],
    ["biorag.api"],
    ["biorag.chat", "biorag.model_context"],
    ["biorag.server"],
    ["biorag.commands", "biorag.cli", "biorag.__main__"],
]
# One heavy library each, none imports another; the model classes share how models are loaded and run.
APART = [
    "biorag.models.bi_encoder",
    "biorag.models.colbert",
    "biorag.models.cross_encoder",
    "biorag.generators",
    "biorag.indexes",
    "biorag.models.loading",
    "biorag.models.inference",
]
MAY = {(model, common) for model in APART[:3] for common in ("biorag.models.loading", "biorag.models.inference")}
MAY |= {("biorag.generators", "biorag.models.loading")}

ENCODERS = ("biorag.models.bi_encoder", "biorag.models.colbert", "biorag.models.cross_encoder")
TRAINERS = {"biorag.training.loop", "biorag.training.losses", "biorag.training.evaluators", "biorag.training.colbert"}
STAGES = {
    *(
        "biorag.training.retriever",
        "biorag.training.reranker",
        "biorag.training.cross_encoder",
        "biorag.training.parity",
    ),
    *("biorag.training.decoder", "biorag.training.lora", "biorag.training.sampling", "biorag.training.asymmetric"),
}
LATENCY = "biorag.benchmarks.latency"
MTEB = "biorag.benchmarks.mteb"
OWNERS = {
    "torch": {
        *(
            "biorag.models.loading",
            "biorag.models.inference",
            "biorag.models.bi_encoder",
            "biorag.models.colbert",
            "biorag.models.cross_encoder",
            "biorag.models.prepacked",
            "biorag.models.pooling",
            "biorag.models.unpadded",
            "biorag.models.exporting",
        ),
        *("biorag.generators.seq2seq", f"{LATENCY}.machine", "biorag.training.cross_encoder"),
        *(
            "biorag.training.decoder",
            "biorag.training.lora",
            "biorag.training.memory",
            "biorag.training.sampling",
            *TRAINERS,
        ),
        *("biorag.models.resources", "biorag.recipes.estimating"),
    },
    "transformers": {
        *("biorag.models.loading", "biorag.models.prepacked", "biorag.models.unpadded", "biorag.models.pairing"),
        *("biorag.training.loop", "biorag.training.decoder", "biorag.training.question_generator"),
    },
    "sentence_transformers": {
        "biorag.models.unpadded",
        *("biorag.models.pairing", "biorag.models.pooling"),
        *(
            "biorag.models.bi_encoder",
            "biorag.models.colbert",
            "biorag.models.cross_encoder",
            "biorag.models.exporting",
            f"{LATENCY}.peers",
        ),
        *((TRAINERS | STAGES) - {"biorag.training.loop"}),
    },
    "safetensors": {"biorag.training.colbert"},
    "tenacity": {"biorag.utils.retries"},
    "threadpoolctl": {"biorag.models.late_interaction"},
    "datasets": {"biorag.training.loop", "biorag.conversion.hub", f"{MTEB}.tasks", f"{MTEB}.run"},
    "mteb": {MTEB, f"{MTEB}.models", f"{MTEB}.tasks", f"{MTEB}.run", "biorag.commands.bench_mteb"},
    "colbert": {"biorag.training.parity"},
    "datasketch": {"biorag.training.contamination"},
    "matplotlib": {"biorag.utils.plots"},
    "pyarrow": {
        *("biorag.scale.parquet", "biorag.scale.sources", "biorag.scale.exporting", "biorag.scale.embedding"),
        *("biorag.scale.vector_folder", "biorag.scale.snippet_folder"),
    },
    "ray": {"biorag.scale.ray_cluster"},
    "qdrant_client": {
        *("biorag.indexes.bulk_load", "biorag.indexes.collection", "biorag.indexes.conditions"),
        *("biorag.indexes.connection", "biorag.indexes.replicas", "biorag.indexes.server"),
        *("biorag.indexes.server_facts", f"{LATENCY}.peers"),
    },
    "qdrant_edge": {"biorag.indexes.edge", "biorag.indexes.edge_filters", "biorag.indexes.bm25"},
    "llama_cpp": {"biorag.generators.llama", "biorag.generators.sequences"},
    "huggingface_hub": {"biorag.models.finding"},
    "lxml": {"biorag.corpus.hardened_xml"},
    "pypdf": {"biorag.corpus.pdf_pages"},
    "rispy": {"biorag.corpus.references"},
    "sklearn": {"biorag.benchmarks.tuning.abstention"},
    "onnxruntime": {"biorag.models.exported"},
    "tokenizers": {
        *("biorag.answering.verification.words", "biorag.models.exported", "biorag.models.tokens"),
        "biorag.training.decoder",
    },
    "peft": {"biorag.training.lora"},
    "fastapi": {"biorag.server.api", "biorag.server.app", "biorag.server.openai"},
    "uvicorn": {"biorag.server.connections", "biorag.server.running"},
    "jinja2": {"biorag.server.templating"},
    "gepa": {"biorag.benchmarks.tuning.evolution"},
    "gguf": {"biorag.training.decoder"},
    "tomlkit": {"biorag.settings.file"},
    "keyring": {"biorag.settings.keys"},
    "scipy": {"biorag.benchmarks.significance"},
    "rank_bm25": {f"{LATENCY}.peers"},
    "bm25s": {f"{LATENCY}.peers"},
    "mcp": {"biorag.model_context.server", "biorag.server.app"},
    "Stemmer": {"biorag.answering.verification.words", f"{LATENCY}.peers"},
}


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("biorag", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


MODULES = modules()
PACKAGES = {name for name in MODULES if any(other.startswith(f"{name}.") for other in MODULES)}


def targets(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the full names of everything a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if name in PACKAGES else name.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in MODULES else base


def inner_imports(name: str, tree: ast.Module) -> set[str]:
    return {target for target in targets(name, tree) if target.split(".")[0] == "biorag"} - {name}


GRAPH = {name: inner_imports(name, tree) for name, tree in MODULES.items()}


def covers(name: str, module: str) -> bool:
    return module == name or (name != "biorag" and module.startswith(f"{name}."))


def layers_of(module: str) -> list[int]:
    return [level for level, names in enumerate(LAYERS) if any(covers(name, module) for name in names)]


def test_the_reader_of_imports_sees_functions_and_type_checking_blocks():
    text = (
        "import os\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from biorag.types import Hit\n"
        "def f():\n    from biorag import cli\n    from . import errors\n    from .indexes.edge import EdgeIndex\n"
    )
    assert inner_imports("biorag.x", ast.parse(text)) == {
        "biorag.types",
        "biorag.cli",
        "biorag.errors",
        "biorag.indexes.edge",
    }


def test_every_import_of_the_package_is_a_module_of_it():
    unknown = {(name, target) for name, found in GRAPH.items() for target in found if target not in MODULES}
    assert unknown == set()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_belongs_to_one_layer(module):
    assert len(layers_of(module)) == 1, f"{module} belongs to the layers {layers_of(module)}: place it in LAYERS"


FACADE = ("biorag", "biorag.api.library")  # what Python asks the package for; imported when it is asked for


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_imports_nothing_from_a_higher_layer(module):
    (level,) = layers_of(module)
    higher = {target for target in GRAPH[module] if layers_of(target) > [level] and (module, target) != FACADE}
    assert higher == set()


SHARED = {
    f"biorag.commands.{name}"
    for name in (
        *("options", "groups", "show", "show_answer", "show_document", "training", "examining"),
        *("application", "completion", "help", "mistakes"),
    )
}


def test_no_command_imports_another():
    """What several commands need is in the package it belongs to, or in a helper that is no command itself."""
    crossing = {
        (module, target)
        for module, targets in GRAPH.items()
        for target in targets
        if covers("biorag.commands", module) and target.startswith("biorag.commands.")
    }
    assert {(module, target) for module, target in crossing if target not in SHARED} == set()


def test_there_are_no_import_cycles():
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for target in sorted(GRAPH[module]):
                visit(target, (*trail, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())
    assert done == set(MODULES)


def test_parts_with_a_heavy_library_do_not_import_one_another():
    def part(module: str) -> str | None:
        return next((name for name in APART if covers(name, module)), None)

    crossing = {
        (module, target)
        for module, found in GRAPH.items()
        for target in found
        if part(module) and part(target) and part(module) != part(target) and (part(module), part(target)) not in MAY
    }
    assert crossing == set()


@cache
def packages_imported() -> dict[str, set[str]]:
    """Return the packages that each module imports."""
    return {name: {target.split(".")[0] for target in targets(name, tree)} for name, tree in MODULES.items()}


@pytest.mark.parametrize("package", sorted(OWNERS))
def test_heavy_package_is_imported_by_its_owners_alone(package):
    assert {name for name, packages in packages_imported().items() if package in packages} == OWNERS[package]


def printing(tree: ast.Module) -> list[str]:
    """Return what in a module writes to the terminal: print, rich consoles, echo, the standard streams."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "Console"):
            found.append(node.func.id)
        elif isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "stdout", "Console", "rprint"):
            found.append(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("rich", "click", "typer"):
            found.append(f"from {node.module}")
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in ("rich", "click", "typer")]
    return found


def test_the_search_for_printing_finds_it():
    text = "import sys\nfrom rich.console import Console\ndef f():\n    print(1)\n    sys.stdout.write('x')\n"
    assert sorted(printing(ast.parse(text))) == ["from rich.console", "print", "stdout"]
    assert printing(MODULES["biorag.commands.show"]) != []


@pytest.mark.parametrize(
    "module", sorted(name for name in MODULES if name != "biorag.cli" and not covers("biorag.commands", name))
)
def test_only_the_command_line_prints(module):
    assert printing(MODULES[module]) == []


def test_the_package_root_imports_nothing_but_the_environment():
    body = ast.parse(Path(biorag.__file__).read_text(encoding="utf-8")).body
    imported = [name.name for node in body if isinstance(node, ast.Import) for name in node.names]
    imported += [str(node.module) for node in body if isinstance(node, ast.ImportFrom)]
    assert sorted(imported) == ["importlib", "os", "typing"], "what it exports is imported when it is asked for"
