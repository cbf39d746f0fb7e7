"""Claims about abstracts of SciFact that were written without knowledge of the check, beside their texts.

    python -m scripts.unseen_claims DATA/scifact/corpus.jsonl.gz OUT.jsonl
    biorag bench verification OUT.jsonl --out RUN

Of each of 50 texts there is a true paraphrase and a false near miss, labelled by whoever wrote them; a text is a whole
abstract with its title, or some sentences of one. None is of a claim of the development or training sets.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLAIMS = Path(__file__).parent / "unseen_claims.jsonl"


def claims_beside_texts(corpus: Path) -> Iterator[dict[str, Any]]:
    """Yield the claims with title, sentences and label, as `biorag bench verification` reads them."""
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        documents = {row["_id"]: row for row in map(json.loads, lines)}
    for line in CLAIMS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        document = documents[row["document"]]
        yield {
            **{name: row[name] for name in ("id", "claim", "label", "kind")},
            "title": document["title"] if row["titled"] else "",
            "sentences": [document["text"][row["start"] : row["end"]]],
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="corpus.jsonl.gz of BEIR's SciFact")
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    chosen.out.write_text("".join(json.dumps(row) + "\n" for row in claims_beside_texts(chosen.corpus)))
