"""Random negatives: drawn uniformly over the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random

from biorag.training.negatives.mining import Gold, eligible
from biorag.training.rows import row_random
from biorag.types import Index, Negative, TrainingRow


class RandomNegatives:
    """`count` negatives a row, without replacement; a negative's rank is the number of its draw.

    Memory: the ids of the corpus.
    """

    def __init__(self, index: Index, seed: int, count: int) -> None:
        self._index = index
        self._ids = sorted(index.ids())
        self._seed = seed
        self._count = count

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return the first `count` draws that are neither gold nor a repetition."""
        draws = islice(eligible(self._draws(row), gold), self._count)
        return [replace(negative, rank=rank) for rank, negative in enumerate(draws, 1)]

    def _draws(self, row: TrainingRow) -> Iterator[Negative]:
        order = shuffled(self._ids, row_random(self._seed, row))
        while ids := list(islice(order, self._count)):
            snippets = self._index.fetch(ids)
            yield from (Negative(snippets[id].document, snippets[id].contents, 0, None) for id in ids if id in snippets)


def shuffled(items: Sequence[str], random: Random) -> Iterator[str]:
    """Yield all items in a random order: a lazy Fisher-Yates shuffle."""
    moved: dict[int, int] = {}
    for index in range(len(items)):
        other = random.randrange(index, len(items))
        yield items[moved.get(other, other)]
        moved[other] = moved.get(index, index)
