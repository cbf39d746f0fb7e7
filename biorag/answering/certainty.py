"""How sure it is that the hits hold an answer: an answer, what may be one, or nothing.

The features are words, ranks, and how near the hits come by the packaged encoder, whatever encoder the index has, so
that one set of coefficients holds for all. `scripts/fit_certainty.py` fits `certainty.json`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biorag.answering.extract import FLOOR, ScoredSentences
from biorag.answering.guards.words import lexicon, names, rarity, stems
from biorag.answering.kinds import lacks_number
from biorag.types import Certainty, Hit
from biorag.utils.parsing import parsed

HITS = 5  # hits that are looked at
TELLING = 0.6  # rarity of a word without which hits are hardly an answer
LONGEST_ABBREVIATION = 6  # letters
_PART = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
KNOWN = {True: "matched", False: "words"}  # what is known of hits: how near they come, or their words alone
FEATURES = (
    "coverage",  # the share of the question's words, weighted by rarity, in the snippet of the best sentence
    "missing_telling",  # how many words of at least `TELLING` none of the first hits holds
    "missing_names",  # how many of its names none of them holds: "ECT", "R95X"
    "words",  # logarithm of the number of the question's words
    "number_missing",  # whether the question asks for a number, and the best sentence has none
    "answer",  # the largest log-odds by which the reader says of a sentence that it answers
    "match_best",  # the largest mean MaxSim of the question to a hit
    "match_least",  # the smallest MaxSim of a token of the question to the hit of the best sentence
    "match_ahead",  # by how much it exceeds the median of the hits
)


@dataclass(frozen=True, slots=True)
class CertaintyModel:
    """A logistic regression over `FEATURES`, and the probabilities from which there may be an answer, or is one."""

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    may: float
    answer: float
    fitted: dict[str, Any]  # questions, AUROC on those kept out, command

    def probability(self, row: Sequence[float] | NDArray[np.float64]) -> float:
        """Return the probability of an answer."""
        log_odds = (np.asarray(row) - self.mean) / self.scale @ np.array(self.weights) + self.intercept
        return float(1 / (1 + np.exp(-log_odds)))

    def certainty(self, probability: float, threshold: float | None = None) -> Certainty:
        """Return which of three answers a probability makes; `threshold` replaces that of an answer."""
        if probability >= (self.answer if threshold is None else threshold):
            return "answer"
        return "may" if probability >= min(self.may, 1.0 if threshold is None else threshold) else "nothing"


@cache
def _models() -> dict[str, CertaintyModel]:
    content = files("biorag.answering").joinpath("certainty.json").read_bytes()
    models: dict[str, CertaintyModel] = parsed(dict[str, CertaintyModel], content)
    return models


def certainty_model(matched: bool) -> CertaintyModel:
    """Return the packaged model where hits were matched, or of their words alone."""
    return _models()[KNOWN[matched]]


def certainty_features(question: str, hits: Sequence[Hit], scored: ScoredSentences) -> list[float]:
    """Return the values of `FEATURES` for the first hits of a question; all 0 without a sentence."""
    if not scored.rows:
        return [0.0] * len(FEATURES)
    missing = missing_words(question, [hit.snippet.contents for hit in hits[:HITS]])
    asked = list(dict.fromkeys(stems(question)))
    best = scored.rows[int(scored.scores.argmax())]
    matches = scored.matches[:HITS] if len(scored.matches) else np.zeros(1, np.float32)
    return [
        _coverage(asked, hits[best.n - 1].snippet.contents),
        float(sum(weight >= TELLING for weight in missing.values())),
        float(len(names(question) & set(missing))),
        float(np.log1p(len(asked))),
        float(lacks_number(question, best.text)),
        float(scored.answers.max(initial=FLOOR)),
        float(matches.max()),
        float(scored.least[best.n - 1]) if len(scored.least) else 0.0,
        float(matches.max() - np.median(matches)),
    ]


def _coverage(asked: Sequence[str], text: str) -> float:
    text_stems = set(stems(text))
    total = sum(map(rarity, asked))
    return sum(rarity(stem) for stem in asked if stem in text_stems) / total if total else 1.0


def missing_words(question: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the words of a question that no text holds, as they are written, with their rarity, 0 to 1.

    A short word is held by words in sequence of which it has the initials, "ACE" by "angiotensin-converting enzyme",
    but for little words between, which would spell anything; a long one by its parts, "heatshock" by "heat shock".
    """
    parts = [_PART.findall(text.lower()) for text in texts]
    joined = " ".join(map("".join, parts))
    initials = " ".join("".join(" " if word in lexicon().function else word[0] for word in text) for text in parts)
    text_stems = {stem for text in texts for stem in stems(text)}
    return {
        match[0]: max(map(rarity, word_stems))
        for match in _WORD.finditer(question)
        if (word_stems := stems(match[0]))
        and text_stems.isdisjoint(word_stems)
        and match[0].lower() not in (initials if len(match[0]) <= LONGEST_ABBREVIATION else joined)
    }
