"""Claims from a file, judged in batches into a file of verdicts that a killed run resumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.types import OnProgress, Verdict
from biorag.utils.batched import batched
from biorag.utils.files import json_line
from biorag.utils.parsing import parsed
from biorag.utils.runs import ResumableFile, whole_rows

BATCH = 64
Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim of a file; `snippet` is the id of the one that it is judged by, "" for those that a search finds."""

    id: str
    claim: str
    snippet: str = ""


class _Claim(TypedDict):
    """What is read of a line of claims."""

    id: str
    claim: str
    snippet: NotRequired[str | None]


def read_claims(path: Path) -> Iterator[ClaimRow]:
    """Yield the claims of a JSONL file, gzipped or not.

    Raises
    ------
    MissingError
        If the file is not there.
    BadInputError
        Naming file, line and reason.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a JSONL file of claims, each with id and claim")
    for number, line in read_lines(Source(str(path), path)):
        try:
            values = parsed(_Claim, line, extra="ignore")
        except ValueError as error:
            raise BadInputError(f"{path}, line {number}: not a JSON object with id and claim ({error})") from None
        row = ClaimRow(values["id"], values["claim"], values.get("snippet") or "")
        if not row.claim.strip():
            raise BadInputError(f"{path}, line {number}: id, claim, snippet must be strings, claim not blank")
        yield row


class Judged(TypedDict):
    """What is read of a verdict that an earlier run wrote."""

    verdict: Verdict


class VerdictFile(ResumableFile[Counts]):
    """A JSONL file of verdicts, a line for each claim in their order."""

    def counted(self, counts: dict[str, int]) -> Counts:
        """Return how many claims got each verdict."""
        return {verdict.value: int(counts[verdict.value]) for verdict in Verdict}

    def fill(
        self,
        rows: Sequence[ClaimRow],
        judge: Callable[[Sequence[ClaimRow]], Iterable[dict[str, Any]]],
        on_progress: OnProgress,
    ) -> Counts:
        """Judge the claims that have no line yet; return how many claims got each verdict.

        Raises
        ------
        MismatchError
            If the file is of other claims, or of another index.
        """
        if (counts := self.finished()) is not None:
            on_progress(len(rows))
            return counts
        with self.appending() as stream:
            judged = list(whole_rows(self.path, Judged))[: len(rows)]
            stream.truncate(sum(size for size, _ in judged))
            on_progress(len(judged))
            tally = Counter(row["verdict"] for _, row in judged)
            for batch in batched(rows[len(judged) :], BATCH):
                for verdict in judge(batch):
                    stream.write(json_line(verdict))
                    tally[verdict["verdict"]] += 1
                stream.flush()
                on_progress(len(batch))
        counts = {verdict.value: tally[verdict.value] for verdict in Verdict}
        self.complete(counts)
        return counts
