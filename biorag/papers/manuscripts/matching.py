"""References of a manuscript matched with records: by PMID, DOI and title, and the fields in which both differ.

A title is the same where the reference's text has its letters and digits in one piece; where they differ, by the share
of them that both have. Journals are compared as abbreviations, first pages alone. What a reference does not state, or
the record lacks, is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import NamedTuple, TypeAlias
from unicodedata import normalize

from biorag.corpus.enriching import Find
from biorag.indexes.reading import snippets_where
from biorag.papers.manuscripts.listing import Place, place_in, without_numbers
from biorag.papers.manuscripts.manuscript import ListedReference, squeezed
from biorag.references.reference import Author, Reference, reference_of
from biorag.types import AnyOf, FieldFilter, Index, IndexQuery, Snippet
from biorag.utils.progress import batched

CANDIDATES = 10  # records found by the words of a reference, among which its title is looked for
AT_ONCE = 64  # searches
MOST_OF_PAPER = 1000  # snippets of one paper
SAME, ALIKE = 0.93, 0.8  # shares of letters that two titles have in common: the same, and another wording of it
LEAST_LETTERS = 20  # of a title that is known without an author or a year that agrees
_SMALL_WORDS = frozenset(("the", "of", "and", "in", "for", "on", "to", "de", "la", "et", "der", "und"))
_OF_NAMES = frozenset(("volume", "edition", "ed", "series", "section", "online", "print", "international", "journal"))
_WITH_INITIALS = re.compile(r"(.+\S)\s+[A-Z]{1,3}(?:\s(?:Jr|Sr|II|III))?")  # of a corpus that writes "Smith JA"
_GREEK = {"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "κ": "kappa", "ω": "omega", "μ": "mu", "µ": "mu"}


class Difference(NamedTuple):
    """A field that manuscript and record state differently."""

    field: str
    manuscript: str
    record: str


@dataclass(frozen=True, slots=True)
class Match:
    """What a reference was matched with: the snippets of its record, none if there is no such record.

    `differences` are of the record; `foreign` are identifiers of another record, each with that one's title. `service`
    is what was asked for a record that the index lacks.
    """

    reference: ListedReference
    snippets: tuple[Snippet, ...] = ()
    differences: tuple[Difference, ...] = ()
    foreign: tuple[Difference, ...] = ()
    service: str = ""

    @property
    def record(self) -> Reference | None:
        """The record's reference."""
        return reference_of(self.snippets[0]) if self.snippets else None


def matched(references: Sequence[ListedReference], index: Index, dimension: int) -> list[Match]:
    """Match references with the records of an index; `dimension` is that of its dense vectors."""

    def stored(where: FieldFilter | AnyOf, records: int) -> list[Snippet]:
        return snippets_where(index, dimension, (where,), MOST_OF_PAPER + records * 20) if records else []

    def whole(snippet: Snippet) -> Sequence[Snippet]:
        """Return all snippets of the paper that a snippet is of."""
        file, document = snippet.metadata.get("file"), snippet.document
        fields = {"pmid": snippet.pmid, "file": file if isinstance(file, str) else "", "document": document}
        field, value = next((field, value) for field, value in fields.items() if value)
        is_alone = field == "document" and document == snippet.id
        snippets = [] if is_alone else stored(FieldFilter(field, "=", value), 1)
        return sorted(snippets, key=lambda snippet: snippet.id) or [snippet]

    pmids = sorted({reference.read.pmid for reference in references if reference.read.pmid})
    by_pmid = {snippet.pmid: snippet for snippet in stored(FieldFilter("pmid", "in", tuple(pmids)), len(pmids))}
    by_title = {
        reference.key: _of_title(reference, candidates) for reference, candidates in _nearest(references, index)
    }
    lacking = (one.read.doi for one in references if _doi(by_title.get(one.key)) != one.read.doi)
    dois = sorted(set(filter(None, lacking)))
    by_doi = {
        _doi(snippet): snippet
        for snippet in stored(AnyOf(tuple((FieldFilter("doi", "=", doi),) for doi in dois)), len(dois))
    }
    return [
        _match(
            reference,
            {"PMID": by_pmid.get(reference.read.pmid or 0), "DOI": by_doi.get(reference.read.doi)},
            by_title.get(reference.key),
            whole,
        )
        for reference in references
    ]


