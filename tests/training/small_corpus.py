"""A corpus small enough to rank by hand, the slow index over it, and training rows about it."""

from __future__ import annotations

import random

from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.training.mining import Gold, Negative, golds
from biorag.types import Hit, Snippet, TrainingRow
from tests.answering.test_pipeline import WORDS, MemoryIndex
from tests.fakes import HashEncoder

ENCODER = HashEncoder(dimension=16)
NO_GOLD = Gold(frozenset(), frozenset())


class SlowIndex(MemoryIndex):
    """Scores every snippet for every probe; also lists its ids."""

    def ids(self):
        return iter(self.snippets)


def corpus(size: int = 80) -> list[Snippet]:
    """Snippets of different lengths, so that no two have the same scores."""
    draw = random.Random(5)
    lengths = draw.sample(range(3, 3 + size), size)
    return [Snippet(f"s{n:02}", "", " ".join(draw.choices(WORDS, k=lengths[n]))) for n in range(size)]


def indexed(snippets: list[Snippet]) -> SlowIndex:
    return SlowIndex(snippets, ENCODER.encode_snippets([snippet.contents for snippet in snippets]))


def settings(tmp_path, **changes) -> Settings:
    return Settings.of(home=tmp_path, name="test", rerank=False).replace(**changes)


def row(query: str, positive: str = "a positive", positive_id: str = "") -> TrainingRow:
    return TrainingRow(query, positive, query_id="", positive_id=positive_id)


def gold_of(*rows: TrainingRow) -> Gold:
    """Return the gold of the one question that the rows are about."""
    (gold,) = golds(rows).values()
    return gold


def negative(id: str, text: str, rank: int = 1, score: float | None = None) -> Negative:
    return Negative(id, text, rank, score)


class ScriptedRetriever:
    """Ranks what it is told, by the scores it is told; keeps the queries."""

    def __init__(self, scores: list[tuple[str, str, float]]) -> None:
        self.hits = tuple(Hit(rank, Snippet(id, "", text), s) for rank, (id, text, s) in enumerate(scores, 1))
        self.asked: list[str] = []

    def search(self, query, limit=None, where=()):
        self.asked.append(query)
        return Ranking(query, self.hits[:limit], {})
