"""Claims from a file, judged in batches into a file of verdicts that a killed run resumes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.types import OnProgress, Verdict
from biorag.utils.batched import batched
from biorag.utils.runs import ResumableFile
from biorag.utils.text import is_whole

BATCH = 64
Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim of a file; `snippet` is the id of the one that it is judged by, "" for those that a search finds."""

    id: str
    claim: str
    snippet: str = ""


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
            record = json.loads(line)
            row = ClaimRow(record["id"], record["claim"], record.get("snippet") or "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise BadInputError(f"{path}, line {number}: not a JSON object with id and claim") from None
        texts = (row.id, row.claim, row.snippet)
        if not all(isinstance(text, str) and is_whole(text) for text in texts) or not row.claim.strip():
            raise BadInputError(f"{path}, line {number}: id, claim, snippet must be strings, claim not blank")
        yield row


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
            lines = list(self.whole_lines())[: len(rows)]
            stream.truncate(sum(map(len, lines)))
            on_progress(len(lines))
            tally = Counter(json.loads(line)["verdict"] for line in lines)
            for batch in batched(rows[len(lines) :], BATCH):
                for verdict in judge(batch):
                    stream.write((json.dumps(verdict, ensure_ascii=False) + "\n").encode())
                    tally[verdict["verdict"]] += 1
                stream.flush()
                on_progress(len(batch))
        counts = {verdict.value: tally[verdict.value] for verdict in Verdict}
        self.complete(counts)
        return counts
