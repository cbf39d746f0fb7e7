"""Curves of a run: one row per step, written so that they read back, and drawn."""

from __future__ import annotations

import csv

import pytest

from biorag.training import curves
from biorag.training.curves import curve, points, write_curves

HISTORY = [  # as transformers' trainer logs it: evaluations and losses of a step apart, times among them
    {"eval_ndcg@10": 0.5, "eval_runtime": 1.2, "eval_samples_per_second": 0.0, "epoch": 0, "step": 0},
    {"loss": 2.0, "grad_norm": 1.5, "learning_rate": 1e-5, "epoch": 0.25, "step": 1},
    {"loss": 1.0, "grad_norm": 1.25, "learning_rate": 2e-5, "epoch": 0.5, "step": 2},
    {"eval_ndcg@10": 0.75, "eval_mrr@10": 0.7, "eval_steps_per_second": 0.0, "epoch": 0.5, "step": 2},
    {"train_runtime": 9.0, "train_loss": 1.5, "total_flos": 0.0, "train_samples_per_second": 1, "epoch": 1, "step": 4},
]
ROWS = [
    {"step": 0, "epoch": 0, "eval_ndcg@10": 0.5},
    {"step": 1, "epoch": 0.25, "loss": 2.0, "grad_norm": 1.5, "learning_rate": 1e-5},
    {
        "step": 2,
        "epoch": 0.5,
        "loss": 1.0,
        "grad_norm": 1.25,
        "learning_rate": 2e-5,
        "eval_ndcg@10": 0.75,
        "eval_mrr@10": 0.7,
    },
    {"step": 4, "epoch": 1},
]


def test_losses_and_metrics_of_a_step_are_one_row():
    assert curve(HISTORY) == ROWS


def test_rows_are_in_the_order_of_their_steps_whatever_that_of_the_log():
    assert curve(HISTORY[::-1]) == ROWS


def test_a_step_that_is_logged_again_has_the_later_values():
    again = {"loss": 1.5, "step": 2}
    assert curve([*HISTORY, again])[2] == {**ROWS[2], "loss": 1.5}


def test_the_log_is_left_as_it_is():
    before = [dict(entry) for entry in HISTORY]
    curve([*HISTORY, {"loss": 1.5, "step": 2}])
    assert before == HISTORY


def test_a_log_of_nothing():
    assert curve([]) == []


def test_points_are_where_a_quantity_was_logged():
    assert points(ROWS, "loss") == [(1, 2.0), (2, 1.0)]
    assert points(ROWS, "eval_ndcg@10") == [(0, 0.5), (2, 0.75)]
    assert points(ROWS, "absent") == []


def test_points_of_rows_that_were_read_back():
    assert points([{"step": 1, "loss": "2.5"}, {"step": 2, "loss": ""}, {"step": 3, "loss": 0.0}], "loss") == [
        (1, 2.5),
        (3, 0.0),
    ]


def test_the_csv_reads_back_as_it_was_logged(tmp_path):
    write_curves(tmp_path, HISTORY, "eval_ndcg@10")
    text = (tmp_path / "curves.csv").read_text()
    assert text.splitlines()[0] == "step,epoch,loss,learning_rate,grad_norm,eval_mrr@10,eval_ndcg@10"
    assert text.splitlines()[2] == "1,0.25,2.0,1e-05,1.5,,"
    assert "\r" not in text
    read = [
        {name: float(value) for name, value in line.items() if value != ""}
        for line in csv.DictReader(text.splitlines())
    ]
    assert read == ROWS


def test_curves_are_written_over_older_ones_with_nothing_beside_them(tmp_path):
    write_curves(tmp_path, HISTORY[:2], None)
    first = (tmp_path / "curves.png").read_bytes()
    write_curves(tmp_path, HISTORY, "eval_ndcg@10")
    assert {path.name for path in tmp_path.iterdir()} == {"curves.csv", "curves.png"}
    assert (tmp_path / "curves.png").read_bytes() != first
    assert len((tmp_path / "curves.csv").read_text().splitlines()) == 1 + len(ROWS)


@pytest.mark.parametrize("metric", ["eval_ndcg@10", None])
def test_the_loss_is_drawn_and_the_metric_where_there_is_one(metric, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(curves, "write_plot", lambda path, panels: drawn.append((path, panels)))
    write_curves(tmp_path, HISTORY, metric)
    ((path, panels),) = drawn
    assert path == tmp_path / "curves.png"
    assert [(panel.x, panel.y, dict(panel.lines)) for panel in panels] == [
        ("step", "loss", {"loss": [(1, 2.0), (2, 1.0)]}),
        ("step", "ndcg@10", {"eval_ndcg@10": [(0, 0.5), (2, 0.75)]}),
    ][: 2 if metric else 1]


def test_a_run_without_a_logged_loss_can_be_drawn(tmp_path):
    write_curves(tmp_path, [], "eval_ndcg@10")
    assert (tmp_path / "curves.csv").read_text() == "step,epoch,loss,learning_rate,grad_norm\n"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
