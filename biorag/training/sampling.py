"""Batches to which each set of a mixture gives its share, and prompts that are drawn for each query."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, chain
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.sampler import DefaultBatchSampler

from biorag.errors import BadInputError
from biorag.settings.section import ONCE
from biorag.training.reading import ANSWERS, TARGETS
from biorag.training.run_directory import process_count

logger = logging.getLogger(__name__)

ROUNDING = 1e-9
READ = 10_000  # rows at a time
POOL = 40  # batches within which rows are sorted by length
TOGETHER = 16  # rows of a question in one batch


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
    """Batches of which each set has its share of the rows, as in the BioASQ 8 hybrid system.

    None holds a passage twice, nor a question, unless its set has fewer questions than a batch takes rows of it: the
    question's other positives are then not its negatives (`losses.MaskedSimilarity`). Each set's rows are drawn in a
    shuffled order, and again in another once all were; a row that shares a text with its batch waits for a later one.
    The data hold the sets' rows one set after the other.

    `shares` and `sizes` are of each set, by its name; an epoch draws `rows`.
    """

    def __init__(
        self, dataset: Any, shares: Mapping[str, float], sizes: Mapping[str, int], rows: int, **settings: Any
    ) -> None:
        super().__init__(dataset, **settings)
        labels = set(dataset.column_names) & set(self.valid_label_columns or [])
        self._texts = text_keys(dataset.remove_columns(list(labels)))
        self._drawn, self._rows_of_batch = rows, rows_of_batch(shares, sizes, self.batch_size)
        starts = dict(zip(sizes, accumulate([0, *sizes.values()]), strict=False))
        self._sets = {name: range(start, start + sizes[name]) for name, start in starts.items()}
        self._repeating = {
            name: len(np.unique(self._texts[rows.start : rows.stop, 0])) < self._rows_of_batch[name]
            for name, rows in self._sets.items()
        }

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the row indices of each batch; they depend on the seed and the epoch alone."""
        queues = {
            name: _Queue(rows, f"{self.seed} {name} {self.epoch}", self._texts, self._repeating[name])
            for name, rows in self._sets.items()
        }
        for _ in range(len(self)):
            texts: set[int] = set()
            taken = {name: queues[name].take(count, texts) for name, count in self._rows_of_batch.items()}
            self._check(taken)
            yield [index for rows in taken.values() for index in rows]

    def _check(self, taken: Mapping[str, Sequence[int]]) -> None:
        """Say once that a batch cannot hold what was asked for."""
        short = {name: len(rows) for name, rows in taken.items() if len(rows) < self._rows_of_batch[name]}
        if short:
            if process_count() > 1:  # accelerate passes over a batch that is not full
                raise BadInputError(
                    f"sets {', '.join(short)} have too few different texts for a batch of {self.batch_size:,}, which "
                    "several processes share whole: lower --batch-size or the share, or train in one process"
                )
            rows = sum(map(len, taken.values()))
            listed = "; ".join(
                f"{count:,} of {self._rows_of_batch[name]:,} of set {name!r}, {count / rows:.1%} of the batch"
                for name, count in short.items()
            )
            logger.warning(
                "a batch holds %s rows, not %s (%s): too few texts differ; lower --batch-size, or the share",
                *(f"{rows:,}", f"{self.batch_size:,}", listed),
                extra=ONCE,
            )

    def __len__(self) -> int:
        """Return the number of batches, the same in every epoch."""
        rounded = math.floor if self.drop_last else math.ceil
        return int(rounded(self._drawn / self.batch_size))


def text_keys(dataset: Any) -> NDArray[np.int64]:
    """Return 64 bits of the hash of each text, shape (rows, columns): equal texts have equal ones."""
    keys = np.empty((len(dataset), len(dataset.column_names)), np.int64)
    for start in range(0, len(keys), READ):
        columns = dataset[start : start + READ].values()
        for column, texts in enumerate(columns):
            digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
            keys[start : start + READ, column] = np.frombuffer(digests, np.int64)
    return keys


