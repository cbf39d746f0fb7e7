"""The held-out split: which questions training held out or dropped, and which may be tuned or measured on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError, UsageError
from biorag.training.contamination import ContaminationPolicy
from biorag.training.rows import is_held_out

ALL, HELD_OUT, TRAINING, DROPPED = PARTS = ("all", "held-out", "training", "dropped")


@dataclass(frozen=True, slots=True)
class HeldOutSplit:
    """How training split its questions (see `biorag.training.rows.split`), and which part of them to take.

    Training dropped the questions of the `benchmarks`. The part "held-out" is those that training did not see, held out
    or dropped; "training" is the rest, and "dropped" those that were dropped and not held out.

    Raises UsageError if dropped questions are to be taken and no benchmark is given.
    """

    fraction: float
    seed: int
    benchmarks: tuple[Path, ...] = ()
    part: str = ALL

    def __post_init__(self) -> None:
        if self.part == DROPPED and not self.benchmarks:
            raise UsageError("--dropped takes the questions that --guard FILE dropped: give the benchmark")

    def select(self, data: Dataset) -> Dataset:
        """Return the data set with that part of its questions; raises BadInputError if no question is in that part."""
        if self.part == ALL:
            return data
        held_out = {question.id for question in data.questions if is_held_out(question.text, self.fraction, self.seed)}
        dropped = self._dropped(data)
        ids, why_none = {
            HELD_OUT: (held_out | dropped, f"is held out by --validation {self.fraction}"),
            TRAINING: (
                {question.id for question in data.questions} - held_out - dropped,
                f"is left for training by --validation {self.fraction}",
            ),
            DROPPED: (dropped - held_out, "was dropped by --guard"),
        }[self.part]
        questions = [question for question in data.questions if question.id in ids]
        if not questions:
            raise BadInputError(f"no question of {data.name} {why_none}")
        qrels = {question.id: data.qrels[question.id] for question in questions}
        return replace(data, questions=questions, qrels=qrels)

    def _dropped(self, data: Dataset) -> set[str]:
        """Return the ids of the questions that match a benchmark's."""
        policy = ContaminationPolicy(self.benchmarks, drop=bool(self.benchmarks))
        kept, _ = policy.apply(data.questions, lambda question: (question.text,))
        return {question.id for question in data.questions} - {question.id for question in kept}
