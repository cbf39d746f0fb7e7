"""Plots of benchmarks: which figures of a report they show, and the files."""

from __future__ import annotations

import numpy as np
import pytest

from biorag.benchmarks.abstention import reliability, risk_coverage_curve
from biorag.benchmarks.pictures import PICTURES, certainty, measures, stages
from biorag.utils.plots import Interval, write_both

RETRIEVAL = {"dataset": "bioasq", "metrics": {"nDCG@10": 0.7, "success@5": 0.9}}
STAGES = {
    "encode_queries": {"1": {"mean": 5.0}, "32": {"mean": 60.0}},
    "first_stage": {"hybrid": {"1": {"mean": 2.0}}, "bm25": {"1": {"mean": 1.0}}, "rank_bm25": {"1": {"mean": 9.0}}},
    "rerank": {"mean": 20.0},
    "rerank_colbert_ai": {"mean": 30.0},
    "fetch": {"mean": 0.5},
    "generation": None,
}


def test_measures_and_differences_from_another_run():
    (panel,) = measures(RETRIEVAL)
    assert (panel.rows, panel.bars) == (["nDCG@10", "success@5"], True)
    tests = {"nDCG@10": {"difference": 0.1, "low": -0.1, "high": 0.3}}
    _, other = measures({**RETRIEVAL, "comparison": {"run": "bm25.trec", "measures": tests}})
    assert (other.series, other.line) == ({"": [Interval(0.1, -0.1, 0.3)]}, 0.0)


def test_stages_of_one_question_beside_the_baselines():
    (panel,) = stages({"stages": STAGES, "settings": {"mode": "hybrid"}})
    assert panel.rows == ["biorag, hybrid", "rank_bm25", "colbert-ai"]
    assert panel.parts == {
        "encode": [5.0, 0.0, 0.0],
        "first stage": [2.0, 9.0, 0.0],
        "rerank": [20.0, 0.0, 30.0],
        "fetch": [0.5, 0.0, 0.0],
    }
    (words,) = stages({"stages": {**STAGES, "rerank_colbert_ai": None}, "settings": {"mode": "bm25"}})
    assert "encode" not in words.parts and words.parts["first stage"] == [1.0, 9.0]


def test_curves_of_risk_and_reliability():
    probabilities, answerable = np.array([0.95, 0.9, 0.4, 0.05]), np.array([True, True, False, True])
    assert risk_coverage_curve(probabilities, answerable) == [(0.25, 0), (0.5, 0), (0.75, 0.3333), (1, 0.25)]
    assert len(risk_coverage_curve(np.linspace(0, 1, 999), np.arange(999) % 2 == 0)) == 50
    assert reliability(probabilities, answerable) == [(0.05, 1), (0.4, 0), (0.925, 1)]


@pytest.mark.parametrize("asked", [True, False])
def test_files_of_a_report(tmp_path, asked):
    told = {"risk_coverage": [(0.5, 0.0), (1.0, 0.25)], "reliability": [(0.1, 0.2), (0.9, 0.8)]}
    report = {"abstention": told if asked else None}
    assert len(certainty(report)) == 2 * asked
    files = write_both(tmp_path / "plots", "answers", PICTURES["answers"](report))
    assert [file.name for file in files] == ["answers.png", "answers.svg"] * asked
    assert all(file.stat().st_size > 1000 for file in files)
