"""From files to the rows of a run, also mixtures of sets in TOML, and from rows to the columns that a loss takes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Generic

from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypeVar

from biorag.corpus.sources import find_sources
from biorag.errors import BadInputError, MissingError, UsageError, unknown_name
from biorag.registries import NEGATIVES
from biorag.settings.training import TrainingSettings
from biorag.training.contamination import ContaminationPolicy
from biorag.training.instructions import TASK, Instructions, read_instructions
from biorag.training.rows import cap_positives, read_rows, read_title_abstract, sha256_of, split
from biorag.types import Fetch, TrainingRow
from biorag.utils.files import scratch_folder
from biorag.utils.parsing import read_toml

Row = TypeVar("Row", default=TrainingRow)

IN_BATCH = "in-batch"
SYNTHETIC = "synthetic"  # written by a model
WRITTEN = 1000  # rows at a time
LABEL = "label"  # the column of numbers beside the texts: how many negatives a row has
QUESTIONS, TITLE_ABSTRACT, CROPPING = PAIRS = ("questions", "title-abstract", "cropping")
SUFFIX = ".toml"
ROUNDING = 1e-6


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
        return {**data, "sets": [listed.described() for listed in self.sets]} if self.sets else data

    @property
    def shares(self) -> dict[str, float]:
        """The share of each batch that a set has, by its name; empty where sets make batches of their own."""
        return {listed.name: listed.share for listed in self.sets if listed.share}

    def passes(self) -> list[Sequence[Any]]:
        """Return the rows of an epoch by the passes that end with a smaller batch: one for each set.

        Sets that share batches have one pass, in which every row is drawn once and those of too small sets again.
        """
        if not self.shares:
            return [listed.training for listed in self.sets] or [self.training]
        shared = [(listed.training, self.shares[listed.name]) for listed in self.sets]
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
        [row for listed in sets for row in listed.training], [row for listed in sets for row in listed.validation], sets
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
    negatives_of_rows = [row.negatives[:count] for row in rows]
    filling = [min((row.positive, *negatives), key=len) for row, negatives in zip(rows, negatives_of_rows, strict=True)]
    for number in range(count):
        columns[f"negative_{number + 1}"] = [
            negatives[number] if number < len(negatives) else text
            for negatives, text in zip(negatives_of_rows, filling, strict=True)
        ]
    if any(len(negatives) < count for negatives in negatives_of_rows):
        columns[LABEL] = [len(negatives) for negatives in negatives_of_rows]
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


class SetFile(BaseModel):
    """One set: its files, the task of its instruction, and its share of each batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    rows: tuple[Path, ...] = Field(min_length=1)
    share: float | None = Field(None, gt=0, lt=1)
    task: str | None = None

    @field_validator("rows", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class Mixture(BaseModel):
    """The sets. Paths in the file are relative to it.

    Sets with a `share` go into the same batches, of which each has that share of the rows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sets: tuple[SetFile, ...] = Field(min_length=1)

    @field_validator("sets")
    @classmethod
    def _share_batches(cls, sets: tuple[SetFile, ...]) -> tuple[SetFile, ...]:
        shares = [listed.share for listed in sets if listed.share is not None]
        if not shares:
            return sets
        if len(shares) < len(sets) or abs(sum(shares) - 1) > ROUNDING:
            raise ValueError("every set needs a share of the batches, and the shares must add up to 1")
        if any(listed.task is not None for listed in sets):
            raise ValueError("sets that share batches have no task of their own")
        return sets


def is_mixture(train: Sequence[Path]) -> bool:
    """Return whether training data is the file of a mixture; raises UsageError if other paths are given with it."""
    files = [path for path in train if path.suffix == SUFFIX]
    if files and len(train) > 1:
        raise UsageError(f"{files[0]} is a mixture: list its sets in the file and give no other path")
    return bool(files)


def load_mixture(path: Path) -> tuple[SetFile, ...]:
    """Read the sets of a mixture; one without a name has its first file's.

    Raises MissingError if the file, or one that it names, is not there; BadInputError if it is not valid TOML, a key is
    unknown or has a value that is not allowed, or two sets have the same name.
    """
    if not path.is_file():
        raise MissingError(f"mixture {path} is not there: docs/decoders.md has an example")
    sets = []
    for listed in read_toml(path, Mixture).sets:
        rows = tuple(path.parent / file for file in listed.rows)
        if missing := next((file for file in rows if not file.exists()), None):
            raise MissingError(f"{path} names {missing}, which is not there")
        name = listed.name or rows[0].name.removesuffix(".gz").removesuffix(".jsonl")
        sets.append(listed.model_copy(update={"rows": rows, "name": name}))
    names = [listed.name for listed in sets]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise BadInputError(f"{path}: two sets have the name {repeated!r}: rename one")
    return tuple(sets)


def instructions_of(
    sets: Sequence[SetFile], instruct: str | None, task: str | None, drawn: Sequence[str] = ()
) -> tuple[Instructions | None, list[Instructions | None]]:
    """Return the instructions that the model keeps, and those of each set; None for the base's own.

    They are of the template `instruct`. The model's task is `task`, else that of the first set; a set without a task
    takes the model's, and its rows keep their own instructions.

    Raises UsageError if a set has a task and there is no template for it. As `read_instructions` does.
    """
    if instruct is None:
        if tasked := next((listed for listed in sets if listed.task is not None), None):
            raise UsageError(f"the task of set {tasked.name!r} is part of an instruction: give --instruct")
        return None, [None] * len(sets)
    task = task or sets[0].task or TASK
    of_model = read_instructions(instruct, task, drawn)
    of_sets = [read_instructions(instruct, listed.task or task, drawn) for listed in sets]
    return of_model, [
        replace(instructions, form=None) if listed.task else instructions
        for listed, instructions in zip(sets, of_sets, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Preparation:
    """How the rows that were read become those of a run.

    The `contamination` policy refuses or drops rows of benchmark questions, a share `validation` of the questions is
    held out with the seed, and at most `max_positives` rows of each other question are trained on. `fetch` gives the
    passages of BEIR folders that have no corpus.
    """

    contamination: ContaminationPolicy
    validation: float
    seed: int
    max_positives: int | None = None
    fetch: Fetch | None = None

    def read(self, train: Sequence[Path], pairs: str = QUESTIONS) -> tuple[Split, dict[str, Any]]:
        """Return the rows of files, folders or (other `pairs`) a corpus, and the facts of the manifest.

        Raises UsageError if a file is a mixture, or the kind of pairs is unknown. As `read_rows` and
        `ContaminationPolicy.apply` do.
        """
        if is_mixture(train):
            raise UsageError(f"{train[0]} is a mixture, which 'biorag train retriever' takes: give files of rows here")
        if pairs not in PAIRS:
            raise unknown_name("--pairs", pairs, PAIRS)
        if pairs != QUESTIONS:
            with scratch_folder() as spool:
                sources = find_sources([str(path) for path in train], spool / "standard-input")
                rows, counts = read_title_abstract(sources, self.seed, pairs == CROPPING)
        else:
            rows, counts = read_rows(train, self.fetch)
        clean, matches = self.contamination.apply(rows)
        data = {"files": [str(path) for path in train], "pairs": pairs, **counts}
        return self._split(clean), {"data": data, **self.contamination.facts(matches)}

    def read_instructed(
        self, train: Sequence[Path], pairs: str, instruct: str | None, task: str | None, drawn: Sequence[str]
    ) -> tuple[Split, dict[str, Any], Instructions | None]:
        """Return the rows, also of a mixture, the facts of the manifest, and the instructions that the model keeps.

        `instructions_of` describes template, task, and tasks to draw from.
        """
        if not is_mixture(train):
            of_set = None if instruct is None else read_instructions(instruct, task or TASK, drawn)
            return *self.read(train, pairs), of_set
        if pairs != QUESTIONS:
            raise UsageError(f"a mixture consists of questions: leave out --pairs {pairs}")
        listed_sets = load_mixture(train[0])
        of_model, instructions = instructions_of(listed_sets, instruct, task, drawn)
        read = [read_rows(listed.rows, self.fetch) for listed in listed_sets]
        clean, matches = self.contamination.apply([row for rows, _ in read for row in rows])
        allowed = set(clean)
        sets, facts = [], []
        for listed, (rows, counts), of_set in zip(listed_sets, read, instructions, strict=True):
            clean_rows = [row for row in rows if row in allowed]
            halves = self._split(clean_rows)
            sets.append(TrainingSet(listed.name, halves.training, halves.validation, of_set, listed.share))
            files, dropped = [str(file) for file in listed.rows], len(rows) - len(clean_rows)
            facts.append({"name": listed.name, "files": files, **counts, "dropped": dropped})
        data = {"files": [str(train[0])], "pairs": QUESTIONS, "sets": facts}
        return mixed(sets), {"data": data, **self.contamination.facts(matches)}, of_model

    def _split(self, rows: Sequence[TrainingRow]) -> Split:
        """Return the rows with some questions held out and the rows of the others capped."""
        training, validation = split(rows, self.validation, self.seed)
        if self.max_positives:
            training = cap_positives(training, self.max_positives, self.seed)
        return Split(training, validation)
