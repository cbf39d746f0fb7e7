"""From rows to the columns of texts that a loss takes, and the facts of the data for the manifest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from random import Random
from typing import Any

from biorag.errors import BadInputError, UsageError, unknown_name
from biorag.registries import NEGATIVES, own_negatives
from biorag.settings.training import TrainingSettings
from biorag.training.instructions import Instructions
from biorag.training.rows import row_random, sha256_of, with_negatives
from biorag.types import TrainingRow

IN_BATCH = "in-batch"
SYNTHETIC = "synthetic"  # written by a model
LABEL = "label"  # the column of numbers beside the texts: how many negatives a row has, or a teacher's scores
NO_PASSAGE = -1e9  # the score of a text that only fills a column: its share of a softmax is 0


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """One set of a mixture, whose rows make batches of their own; None takes the run's.

    An epoch draws its rows `weight` times; `temperature` divides the similarities in its loss. With a `share` it has no
    batches of its own: all sets have one then, and each batch takes that share of its rows from this set.
    """

    name: str
    training: Sequence[TrainingRow]
    validation: Sequence[TrainingRow]
    weight: float = 1.0
    temperature: float | None = None
    instructions: Instructions | None = None
    share: float | None = None

    def passes(self, seed: int) -> list[list[TrainingRow]]:
        """Return the rows of the first epoch by `passes`."""
        return [
            [self.training[index] for index in indices]
            for indices in passes(len(self.training), self.weight, seed, epoch=0)
        ]

    def described(self) -> dict[str, Any]:
        """Return the identity of the set, besides its rows."""
        return {
            "name": self.name,
            "rows": len(self.training),
            "weight": self.weight,
            "temperature": self.temperature,
            "instructions": self.instructions and self.instructions.prompts(),
            **({"share": self.share} if self.share else {}),
        }


@dataclass(frozen=True, slots=True)
class Split:
    """Training rows, and rows of held-out questions; for a mixture, those of its `sets` in order."""

    training: Sequence[TrainingRow]
    validation: Sequence[TrainingRow]
    sets: Sequence[TrainingSet] = ()

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the data: sizes and hashes of both parts, and the sets."""
        data: dict[str, Any] = {
            "training_rows": len(self.training),
            "training_sha256": sha256_of(map(asdict, self.training)),
            "validation_rows": len(self.validation),
            "validation_sha256": sha256_of(map(asdict, self.validation)),
        }
        return {**data, "sets": [part.described() for part in self.sets]} if self.sets else data

    @property
    def shares(self) -> dict[str, float]:
        """The share of each batch that a set has, by its name; empty where sets make batches of their own."""
        return {part.name: part.share for part in self.sets if part.share}

    def passes(self, seed: int) -> list[list[TrainingRow]]:
        """Return the rows of the first epoch by `passes`; the last batch of each may be smaller.

        Sets that share batches have one pass, in which every row is drawn once and those of too small sets again.
        """
        if not self.sets:
            return [list(self.training)]
        if self.shares:
            rows = max(math.ceil(len(part.training) / share) for part, share in self._shared())
            counts = [(part.training, math.ceil(rows * share)) for part, share in self._shared()]
            return [[row for training, count in counts for row in islice(cycle(training), count)]]
        return [rows for part in self.sets for rows in part.passes(seed)]

    def _shared(self) -> list[tuple[TrainingSet, float]]:
        return [(part, part.share) for part in self.sets if part.share]


def mixed(sets: Sequence[TrainingSet]) -> Split:
    """Return the rows of the sets as one split."""
    return Split(
        [row for part in sets for row in part.training], [row for part in sets for row in part.validation], sets
    )


