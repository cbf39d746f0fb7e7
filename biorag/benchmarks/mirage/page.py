"""A run's questions as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template

from biorag.benchmarks.mirage.records import QuestionRow, RetrievedHit, counts
from biorag.references.escaping import in_html

TEMPLATE = Path(__file__).with_name("page.html")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def html_page(title: str, rows: Sequence[QuestionRow]) -> str:
    """Return the page of these questions, every text escaped."""
    tasks = counts(rows)
    options = "".join(f'<option value="{in_html(task)}">{in_html(task)}</option>' for task in tasks)
    scores = ", ".join(f"{task} {count['right']} of {count['questions']}" for task, count in tasks.items())
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        policy=in_html(POLICY),
        title=in_html(title),
        scores=in_html(scores or "no question"),
        tasks=options,
        articles="".join(map(_article, rows)),
    )


def is_page(beginning: bytes) -> bool:
    """Return whether a file with this beginning is such a page, by its content security policy."""
    return beginning.startswith(b"<!DOCTYPE html>") and in_html(POLICY).encode() in beginning


def _article(row: QuestionRow) -> str:
    result = "right" if row["right"] else "wrong"
    choice = row["choice"] or "none that can be read, scored as A"
    options = "".join(
        f"<li{' class=gold' if letter == row['gold'] else ''}>{in_html(letter)}: {in_html(text)}</li>"
        for letter, text in row["options"].items()
    )
    verdicts = "".join(f"<li>{judged['verdict']}: {in_html(judged['text'])}</li>" for judged in row["verdicts"])
    return f"""<article class="{result}" data-task="{in_html(row["task"])}">
<p class="meta">{in_html(row["task"])}, {in_html(row["id"])}: {result}</p>
<h2>{in_html(row["question"])}</h2>
<ul>{options}</ul>
<p>Answered {in_html(choice)}, right is {in_html(row["gold"])}. {in_html(_gold_note(row))}</p>
<details><summary>Evidence and reply</summary>
<ol>{"".join(map(_evidence, row["evidence"] or ()))}</ol>
<ul>{verdicts}</ul>
<pre>{in_html(row["reply"])}</pre>
</details>
</article>
"""


def _evidence(hit: RetrievedHit) -> str:
    pmid = "" if hit["pmid"] is None else f"PMID {hit['pmid']}, "
    source = f"<span class=meta>({in_html(hit['id'])}, {pmid}score {hit['score']:.3f})</span>"
    return f"<li><b>{in_html(hit['title'])}</b> {source}<br>{in_html(hit['text'])}</li>"


def _gold_note(row: QuestionRow) -> str:
    """Say whether a record that the question was made from was retrieved; empty if that is unknown."""
    if row["gold_retrieved"] is None:
        return ""
    return "A gold record was retrieved." if row["gold_retrieved"] else "No gold record was retrieved."
