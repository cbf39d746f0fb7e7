"""Plots: what is drawn on the axes, how the file is written, and what is said without matplotlib."""

from __future__ import annotations

import sys

import pytest

from biorag.errors import MissingError
from biorag.utils import plots
from biorag.utils.plots import PlotPanel, write_plot

PNG = b"\x89PNG\r\n\x1a\n"
FIRST = PlotPanel(
    "Quality",
    "k_init",
    "nDCG@10",
    {"trained": [(20, 0.5), (100, 0.625)], "base": [(20, 0.25), (100, 0.375)]},
    {"trained": [(0.4, 0.6), (0.5, 0.7)]},
)
SECOND = PlotPanel("Latency", "k_init", "ms", {"trained": [(20, 10.0), (100, 40.0)]})


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, to look at their axes."""
    kept, make = [], plots._figure

    def figure(width):
        kept.append(make(width))
        return kept[-1]

    monkeypatch.setattr(plots, "_figure", figure)
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


def test_panels_stand_side_by_side_and_widen_the_figure(figures, tmp_path):
    write_plot(tmp_path / "two.png", [FIRST, SECOND])
    write_plot(tmp_path / "one.png", [FIRST])
    two, one = figures
    assert two.get_figwidth() == 2 * one.get_figwidth()
    first, second = (axes.get_position() for axes in two.axes)
    assert (first.x1 < second.x0, first.y0) == (True, pytest.approx(second.y0))


def test_a_band_reaches_from_low_to_high_in_its_lines_colour(figures, tmp_path):
    write_plot(tmp_path / "plot.png", [FIRST, SECOND])
    first, second = figures[0].axes
    (band,) = first.collections
    (outline,) = band.get_paths()
    corners = {tuple(map(float, corner)) for corner in outline.vertices}
    assert corners == {(20.0, 0.4), (100.0, 0.5), (100.0, 0.7), (20.0, 0.6)}
    from matplotlib.colors import to_rgb

    assert tuple(band.get_facecolor()[0][:3]) == pytest.approx(to_rgb(first.lines[0].get_color()))
    assert len(second.collections) == 0


def test_few_points_are_marked_and_many_are_not(figures, tmp_path):
    many = [(step, 1.0) for step in range(20)]
    write_plot(
        tmp_path / "plot.png", [PlotPanel("", "", "", {"few": many[:19]}), PlotPanel("", "", "", {"many": many})]
    )
    few, plain = figures[0].axes
    assert few.lines[0].get_marker() == "o"
    assert plain.lines[0].get_marker() == "None"


@pytest.mark.parametrize("lines", [{}, {"nothing": []}, {"one": [(1, 2.0)]}])
def test_nothing_or_a_point_can_be_drawn(lines, tmp_path):
    write_plot(tmp_path / "plot.png", [PlotPanel("Title", "x", "y", lines)])
    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)


def test_the_file_is_a_png_in_a_folder_that_is_made(tmp_path):
    path = tmp_path / "runs" / "new" / "plot.png"
    write_plot(path, [FIRST])
    assert path.read_bytes().startswith(PNG)
    assert [found.name for found in path.parent.iterdir()] == ["plot.png"]


def test_the_old_plot_stands_until_the_new_one_is_whole(figures, tmp_path, monkeypatch):
    """A reader never sees half a file, and a drawing that fails leaves the old one."""
    from matplotlib.figure import Figure

    path = tmp_path / "plot.png"
    write_plot(path, [FIRST])
    before, save = path.read_bytes(), Figure.savefig

    def half(self, target, **options):
        target.write(PNG)
        assert path.read_bytes() == before
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(OSError, match="No space left"):
        write_plot(path, [SECOND])
    assert [found.read_bytes() for found in tmp_path.iterdir()] == [before], "nothing is left beside it"
    monkeypatch.setattr(Figure, "savefig", save)
    write_plot(path, [SECOND])
    assert path.read_bytes() not in (before, PNG)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"matplotlib: run pip install 'biorag\[train\]'"):
        write_plot(tmp_path / "plot.png", [FIRST])
    assert list(tmp_path.iterdir()) == []


def test_no_display_is_looked_for(tmp_path, monkeypatch):
    """Pyplot would be imported to open a window."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    write_plot(tmp_path / "plot.png", [FIRST])
    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)