def passes(rows: int, weight: float, seed: int, epoch: int) -> Iterator[list[int]]:
    """Yield the indices of the rows that an epoch draws: all rows for each whole of the weight, then its fraction.

    Each epoch draws the fraction anew. At least one row is drawn, if there is any.
    """
    if not rows:
        return
    wanted = max(1, round(weight * rows))
    for _ in range(wanted // rows):
        yield list(range(rows))
    if rest := wanted % rows:
        yield sorted(Random(f"{seed} {epoch}").sample(range(rows), rest))


def check_negatives(negatives: str, settings: TrainingSettings, distill: bool = False) -> None:
    """Refuse a kind of negatives that is unknown, or settings that do not go with it.

    Raises UsageError naming the option.
    """
    if negatives not in NEGATIVES:
        raise unknown_name("--negatives", negatives, NEGATIVES)
    if distill and not settings.hard_negatives:
        raise UsageError("--distill learns a teacher's scores of negatives: give --hard-negatives 1 or more")
    if distill and settings.in_batch:
        raise UsageError(
            "--in-batch (train_in_batch) chooses negatives, and --distill has a teacher's scores: leave it out"
        )
    if not NEGATIVES[negatives].in_batch:
        check_mined(negatives, settings)


def check_mined(negatives: str, settings: TrainingSettings) -> None:
    """Refuse a kind of negatives that is not mined, or settings that do not go with mined ones alone.

    Raises UsageError naming the option.
    """
    if negatives not in own_negatives():
        raise unknown_name("--negatives", negatives, own_negatives())
    if not settings.hard_negatives:
        raise UsageError(f"--negatives {negatives} trains on mined negatives alone: give --hard-negatives 1 or more")
    if settings.mini_batch_size:
        raise UsageError(
            "--mini-batch-size (train_mini_batch_size) caches the gradients of in-batch negatives: leave it out, and "
            "for less memory give a smaller --batch-size with --gradient-accumulation, which is the same for mined ones"
        )
    if settings.in_batch:
        raise UsageError(
            f"--in-batch (train_in_batch) chooses in-batch negatives, which --negatives {negatives} has not: leave it "
            "out"
        )


def usable(rows: Sequence[TrainingRow], negatives: str, count: int) -> list[TrainingRow]:
    """Return the rows that can be trained on with `count` hard negatives of each, mined as `negatives` says.

    With in-batch negatives, rows are pairs where no row has mined negatives or `count` is 0.

    Raises BadInputError if there is no row, or rows have no mined negatives, or were mined in another way.
    """
    if not rows:
        raise BadInputError("no training row is left: give more rows, or a smaller --validation")
    mined = [row for row in rows if row.negatives]
    if NEGATIVES[negatives].in_batch:
        return mined if mined and count else list(rows)
    others = {row.kind for row in mined} - {negatives, ""}
    if not mined or others:
        negatives_found = f"negatives mined as {', '.join(sorted(others))}" if others else "no mined negatives"
        make = NEGATIVES[negatives].made_by.format(name=negatives)
        raise BadInputError(f"the rows have {negatives_found}: run 'biorag {make}' and train on that")
    return mined


def columns(rows: Sequence[TrainingRow], count: int, distill: bool = False) -> dict[str, list[Any]]:
    """Return the columns query, positive, negative_1 … negative_n (n ≤ `count`), and label.

    Where a row has fewer than n negatives, its shortest passage fills the other columns, and label says how many each
    row has, so that losses leave the filling out (`losses.Candidates`). To `distill`, label is a teacher's scores,
    which are `NO_PASSAGE` for the filling.

    Raises BadInputError if `distill` is asked and rows lack scores.
    """
    if distill and not all(len(row.scores) == 1 + len(row.negatives) and row.negatives for row in rows):
        raise BadInputError(
            "--distill needs a list 'scores' in every row: a teacher's score of the positive and of each negative"
        )
    count = min(count, max((len(row.negatives) for row in rows), default=0))
    rows = [with_negatives(row, list(range(min(count, len(row.negatives))))) for row in rows]
    missing = [count - len(row.negatives) for row in rows]
    filling = [min((row.positive, *row.negatives), key=len) for row in rows]
    columns: dict[str, list[Any]] = {"query": [row.query for row in rows], "positive": [row.positive for row in rows]}
    for number in range(count):
        columns[f"negative_{number + 1}"] = [
            row.negatives[number] if number < len(row.negatives) else text
            for row, text in zip(rows, filling, strict=True)
        ]
    if distill:
        columns[LABEL] = [[*row.scores, *[NO_PASSAGE] * rest] for row, rest in zip(rows, missing, strict=True)]
    elif any(missing):
        columns[LABEL] = [len(row.negatives) for row in rows]
    return columns


def sampled(rows: Sequence[TrainingRow], count: int, seed: int) -> list[TrainingRow]:
    """Return the rows with at most `count` negatives each, drawn from all of a row's with the seed."""
    return [
        with_negatives(row, row_random(seed, row).sample(range(len(row.negatives)), min(count, len(row.negatives))))
        for row in rows
    ]


def sampled_split(split: Split, count: int, seed: int) -> Split:
    """Return a split whose training rows are `sampled`, in all sets."""
    if split.sets:
        return mixed([replace(part, training=sampled(part.training, count, seed)) for part in split.sets])
    return replace(split, training=sampled(split.training, count, seed))


def labelled_pairs(rows: Sequence[TrainingRow], count: int) -> dict[str, list[Any]]:
    """Return the columns query, passage and label: 1 for each row's positive, 0 for its first `count` negatives."""
    pairs = [
        (row.query, passage, label)
        for row in rows
        for passage, label in [(row.positive, 1.0), *((negative, 0.0) for negative in row.negatives[:count])]
    ]
    queries, passages, labels = zip(*pairs, strict=True)
    return {"query": list(queries), "passage": list(passages), "label": list(labels)}
