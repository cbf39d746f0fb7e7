"""The file of mined rows, and beside it the manifest of what made it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MismatchError
from biorag.files import sha256_of, write_json
from biorag.types import Negative, TrainingRow


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run came to: rows written, their negatives, rows without any; `resumed` rows were there before."""

    rows: int
    negatives: int
    without: int
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """How far a file's whole lines reach: the place of the row to go on with, and what they come to."""

    place: int = 0
    rows: int = 0
    negatives: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class TripletFile:
    """A JSONL file of mined rows; `identity` is everything that determines its bytes."""

    path: Path
    identity: Mapping[str, Any]

    @property
    def manifest(self) -> Path:
        """Where the identity is kept, and whether the file is complete."""
        return self.path.with_name(f"{self.path.name}.manifest.json")

    def finished(self) -> Counts | None:
        """Return the counts of a file that is complete; None if there is still something to do.

        Raises
        ------
        MismatchError
            If the file is of other rows or settings, was not mined, or was changed since.
        """
        if not self.path.exists():
            return None
        if not self.manifest.is_file():
            raise MismatchError(
                f"{self.path} is there, but not with the manifest of a mined file: choose another --out"
            )
        try:
            held = json.loads(self.manifest.read_bytes())
            known, complete = dict(held["identity"]), held["complete"]
            counts = Counts(**held["counts"]) if complete else None
        except (ValueError, KeyError, TypeError) as error:
            raise MismatchError(f"{self.manifest} is damaged ({error}): choose another --out") from None
        wanted = json.loads(json.dumps(self.identity))
        if changed := sorted(key for key in {*known, *wanted} if known.get(key) != wanted.get(key)):
            raise MismatchError(f"{self.path} was mined with other {', '.join(changed)}: choose another --out")
        if counts and sha256_of(self.path) != held.get("sha256"):
            raise MismatchError(f"{self.path} was changed after it was mined: choose another --out, or delete it")
        return counts and replace(counts, resumed=counts.rows)

    def save(self, complete: bool, **facts: Any) -> None:
        """Write the manifest."""
        write_json(self.manifest, {"complete": complete, "identity": dict(self.identity), **facts})

    def finish(self, counts: Counts) -> None:
        """Mark the file as complete."""
        kept = {name: value for name, value in asdict(counts).items() if name != "resumed"}
        self.save(complete=True, counts=kept, sha256=sha256_of(self.path))

    def resume(self, rows: Sequence[TrainingRow]) -> Done:
        """Return how far the file came in mining these rows in this order; rows may have been left out.

        A last line without an end was torn by a kill, and does not count.

        Raises
        ------
        BadInputError
            If a whole line is none of the rows that may stand there.
        """
        done = Done()
        if not self.path.is_file():
            return done
        with self.path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                done = self._after(done, line, rows)
        return done

    def _after(self, done: Done, line: bytes, rows: Sequence[TrainingRow]) -> Done:
        try:
            values = json.loads(line)
            pair, negatives = (values["query"], values["positive"]), len(values["negatives"])
        except (ValueError, KeyError, TypeError):
            pair, negatives = ("", ""), 0
        for place in range(done.place, len(rows)):
            if (rows[place].query, rows[place].positive) == pair:
                return Done(place + 1, done.rows + 1, done.negatives + negatives, done.size + len(line))
        raise BadInputError(
            f"{self.path}, line {done.rows + 1}: not a row that was mined from these pairs: delete the file and mine "
            "again, or choose another --out"
        )


def to_line(row: TrainingRow, negatives: Sequence[Negative], kind: str) -> bytes:
    """Return a mined row as a line of the file: the texts, and the ids, ranks and scores of the negatives."""
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
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"


def fingerprint(rows: Iterable[TrainingRow]) -> str:
    """Return the SHA-256 of what mining reads of the rows, hex."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.query, row.positive, row.query_id, row.positive_id]).encode() + b"\n")
    return digest.hexdigest()
