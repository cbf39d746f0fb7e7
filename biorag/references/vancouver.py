"""Vancouver references, as NLM's Citing Medicine and the ICMJE's sample references have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from biorag.references.reference import Author, Genre, Reference, reference_of
from biorag.types import Hit

MOST_AUTHORS = 6
FIRST_WORDS = 12  # of a text without a title
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def vancouver(hits: Sequence[Hit]) -> str:
    """Return the references of hits, each once, with the ranks of its hits, which an answer's citations name."""
    ranks: dict[str, list[int]] = {}
    for hit in hits:
        ranks.setdefault(citation(reference_of(hit.snippet)), []).append(hit.rank)
    return "".join(f"{', '.join(map(str, numbers))}. {text}\n" for text, numbers in ranks.items())


def citation(reference: Reference) -> str:
    """Return one reference: "Rose ME, … Schiding JK, et al. Title. Brain Res. 2002;935(1-2):40-6. PMID: …"."""
    # One without a title has its first words in brackets, as Citing Medicine has it.
    words = reference.abstract.split()
    first = f"[{' '.join(words[:FIRST_WORDS])}{' …' if len(words) > FIRST_WORDS else ''}]" if words else reference.id
    title = reference.title or first
    journal = reference.abbreviation or reference.journal
    within = f"In: {journal}" if reference.genre is Genre.CHAPTER and journal else journal
    doi = reference.doi and f"doi: {reference.doi}"
    pmid = f"PMID: {reference.pmid}" if reference.pmid else ""
    numbers = filter(None, (pmid, reference.pmcid and f"PMCID: {reference.pmcid}"))
    parts = [authors(reference.authors), title, within, _published(reference), doi, "; ".join(numbers)]
    return " ".join(map(_sentence, filter(None, [*parts, *reference.notes])))


def authors(authors: Sequence[Author]) -> str:
    """Return the first six authors, then "et al."; groups stand after a semicolon where persons stand before them."""
    text = ""
    for before, author in zip([None, *authors], authors[:MOST_AUTHORS], strict=False):
        mark = "; " if before and author.group != before.group else ", "
        text += (mark if before else "") + author.name
    return f"{text}, et al" if len(authors) > MOST_AUTHORS else text


def _published(reference: Reference) -> str:
    """Return "2002 Jul 25;347(4):284-7", as far as it is known."""
    date = reference.date
    dated = " ".join([*map(str, date[:1]), *(MONTHS[month - 1] for month in date[1:2]), *map(str, date[2:])])
    volume = reference.volume + (f"({reference.issue})" if reference.issue else "")
    where = volume + (f":{shortened(*reference.page_range)}" if reference.pages else "")
    return ";".join(filter(None, (dated, where)))


def shortened(first: str, last: str) -> str:
    """Return a range of pages, the last without the digits that it shares with the first: "284-7"."""
    if not last or first == last:
        return first
    same = 0
    if first.isdigit() and last.isdigit() and len(first) == len(last):
        same = len(list(takewhile(lambda digits: digits[0] == digits[1], zip(first, last, strict=True))))
    return f"{first}-{last[same:]}"


def _sentence(text: str) -> str:
    return text if re.search(r"[.?!]\Z", text) else f"{text}."
