"""A manuscript as it is checked: its paragraphs, the references that it lists, and the sentences that cite them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from biorag.references.reference import Reference
from biorag.utils.text import cut

MOST_SHOWN = 1000  # characters of a sentence, or a claim of it, in a report, which repeats it at each of its marks

# Stand around what a format sets apart as a mark: raised letters, a command. Readers drop them from what they read.
OPEN, CLOSE = "\ue000", "\ue001"


def bare(text: str) -> str:
    """Return a text on one line, without the signs that stand around marks."""
    return " ".join(text.replace(OPEN, "").replace(CLOSE, "").split())


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, its number in the file from 1, and its place in words; `line` is 0 where a format has none."""

    text: str
    number: int
    place: str
    line: int = 0
    is_heading: bool = False


@dataclass(frozen=True, slots=True)
class ListedReference:
    """A reference by its key in the manuscript: a number, a key of BibTeX, "PMID 123"; and what could be read of it.

    `paragraph` is 0 where it stands in a file beside the manuscript; `is_record` if it came in fields, not as text.
    """

    key: str
    text: str
    read: Reference
    paragraph: int = 0
    place: str = ""
    is_record: bool = False


class CitedClaim(NamedTuple):
    """What a sentence cites a reference for: itself, or the clause before the mark."""

    key: str
    claim: str


@dataclass(frozen=True, slots=True)
class CitingSentence:
    """A sentence with marks, where it stands, and what it cites whom for.

    `span` is (start, end) in the paragraph's text; `unlisted` are marks that name none of the references.
    """

    text: str
    paragraph: Paragraph
    span: tuple[int, int]
    claims: tuple[CitedClaim, ...]
    unlisted: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """What a report shows of the text."""
        return cut(self.text, MOST_SHOWN)


@dataclass(frozen=True, slots=True)
class Manuscript:
    """What was read of a file; `notes` say what was not."""

    file: str
    references: tuple[ListedReference, ...]
    sentences: tuple[CitingSentence, ...]
    notes: tuple[str, ...] = ()
