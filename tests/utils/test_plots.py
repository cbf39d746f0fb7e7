"""Plots: what is drawn on the axes, how the file is written, and what is said without matplotlib."""

from __future__ import annotations

import sys

import matplotlib.figure
import pytest

from biorag.errors import MissingError
from biorag.utils.plots import Interval, IntervalPanel, LinePanel, PointPanel, StackPanel, is_plot, write_plot

FIRST = LinePanel(
    "Quality",
    "k_init",
    "nDCG@10",
    {"trained": [(20, 0.5), (100, 0.625)], "base": [(20, 0.25), (100, 0.375)]},
)
SECOND = LinePanel("Latency", "k_init", "ms", {"trained": [(20, 10.0), (100, 40.0)]})


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, to look at their axes."""
    kept, make = [], matplotlib.figure.Figure

    def figure(**options):
        kept.append(make(**options))
        return kept[-1]

    monkeypatch.setattr(matplotlib.figure, "Figure", figure)
    return kept


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else None


def test_lines_go_through_their_points(figures, tmp_path):
    write_plot(tmp_path / "plot.png", [FIRST, SECOND])
    ((first, second),) = [figure.axes for figure in figures]
    for axes, panel in ((first, FIRST), (second, SECOND)):
        assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == (panel.title, panel.x, panel.y)
        drawn = {line.get_label(): [tuple(point) for point in line.get_xydata()] for line in axes.lines}
        assert drawn == dict(panel.lines)
    assert legend(first) == ["trained", "base"]
    assert legend(second) is None, "one line needs no legend"


@pytest.mark.parametrize("bars", [True, False])
def test_rows_have_dots_or_bars_with_intervals_from_top_to_bottom(figures, tmp_path, bars):
    series = {"a": [Interval(0.5, 0.4, 0.6, 0.7), Interval(None)], "b": [Interval(0.2), Interval(0.3, 0.1, 0.4)]}
    write_plot(tmp_path / "plot.png", [IntervalPanel("Cells", "share", ["one", "two"], series, bars=bars, line=0.0)])
    (axes,) = figures[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert axes.get_ylim() == (1.5, -0.5) and legend(axes) == ["a", "b"]
    drawn = [[tuple(point) for point in line.get_xydata()] for line in axes.lines]
    above, below = -0.2, 0.2  # where the dots of a and b stand beside a row
    for interval in ([(0.4, above), (0.6, above)], [(0.1, 1 + below), (0.4, 1 + below)], [(0.7, above)]):
        assert any(line == [pytest.approx(point) for point in interval] for line in drawn), interval
    widths = [patch.get_width() for patch in axes.patches]
    assert widths == (pytest.approx([0.5, 0.2, 0.3]) if bars else [])


def test_points_are_labelled_and_no_label_stands_on_another(figures, tmp_path):
    points = {"M": (10.0, 0.5), "M + C": (10.1, 0.5), "BM25": (100.0, 0.4)}
    write_plot(tmp_path / "plot.png", [PointPanel("Cost", "ms", "accuracy", points, log_x=True)])
    (axes,) = figures[0].axes
    assert sorted(tuple(line.get_xydata()[0]) for line in axes.lines) == sorted(points.values())
    heights = {text.get_text(): text.xyann[1] for text in axes.texts}
    assert (
        heights.keys() == points.keys() and abs(heights["M + C"] - heights["M"]) > 0.04 < heights["M"] - heights["BM25"]
    )
    assert {text.get_text(): text.xy for text in axes.texts} == points


def test_parts_add_up(figures, tmp_path):
    parts = {"search": [1.0, 2.0], "rerank": [0.0, 3.5]}
    write_plot(tmp_path / "plot.png", [StackPanel("Latency", "ms", ["M", "M + C"], parts)])
    (axes,) = figures[0].axes
    assert [(patch.get_x(), patch.get_width()) for patch in axes.patches] == [(0, 1), (0, 2), (1, 0), (2, 3.5)]
    assert [text.get_text() for text in axes.texts] == ["1", "5.5"]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_plot_is_told_from_what_others_draw_with_matplotlib(tmp_path, kind):
    write_plot(tmp_path / f"plot.{kind}", [FIRST])
    matplotlib.figure.Figure().savefig(tmp_path / f"other.{kind}")
    assert [is_plot((tmp_path / f"{name}.{kind}").read_bytes()) for name in ("plot", "other")] == [True, False]


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"matplotlib: run pip install 'biorag\[train\]'"):
        write_plot(tmp_path / "plot.png", [FIRST])
    assert list(tmp_path.iterdir()) == []
