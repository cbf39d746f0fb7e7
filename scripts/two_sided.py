"""Count the stances of studies on claims that have both sides: scripts/two_sided.py DATA/pubmed/snippets.jsonl.gz.

The claims were written, and their studies found by hand, without knowledge of the program.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import Source
from biorag.engine import load_checker
from biorag.settings.settings import Settings
from biorag.types import Verdict

CLAIMS = Path(__file__).with_suffix(".jsonl")
SIDES = {"supporting": Verdict.SUPPORTED, "opposing": Verdict.CONTRADICTED}


def main() -> None:
    """Print a line for each side and verdict, and of how many claims both sides are found."""
    corpus = Path(sys.argv[1])
    snippets = {snippet.id: snippet for snippet in read_snippets(Source(str(corpus), corpus), refuse)}
    checker, counts, both = load_checker(Settings()), Counter[tuple[str, str]](), 0
    claims = [json.loads(line) for line in CLAIMS.read_text("utf-8").splitlines()]
    for claim in claims:
        found = 0
        for side, verdict in SIDES.items():
            stances = checker.stances(claim["claim"], [snippets[id] for id in claim[side]], leaning=True)
            counts.update((side, stance.verdict.value) for stance in stances)
            found += any(stance.verdict is verdict for stance in stances)
        both += found == len(SIDES)
    for (side, verdict_of_study), count in sorted(counts.items()):
        sys.stdout.write(f"{side} {verdict_of_study}: {count}\n")
    sys.stdout.write(f"both sides: {both} of {len(claims)}\n")


if __name__ == "__main__":
    main()
