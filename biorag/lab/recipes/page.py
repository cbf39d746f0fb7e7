"""A report as one HTML file that asks no host for anything: sortable tables, and the plots within it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.lab.recipes.report import FINDING_COLUMNS, columns_of, finding_texts, report_head, row_texts
from biorag.references.escaping import in_html

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24;
  background: #fff } h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.5rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums } td, th { padding: .25rem .6rem;
  border-bottom: 1px solid #d8dee4; text-align: right } td:first-child, th:first-child { text-align: left }
th { cursor: pointer; white-space: nowrap } .wide { overflow-x: auto } figure { margin: 1rem 0 } svg { max-width: 100%;
  height: auto } pre { overflow-x: auto; background: #f6f8fa; padding: .8rem } .note { color: #57606a }
"""
_SCRIPT = """
for (const head of document.querySelectorAll("th")) head.onclick = () => {
  const place = [...head.parentNode.children].indexOf(head), body = head.closest("table").tBodies[0];
  const value = row => { const text = row.cells[place].textContent, number = parseFloat(text.replace("−", "-"));
    return isNaN(number) ? text : number };
  const order = head.dataset.order = head.dataset.order === "up" ? "down" : "up";
  [...body.rows].sort((a, b) => { const x = value(a), y = value(b);
    return (x > y ? 1 : x < y ? -1 : 0) * (order === "up" ? 1 : -1) }).forEach(row => body.append(row));
}
"""


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
    style, title = f"<style>{_STYLE}</style>", f"<title>{in_html(report['title'])}</title>"
    opening = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{title}{style}</head><body>'
    return "\n".join([opening, *filter(None, parts), f"<script>{_SCRIPT}</script></body></html>", ""])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{in_html(name)}</th>" for name in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{in_html(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
