"""Choosing a value: the values that are measured, the best one, and points that survive a stop."""

from __future__ import annotations

import pytest

from biorag.errors import MismatchError, UsageError
from biorag.lab.tuning.parameters import PARAMETERS
from biorag.lab.tuning.run import TuningPlan, TuningRun, mean_of, write_curve
from biorag.settings.settings import Settings


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_value_is_allowed_and_they_lie_around_the_default(name):
    parameter, default = PARAMETERS[name], Settings.of()
    assert parameter.values[0] < getattr(default.retrieval, parameter.setting) < parameter.values[-1]
    for value in parameter.values:
        assert getattr(default.replace(**{parameter.setting: value}).retrieval, parameter.setting) == value


def test_lists_of_values():
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


def test_a_run_resumes_where_it_was_stopped(tmp_path):
    asked = []

    def measure(value):
        asked.append(value)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return metrics_of(value)

    with pytest.raises(KeyboardInterrupt):
        TuningRun(tmp_path, {"index": 1}).measured([20, 5, 10, 50], measure)
    assert asked == [5, 10, 20]
    points = TuningRun(tmp_path, {"index": 1}).measured([20, 5, 10], measure)
    assert asked == [5, 10, 20, 20]
    points = TuningRun(tmp_path, {"index": 1}).measured([50, 10], measure)
    assert asked[4:] == [50]
    assert points == {value: metrics_of(value) for value in (5, 10, 20, 50)}
    assert mean_of(points[5], "nDCG@10") == pytest.approx((0.85 + 0.5) / 2)
    assert TuningPlan(PARAMETERS["k_init"], "nDCG@10", 50, ()).best(points) == 20
    write_curve(tmp_path / "curve.png", PARAMETERS["k_init"], points, "nDCG@10")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_of_equal_values_the_current_is_best_else_the_lowest():
    flat = {value: {"one": {"nDCG@10": 0.5 if value < 50 else 0.4}} for value in (5, 10, 20, 50)}
    assert TuningPlan(PARAMETERS["k_init"], "nDCG@10", 20, ()).best(flat) == 20
    assert TuningPlan(PARAMETERS["k_init"], "nDCG@10", 50, ()).best(flat) == 5


def test_points_of_another_run_are_not_taken(tmp_path):
    TuningRun(tmp_path, {"index": 1, "settings": 2}).measured([5], metrics_of)
    with pytest.raises(MismatchError, match="other settings: choose another --out"):
        TuningRun(tmp_path, {"index": 1, "settings": 3}).measured([5], metrics_of)
    for content in ("[]", "{", '{"complete": true, "identity": {}, "points": [3]}'):
        (tmp_path / "points.json").write_text(content)
        with pytest.raises(MismatchError, match=r"points\.json is damaged"):
            TuningRun(tmp_path, {}).measured([5], metrics_of)
