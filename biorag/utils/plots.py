"""Plots in one style, as PNG or SVG files; matplotlib's only home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from biorag.errors import MissingError
from biorag.utils.files import replacing

# Okabe and Ito's colours, which people of every colour vision tell apart, without yellow; markers for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "osD^vPX"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "biorag",
    "svg.fonttype": "none",
}
MADE_BY = {"png": {"Software": "biorag"}, "svg": {"Creator": "biorag", "Date": None}}  # by the format; see `is_plot`
LEGEND = 6  # names up to which a legend stands for them; more stand beside what they name
ROW = 0.26  # inches of a row of dots or bars
ABOVE = {"fontsize": "small", "frameon": False, "loc": "lower left", "bbox_to_anchor": (0, 1.0)}  # of a legend
LEADER = {"arrowstyle": "-", "color": "0.75", "linewidth": 0.6, "relpos": (0.0, 0.5), "shrinkA": 1.0}


@dataclass(frozen=True, slots=True)
class LinePanel:
    """Named lines of (x, y) points."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False
    diagonal: bool = False  # where both axes are alike: of probabilities

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 5.5, 4.0

    def draw(self, axes: Any) -> None:
        """Draw the lines; more than `LEGEND` are named at their ends."""
        axes.set(xscale="log" if self.log_x else "linear")
        if self.diagonal:
            axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, linestyle="--")
        for number, (name, points) in enumerate(self.lines.items()):
            marker = MARKERS[number % len(MARKERS)] if len(points) < 20 else None
            xs, ys = [x for x, _ in points], [y for _, y in points]
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(xs, ys, label=name, marker=marker, markersize=3.5, linewidth=1.3, color=colour)
            if len(self.lines) > LEGEND and points:
                axes.annotate(name, (xs[-1], ys[-1]), (4, 0), textcoords="offset points", fontsize=7, color=colour)
        if 1 < len(self.lines) <= LEGEND:
            axes.legend(fontsize="small", frameon=False)


