"""Facts of evidence: what is known of the study behind a snippet. They are facts, not grades."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from biorag.references.participants import Participants, participants
from biorag.references.reference import texts
from biorag.types import Snippet


@dataclass(frozen=True, slots=True)
class Facts:
    """What a record and an abstract say of a study; None where that is not known.

    `concern` is known of PubMed's own records, which name every notice; `retracted` where a record says either.
    `cited_by` counts the papers of the local citation graph that cite this one.
    """

    publication_types: tuple[str, ...] | None
    retracted: bool | None
    concern: bool | None
    notices: tuple[str, ...]
    corrections: tuple[str, ...]
    participants: Participants | None
    cited_by: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON; null stands for unknown."""
        people = self.participants
        return {**asdict(self), "participants": people._asdict() if people else None}


def facts_of(snippet: Snippet, cited_by: int | None = None) -> Facts:
    """Return the facts of a snippet, of which a block of a long abstract may lack the words that state them."""
    fields = snippet.metadata
    of_pubmed = {"version", "retracted"} <= set(fields)  # which its reader sets in every record
    concerns = texts(fields, "concern")
    return Facts(
        publication_types=texts(fields, "type") or None,
        retracted=snippet.retracted if "retracted" in fields else None,
        concern=bool(concerns) if of_pubmed or concerns else None,
        notices=(*texts(fields, "retraction"), *concerns),
        corrections=texts(fields, "errata"),
        participants=participants(snippet.content),
        cited_by=cited_by,
    )