def _nearest(
    references: Sequence[ListedReference], index: Index
) -> Iterator[tuple[ListedReference, Sequence[Snippet]]]:
    """Yield each reference that has words with the snippets whose words come nearest to them."""
    for batch in batched([reference for reference in references if _words(reference)], AT_ONCE):
        rankings = index.search([IndexQuery(_words(reference), CANDIDATES) for reference in batch])
        snippets = index.fetch(sorted({scored.id for ranking in rankings for scored in ranking}))
        for reference, ranking in zip(batch, rankings, strict=True):
            yield reference, [snippets[scored.id] for scored in ranking if scored.id in snippets]


def _doi(snippet: Snippet | None) -> str:
    return reference_of(snippet).doi.lower() if snippet else ""


def _words(reference: ListedReference) -> str:
    """Return the words by which a reference is searched for; "" of one that is a number alone."""
    return (reference.read.title or without_numbers(reference.text)) if reference.text != reference.key else ""


def _of_title(reference: ListedReference, candidates: Sequence[Snippet]) -> Snippet | None:
    """Return the record that has a reference's title, of several the one that agrees most otherwise."""
    same = [(likeness, one) for one in candidates if (likeness := title_likeness(reference, one.title)) >= ALIKE]
    ranked = sorted(same, key=lambda pair: (-pair[0], len(differences(reference, reference_of(pair[1])))))
    for likeness, snippet in ranked:
        record = reference_of(snippet)
        agreements = _agreements(reference, record)
        is_long = len(squeezed(record.title)) >= LEAST_LETTERS
        if any(agreements) or (is_long and (likeness == 1 or (likeness >= SAME and not agreements))):
            return snippet
    return None


def _agreements(reference: ListedReference, record: Reference) -> list[bool]:
    """Return whether the first author and the year agree, each where both state it."""
    fields = {one.field for one in differences(reference, record)}
    stated = {
        "first author": record.authors and _family(record.authors[0]) and reference.read.authors,
        "year": record.date and reference.read.date,
    }
    return [name not in fields for name, is_stated in stated.items() if is_stated]


def _match(
    reference: ListedReference,
    of_numbers: Mapping[str, Snippet | None],
    of_title: Snippet | None,
    whole: Callable[[Snippet], Sequence[Snippet]],
) -> Match:
    """Return the match of a reference by what its PMID, its DOI and its title found; `whole` finds all of a record."""
    stated = {"PMID": str(reference.read.pmid), "DOI": reference.read.doi}
    named = {field: snippet for field, snippet in of_numbers.items() if snippet}
    same = [snippet for snippet in named.values() if _is_same(reference, snippet, of_title)]
    record = same[0] if same else of_title
    foreign = [
        Difference(field, stated[field], _named(snippet)) for field, snippet in named.items() if snippet not in same
    ]
    if record is None:
        return Match(reference, foreign=tuple(foreign))
    lacking = differences(reference, reference_of(record))
    fields = {one.field for one in foreign}
    return Match(
        reference, tuple(whole(record)), tuple(one for one in lacking if one.field not in fields), tuple(foreign)
    )


def asked(match: Match, find: Find, service: str) -> Match:
    """Return a match of a reference that the index lacks with a service's record, by its numbers, else by title."""
    reference, read = match.reference, match.reference.read
    known = {one.field for one in match.foreign}
    of_numbers: dict[str, Snippet | None] = {}
    for field, name, value in (("PMID", "pmid", read.pmid), ("DOI", "doi", read.doi)):
        if value and field not in known:
            of_numbers[field] = snippet = find("", {name: value})
            if snippet and _is_same(reference, snippet, None):
                of_title = None
                break
    else:
        of_title = find(read.title, {}) if read.title else None
    from_service = _match(reference, of_numbers, of_title, lambda snippet: [snippet])
    lacking = tuple(one for one in from_service.differences if one.field not in known)
    return replace(from_service, differences=lacking, foreign=(*match.foreign, *from_service.foreign), service=service)


