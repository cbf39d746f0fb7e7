"""Counts in how many texts of a corpus each stem stands: the table of rarity that the guards weigh words by.

    python scripts/stem_frequencies.py CORPUS biorag/answering/guards/data/frequencies.tsv.gz

CORPUS is what `biorag index` takes. The table holds counts alone: a first line with the number of texts, then
`stem<TAB>texts`, commonest first, of stems in at least MINIMUM texts.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections import Counter
from pathlib import Path

from biorag.answering.guards.words import stems
from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import find_sources

MINIMUM = 4


def main(corpus: str, out: Path) -> None:
    """Count and write; the same corpus gives the same bytes."""
    texts: Counter[str] = Counter()
    total = 0
    with tempfile.TemporaryDirectory() as spool:
        for source in find_sources([corpus], Path(spool) / "standard-input"):
            for snippet in read_snippets(source, refuse):
                total += 1
                texts.update(set(stems(snippet.contents)))
    rows = sorted((-count, stem) for stem, count in texts.items() if count >= MINIMUM)
    table = "".join([f"{total}\n", *(f"{stem}\t{-count}\n" for count, stem in rows)])
    out.write_bytes(gzip.compress(table.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
