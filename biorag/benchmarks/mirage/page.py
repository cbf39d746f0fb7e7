"""A run's questions as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from biorag.benchmarks.mirage.records import QuestionRow, RetrievedHit, counts
from biorag.references.escaping import in_html

STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem;overflow-wrap:anywhere}
form{display:flex;flex-wrap:wrap;gap:.5rem;position:sticky;top:0;padding:.5rem 0;background:Canvas}
select,input{font:inherit;max-width:100%;min-width:0}
input{flex:1 1 12rem}
article{border:1px solid GrayText;border-left:.4rem solid #b00020;margin:.75rem 0;padding:.5rem .75rem}
article.right{border-left-color:#1b7f3b}
h2{font-size:1rem;margin:0}
ul,ol{margin:.4rem 0;padding-left:1.4rem}
li.gold{font-weight:bold}
pre{white-space:pre-wrap}
.meta{font-size:.875rem;margin:0}
"""
SCRIPT = """
const form = document.forms[0], articles = [...document.querySelectorAll('article')];
const texts = articles.map(article => article.textContent.toLowerCase());
function filter() {
  const task = form.task.value, result = form.result.value, words = form.words.value.toLowerCase();
  let shown = 0;
  articles.forEach((article, number) => {
    article.hidden = (task && article.dataset.task !== task) || (result && !article.classList.contains(result))
      || !texts[number].includes(words);
    shown += !article.hidden;
  });
  document.getElementById('shown').textContent = shown + ' of ' + articles.length + ' questions';
}
form.addEventListener('input', filter);
form.addEventListener('change', filter);  // all that some browsers tell of a choice made by a program
form.addEventListener('submit', event => event.preventDefault());
filter();
"""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def html_page(title: str, rows: Sequence[QuestionRow]) -> str:
    """Return the page of these questions, every text escaped."""
    tasks = counts(rows)
    options = "".join(f'<option value="{in_html(task)}">{in_html(task)}</option>' for task in tasks)
    scores = ", ".join(f"{task} {count['right']} of {count['questions']}" for task, count in tasks.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{in_html(POLICY)}">
<title>{in_html(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{in_html(title)}</h1>
<p>Right: {in_html(scores or "no question")}</p>
<form>
<select name="task" aria-label="Task"><option value="">all tasks</option>{options}</select>
<select name="result" aria-label="Result">
<option value="">right and wrong</option><option value="right">right</option><option value="wrong">wrong</option>
</select>
<input name="words" type="search" placeholder="Search the text" aria-label="Search the text">
</form>
<p id="shown" class="meta"></p>
{"".join(map(_article, rows))}
<script>{SCRIPT}</script>
</body>
</html>
"""


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
