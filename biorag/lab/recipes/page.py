"""A report as one HTML file that asks no host for anything: sortable tables, and the plots within it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from biorag.lab.recipes.report import FINDING_COLUMNS, columns_of, finding_texts, report_head, row_texts
from biorag.references.escaping import in_html

_TEMPLATE = Path(__file__).with_name("page.html")


def html_report(report: Mapping[str, Any], out: Path) -> str:
    """Return a report as a page; its plots lie in `out`."""
    parts = [f"<h1>{in_html(report['title'])}</h1>", *(f"<p>{in_html(line)}</p>" for line in report_head(report))]
    for plot in report["plots"]:
        svg = (out / f"{plot['name']}.svg").read_text(encoding="utf-8")
        parts.append(f"<figure>{svg[svg.index('<svg') :]}</figure>")
    for table in report["tables"]:
        parts.append(f"<h2>{in_html(table['title'])}</h2>")
        parts.append(
            _table(["", *columns_of(table)], [[row["title"], *row_texts(table, row)] for row in table["rows"]])
        )
        parts.append(f"<p class=note>{in_html(table['note'])}</p>" if table["note"] else "")
    if report["findings"]:
        parts.append("<h2>Findings</h2>")
        parts.append(_table(FINDING_COLUMNS, [finding_texts(finding) for finding in report["findings"]]))
    commands = "\n".join(
        f"# {step['name']}: {step['seconds']:.0f} s\n{shlex.join(step['command'])}" for step in report["steps"]
    )
    parts.append(f"<details><summary>The commands of every step</summary><pre>{in_html(commands)}</pre></details>")
    template = Template(_TEMPLATE.read_text("utf-8"))
    return template.substitute(title=in_html(report["title"]), parts="\n".join(filter(None, parts)))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{in_html(name)}</th>" for name in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{in_html(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
