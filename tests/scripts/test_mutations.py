"""What the operators make of a function, and that a drawn mutation is found again in another layout."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from scripts import mutations
from scripts.mutations import draw, judged, locate, mutants, mutate, read_drawn, write_drawn

pytestmark = pytest.mark.long

FUSION = '''def reciprocal_rank(rankings, k):
    """Return sums."""
    fused = {}
    for ranking in rankings:
        for rank, scored in enumerate(ranking, 1):
            fused[scored.id] = fused.get(scored.id, 0.0) + 1.0 / (k + rank)
    return fused
'''
# Elsewhere, with other names and a comment; the same code else.
MOVED = '''def reciprocal_rank(lists, k):
    """Return sums, “exactly”."""
    scores = {}
    for results in lists:
        for position, hit in enumerate(results, 1):  # from 1
            scores[hit.doc_id] = scores.get(hit.doc_id, 0.0) + 1.0 / (k + position)
    return scores
'''
TEST = """from biorag.fusion import reciprocal_rank


def test_sums():
    assert reciprocal_rank([[type("Hit", (), {"id": "a"})]], 1) == {"a": 0.5}
"""


def made(code: str) -> set[tuple[str, str, str]]:
    function = ast.parse(f"def function():\n    {code}").body[0]
    assert isinstance(function, ast.FunctionDef)
    return {(mutant.operator, ast.unparse(mutant.node), ast.unparse(mutant.changed)) for mutant in mutants(function)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a < b", {("comparison", "a < b", "a <= b")}),
        ("a in b", {("comparison", "a in b", "a not in b")}),
        (
            "1 <= a <= b",
            {
                ("comparison", "1 <= a <= b", "1 < a <= b"),
                ("comparison", "1 <= a <= b", "1 <= a < b"),
                ("off by one", "1 <= a <= b", "2 <= a <= b"),
            },
        ),
        ("a - b", {("sign", "a - b", "a + b")}),
        ("a = -b", {("sign", "-b", "b")}),
        ("a = 0", {("off by one", "a = 0", "a = 1")}),
        ("a = True", set()),
        ("a[:b]", {("off by one", "a[:b]", "a[:b + 1]")}),
        ("a and b", {("and or", "a and b", "a or b")}),
        ("file.flush()", {("dropped call", "file.flush()", "pass")}),
        ("logger.info('said')", set()),
        ("return f(a, b)", {("swapped arguments", "f(a, b)", "f(b, a)")}),
        ("return f(a, 'text')", set()),
        (
            "return max(a, b)",
            {("min or max", "max(a, b)", "min(a, b)"), ("swapped arguments", "max(a, b)", "max(b, a)")},
        ),
        ("return a if b else c", {("negated condition", "b", "not b")}),
        ("if a: raise Error(b - c)", {("negated condition", "a", "not a"), ("dropped check", "a", "False")}),
        ("return f'{a - b}'", set()),
    ],
)
def test_the_mutants_of_a_line(code, expected):
    assert made(code) == expected


def checkout(root: Path, module: str, code: str) -> Path:
    for name, text in ((module, code), ("biorag/__init__.py", ""), ("tests/test_fusion.py", TEST)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return root


def test_the_same_seed_draws_the_same_list_and_it_is_read_as_written(tmp_path):
    root = checkout(tmp_path, "biorag/fusion.py", FUSION)
    drawn = draw(root, seed=7, count=9)
    assert drawn == draw(root, seed=7, count=9)
    assert len({(mutation.original, mutation.mutated) for mutation in drawn}) == 3
    write_drawn(tmp_path / "drawn.jsonl", drawn)
    assert read_drawn(tmp_path / "drawn.jsonl") == drawn


def test_a_mutation_is_found_under_other_names_and_changes_nothing_else(tmp_path):
    (drawn,) = (
        mutation
        for mutation in draw(checkout(tmp_path / "old", "biorag/fusion.py", FUSION), seed=1, count=3)
        if mutation.mutated == "k - rank"
    )
    new = checkout(tmp_path / "new", "biorag/retrieval/fusions.py", MOVED)
    site = locate(new, drawn)
    assert site is not None
    mutate(*site)
    assert (new / "biorag/retrieval/fusions.py").read_text(encoding="utf-8") == MOVED.replace(
        "(k + position)", "((k - position))"
    )


def test_code_that_is_not_there_is_gone(tmp_path):
    drawn = draw(checkout(tmp_path / "old", "biorag/fusion.py", FUSION), seed=1, count=1)[0]
    assert locate(checkout(tmp_path / "new", "biorag/fusion.py", "def linear():\n    pass\n"), drawn) is None


@pytest.mark.slow
def test_a_test_that_fails_with_the_mutation_alone_catches_it(tmp_path):
    root = checkout(tmp_path, "biorag/fusion.py", FUSION)
    results = {mutation.mutated: judged(root, mutation, [], limit=60) for mutation in draw(root, seed=1, count=3)}
    assert results["k - rank"]["status"] == "caught"
    assert results["k - rank"]["by"] == "tests/test_fusion.py::test_sums"
    (tmp_path / "tests/test_fusion.py").write_text(TEST.replace("0.5", "0.25"))
    unfounded = judged(root, next(m for m in draw(root, seed=1, count=3) if m.mutated == "k - rank"), [], limit=60)
    assert unfounded["status"] == "unfounded"


def test_the_list_in_the_repository_has_thirty_mutations_of_different_areas():
    drawn = read_drawn(mutations.DRAWN)
    assert len(drawn) == 30
    assert {mutation.area for mutation in drawn} <= set(mutations.CORE)
    assert len({mutation.area for mutation in drawn}) == 30
    assert all(json.loads(line) for line in mutations.DRAWN.read_text(encoding="utf-8").splitlines())
