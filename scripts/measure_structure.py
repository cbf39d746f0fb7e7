"""Measure the structure of the package: lines and modules of core and wings, long functions, names that say nothing.

    python -m scripts.measure_structure [FOLDER]

FOLDER is a checkout, by default this one. An import from core to wing, or from one wing to another, is counted.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

WINGS = ("lab", "papers", "faces")
LONG, MANY = 40, 8  # lines of a function, parameters
EMPTY_NAMES = {"part", "own", "kept", "found", "given", "said", "told"}


def wing_of(parts: tuple[str, ...]) -> str:
    """Return the wing that a module's path or dotted name stands in."""
    return parts[0] if parts and parts[0] in WINGS else "core"


def imported(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Yield what a module imports of the package, as the parts of its names."""
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (tuple(name.split(".")[1:]) for name in names if name.startswith("biorag."))


def measured(package: Path) -> dict[str, object]:
    """Return the measures of a package's folder."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    assigned: Counter[str] = Counter()
    lengths, parameters, outward = [], [], 0
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        wing, tree = wing_of(path.relative_to(package).parts), ast.parse(text)
        lines[wing] += len(text.splitlines())
        modules[wing] += 1
        outward += sum(wing_of(parts) not in ("core", wing) for parts in imported(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append((node.end_lineno or node.lineno) - node.body[0].lineno + 1)
                parameters.append(len(node.args.args) + len(node.args.kwonlyargs))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assigned[node.id] += 1
    return {
        "lines": dict(lines) | {"all": sum(lines.values())},
        "modules": dict(modules) | {"all": sum(modules.values())},
        "root modules": len([path for path in package.glob("*.py") if path.name != "__init__.py"]),
        "imports into a wing from outside": outward,
        "functions": {"median": median(lengths), "longer than 40": sum(length > LONG for length in lengths)},
        "functions of more than 8 parameters": sum(count > MANY for count in parameters),
        "shared class names": sorted(name for name, count in classes.items() if count > 1),
        "empty names of 1,000 assigned": round(1000 * sum(assigned[name] for name in EMPTY_NAMES) / assigned.total()),
    }


def main() -> None:
    """Print the measures as JSON."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    sys.stdout.write(json.dumps(measured(root / "biorag"), indent=2) + "\n")


if __name__ == "__main__":
    main()
