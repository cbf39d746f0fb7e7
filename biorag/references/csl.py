"""CSL-JSON, the items that citation processors and reference managers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from biorag.references.reference import Author, Genre, Reference, references_of
from biorag.types import Hit
from biorag.utils.files import json_text

TYPES = {
    Genre.ARTICLE: "article-journal",
    Genre.PREPRINT: "article",
    Genre.BOOK: "book",
    Genre.THESIS: "thesis",
    Genre.DATASET: "dataset",
    Genre.OTHER: "document",
}


def csl_json(hits: Sequence[Hit]) -> str:
    """Return the references of hits as CSL-JSON."""
    return json_text([item(reference) for reference in references_of(hits)], indent=2) + "\n"


def item(reference: Reference) -> dict[str, Any]:
    """Return one item; variables that are not known are left out."""
    first, last = reference.page_range
    variables = {
        "id": reference.key,
        "type": TYPES[reference.genre],
        "title": reference.title,
        "author": [name(author) for author in reference.authors],
        "issued": {"date-parts": [list(reference.date)]} if reference.date else None,
        "container-title": reference.journal,
        "container-title-short": reference.abbreviation,
        "volume": reference.volume,
        "issue": reference.issue,
        "page": "-".join(filter(None, (first, last))),
        "ISSN": reference.issn,
        "DOI": reference.doi,
        "PMID": str(reference.pmid) if reference.pmid else None,
        "PMCID": reference.pmcid,
        "URL": reference.url,
        "language": reference.language[0] if reference.language else None,
        "keyword": "; ".join(reference.keywords),
        "note": "; ".join(reference.notes),
        "abstract": reference.abstract,
    }
    return {variable: value for variable, value in variables.items() if value}


def name(author: Author) -> dict[str, str]:
    """Return a name variable: the parts of a person's name, or a group's name as it stands."""
    if author.group:
        return {"literal": author.family}
    parts = {"family": author.family, "given": author.given, "suffix": author.suffix}
    return {part: value for part, value in parts.items() if value}
