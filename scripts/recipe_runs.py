"""Write what runs of the recipes gave into docs/experiments/reproduction.md.

    python -m scripts.recipe_runs RUNS     # RUNS/NAME/report.json, as `biorag reproduce NAME --out RUNS/NAME` writes it

The page holds what is written into it between `<!-- run: NAME -->` and `<!-- end -->`; of a run that is not in RUNS it
stays as it is. The blocks `times` and `findings` are those of the runs in RUNS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biorag.lab.recipes.report import FINDING_COLUMNS, finding_texts, markdown
from scripts.blocks import with_blocks

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/experiments/reproduction.md"
PAPERS = {
    "modernbert-colbert": "ModernBERT + ColBERT",
    "bioasq8-hybrid": "BioASQ 8 hybrid",
    "bica": "BiCA",
    "bmretriever": "BMRetriever",
    "stm": "Synthesize-Train-Merge",
}


def main(folder: Path) -> None:
    """Write the page from the reports of a folder of runs."""
    found = {name: folder / name / "report.json" for name in PAPERS}
    reports = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in found.items() if path.is_file()}
    blocks = {name: _run(report) for name, report in reports.items()}
    blocks |= {"times": _times(reports), "findings": _findings(reports)}
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_blocks(page, "run", blocks.get), encoding="utf-8")


def _run(report: Mapping[str, Any]) -> str:
    """Return what was run, where it departs from the paper, and the rows that have figures of ours."""
    departures = [f"- {departure}" for departure in report["departures"]]
    tables = [{**table, "rows": [row for row in table["rows"] if _has_ours(row)]} for table in report["tables"]]
    lines = [report["about"], "", *departures, *([""] if departures else [])]
    return "\n".join([*lines, *(markdown(table) for table in tables if table["rows"])]).rstrip()


def _has_ours(row: Mapping[str, Any]) -> bool:
    return any(cell["value"] is not None for cell in row["cells"])


def _times(reports: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        f"| `{name}` | {len(report['steps'])} | {report['seconds_of_steps'] / 60:.0f} |"
        for name, report in reports.items()
    ]
    total = sum(report["seconds_of_steps"] for report in reports.values()) / 3600
    steps = sum(len(report["steps"]) for report in reports.values())
    return "\n".join(
        ["| recipe | steps | minutes of steps |", "|---|--:|--:|", *rows, f"| all | {steps} | {total:.1f} hours |"]
    )


def _findings(reports: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(FINDING_COLUMNS)} |", "|---|" + "--:|" * (len(FINDING_COLUMNS) - 2) + "---|"]
    for name, report in reports.items():
        lines.append(f"| **{PAPERS[name]}** |{' |' * (len(FINDING_COLUMNS) - 1)}")
        measured = [finding for finding in report["findings"] if finding["difference"] is not None]
        lines += [f"| {' | '.join(finding_texts(finding))} |" for finding in measured]
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
