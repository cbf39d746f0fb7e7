"""Make the rows by which the packaged Llama learnt to rewrite follow-up questions.

    python -m scripts.followup_rows DATA rows.jsonl
    biorag train generator rows.jsonl --base starter-llm --out DIR (LOG.md has the settings)

`question_sets/followups/learnt.jsonl.gz` has the follow-ups, each with the question before it, where the sentence that
answered that stands in a record, and the question that it means. Half of the answers also have sentences that follow
there, and one in eight of those that are not spoken of is that nothing was found.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from biorag.answering.answerer import NOTHING
from biorag.answering.sections import labelled_sentences
from scripts.answer_rows import asked_about, read

SETS = Path(__file__).parent / "question_sets/followups"
LONGER = 0.5  # share of the answers with a further sentence, or two
UNANSWERED = 0.12


def rows_of(data: Path, file: Path) -> Iterator[dict[str, Any]]:
    """Yield the question before, what was said, the follow-up and what it means."""
    docs, rng = asked_about(data), random.Random(3)
    for row in read(file):
        answer = row.get("answer") or _said(docs[row["doc"]]["content"], *row["at"], rng)
        if row["kind"] != "named" and rng.random() < UNANSWERED:
            answer = NOTHING
        yield {key: row[key] for key in ("question", "previous", "standalone")} | {"answer": answer}


def _said(text: str, start: int, end: int, rng: random.Random) -> str:
    """Return a sentence of a text and some of those that follow."""
    further = rng.choice((1, 2)) if rng.random() < LONGER else 0
    following = [row.text for row in labelled_sentences(text) if row.start >= end][:further]
    return " ".join([text[start:end], *following])


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("set", choices=("learnt", "further"))
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    rows = [json.dumps(row, ensure_ascii=False) for row in rows_of(asked.data, SETS / f"{asked.set}.jsonl.gz")]
    asked.out.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
