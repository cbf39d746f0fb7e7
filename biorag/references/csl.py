"""CSL-JSON, which pandoc and Zotero read: names are taken apart, and groups are literal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from biorag.references.reference import Author, Genre, Reference, references_of
from biorag.types import Hit

TYPES = {
    Genre.ARTICLE: "article-journal",
    Genre.PREPRINT: "article",
    Genre.BOOK: "book",
    Genre.THESIS: "thesis",
    Genre.DATASET: "dataset",
}


def csl_json(hits: Sequence[Hit]) -> str:
    """Return the references of hits as CSL-JSON."""
    items = [item(reference) for reference in references_of(hits)]
    return json.dumps(items, ensure_ascii=False, indent=2) + "\n"


def item(reference: Reference) -> dict[str, Any]:
    """Return one item."""
    values = {
        "id": reference.key,
        "type": TYPES.get(reference.genre, "document"),
        "title": reference.title,
        "author": [name(author) for author in reference.authors],
        "container-title": reference.journal,
        "container-title-short": reference.abbreviation,
        "issued": {"date-parts": [list(reference.date)]} if reference.date else None,
        "volume": reference.volume,
        "issue": reference.issue,
        "page": "-".join(filter(None, reference.page_range)),
        "DOI": reference.doi,
        "PMID": str(reference.pmid) if reference.pmid else "",
        "PMCID": reference.pmcid,
        "ISSN": reference.issn,
        "URL": reference.url,
        "language": next(iter(reference.language), ""),
        "keyword": ", ".join(reference.keywords),
        "note": ". ".join(reference.notes),
        "abstract": reference.abstract,
    }
    return {label: value for label, value in values.items() if value}


def name(author: Author) -> dict[str, str]:
    """Return a name in its parts; a group's is literal."""
    if author.group or not author.given:
        return {"literal": author.family}
    parts = {"family": author.family, "given": author.given, "suffix": author.suffix}
    return {part: value for part, value in parts.items() if value}