def _is_same(reference: ListedReference, snippet: Snippet, of_title: Snippet | None) -> bool:
    """Return whether a record that an identifier names is of the paper that a reference describes."""
    if of_title is not None and _paper(of_title) != _paper(snippet) and title_likeness(reference, snippet.title) < 1:
        return False
    if not snippet.title or not _words(reference):
        return True
    if title_likeness(reference, snippet.title) >= ALIKE:
        return True
    agreements = _agreements(reference, reference_of(snippet))
    is_described = all(agreements) and len(agreements) > 1 if reference.read.title else all(agreements)
    return of_title is None and is_described


def _paper(snippet: Snippet) -> str:
    return str(snippet.pmid or _doi(snippet) or snippet.document)


def _named(snippet: Snippet) -> str:
    """Return the title and the year of a record, for a message."""
    record = reference_of(snippet)
    return f"{record.title or record.id}{f' ({record.year})' if record.year else ''}"


# --- comparison


def _plain_title(text: str) -> str:
    for letter, name in _GREEK.items():
        text = text.replace(letter, name)
    return squeezed(text)


def title_likeness(reference: ListedReference, title: str) -> float:
    """Return how far a reference has a title, from 0 to 1: its letters in one piece, or the share of them in order."""
    wanted, own = _plain_title(title), _plain_title(reference.read.title)
    if not wanted:
        return 0.0
    if wanted == own or (len(own) >= LEAST_LETTERS and wanted.startswith(own)):  # a subtitle may be left out
        return 1.0
    if span := title_span(reference, title):
        after = without_numbers(reference.text)[span[1] :].lstrip("”\"'’)]")
        if re.match(r"\s*(?:\Z|[.?!,(]|(?:19|20)\d\d)", after) or title.rstrip().endswith((".", "?", "!")):
            return 1.0
    if not own:
        return SAME if span else 0.0
    return SequenceMatcher(None, wanted[:400], own[:400], autojunk=False).ratio()


def _same_words(own: str, other: str) -> bool:
    """Return whether two titles differ in spelling and small words alone, not as "increases" and "decreases"."""
    words = [re.findall(r"[^\W_]+", title.lower()) for title in (own, other)]
    for kind, start, end, other_start, other_end in SequenceMatcher(None, words[0], words[1], False).get_opcodes():
        one, two = words[0][start:end], words[1][other_start:other_end]
        if kind == "equal" or "".join(one) == "".join(two) or _SMALL_WORDS.issuperset([*one, *two]):
            continue
        if len(one) != len(two) or not all(map(_spelled_alike, one, two)):
            return False
    return True


def _spelled_alike(one: str, two: str) -> bool:
    is_word = min(len(one), len(two)) > 3 and not any(map(str.isdigit, one + two))
    return is_word and one[0] == two[0] and SequenceMatcher(None, one, two).ratio() > ALIKE


def title_span(reference: ListedReference, title: str) -> tuple[int, int] | None:
    """Return where a reference's text, without its numbers, has the letters of a title in one piece."""
    text, wanted = without_numbers(reference.text), _plain_title(title)
    letters, places = [], []
    for place, character in enumerate(text):
        plain = _plain_title(character)
        letters.append(plain)
        places += [place] * len(plain)
    start = "".join(letters).find(wanted) if len(wanted) >= 8 else -1
    return (places[start], places[start + len(wanted) - 1] + 1) if start >= 0 else None


def differences(reference: ListedReference, record: Reference) -> list[Difference]:
    """Return the fields that a reference and a record both state, and not alike."""
    text = without_numbers(reference.text)
    span = title_span(reference, record.title) if record.title else None
    before, tail = (text[: span[0]], text[span[1] :]) if span else (text, text)
    compared = (*_compared_names(reference, record, before), *_compared_place(reference, record, tail, bool(span)))
    return [Difference(field, own, other) for field, own, other, agrees in compared if own and other and not agrees]


Compared: TypeAlias = tuple[str, str, str, bool]  # a field, what a reference and a record state, and whether both agree


