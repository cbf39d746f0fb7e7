"""Names in an answer's sentences, for questions that ask for a thing or a list of them, where no model names them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from biorag.answering.verification.cues import lexicon, rarity
from biorag.answering.verification.words import stems

MOST = 10  # names of a list
LONGEST = 4  # words of a name
_BREAK = re.compile(r"[,;:()\[\]/]|\.\s|\.$|\s(?:and|or)\s")
_WORD = re.compile(r"[^\W_][\w'’+-]*")


def names(question: str, sentences: Sequence[str]) -> list[str]:
    """Return runs of content words that the question lacks, the rarest and most frequent first.

    A rule of thumb that finds candidates and reads nothing: a baseline for models that do.
    """
    asked = set(stems(question))
    scores: dict[str, float] = {}
    written: dict[str, str] = {}
    for sentence in sentences:
        for run in _runs(sentence, asked):
            key = run.lower()
            written.setdefault(key, run)
            weights = [rarity(stem) for stem in stems(run)]
            scores[key] = scores.get(key, 0.0) + (sum(weights) / len(weights) if weights else 0.0)
    best = sorted(scores, key=lambda key: -scores[key])
    return [written[key] for key in best[:MOST]]


def _runs(sentence: str, asked: set[str]) -> list[str]:
    runs: list[str] = []
    for part in _BREAK.split(sentence):
        run: list[str] = []
        for match in [*_WORD.finditer(part), None]:
            word = match[0] if match else ""
            if match and word.lower() not in lexicon().function and not set(stems(word)) & asked:
                run.append(word)
                continue
            if 0 < len(run) <= LONGEST:
                runs.append(" ".join(run))
            run = []
    return runs
