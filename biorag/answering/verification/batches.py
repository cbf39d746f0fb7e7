"""Claims from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.utils.parsing import parsed


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
