"""A file of claims judged by a session, as a run that resumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import StringConstraints

from biorag.api.session import Session, conditions
from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.types import OnProgress, Verdict
from biorag.utils.files import sha256_of
from biorag.utils.parsing import parsed
from biorag.utils.progress import batched
from biorag.utils.runs import Rows

BATCH = 64  # claims that are searched for at once


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim of a file; without the id of a snippet, it is judged by those that a search finds."""

    id: str
    claim: Annotated[str, StringConstraints(pattern=r"\S")]
    snippet: str | None = None


def read_claims(path: Path) -> Iterator[ClaimRow]:
    """Yield the claims of a JSONL file, gzipped or not.

    Raises `MissingError` if the file is not there; `BadInputError` naming file, line and reason.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a JSONL file of claims, each with id and claim")
    for number, line in read_lines(Source(str(path), path)):
        try:
            yield parsed(ClaimRow, line, extra="ignore")
        except ValueError as error:
            raise BadInputError(f"{path}, line {number}: not a JSON object with id and claim ({error})") from None


def judge_file(
    session: Session, claims: Sequence[ClaimRow], file: Path, out: Path, where: Mapping[str, Any], advance: OnProgress
) -> dict[str, int]:
    """Write a verdict for each claim of a file to `out`; return how many there are of each.

    `where` has the filters, as the session's methods take them.
    """
    filters = [str(condition) for condition in conditions(**where)]
    identity = {"claims": sha256_of(file), "filter": filters, **session.identity()}

    def judge(rest: Sequence[ClaimRow]) -> Iterator[dict[str, Any]]:
        for batch in batched(rest, BATCH):
            verdicts = session.verify_all([(row.claim, row.snippet or "") for row in batch], **where)
            for row, verdict in zip(batch, verdicts, strict=True):
                yield {"id": row.id, **verdict.to_json()}

    def tally(rows: Iterator[Any]) -> dict[str, int]:
        counts = Counter(row["verdict"] for row in rows)
        return {verdict.value: counts[verdict.value] for verdict in Verdict}

    filled = Rows(out, identity, tally=tally).fill(claims, judge, advance, BATCH)
    return {verdict.value: filled.counts[verdict.value] for verdict in Verdict}
