"""What a mixture's epoch draws: batches of one set each, and one of several prompts before each query."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler, NoDuplicatesBatchSampler

from biorag.training.data import passes

SET = "dataset_name"  # the trainer's column that names the set of a row


class WeightedBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """The batches of one set in an epoch, whose rows are drawn by the set's weight; no batch holds a text twice.

    A pass has as many batches as its rows fill: where repeated texts would spread them over more, as in a set with
    more rows of one question than batches, the rest are left to another epoch.
    """

    def __init__(self, dataset: Any, weights: Mapping[str, float], **settings: Any) -> None:
        super().__init__(dataset, **settings)
        self._dataset = dataset
        self._set = dataset[0][SET]
        self._weight = weights[self._set]
        self._settings = settings

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the row indices of each batch; their order depends on the seed, the set and the epoch alone."""
        for number, rows in enumerate(self._passes()):
            seed = Random(f"{self.seed} {self._set} {self.epoch} {number}").getrandbits(63)
            settings = {**self._settings, "generator": torch.Generator(), "seed": seed}
            batches = NoDuplicatesBatchSampler(self._dataset.select(rows), **settings)
            for batch in islice(batches, len(batches)):
                yield [rows[index] for index in batch]

    def __len__(self) -> int:
        """Return the number of batches, the same in every epoch."""
        rounded = math.floor if self.drop_last else math.ceil
        return sum(rounded(len(rows) / self.batch_size) for rows in self._passes())

    def _passes(self) -> Iterator[list[int]]:
        return passes(len(self._dataset), self._weight, self.seed, self.epoch)


class RandomPrompts:
    """A trainer's collator that puts one of several prompts before each query.

    The draw depends on the seed, the epoch and the row's texts alone, so that a resumed run repeats it. `prompts` are
    by the name of a set, "" where there are no sets; queries of a set without prompts stay as they are.
    """

    def __init__(self, trainer: Any, prompts: Mapping[str, Sequence[str]], seed: int) -> None:
        self._trainer = trainer
        self._collate = trainer.data_collator
        self._prompts = prompts
        self._seed = seed
        self.valid_label_columns = self._collate.valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch of tensors."""
        epoch = int(self._trainer.state.epoch or 0)
        return dict(self._collate([{**row, "query": self._drawn(row, epoch) + row["query"]} for row in rows]))

    def _drawn(self, row: Mapping[str, Any], epoch: int) -> str:
        prompts = self._prompts[row.get(SET, "")]
        draw = Random(json.dumps([self._seed, epoch, row["query"], row["positive"]]))
        return draw.choice(prompts) if prompts else ""
