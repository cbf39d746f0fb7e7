"""The file of mined rows, and its manifest beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from typing_extensions import TypedDict

from biorag.errors import BadInputError
from biorag.training.rows import sha256_of
from biorag.types import Negative, TrainingRow
from biorag.utils.files import json_line
from biorag.utils.parsing import parsed
from biorag.utils.runs import ResumableFile


@dataclass(frozen=True, slots=True)
class MiningReport:
    """The counts of a run: rows written, their negatives, rows without any; `resumed` rows were there before."""

    rows: int
    negatives: int
    without: int
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """How far a file's whole lines reach: the index of the row to resume at, and the totals so far."""

    next_row: int = 0
    rows: int = 0
    negatives: int = 0
    size: int = 0


class MinedNegative(TypedDict):
    """A negative of a mined row, besides its text."""

    id: str
    rank: int | None
    score: float | None


class MinedRow(TypedDict):
    """What is read of a mined row."""

    query: str
    positive: str
    negatives: list[MinedNegative]


class TripletFile(ResumableFile[MiningReport]):
    """A JSONL file of mined rows."""

    def counted(self, counts: dict[str, int]) -> MiningReport:
        """Return the report of a complete file, whose rows were all there before."""
        report = MiningReport(**counts)
        return replace(report, resumed=report.rows)

    def finish(self, report: MiningReport) -> None:
        """Mark the file as complete."""
        self.complete({name: value for name, value in asdict(report).items() if name != "resumed"})

    def resume(self, rows: Sequence[TrainingRow]) -> Done:
        """Return how far the file came in mining these rows in this order; rows may have been dropped.

        A last line without a line break was cut off by a kill and does not count.

        Raises
        ------
        BadInputError
            If a whole line is not one of the rows that may be there.
        """
        done = Done()
        for line in self.whole_lines():
            done = self._after(done, line, rows)
        return done

    def _after(self, done: Done, line: bytes, rows: Sequence[TrainingRow]) -> Done:
        try:
            values = parsed(MinedRow, line, extra="ignore")
            pair, negatives = (values["query"], values["positive"]), len(values["negatives"])
        except ValueError:
            pair, negatives = ("", ""), 0
        for index in range(done.next_row, len(rows)):
            if (rows[index].query, rows[index].positive) == pair:
                return Done(index + 1, done.rows + 1, done.negatives + negatives, done.size + len(line))
        raise BadInputError(
            f"{self.path}, line {done.rows + 1}: not a row that was mined from these pairs: delete the file and mine "
            "again, or choose another --out"
        )


def to_line(row: TrainingRow, negatives: Sequence[Negative], kind: str) -> bytes:
    """Return a mined row as a line of the file: texts, and the ids, ranks and scores of the negatives."""
    values: dict[str, Any] = {"query": row.query, "positive": row.positive}
    values |= {f"negative_{number}": negative.text for number, negative in enumerate(negatives, 1)}
    values["kind"] = kind
    values |= {key: id for key, id in (("query_id", row.query_id), ("positive_id", row.positive_id)) if id}
    values["negatives"] = [
        {
            "id": negative.id,
            "rank": negative.rank,
            "score": None if negative.score is None else round(negative.score, 6),
        }
        for negative in negatives
    ]
    return json_line(values)


def fingerprint(rows: Iterable[TrainingRow]) -> str:
    """Return the SHA-256 of what mining reads of the rows, hex."""
    return sha256_of([row.query, row.positive, row.query_id, row.positive_id] for row in rows)
