"""References beside papers: the record of a reference manager that is of a file's paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from biorag.corpus.readers import read_snippets, with_values
from biorag.corpus.sources import Source
from biorag.types import Snippet

LEAST_WORDS = 3  # of a title by which records are joined
KEPT = 8  # sets of files whose records are kept


def joined(source: Source, title: str, facts: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """Return a paper's title and facts, and whether they are those of its records, else its own.

    What the record beside the file lacks is that of the record that was fetched.
    """
    beside = _record_of(source, title, facts)
    records = [*([beside] if beside else []), *(_records_in(source.record)[:1] if source.record else [])]
    fields = dict(facts)
    for record in reversed(records):
        fields |= with_values({**record.metadata, "pmid": record.pmid})
    return records[0].title if records else title or source.stem, fields, bool(records)


def _records_in(file: Path) -> list[Snippet]:
    return list(read_snippets(Source(file.name, file), lambda reject: None))


def _record_of(source: Source, title: str, facts: Mapping[str, Any]) -> Snippet | None:
    """Return the record of a paper among those of files beside it: by DOI, PMID or title, or a file of its own name."""
    records = _records(tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in source.beside))
    for key in record_keys(title, facts, facts.get("pmid")):
        if key in records:
            return records[key]
    alone = next((_records_in(path) for path in source.beside if path.stem == source.stem), [])
    return alone[0] if len(alone) == 1 else None


@lru_cache(KEPT)
def _records(files: tuple[tuple[Path, int, int], ...]) -> dict[str, Snippet]:
    """Return the records of files, of which the times and sizes tell whether they are as they were, by their keys."""
    records: dict[str, Snippet] = {}
    for path, _, _ in files:
        for snippet in _records_in(path):
            for key in record_keys(snippet.title, snippet.metadata, snippet.pmid):
                records.setdefault(key, snippet)
    return records


def record_keys(title: str, facts: Mapping[str, Any], pmid: object) -> Iterator[str]:
    """Yield the keys by which a paper's records and pages are known to be of one: DOI, PMID, title."""
    if doi := facts.get("doi"):
        yield f"doi {str(doi).lower()}"
    if pmid:
        yield f"pmid {pmid}"
    if key := title_key(title):
        yield f"title {key}"


def title_key(title: str) -> str:
    """Return the letters and digits of a title, by which records are joined; "" for one of few words."""
    words = re.findall(r"\w+", title.lower())
    return "".join(words) if len(words) >= LEAST_WORDS else ""
