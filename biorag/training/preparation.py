"""From files to the rows of a run: read, checked for contamination, split and capped; and mixtures of sets in TOML."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from biorag.corpus.sources import find_sources
from biorag.errors import BadInputError, MissingError, UsageError, unknown_name
from biorag.training.contamination import ContaminationPolicy
from biorag.training.data import Split, TrainingSet, mixed
from biorag.training.instructions import TASK, Instructions, read_instructions
from biorag.training.rows import cap_positives, read_rows, read_title_abstract, split
from biorag.types import Fetch, TrainingRow
from biorag.utils.parsing import parse_toml

QUESTIONS, TITLE_ABSTRACT = PAIRS = ("questions", "title-abstract")
SUFFIX = ".toml"
ROUNDING = 1e-6


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
    try:
        mixture = Mixture.model_validate(parse_toml(path.read_bytes(), str(path)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise BadInputError(f"{path}: {key or 'the file'}: {first['msg']} (it has {first['input']!r})") from None
    sets = []
    for listed in mixture.sets:
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
    kept = read_instructions(instruct, task, drawn)
    of_sets = [read_instructions(instruct, listed.task or task, drawn) for listed in sets]
    return kept, [replace(own, form=None) if part.task else own for part, own in zip(sets, of_sets, strict=True)]


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
        if pairs == TITLE_ABSTRACT:
            with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
                sources = find_sources([str(path) for path in train], Path(spool) / "standard-input")
                rows, counts = read_title_abstract(sources, self.seed)
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
            own = None if instruct is None else read_instructions(instruct, task or TASK, drawn)
            return *self.read(train, pairs), own
        if pairs != QUESTIONS:
            raise UsageError(f"a mixture consists of questions: leave out --pairs {pairs}")
        listed_sets = load_mixture(train[0])
        kept, instructions = instructions_of(listed_sets, instruct, task, drawn)
        read = [read_rows(listed.rows, self.fetch) for listed in listed_sets]
        clean, matches = self.contamination.apply([row for rows, _ in read for row in rows])
        allowed = set(clean)
        sets, facts = [], []
        for listed, (rows, counts), own in zip(listed_sets, read, instructions, strict=True):
            clean_rows = [row for row in rows if row in allowed]
            part = self._split(clean_rows)
            sets.append(TrainingSet(listed.name, part.training, part.validation, own, listed.share))
            files, dropped = [str(file) for file in listed.rows], len(rows) - len(clean_rows)
            facts.append({"name": listed.name, "files": files, **counts, "dropped": dropped})
        data = {"files": [str(train[0])], "pairs": QUESTIONS, "sets": facts}
        return mixed(sets), {"data": data, **self.contamination.facts(matches)}, kept

    def _split(self, rows: Sequence[TrainingRow]) -> Split:
        """Return the rows with some questions held out and the rows of the others capped."""
        training, validation = split(rows, self.validation, self.seed)
        if self.max_positives:
            training = cap_positives(training, self.max_positives, self.seed)
        return Split(training, validation)
