"""From rows to the columns of texts that a loss takes, and the facts of the data for the manifest."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Generic

from typing_extensions import TypeVar

from biorag.errors import BadInputError, UsageError, unknown_name
from biorag.registries import NEGATIVES
from biorag.settings.training import TrainingSettings
from biorag.training.instructions import Instructions
from biorag.training.rows import sha256_of
from biorag.types import TrainingRow

Row = TypeVar("Row", default=TrainingRow)

IN_BATCH = "in-batch"
SYNTHETIC = "synthetic"  # written by a model
WRITTEN = 1000  # rows at a time
LABEL = "label"  # the column of numbers beside the texts: how many negatives a row has


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """One set of a mixture, whose rows make batches of their own; instructions of None are the run's.

    With a `share` it has no batches of its own: all sets have one then, and each batch takes that share of its rows
    from this set.
    """

    name: str
    training: Sequence[TrainingRow]
    validation: Sequence[TrainingRow]
    instructions: Instructions | None = None
    share: float | None = None

    def described(self) -> dict[str, Any]:
        """Return the identity of the set, besides its rows; whether their own instructions count."""
        return {
            "name": self.name,
            "rows": len(self.training),
            "instructions": self.instructions and self.instructions.prompts(),
            **({"share": self.share} if self.share else {}),
            **({"of_rows": True} if self.instructions and self.instructions.before(self.training) else {}),
        }


@dataclass(frozen=True, slots=True)
class Split(Generic[Row]):
    """Training rows, and rows of held-out questions; for a mixture, those of its `sets` in order."""

    training: Sequence[Row]
    validation: Sequence[Row]
    sets: Sequence[TrainingSet] = ()

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the data: sizes and hashes of both parts, and the sets."""
        data: dict[str, Any] = {
            "training_rows": len(self.training),
            "training_sha256": sha256_of(map(_record, self.training)),
            "validation_rows": len(self.validation),
            "validation_sha256": sha256_of(map(_record, self.validation)),
        }
        return {**data, "sets": [part.described() for part in self.sets]} if self.sets else data

    @property
    def shares(self) -> dict[str, float]:
        """The share of each batch that a set has, by its name; empty where sets make batches of their own."""
        return {part.name: part.share for part in self.sets if part.share}

    def passes(self) -> list[Sequence[Any]]:
        """Return the rows of an epoch by the passes that end with a smaller batch: one for each set.

        Sets that share batches have one pass, in which every row is drawn once and those of too small sets again.
        """
        if not self.shares:
            return [part.training for part in self.sets] or [self.training]
        shared = [(part.training, self.shares[part.name]) for part in self.sets]
        rows = max(math.ceil(len(training) / share) for training, share in shared)
        return [[row for training, share in shared for row in islice(cycle(training), math.ceil(rows * share))]]


def _record(row: Any) -> dict[str, Any]:
    """Return what is hashed of a row; an instruction only where it has one, as before rows had any."""
    record = asdict(row)
    if not record.get("instruction", True):
        del record["instruction"]
    return record


def mixed(sets: Sequence[TrainingSet]) -> Split:
    """Return the rows of the sets as one split."""
    return Split(
        [row for part in sets for row in part.training], [row for part in sets for row in part.validation], sets
    )


def check_negatives(negatives: str, settings: TrainingSettings, kinds: Collection[str] = NEGATIVES) -> None:
    """Refuse negatives that are not of the kinds, and settings that mined ones alone do not go with.

    Raises UsageError naming the option.
    """
    if negatives not in kinds:
        raise unknown_name("--negatives", negatives, kinds)
    if NEGATIVES[negatives].in_batch:
        return
    if not settings.hard_negatives:
        raise UsageError(f"--negatives {negatives} trains on mined negatives alone: give --hard-negatives 1 or more")
    if settings.in_batch:
        raise UsageError(
            f"--in-batch (train_in_batch) chooses in-batch negatives, which --negatives {negatives} does not have: "
            "leave it out"
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


def columns(rows: Sequence[TrainingRow], count: int) -> dict[str, list[Any]]:
    """Return the columns query, positive, negative_1 … negative_n (n ≤ `count`), and label.

    Where a row has fewer than n negatives, its shortest passage fills the other columns, and label says how many each
    row has, so that losses leave the filling out (`losses.MaskedSimilarity`).
    """
    count = min(count, max((len(row.negatives) for row in rows), default=0))
    columns: dict[str, list[Any]] = {"query": [row.query for row in rows], "positive": [row.positive for row in rows]}
    own = [row.negatives[:count] for row in rows]
    filling = [min((row.positive, *negatives), key=len) for row, negatives in zip(rows, own, strict=True)]
    for number in range(count):
        columns[f"negative_{number + 1}"] = [
            negatives[number] if number < len(negatives) else text for negatives, text in zip(own, filling, strict=True)
        ]
    if any(len(negatives) < count for negatives in own):
        columns[LABEL] = [len(negatives) for negatives in own]
    return columns


def write_columns(columns: Mapping[str, Sequence[Any]], file: Path) -> None:
    """Write columns as Arrow for a data set that maps the file: in memory they would be there twice."""
    from datasets.arrow_writer import ArrowWriter

    file.parent.mkdir(exist_ok=True)
    rows = len(next(iter(columns.values())))
    with ArrowWriter(path=str(file)) as writer:
        for start in range(0, rows, WRITTEN):
            writer.write_batch({name: values[start : start + WRITTEN] for name, values in columns.items()})
        writer.finalize()


def labelled_pairs(rows: Sequence[TrainingRow], count: int) -> dict[str, list[Any]]:
    """Return the columns query, passage and label: 1 for each row's positive, 0 for its first `count` negatives."""
    pairs = [
        (row.query, passage, label)
        for row in rows
        for passage, label in [(row.positive, 1.0), *((negative, 0.0) for negative in row.negatives[:count])]
    ]
    queries, passages, labels = zip(*pairs, strict=True)
    return {"query": list(queries), "passage": list(passages), "label": list(labels)}