def _compared_names(reference: ListedReference, record: Reference, before: str) -> Iterator[Compared]:
    """Yield title, first author and identifiers; `before` is what stands before the title."""
    read = reference.read
    if reference.text != reference.key and read.title:
        likeness = title_likeness(reference, record.title)
        is_same = likeness == 1 or (likeness >= SAME and _same_words(read.title, record.title))
        yield "title", read.title, record.title, is_same
    if record.authors and (family := _family(record.authors[0])):
        first = read.authors[0].family if read.authors else ""
        begins = squeezed(before[:80]).startswith(squeezed(family))
        yield "first author", first, family, begins or _same_name(first, family)
    yield "PMID", str(read.pmid or ""), str(record.pmid or ""), read.pmid == record.pmid
    yield "DOI", read.doi, record.doi.lower(), read.doi == record.doi.lower()


def _compared_place(reference: ListedReference, record: Reference, tail: str, is_after: bool) -> Iterator[Compared]:
    """Yield year, journal, volume and pages; `tail` is what follows the title, or the whole text if not `is_after`."""
    read = reference.read
    own = Place(read.date[:1], read.journal, read.volume, read.pages)
    if is_after and not reference.is_record:
        own = place_in(tail)
    year = str(next(iter(read.date or own.years), ""))
    yield "year", year, record.year, year == record.year
    journal, journals = own.journal or read.journal, [name for name in (record.journal, record.abbreviation) if name]
    is_named = is_after and any(squeezed(name) in squeezed(tail) for name in journals)
    yield (
        "journal",
        journal,
        next(iter(journals), ""),
        is_named or any(same_journal(journal, name) for name in journals),
    )
    numbers = re.findall(r"[A-Za-z]{0,2}\d+", tail)
    volume, pages = own.volume or read.volume, own.pages or read.pages
    yield "volume", volume, record.volume, record.volume in (volume, *numbers)
    first, stated = record.page_range[0], replace(record, pages=pages).page_range[0]
    yield "pages", pages, record.pages, squeezed(first) in map(squeezed, (stated, *numbers))


def _family(author: Author) -> str:
    """Return a person's family name; "" of a group."""
    initials = _WITH_INITIALS.fullmatch(author.family) if author.group else None
    return initials[1] if initials else "" if author.group else author.family


def _same_name(own: str, other: str) -> bool:
    """Return whether two family names are the same but for accents, particles and a second name."""
    parts = [set(filter(None, map(squeezed, re.split(r"[\s-]", name)))) for name in (own, other)]
    return bool(parts[0] and parts[1] and (parts[0] <= parts[1] or parts[1] <= parts[0])) or squeezed(own) == squeezed(
        other
    )


def same_journal(own: str, other: str) -> bool:
    """Return whether two names may be of one journal: alike, or one an abbreviation of the other."""
    names = [_journal_words(own), _journal_words(other)]
    if not all(names) or squeezed("".join(names[0])) == squeezed("".join(names[1])):
        return True
    short, long = sorted(names, key=lambda words: (len(words), sum(map(len, words))))
    return _abbreviates(short, long) or (len(short) == 1 and _is_acronym(short[0], long))


def _journal_words(name: str) -> list[str]:
    plain = normalize("NFKD", re.sub(r"\([^()]*\)|:.*", " ", name))
    return [word for word in re.findall(r"[^\W_]+", plain.lower().replace("&", " ")) if word not in _SMALL_WORDS]


def _abbreviates(short: Sequence[str], long: Sequence[str]) -> bool:
    """Return whether each word of one name begins as the next word of the other and has letters of it, in order.

    The longer may end in words such as "volume".
    """
    if len(short) > len(long) or not _OF_NAMES.issuperset(long[len(short) :]):
        return False
    return all(_shortens(one, other) or _shortens(other, one) for one, other in zip(short, long, strict=False))


def _shortens(word: str, other: str) -> bool:
    letters = iter(other)
    return word[0] == other[0] and all(letter in letters for letter in word)


def _is_acronym(word: str, words: Sequence[str]) -> bool:
    return len(word) > 2 and "".join(one[0] for one in words).startswith(word)