class _Queue:
    """The rows of a set in the order in which they are drawn, without an end; with `repeating` questions come again."""

    def __init__(self, rows: range, seed: str, texts: NDArray[np.int64], repeating: bool) -> None:
        self._rows, self._texts, self._compared = rows, texts, slice(1 if repeating else 0, None)
        self._random = np.random.default_rng(list(seed.encode()))
        self._order: Iterator[np.int64] = iter(())
        self._waiting: deque[int] = deque()

    def take(self, count: int, texts: set[int]) -> list[int]:
        """Return the next rows that have none of these texts, to which theirs are added.

        They are fewer than `count` if two passes over the set do not hold so many.
        """
        taken: list[int] = []
        passed: list[int] = []
        while len(taken) < count and len(passed) < 2 * len(self._rows):
            index = self._next()
            keys = self._texts[index, self._compared].tolist()
            if texts.isdisjoint(keys):
                texts.update(keys)
                taken.append(index)
            else:
                passed.append(index)
        self._waiting.extendleft(reversed(passed))
        return taken

    def _next(self) -> int:
        """Return the row that has waited longest, or else the next of a shuffled order, of another once it ends."""
        if self._waiting:
            return self._waiting.popleft()
        for row in self._order:
            return self._rows.start + int(row)
        self._order = iter(self._random.permutation(len(self._rows)))
        return self._next()


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


def similar_lengths(lengths: Sequence[int], size: int, seed: int, groups: Sequence[str] = ()) -> list[list[int]]:
    """Return batches of rows of about one length, so that little of a batch is padding; one that is not full is last.

    Rows of one of `groups`, names (rows,), follow each other, `TOGETHER` at most: all but few stay in one batch; a row
    of the group "" is alone. They are drawn in pools of `POOL` batches, which are sorted by the longest row of each and
    cut; the batches' order is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    members: dict[object, list[int]] = defaultdict(list)
    for row in range(len(lengths)):
        members[(groups and groups[row]) or row].append(row)
    alike = [rows[start : start + TOGETHER] for rows in members.values() for start in range(0, len(rows), TOGETHER)]
    order = list(chain.from_iterable(alike[n] for n in torch.randperm(len(alike), generator=generator).tolist()))
    longest = {row: max(lengths[each] for each in rows) for rows in alike for row in rows}
    pools = [
        sorted(order[start : start + size * POOL], key=longest.__getitem__)
        for start in range(0, len(order), size * POOL)
    ]
    batches = [pool[first : first + size] for pool in pools for first in range(0, len(pool), size)]
    drawn = [batches[index] for index in torch.randperm(len(batches), generator=generator).tolist()]
    return sorted(drawn, key=lambda batch: len(batch) < size)


class SimilarLengths(DefaultBatchSampler):  # type: ignore[misc]
    """The batches of `similar_lengths` by the characters of two columns, drawn anew each epoch.

    Rows of one question, the second text, follow each other; those of claims are alone.
    """

    def __init__(self, dataset: Any, batch_size: int, generator: torch.Generator | None = None, **options: Any) -> None:
        super().__init__(range(len(dataset)), batch_size=batch_size, generator=generator, **options)
        columns = [dataset[name] for name in dataset.column_names[:2]]
        self._lengths = [sum(map(len, texts)) for texts in zip(*columns, strict=True)]
        judged = (label >= TARGETS.index(ANSWERS) for label in dataset["label"])
        self._questions = [text if is_judged else "" for text, is_judged in zip(columns[1], judged, strict=True)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(similar_lengths(self._lengths, self.batch_size, self.seed + self.epoch, self._questions))


@dataclass
class SimilarLengthRows(torch.utils.data.Sampler[int]):
    """The rows of `similar_lengths` one after another, for a loader that cuts them into batches of `size`."""

    lengths: Sequence[int]
    size: int
    seed: int
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the batches of an epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(similar_lengths(self.lengths, self.size, self.seed + self.epoch))
