"""Plots: what is drawn on the axes, how the file is written, and what is said without matplotlib."""

from __future__ import annotations

import sys

import matplotlib.figure
import pytest

from biorag.errors import MissingError
from biorag.utils.plots import PlotPanel, write_plot

PNG = b"\x89PNG\r\n\x1a\n"
FIRST = PlotPanel(
    "Quality",
    "k_init",
    "nDCG@10",
    {"trained": [(20, 0.5), (100, 0.625)], "base": [(20, 0.25), (100, 0.375)]},
)
SECOND = PlotPanel("Latency", "k_init", "ms", {"trained": [(20, 10.0), (100, 40.0)]})


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
        assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (panel.title, panel.x, panel.y)
        drawn = {line.get_label(): [tuple(point) for point in line.get_xydata()] for line in axes.lines}
        assert drawn == dict(panel.lines)
    assert legend(first) == ["trained", "base"]
    assert legend(second) is None, "one line needs no legend"


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"matplotlib: run pip install 'biorag\[train\]'"):
        write_plot(tmp_path / "plot.png", [FIRST])
    assert list(tmp_path.iterdir()) == []
