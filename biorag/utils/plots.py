"""Line plots as PNG files; matplotlib's only home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biorag.errors import MissingError
from biorag.utils.files import replacing


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One set of axes: named lines of (x, y) points."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False


def write_plot(path: Path, panels: Sequence[PlotPanel]) -> None:
    """Draw the panels side by side, replacing the file atomically; raise `MissingError` without matplotlib."""
    require_matplotlib()
    from matplotlib.figure import Figure  # not through pyplot, which would look for a display

    figure = Figure(figsize=(6 * len(panels), 4.5))
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), number)
        for name, points in panel.lines.items():
            marker = "o" if len(points) < 20 else None
            xs, ys = [x for x, _ in points], [y for _, y in points]
            axes.plot(xs, ys, label=name, marker=marker, markersize=3, linewidth=1.3)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axes.set(xscale="log" if panel.log_x else "linear")
        axes.grid(alpha=0.3)
        if len(panel.lines) > 1:
            axes.legend(fontsize="x-small")
    figure.tight_layout()
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=110)


def require_matplotlib() -> None:
    """Raise `MissingError` naming the extra to install if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingError("plots need matplotlib: run pip install 'biorag[train]'") from None