class Interval(NamedTuple):
    """A figure, its interval, and a published one; None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    paper: float | None = None


@dataclass(frozen=True, slots=True)
class IntervalPanel:
    """Rows of one figure of each series: dots with intervals, or bars with whiskers; published ones are hollow.

    `line` is where a line stands for what they are compared with, such as no difference.
    """

    title: str
    x: str
    rows: Sequence[str]
    series: Mapping[str, Sequence[Interval]]
    bars: bool = False
    line: float | None = None
    y: str = ""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        row_height = ROW * max(1.0, (0.75 if self.bars else 0.45) * len(self.series))
        return 4.6 + 0.06 * max(map(len, self.rows), default=0), 1.2 + row_height * len(self.rows)

    def draw(self, axes: Any) -> None:
        """Draw the rows from top to bottom."""
        if self.line is not None:
            axes.axvline(self.line, color="0.5", linewidth=1)
        height = 0.8 / max(1, len(self.series))
        for number, (name, figures) in enumerate(self.series.items()):
            colour, offset = COLOURS[number % len(COLOURS)], (number + 0.5) * height - 0.4
            known = [(row + offset, figure) for row, figure in enumerate(figures) if figure.value is not None]
            values, heights = [figure.value for _, figure in known], [row for row, _ in known]
            if self.bars:
                axes.barh(heights, values, height * 0.9, color=colour, label=name, alpha=0.85)
            else:
                axes.plot(values, heights, MARKERS[number % len(MARKERS)], color=colour, label=name, markersize=4.5)
            for row, figure in known:
                if figure.low is not None and figure.high is not None:
                    shade = "0.25" if self.bars else colour
                    axes.plot([figure.low, figure.high], [row, row], color=shade, linewidth=1.2)
            published = [(f.paper, row + offset) for row, f in enumerate(figures) if f.paper is not None]
            if published:
                shade = "black" if self.bars else colour
                axes.plot(*zip(*published, strict=True), "o", color=shade, fillstyle="none", markersize=5)
        _name_rows(axes, self.rows)
        if len(self.series) > 1:
            axes.legend(ncols=4, borderaxespad=0.2, **ABOVE)


def _name_rows(axes: Any, rows: Sequence[str]) -> None:
    """Name rows from top to bottom."""
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


@dataclass(frozen=True, slots=True)
class PointPanel:
    """Named points: what one figure costs in another; lines lead to the names, which stand beside the axes."""

    title: str
    x: str
    y: str
    points: Mapping[str, tuple[float, float]]
    log_x: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 5.0 + 0.07 * max(map(len, self.points), default=0), max(3.6, 1.0 + 0.2 * len(self.points))

    def draw(self, axes: Any) -> None:
        """Draw the points, and the names in the order of their heights."""
        axes.set(xscale="log" if self.log_x else "linear")
        axes.margins(0.08, 0.08)
        styles = {
            name: {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            for number, name in enumerate(self.points)
        }
        for name, (x, y) in self.points.items():
            axes.plot([x], [y], linestyle="", markersize=6, **styles[name])
        if self.log_x:
            axes.xaxis.set_major_formatter("{x:g}")
            lowest, highest = axes.get_xlim()
            axes.xaxis.set_minor_formatter("{x:g}" if highest < 10 * lowest else "")
        lowest, highest = axes.get_ylim()
        wanted = {name: (y - lowest) / (highest - lowest) for name, (_, y) in self.points.items()}
        for name, height in _spread(wanted, 0.2 / self.size[1] * 1.3).items():
            axes.annotate(
                name, self.points[name], (1.04, height), textcoords=axes.transAxes, va="center", fontsize=8,
                color=styles[name]["color"], arrowprops=LEADER,
            )  # fmt: skip


def _spread(wanted: Mapping[str, float], gap: float) -> dict[str, float]:
    """Return heights as near to the wanted ones, from 0 to 1, as leaves a gap between any two."""
    names = sorted(wanted, key=lambda name: wanted[name])
    heights: list[float] = []
    for name in names:
        heights.append(max(wanted[name], heights[-1] + gap if heights else 0.0))
    top = 1.0
    for row in range(len(heights) - 1, -1, -1):
        heights[row] = min(heights[row], top)
        top = heights[row] - gap
    return dict(zip(names, heights, strict=True))


@dataclass(frozen=True, slots=True)
class StackPanel:
    """Rows of parts that add up, such as the stages of a search."""

    title: str
    x: str
    rows: Sequence[str]
    parts: Mapping[str, Sequence[float]]
    y: str = ""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 6.5, 1.4 + 1.6 * ROW * len(self.rows)

    def draw(self, axes: Any) -> None:
        """Draw the rows from top to bottom, and the sum at the end of each."""
        sums = [0.0] * len(self.rows)
        for number, (name, values) in enumerate(self.parts.items()):
            axes.barh(range(len(self.rows)), values, 0.6, sums, color=COLOURS[number % len(COLOURS)], label=name)
            sums = [before + value for before, value in zip(sums, values, strict=True)]
        for row, total in enumerate(sums):
            axes.annotate(f"{total:.3g}", (total, row), (3, 0), textcoords="offset points", va="center", fontsize=8)
        _name_rows(axes, self.rows)
        axes.legend(ncols=5, **ABOVE)


Panel: TypeAlias = LinePanel | IntervalPanel | PointPanel | StackPanel


def write_plot(path: Path, panels: Sequence[Panel]) -> None:
    """Draw the panels side by side, replacing the file atomically, as PNG or SVG by its name.

    Raises `MissingError` without matplotlib.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not through pyplot, which would look for a display

    with rc_context(STYLE):
        widths, heights = zip(*(panel.size for panel in panels), strict=True)
        figure = Figure(figsize=(sum(widths), max(heights)), layout="constrained")
        for axes, panel in zip(
            figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0], panels, strict=True
        ):
            panel.draw(axes)
            axes.set(xlabel=panel.x, ylabel=panel.y)
            above = 18 if axes.get_legend() is not None and isinstance(panel, IntervalPanel | StackPanel) else 6
            axes.set_title(panel.title, loc="left", pad=above, fontweight="bold")
        kind = path.suffix.removeprefix(".") or "png"
        with replacing(path) as stream:
            figure.savefig(stream, format=kind, dpi=120, metadata=MADE_BY[kind])


def is_plot(beginning: bytes) -> bool:
    """Return whether a file that begins so is a plot of ours, which names its maker where matplotlib does."""
    in_svg = beginning.startswith(b"<?xml") and b"<cc:Agent>\n      <dc:title>biorag</dc:title>\n" in beginning
    return in_svg or (beginning.startswith(b"\x89PNG") and beginning[37:].startswith(b"tEXtSoftware\0biorag"))


def write_both(folder: Path, name: str, panels: Sequence[Panel]) -> list[Path]:
    """Draw the panels as `name.png` and `name.svg` into a folder, and return the files; none without a panel."""
    files = [folder / f"{name}{kind}" for kind in (".png", ".svg")] if panels else []
    for file in files:
        folder.mkdir(parents=True, exist_ok=True)
        write_plot(file, panels)
    return files


def require_matplotlib() -> None:
    """Raise `MissingError` naming the extra to install if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingError("plots need matplotlib: run pip install 'biorag[train]'") from None
