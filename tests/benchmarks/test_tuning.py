"""Choosing a value: the values that are measured, the search for a peak, and points that survive a stop."""

from __future__ import annotations

import csv
import json
import math

import pytest

from biorag.benchmarks.tuning.parameters import PARAMETERS
from biorag.benchmarks.tuning.run import TuningPlan
from biorag.benchmarks.tuning.study import Study, write_curve
from biorag.errors import MismatchError, UsageError
from biorag.settings.settings import Settings


def test_grids_are_spaced_by_ratio_or_by_difference():
    assert PARAMETERS["interpolation"].grid(5) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert PARAMETERS["lambda"].within(0.01, 1.0).grid(3) == [0.01, 0.1, 1.0]
    assert PARAMETERS["k_init"].within(1, 16).grid(5) == [1, 2, 4, 8, 16]
    assert PARAMETERS["k_init"].within(1, 3).grid(9) == [1, 2, 3]  # each once


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_value_of_a_range_is_allowed_and_holds_the_default(name):
    parameter, default = PARAMETERS[name], Settings.of()
    assert parameter.low < getattr(default.retrieval, parameter.setting) < parameter.high
    for value in parameter.grid(9):
        assert getattr(default.replace(**{parameter.setting: value}).retrieval, parameter.setting) == value


def test_ranges_and_lists_that_cannot_be():
    for low, high in ((1, 1), (2, 1), (None, math.inf), (math.nan, 1)):
        with pytest.raises(UsageError, match="must be below"):
            PARAMETERS["interpolation"].within(low, high)
    with pytest.raises(UsageError, match="above 0"):
        PARAMETERS["lambda"].within(0, 1)
    assert PARAMETERS["lambda"].parse("0.1, 0,0.1") == [0.0, 0.1]
    for text in ("", "a", "1,,2", "nan", "1,inf"):
        with pytest.raises(UsageError, match="--values"):
            PARAMETERS["lambda"].parse(text)
    with pytest.raises(UsageError, match="whole numbers"):
        PARAMETERS["k_init"].parse("10,20.5")


@pytest.mark.parametrize(
    ("name", "changes", "needed"),
    [
        ("lambda", {}, False),
        ("lambda", {"mode": "bm25"}, True),
        ("lambda", {"fusion": "rrf"}, True),
        ("k_init", {"rerank": False}, True),
        ("k_init", {"mode": "bm25"}, False),
        ("interpolation", {"rerank": False}, True),
        ("interpolation", {"reranker": "cross:m"}, True),
        ("interpolation", {"reranker": "encoder,cross:m"}, False),
        ("cross_interpolation", {"reranker": "encoder,cross:m"}, False),
        ("cross_interpolation", {"reranker": "encoder,cross:m", "rerank": False}, True),
        ("cross_interpolation", {}, True),
    ],
)
def test_what_a_parameter_needs(name, changes, needed):
    assert bool(PARAMETERS[name].needs(Settings.of(**changes))) == needed


def metrics_of(value):
    return {
        "one": {"nDCG@10": 1 - abs(value - 20) / 100, "MAP@10": value / 100},
        "two": {"nDCG@10": 0.5, "MAP@10": 0.0},
    }


def test_a_study_goes_on_where_it_was_stopped(tmp_path):
    asked = []

    def measure(value):
        asked.append(value)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return metrics_of(value)

    plan = TuningPlan(PARAMETERS["k_init"], "nDCG@10", 20, (5, 10, 20, 50))
    with pytest.raises(KeyboardInterrupt):
        plan.best(Study(tmp_path, {"index": 1}, measure))
    assert asked == [20, 5, 10]
    study = Study(tmp_path, {"index": 1}, measure)
    assert (plan.best(study), asked) == (20, [20, 5, 10, 10, 50])
    assert {value: point.metrics for value, point in study.points.items()} == {
        value: metrics_of(value) for value in (5, 10, 20, 50)
    }
    assert study.points[5].mean("nDCG@10") == pytest.approx((0.85 + 0.5) / 2)
    flat = Study(tmp_path / "flat", {}, lambda value: {"one": {"nDCG@10": 0.5 if value < 50 else 0.4}})
    assert TuningPlan(PARAMETERS["k_init"], "nDCG@10", 20, (5, 10, 50)).best(flat) == 20, "of equal ones the current"
    assert TuningPlan(PARAMETERS["k_init"], "nDCG@10", 50, (10, 5)).best(flat) == 5, "else the lowest"


def test_points_of_another_study_are_not_taken(tmp_path):
    Study(tmp_path, {"index": 1, "settings": 2}, metrics_of).at(5)
    with pytest.raises(MismatchError, match="other settings: choose another --out"):
        Study(tmp_path, {"index": 1, "settings": 3}, metrics_of)
    for content in ("[]", "{", '{"identity": {}, "points": [3]}'):
        (tmp_path / "points.json").write_text(content)
        with pytest.raises(MismatchError, match=r"points\.json is damaged"):
            Study(tmp_path, {}, metrics_of)


def test_the_curve_has_every_point_in_order(tmp_path):
    study = Study(tmp_path, {}, metrics_of)
    for value in (50, 5):
        study.at(value)
    write_curve(tmp_path, PARAMETERS["k_init"], study.ordered(), "nDCG@10")
    rows = list(csv.reader((tmp_path / "curve.csv").open()))
    assert rows[0] == ["k_init", "nDCG@10 one", "nDCG@10 two", "nDCG@10 mean"]
    assert [list(map(float, row)) for row in rows[1:]] == [[5, 0.85, 0.5, 0.675], [50, 0.7, 0.5, pytest.approx(0.6)]]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "points.json").read_bytes())["points"][0]["value"] == 5
