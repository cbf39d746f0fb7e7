"""Records of one paper: that of a reference manager beside a file, and copies in exports of several databases."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from biorag.corpus.budget import Budget
from biorag.corpus.readers import OnReject, Reject, read_snippets, with_values
from biorag.corpus.sources import Source
from biorag.references.reference import Reference, reference_of, unmarked
from biorag.types import Snippet
from biorag.utils.text import squeezed

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


def faults_beside(source: Source) -> list[str]:
    """Return where references beside a file cannot be read, and why."""
    return _records(_beside(source))[1]


def _records_in(file: Path, on_reject: OnReject = lambda reject: None) -> list[Snippet]:
    with Budget(file.name):  # its time is not the paper's
        return list(read_snippets(Source(str(file), file), on_reject))


def _record_of(source: Source, title: str, facts: Mapping[str, Any]) -> Snippet | None:
    """Return the record of a paper among those of files beside it: by DOI, PMID or title, or a file of its own name."""
    records, _ = _records(beside := _beside(source))
    for key in record_keys(title, facts, facts.get("pmid")):
        if key in records:
            return records[key]
    alone = next((_records_in(path) for path, _, _ in beside if path.stem == source.stem), [])
    return alone[0] if len(alone) == 1 else None


def _beside(source: Source) -> tuple[tuple[Path, int, int], ...]:
    """Return the files of references beside a file with their times and sizes."""
    beside = [path for path in source.beside if os.path.isfile(path)]  # noqa: PTH113 - not links to nothing
    return tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in beside)


@lru_cache(KEPT)
def _records(files: tuple[tuple[Path, int, int], ...]) -> tuple[dict[str, Snippet], list[str]]:
    """Return the records of files as they are at these times, by their keys, and the faults of what is no record."""
    records: dict[str, Snippet] = {}
    faults: list[Reject] = []
    for path, _, _ in files:
        for snippet in _records_in(path, faults.append):
            for key in record_keys(snippet.title, snippet.metadata, snippet.pmid):
                records.setdefault(key, snippet)
    return records, [f"{fault.file}, {fault.unit} {fault.line}: {fault.reason}" for fault in faults]


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
    return squeezed(unmarked(title)) if len(re.findall(r"\w+", title)) >= LEAST_WORDS else ""


def paper_numbers(snippets: Sequence[Snippet]) -> list[int]:
    """Return for each snippet the place of the first one that is of the same paper.

    Those of one document, PMID or DOI are; and those of one title, unless they state another year or first author. Two
    of PubMed's own records that share a title must state both.
    """
    records = [reference_of(snippet) for snippet in snippets]
    keys = [{*record_keys(one.title, {"doi": one.doi}, one.pmid)} for one in records]
    numbers = list(range(len(snippets)))
    for first, other in combinations(numbers, 2):
        shared = keys[first] & keys[other]
        if snippets[first].document == snippets[other].document or (
            any(not key.startswith("title ") for key in shared) or (shared and _agree(records[first], records[other]))
        ):
            joint = sorted((numbers[first], numbers[other]))
            numbers = [joint[0] if number == joint[1] else number for number in numbers]
    return numbers


def _agree(own: Reference, other: Reference) -> bool:
    """Return whether records of one title may be of one paper by their year, first author and PMID."""
    names = [one.authors[0].family if one.authors else "" for one in (own, other)]
    stated = [all(names), bool(own.year and other.year)]
    differ = (stated[0] and not same_name(*names)) or (stated[1] and own.year != other.year)
    return not differ and (all(stated) or not (own.pmid and other.pmid))


def same_name(own: str, other: str) -> bool:
    """Return whether two family names are the same but for accents, particles and a second name."""
    parts = [set(filter(None, map(squeezed, re.split(r"[\s-]", name)))) for name in (own, other)]
    return bool(parts[0] and parts[1] and (parts[0] <= parts[1] or parts[1] <= parts[0]))
