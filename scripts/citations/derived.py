"""A citation network derived from a corpus whose records carry no references. None of its citations is real.

The snippets of ../shared/data have PMIDs but no reference lists, so what a paper "cites" is made up, by two rules that
give what a reference list has: papers about the same rare things, and papers that answer the same question.

- Each of up to 12 older papers (smaller PMIDs) with which it shares the most rare words: words in 2 to 30 snippets,
  weighted by idf = ln(snippets / snippets with the word), at least two shared.
- The other papers that are gold for the same question of BEIR folders, in both directions. Questions that training may
  not see are left aside: those held out by the hash split, and those that match a benchmark that is guarded.

Usage: python -m scripts.citations.derived SNIPPETS OUT.csv [--questions DIR ... --validation 0.2
--guard benchmark.json]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path

from biorag.corpus.datasets import load_dataset
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import find_sources
from biorag.training.contamination import ContaminationDetector
from biorag.training.rows import is_held_out, normalised
from biorag.types import Snippet

RAREST, COMMONEST = 2, 30
MOST = 12
SHARED = 2
_WORD = re.compile(r"[^\W_]+")

Citation = tuple[int, int]


def by_words(snippets: Sequence[Snippet]) -> Iterator[Citation]:
    """Yield each paper with the older ones that it shares the most rare words with, nearest first."""
    words = [set(_WORD.findall(snippet.contents.casefold())) for snippet in snippets]
    frequency = Counter(word for found in words for word in found)
    holders: dict[str, list[int]] = {}
    for place, found in enumerate(words):
        for word in found:
            if RAREST <= frequency[word] <= COMMONEST:
                holders.setdefault(word, []).append(place)
    for snippet, found in zip(snippets, words, strict=True):
        weights: Counter[int] = Counter()
        shared: Counter[int] = Counter()
        for word in sorted(found & holders.keys()):
            for other in holders[word]:
                weights[other] += math.log(len(snippets) / frequency[word])
                shared[other] += 1
        older = {
            snippets[other].pmid: weights[other]
            for other in shared
            if shared[other] >= SHARED and snippets[other].pmid < snippet.pmid
        }
        nearest = sorted(older, key=lambda pmid: (-older[pmid], pmid))[:MOST]
        yield from ((snippet.pmid, pmid) for pmid in nearest)


def by_questions(
    folders: Iterable[Path], fraction: float, seed: int, guard: ContaminationDetector | None
) -> Iterator[list[str]]:
    """Yield the ids of the snippets that are gold for a question, of those questions that training may see."""
    for folder in folders:
        dataset = load_dataset(folder)
        seen = [question for question in dataset.questions if not is_held_out(question.text, fraction, seed)]
        matched = {normalised(match.query) for match in guard.matches(q.text for q in seen)} if guard else set()
        for question in seen:
            if normalised(question.text) not in matched:
                yield [id for id, grade in dataset.qrels.get(question.id, {}).items() if grade > 0]


def main(arguments: Sequence[str]) -> None:
    """Write the network as the Open Citation Collection's CSV, and say on stdout what it came to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("snippets")
    parser.add_argument("out", type=Path)
    parser.add_argument("--questions", type=Path, action="append", default=[])
    parser.add_argument("--validation", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guard", type=Path, action="append", default=[])
    asked = parser.parse_args(arguments)
    snippets = [
        snippet
        for source in find_sources([asked.snippets], Path("unused"))
        for snippet in read_snippets(source)
        if snippet.pmid is not None
    ]
    pmids = {snippet.id: snippet.pmid for snippet in snippets}
    citations = set(by_words(snippets))
    words = len(citations)
    questions = 0
    guard = ContaminationDetector(asked.guard) if asked.guard else None
    for gold in by_questions(asked.questions, asked.validation, asked.seed, guard):
        questions += 1
        citations.update(permutations(sorted({pmids[id] for id in gold if id in pmids}), 2))
    with asked.out.open("w", encoding="ascii") as stream:
        stream.write("citing,referenced\n")
        stream.writelines(f"{citing},{cited}\n" for citing, cited in sorted(citations))
    print(  # noqa: T201
        json.dumps(
            {
                "snippets": len(snippets),
                "by_words": words,
                "questions": questions,
                "by_questions": len(citations) - words,
                "citations": len(citations),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
