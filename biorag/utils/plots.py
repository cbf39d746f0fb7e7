"""Line plots as PNG files; matplotlib's only home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biorag.errors import MissingError
from biorag.utils.files import replacing


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One set of axes: named lines of (x, y) points; `bands` gives a line's (low, high) at each point.

    `logarithmic` is of both axes, `logarithmic_x` of one.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    bands: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    logarithmic: bool = False
    logarithmic_x: bool = False


def write_plot(path: Path, panels: Sequence[PlotPanel]) -> None:
    """Draw the panels side by side, replacing the file atomically.

    Raises `MissingError` if matplotlib is not installed.
    """
    figure = _figure(6 * len(panels))
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), number)
        for name, points in panel.lines.items():
            _line(axes, name, points, panel.bands.get(name))
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        if panel.logarithmic:
            axes.set(xscale="log", yscale="log")
        elif panel.logarithmic_x:
            axes.set(xscale="log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
        if len(panel.lines) > 1:
            axes.legend(fontsize="x-small")
    figure.tight_layout()
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=110)


def _figure(width: float) -> Any:
    require_matplotlib()
    from matplotlib.figure import Figure  # not through pyplot, which would look for a display

    return Figure(figsize=(width, 4.5))


def require_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises `MissingError` naming the extra that installs it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingError("plots need matplotlib: run pip install 'biorag[train]'") from None


def _line(
    axes: Any, name: str, points: Sequence[tuple[float, float]], band: Sequence[tuple[float, float]] | None
) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    (line,) = axes.plot(xs, ys, label=name, marker="o" if len(points) < 20 else None, markersize=3, linewidth=1.3)
    if band:
        axes.fill_between(xs, [low for low, _ in band], [high for _, high in band], alpha=0.12, color=line.get_color())
