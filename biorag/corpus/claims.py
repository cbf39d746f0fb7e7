"""Rows of claims: to judge, to measure the check on, and to train a judge on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Tag

from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.types import ClaimLabel, Snippet
from biorag.utils.parsing import parsed
from biorag.utils.text import first_visible

# "[<|cit|>, 18]", "(<|multi_cit|>)", "<|other_cit|>": where a sentence cites, in data sets of citing sentences
_CITING = re.compile(r"\s*(?:[\[(][\d\s,;–—-]*(?:<\|\w+\|>[\d\s,;–—-]*)+[\])]|<\|\w+\|>)")
_DIRECTIONS = {
    "significantly increased": "increased",
    "significantly increase": "increased",  # as the data set spells it too
    "significantly decreased": "decreased",
    "no significant difference": "unchanged",
}
# The wordings of a row differ in their direction alone.
WORDINGS = {
    "increased": (
        "{intervention} significantly increases {outcome} compared with {comparator}.",
        "{outcome} was significantly higher with {intervention} than with {comparator}.",
        "Compared with {comparator}, {intervention} led to significantly higher {outcome}.",
    ),
    "decreased": (
        "{intervention} significantly reduces {outcome} compared with {comparator}.",
        "{outcome} was significantly lower with {intervention} than with {comparator}.",
        "Compared with {comparator}, {intervention} led to significantly lower {outcome}.",
    ),
    "unchanged": (
        "{intervention} does not significantly change {outcome} compared with {comparator}.",
        "{outcome} did not differ significantly between {intervention} and {comparator}.",
        "Compared with {comparator}, {intervention} led to no significant difference in {outcome}.",
    ),
}


def without_marks(claim: str) -> str:
    """Return a citing sentence without its marks, "found [<|cit|>]." as "found."; raise `ValueError` if it is blank."""
    if not first_visible(text := _CITING.sub("", claim).strip()):
        raise ValueError("it is blank")
    return text


Stated = Annotated[str, AfterValidator(without_marks)]


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim, the evidence to judge it by, and the label that people gave it, if any.

    The evidence is the text of `title` and `sentences`; without sentences the snippet of an id, else what a search
    finds. `rationale` has the positions of the deciding sentences, from 0. Rows whose texts are changed copies
    of one have its first sentence as their `document`.
    """

    id: str
    claim: Stated
    snippet: str | None = None
    title: str = ""
    sentences: tuple[str, ...] | None = None
    label: ClaimLabel | None = None
    rationale: tuple[int, ...] = ()
    document: str = ""

    @property
    def text(self) -> Snippet | None:
        """The text that the row brings, as a snippet of the row's id; None if it brings none."""
        return None if self.sentences is None else Snippet(self.id, self.title, " ".join(self.sentences))


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A row of Evidence Inference: what an intervention did to an outcome, and the sentence that says so."""

    id: str
    intervention: Stated
    comparator: Stated
    outcome: Stated
    direction: Literal[
        "significantly increased", "significantly increase", "significantly decreased", "no significant difference"
    ]
    evidence: Stated

    def claims(self) -> Iterator[ClaimRow]:
        """Yield a claim that the evidence supports, and the same in another direction, which it contradicts.

        A hash of the row chooses wording and direction, so that every run words it alike.
        """
        drawn = hashlib.sha256(f"{self.id} {self.evidence}".encode()).digest()
        true = _DIRECTIONS[self.direction]
        false = [direction for direction in WORDINGS if direction != true][drawn[0] % 2]
        labelled: tuple[tuple[ClaimLabel, str], ...] = (("supports", true), ("contradicts", false))
        for label, direction in labelled:
            wording = WORDINGS[direction][drawn[1] % len(WORDINGS[direction])]
            claim = wording.format(intervention=self.intervention, comparator=self.comparator, outcome=self.outcome)
            yield ClaimRow(
                f"{self.id}:{label}", claim[0].upper() + claim[1:], sentences=(self.evidence,), label=label,
                rationale=(0,),
            )  # fmt: skip


def _kind_of(values: Any) -> str:
    return "result" if isinstance(values, dict) and "intervention" in values else "row"


StoredRow = Annotated[Annotated[ClaimRow, Tag("row")] | Annotated[TrialResult, Tag("result")], Discriminator(_kind_of)]


def read_claims(path: Path) -> Iterator[ClaimRow]:
    """Yield the claims of a JSONL file, gzipped or not; a row with an intervention is worded into two.

    Raises `MissingError` if the file is not there; `BadInputError` naming file, line and reason.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a JSONL file of claims, each with id and claim")
    for number, line in read_lines(Source(str(path), path)):
        try:
            row: ClaimRow | TrialResult = parsed(StoredRow, line, extra="ignore")
        except ValueError as error:
            raise BadInputError(f"{path}, line {number}: not a JSON object with id and claim ({error})") from None
        yield from row.claims() if isinstance(row, TrialResult) else (row,)
