"""Answers in JSON as manuscripts: biorag's own, those of TREC BioGen, and sentences with the PMIDs that they cite."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from biorag.corpus.readers import read_text
from biorag.corpus.sources import Source
from biorag.errors import BadInputError
from biorag.papers.manuscripts.manuscript import (
    CitedClaim,
    CitingSentence,
    ListedReference,
    Manuscript,
    Paragraph,
    bare,
)
from biorag.references.formats import citation
from biorag.references.reference import Genre, Reference, reference_of
from biorag.types import Snippet
from biorag.utils.parsing import parse_json

DEEPEST = 8  # objects inside one another in which sentences are looked for
_CITED = ("citations", "supported_citations", "existing_supported_citations", "references", "pmids")
FORMS = 'give the JSON of \'biorag ask --json\', or {"sentences": [{"text": "…", "citations": [12345678]}]}'


def answer_manuscript(path: Path) -> Manuscript:
    """Read the answers of a file of JSON, or of one a line; raises `BadInputError` if it has no cited sentences."""
    references: dict[str, ListedReference] = {}
    sentences: list[CitingSentence] = []
    for line, answer in _answers(path):
        hits = _hits(answer)
        for text, cited in _cited_sentences(answer, DEEPEST):
            place = f"sentence {len(sentences) + 1}" if not line else f"line {line}"
            keys = [key for item in cited if (key := _key(item, hits, references))]
            claims = tuple(CitedClaim(key, bare(text)) for key in dict.fromkeys(keys))
            paragraph = Paragraph(text, len(sentences) + 1, place, line)
            if claims:
                sentences.append(CitingSentence(bare(text), paragraph, (0, len(text)), claims))
    if not sentences:
        raise BadInputError(f"{path}: no sentences with citations in it: {FORMS}")
    return Manuscript(str(path), tuple(references.values()), tuple(sentences))


def _answers(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the documents of a file, with their lines if there is one a line."""
    text = read_text(Source(str(path), path))
    is_one = path.name.lower().endswith(".json")
    documents = [(0, text)] if is_one else list(enumerate(text.splitlines(), 1))
    try:
        yield from ((line, parse_json(document.encode())) for line, document in documents if document.strip() or is_one)
    except ValueError as error:
        raise BadInputError(f"{path}: not JSON ({error}): {FORMS}") from None


def _hits(answer: Any) -> dict[int, Snippet]:
    """Return the hits of an answer of biorag's own by rank, which its citations name."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    found = {}
    for hit in hits if isinstance(hits, list) else []:
        if isinstance(hit, dict) and isinstance(hit.get("rank"), int):
            pmid, metadata = hit.get("pmid"), hit.get("metadata")
            fields = metadata if isinstance(metadata, dict) else {}
            title = hit["title"] if isinstance(hit.get("title"), str) else ""
            found[hit["rank"]] = Snippet(
                str(hit.get("id", "")), title, "", pmid if isinstance(pmid, int) else None, fields
            )
    return found


def _cited_sentences(value: Any, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the texts that have citations beside them, wherever they stand; a hit or a citation is none."""
    if isinstance(value, list) and depth:
        for item in value:
            yield from _cited_sentences(item, depth - 1)
    elif isinstance(value, dict) and depth:
        cited = next((value[name] for name in _CITED if isinstance(value.get(name), list)), None)
        text = next((value[name] for name in ("text", "sentence") if isinstance(value.get(name), str)), "")
        if text.strip() and cited is not None:
            yield text, cited
            return
        for name, item in value.items():
            if name not in ("hits", "citations", "items", "metadata"):
                yield from _cited_sentences(item, depth - 1)


def _key(item: Any, hits: Mapping[int, Snippet], references: dict[str, ListedReference]) -> str:
    """Return the key of what a sentence cites: a hit's number, a PMID, or an object with one; "" for anything else."""
    if isinstance(item, dict):
        item = next((item[name] for name in ("pmid", "PMID", "id", "n") if item.get(name)), None)
    digits = re.fullmatch(r"(?:PMID:?\s*)?(\d{1,9})", str(item).strip(), re.IGNORECASE)
    if not digits or isinstance(item, bool) or not int(digits[1]):
        return ""
    number = int(digits[1])
    if number in hits:
        read = reference_of(hits[number])
        key, text = str(number), citation(read) if read.title else f"PMID {read.pmid or read.id}"
    else:
        read = Reference("", "", "", Genre.OTHER, number)
        key = text = f"PMID {number}"
    references.setdefault(key, ListedReference(key, text, read, is_record=True))
    return key
