"""Figures by question: means of means against a slow reference, and against the reports they stand beside."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.benchmarks.per_question import PER_QUESTION, nested_weights, read_figures, values_of, write_figures


def number_at(report: Any, path: str) -> float:
    """Return a number of a report; of a list of tasks or batches that of the one named."""
    for key in path.split("."):
        if isinstance(report, list):
            report = next(row for row in report if key in (row.get("task"), row.get("batch")))
        else:
            report = report[key]
    return report


def check_figures(folder: Path, report: Any) -> set[str]:
    """Check that every figure kept by question has the report's mean, and return their paths."""
    rows = read_figures(folder / PER_QUESTION)
    paths = {path for row in rows for path in row["metrics"]}
    for path in paths:
        values = values_of(rows, [path])
        means = [float(task.mean()) for task in values.values]
        assert np.dot(values.weights, means) == pytest.approx(number_at(report, path), abs=2e-5), path
    return paths


def mean_of_means(tree: Any) -> float:
    """Return the mean of a tree's branches, each the mean of its own."""
    return fmean(map(mean_of_means, tree.values())) if isinstance(tree, dict) else tree


TREES = st.recursive(
    st.floats(0, 1), lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, min_size=1), max_leaves=12
)


def leaves(tree: Any, name: tuple[str, ...] = ()) -> dict[str, float]:
    if not isinstance(tree, dict):
        return {"/".join(name): tree}
    return {key: value for part, inner in tree.items() for key, value in leaves(inner, (*name, part)).items()}


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from("abcd"), TREES, min_size=1))
def test_a_nested_mean_is_the_mean_of_means(tree):
    values = leaves(tree)
    assert np.dot(nested_weights(list(values)), list(values.values())) == pytest.approx(mean_of_means(tree))


ROWS = [
    {"id": "1", "set": "x", "metrics": {"all": 1.0, "x": 1.0}},
    {"id": "2", "set": "x", "metrics": {"all": 0.0, "x": 0.0}},
    {"id": "1", "set": "y/one", "metrics": {"all": 1.0, "y": 1.0}},
    {"id": "1", "set": "y/two", "metrics": {"all": 0.0, "y": 0.0}},
    {"id": "2", "set": "y/two", "metrics": {"all": 0.5, "y": 0.5}},
]


def test_sets_count_alike_and_so_do_their_parts(tmp_path):
    write_figures(tmp_path / PER_QUESTION, ROWS)
    rows = read_figures(tmp_path / PER_QUESTION)
    assert rows == ROWS
    assert read_figures(tmp_path / "absent.jsonl") == []
    values = values_of(rows, ["all"])
    assert values.ids == (("1", "2"), ("1",), ("1", "2"))
    assert np.dot(values.weights, [task.mean() for task in values.values]) == (0.5 + (1.0 + 0.25) / 2) / 2
    mean = values_of(rows, ["x", "y"])
    assert np.dot(mean.weights, [task.mean() for task in mean.values]) == (0.5 + (1.0 + 0.25) / 2) / 2
    assert values_of(rows, ["x", "z"]) is None


def test_systems_are_compared_on_the_same_questions_alone():
    ours, theirs = values_of(ROWS, ["all"]), values_of(ROWS[::-1], ["all"])
    assert ours.against(theirs, 0) is None, "the order of questions tells which value is whose"
    assert ours.against(values_of(ROWS[:-1], ["all"]), 0) is None
    compared = ours.against(ours, 0)
    assert (compared.questions, compared.difference, compared.p_value) == (5, 0.0, 1.0)
    low, high = ours.interval(0)
    assert 0 <= low < (0.5 + (1.0 + 0.25) / 2) / 2 < high <= 1
