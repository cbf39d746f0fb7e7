"""Loss and metric curves of a training run, as CSV and PNG."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.utils.files import write_text
from biorag.utils.plots import PlotPanel, write_plot

LEFT_OUT = ("runtime", "per_second", "total_flos", "train_loss", "num_tokens")
FIRST = ("step", "epoch", "loss", "learning_rate", "grad_norm")


def curve(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per step from a trainer's log, with its losses and metrics."""
    rows: dict[int, dict[str, Any]] = {}
    for entry in history:
        logged = {name: value for name, value in entry.items() if not any(part in name for part in LEFT_OUT)}
        rows.setdefault(int(entry["step"]), {}).update(logged)
    return [rows[step] for step in sorted(rows)]


def write_curves(folder: Path, history: Sequence[Mapping[str, Any]], metric: str | None, drawn: bool = True) -> None:
    """Write `curves.csv` with everything logged, and, `drawn`, `curves.png` with the loss and the chosen metric."""
    rows = curve(history)
    names = [*FIRST, *sorted({name for row in rows for name in row} - set(FIRST))]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "curves.csv", text.getvalue())
    if not drawn:
        return
    panels = [PlotPanel("Training", "step", "loss", {"loss": points(rows, "loss")})]
    if metric:
        panels.append(PlotPanel("Validation", "step", metric.removeprefix("eval_"), {metric: points(rows, metric)}))
    write_plot(folder / "curves.png", panels)


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return the (step, value) points of one logged quantity."""
    return [(row["step"], float(row[name])) for row in rows if row.get(name) not in (None, "")]
