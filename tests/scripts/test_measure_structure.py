"""The figures of a tiny package, counted by hand."""

from __future__ import annotations

from pathlib import Path

from scripts.measure_structure import measure

SHARED = [f"    value = value + {number}" for number in range(7)]  # seven lines: two runs of six
MODULE = '''"""A module."""

import os
from pathlib import (
    Path,
)


class Counts:
    """One of two."""

    def add(self, first, second, /, third, *rest, fourth, fifth, sixth, seventh, eighth):
        """Nine parameters and self."""
        found = [each for each in rest]  # two vague names
        return found


def grow(value):
    """Repeat."""
'''


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tiny(root: Path) -> Path:
    long = ["def long(place):", *["    place += 1"] * 40, "    return place"]  # 42 lines, but one run
    command = [f"def command({', '.join(f'option{number}' for number in range(13))}):", "    pass"]
    write(root, "biorag/__init__.py", "")
    write(root, "biorag/one.py", MODULE + "\n".join(SHARED) + "\n")
    write(root, "biorag/commands/two.py", "\n".join([*command, "class Counts:", "    pass", "class _Own:", "    pass"]))
    # The same lines otherwise indented, with a comment and a blank line among them.
    other = ["def again(value):", "    if value:", *[f"    {line}" for line in SHARED[:3]], "", "        # why"]
    write(root, "biorag/deep/three.py", "\n".join([*other, *[f"    {line}" for line in SHARED[3:]], *long]))
    write(root, "tests/test_one.py", "def test():\n    pass\n")
    write(root, "scripts/do.sh", "true\n")
    write(root, "docs/results/page.md", "# One\n\nTwo.\n")
    write(
        root, "pyproject.toml", '[project]\ndependencies = ["a", "b"]\n[project.optional-dependencies]\nmore = ["c"]\n'
    )
    return root


def test_each_figure_of_a_tiny_package(tmp_path):
    structure = measure(tiny(tmp_path))
    assert structure.modules == 4
    assert structure.root_modules == ("biorag/__init__.py", "biorag/one.py")
    assert structure.lines_of_commands == 6
    assert structure.lines == 6 + 26 + 53
    assert structure.long_functions == ("biorag/deep/three.py:12 long",)
    assert structure.functions_with_many_parameters == ("biorag/commands/two.py:1 command", "biorag/one.py:12 add")
    assert structure.commands_with_many_parameters == ("biorag/commands/two.py:1 command",)
    # Two runs at two places each, and the forty equal lines: a run at 35 places.
    assert (structure.repeated_runs, structure.repeated_lines) == (3, 2 * 7 + 40)
    assert structure.vague_locals == {"each": 1, "found": 1, "given": 0, "place": 1, "said": 0}
    assert structure.shared_class_names == {"Counts": ["biorag/commands/two.py", "biorag/one.py"]}
    assert (structure.dependencies, structure.extras) == (2, 1)
    assert (structure.test_files, structure.test_lines) == (1, 2)
    assert (structure.script_lines, structure.doc_lines) == (1, 3)
