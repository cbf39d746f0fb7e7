"""A mutation is found again in another layout, changes nothing else, and is judged by the tests."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from scripts.mutations import DRAWN, EVERYTHING, TESTS, Mutation, judged, locate, mutate, read_drawn

pytestmark = pytest.mark.long

FUSION = '''def reciprocal_rank(rankings, k):
    """Return sums."""
    fused = {}
    for ranking in rankings:
        for rank, scored in enumerate(ranking, 1):
            fused[scored.id] = fused.get(scored.id, 0.0) + 1.0 / (k + rank)
    return fused
'''
# Elsewhere, with other names of variables and a comment.
MOVED = '''def reciprocal_rank(lists, k):
    """Return sums, “exactly”."""
    scores = {}
    for results in lists:
        for position, hit in enumerate(results, 1):  # from 1
            scores[hit.id] = scores.get(hit.id, 0.0) + 1.0 / (k + position)
    return scores
'''
TEST = """from biorag.fusion import reciprocal_rank


def test_sums():
    assert reciprocal_rank([[type("Hit", (), {"id": "a"})]], 1) == {"a": 0.5}
"""
MUTATION = Mutation(1, "fusions", "reciprocal_rank", "k + rank", "k - rank")


def checkout(root: Path, module: str, code: str) -> Path:
    for name, text in ((module, code), ("biorag/__init__.py", ""), ("tests/test_fusion.py", TEST)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return root


def test_a_mutation_is_found_under_other_names_and_changes_nothing_else(tmp_path):
    root = checkout(tmp_path, "biorag/retrieval/fusions.py", MOVED)
    site = locate(root, MUTATION)
    assert site is not None
    mutate(site)
    assert (root / "biorag/retrieval/fusions.py").read_text(encoding="utf-8") == MOVED.replace(
        "(k + position)", "((k - position))"
    )


@pytest.mark.slow
def test_a_test_that_fails_with_the_mutation_alone_catches_it(tmp_path):
    root = checkout(tmp_path, "biorag/fusion.py", FUSION)
    result = judged(root, MUTATION, [], limit=60)
    assert (result["status"], result["by"]) == ("caught", "tests/test_fusion.py::test_sums")
    (tmp_path / "tests/test_fusion.py").write_text(TEST.replace("0.5", "0.25"))
    assert judged(root, MUTATION, [], limit=60)["status"] == "unfounded"


def test_the_list_in_the_repository_has_thirty_mutations_of_different_areas():
    drawn = read_drawn(DRAWN)
    assert [mutation.number for mutation in drawn] == list(range(1, len(drawn) + 1))
    present = [mutation for mutation in drawn if not mutation.gone]
    assert len(present) == len({mutation.area for mutation in present}) == 30
    root = Path(__file__).parents[2]
    assert [mutation.number for mutation in present if not locate(root, mutation)] == []


def test_every_pattern_of_an_area_names_test_files():
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    patterns = {pattern for patterns in (*TESTS.values(), EVERYTHING) for pattern in patterns.split()}
    assert [pattern for pattern in sorted(patterns) if not fnmatch.filter(names, f"test_{pattern}.py")] == []
