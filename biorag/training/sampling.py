"""Batches to which each set of a mixture gives its share, and prompts that are drawn for each query."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Any

from sentence_transformers.base.sampler import DefaultBatchSampler

from biorag.errors import BadInputError

ROUNDING = 1e-9


def rows_of_batch(shares: Mapping[str, float], sizes: Mapping[str, int], batch: int) -> dict[str, int]:
    """Return how many rows of a batch are each set's, by largest remainders.

    Raises BadInputError if that is none for a set, or more than it has.
    """
    rows = {name: math.floor(share * batch + ROUNDING) for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: rows[name] - shares[name] * batch)
    for name in by_remainder[: batch - sum(rows.values())]:
        rows[name] += 1
    for name, count in rows.items():
        if not count:
            raise BadInputError(f"the share {shares[name]} of set {name!r} is no row of {batch}: raise --batch-size")
        if count > sizes[name]:
            raise BadInputError(
                f"a batch of {batch} takes {count} rows of set {name!r}, which has {sizes[name]}: lower --batch-size "
                "or the set's share"
            )
    return rows


class SharedBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of which each set has its share of the rows, as in the BioASQ 8 hybrid system; none holds a text twice.

    Each set's rows are drawn in a shuffled order, and again in another once all were; a row that shares a text with its
    batch waits for a later one. The data hold the sets' rows one set after the other.

    `shares` and `sizes` are of each set, by its name; an epoch draws `rows`.
    """

    def __init__(
        self, dataset: Any, shares: Mapping[str, float], sizes: Mapping[str, int], rows: int, **settings: Any
    ) -> None:
        super().__init__(dataset, **settings)
        labels = set(dataset.column_names) & set(self.valid_label_columns or [])
        self._texts = dataset.remove_columns(list(labels))
        self._sizes, self._drawn = sizes, rows
        self._rows_of_batch = rows_of_batch(shares, sizes, self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the row indices of each batch; they depend on the seed and the epoch alone."""
        starts = accumulate([0, *self._sizes.values()])
        queues = {
            name: _Queue(range(start, start + size), Random(f"{self.seed} {name} {self.epoch}"))
            for (name, size), start in zip(self._sizes.items(), starts, strict=False)
        }
        for _ in range(len(self)):
            texts: set[str] = set()
            yield [
                index
                for name, count in self._rows_of_batch.items()
                for index in queues[name].take(count, texts, self._texts)
            ]

    def __len__(self) -> int:
        """Return the number of batches, the same in every epoch."""
        rounded = math.floor if self.drop_last else math.ceil
        return int(rounded(self._drawn / self.batch_size))


class _Queue:
    """The rows of a set in the order in which they are drawn, without an end."""

    def __init__(self, rows: range, random: Random) -> None:
        self._rows, self._random = rows, random
        self._waiting: deque[int] = deque()

    def take(self, count: int, texts: set[str], data: Any) -> list[int]:
        """Return the next rows that have none of these texts, to which theirs are added.

        They are fewer than `count` if two passes over the set do not hold so many.
        """
        taken: list[int] = []
        passed: list[int] = []
        while len(taken) < count and len(passed) < 2 * len(self._rows):
            if not self._waiting:
                self._waiting.extend(self._random.sample(self._rows, len(self._rows)))
            index = self._waiting.popleft()
            own = {str(text) for text in data[index].values()}
            if own & texts:
                passed.append(index)
            else:
                texts |= own
                taken.append(index)
        self._waiting.extendleft(reversed(passed))
        return taken


class RandomPrompts:
    """A trainer's collator that puts one of several prompts before each query.

    The draw depends on the seed, the epoch and the row's texts alone, so that a resumed run repeats it.
    """

    def __init__(self, trainer: Any, prompts: Sequence[str], seed: int) -> None:
        self._trainer, self._prompts, self._seed = trainer, prompts, seed
        self._collate = trainer.data_collator
        self.valid_label_columns = self._collate.valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch of tensors."""
        epoch = int(self._trainer.state.epoch or 0)
        return dict(self._collate([{**row, "query": self._drawn(row, epoch) + row["query"]} for row in rows]))

    def _drawn(self, row: Mapping[str, Any], epoch: int) -> str:
        return Random(json.dumps([self._seed, epoch, row["query"], row["positive"]])).choice(self._prompts)
