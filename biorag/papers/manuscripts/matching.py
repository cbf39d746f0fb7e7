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
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from biorag.corpus.enriching import Find
from biorag.corpus.joining import same_name
from biorag.indexes.reading import snippets_where
from biorag.papers.manuscripts.manuscript import ListedReference
from biorag.references.authors import cited_authors
from biorag.references.journals import SMALL_WORDS, same_journal
from biorag.references.reading import Place, place_in, without_numbers
from biorag.references.reference import Reference, reference_of, unmarked
from biorag.types import AnyOf, FieldFilter, Index, IndexQuery, Snippet
from biorag.utils.progress import batched
from biorag.utils.text import squeezed

CANDIDATES = 10  # records found by the words of a reference, among which its title is looked for
AT_ONCE = 64  # searches
MOST_OF_PAPER = 1000  # snippets of one paper
SAME, ALIKE = 0.93, 0.8  # shares of letters that two titles have in common: the same, and another wording of it
LEAST_LETTERS = 20  # of a title that is known without an author or a year
# Issues and pages, among which a volume is not looked for.
_NO_VOLUME = re.compile(
    r"\([^()]{0,60}\)|\bnos?\.?\s?\d+|(?::|\bpp?\.)\s?\w{1,8}|\w{1,8}\s?[-–—]+\s?\w{1,8}", re.IGNORECASE
)
_FIRST_PAGE = re.compile(r"[A-Za-z]{0,8}\d+")
_GREEK = str.maketrans(
    {"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "κ": "kappa", "ω": "omega", "μ": "mu", "µ": "mu"}
)


class Difference(NamedTuple):
    """A field that manuscript and record state differently."""

    field: str
    manuscript: str
    record: str


@dataclass(frozen=True, slots=True)
class Match:
    """What a reference was matched with: the snippets of its record, none if there is no such record.

    `differences` are of the record, which lacks the fields `uncompared`; `foreign` are identifiers of another record,
    each with that one's title. `service` is what was asked for a record that the index lacks.
    """

    reference: ListedReference
    snippets: tuple[Snippet, ...] = ()
    differences: tuple[Difference, ...] = ()
    foreign: tuple[Difference, ...] = ()
    uncompared: tuple[str, ...] = ()
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
    by_title = _of_titles(references, index)
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


def _of_titles(references: Sequence[ListedReference], index: Index) -> dict[str, Snippet]:
    """Return the records that have the titles of references, by key; of those without one by all of their text."""
    records: dict[str, Snippet] = {}
    for words_of in (_words, lambda reference: _words(reference) and without_numbers(reference.text)):
        lacking = [reference for reference in references if words_of(reference) and reference.key not in records]
        for batch in batched(lacking, AT_ONCE):
            rankings = index.search([IndexQuery(words_of(reference), CANDIDATES) for reference in batch])
            snippets = index.fetch(sorted({scored.id for ranking in rankings for scored in ranking}))
            read = {id: (reference_of(snippet), snippet) for id, snippet in snippets.items()}
            for reference, ranking in zip(batch, rankings, strict=True):
                candidates = [read[scored.id] for scored in ranking if scored.id in read]
                if record := _of_title(reference, candidates):
                    records[reference.key] = record
    return records


def _doi(snippet: Snippet | None) -> str:
    return reference_of(snippet).doi.lower() if snippet else ""


def _words(reference: ListedReference) -> str:
    """Return the words by which a reference is searched for; "" of one that is a number alone."""
    return (reference.read.title or without_numbers(reference.text)) if reference.text != reference.key else ""


def _of_title(reference: ListedReference, candidates: Sequence[tuple[Reference, Snippet]]) -> Snippet | None:
    """Return the record that has a reference's title, of several the one that agrees most otherwise."""
    ranked: list[tuple[tuple[float, bool, int, bool], Comparison, Snippet]] = []
    for record, snippet in candidates:
        if find_title(reference, record).likeness >= ALIKE:
            same, own = compared(reference, record), _plain_title(f"{reference.read.title} {reference.text}")
            is_begun = _plain_title(unmarked(record.title)) not in own
            is_retracted = snippet.retracted and all(same.agreements) and not is_begun
            # The nearest title comes first; of records of one paper, that which says that it was retracted.
            ranked.append(((-same.likeness, not is_retracted, len(same.differences), is_begun), same, snippet))
    for (*_, is_begun), same, snippet in sorted(ranked, key=itemgetter(0)):
        agreements, is_long = same.agreements, len(squeezed(snippet.title)) >= LEAST_LETTERS
        # Another paper may have a title that begins alike: a year alone does not outweigh two fields that differ.
        is_near = same.likeness < 1
        is_apart = (is_begun or is_near) and len(same.differences) > 1 + is_near
        is_same = not is_apart and (not is_near or (same.likeness >= SAME and not agreements))
        agrees = any(agreements) if is_long else agreements and all(agreements)
        if (agrees and (len(agreements) > 1 or not is_apart)) or (is_long and is_same):
            return snippet
    return None


def _match(
    reference: ListedReference,
    of_numbers: Mapping[str, Snippet | None],
    of_title: Snippet | None,
    whole: Callable[[Snippet], Sequence[Snippet]],
) -> Match:
    """Return the match of a reference by what its PMID, its DOI and its title found; `whole` finds all of a record."""
    stated = {"PMID": str(reference.read.pmid), "DOI": reference.read.doi}
    named = {field: snippet for field, snippet in of_numbers.items() if snippet}
    own = [snippet for snippet in named.values() if _is_same(reference, snippet, of_title)]
    record = own[0] if own else of_title
    foreign = [Difference(field, stated[field], _named(one)) for field, one in named.items() if one not in own]
    if record is None:
        return Match(reference, foreign=tuple(foreign))
    same = compared(reference, reference_of(record))
    fields = {one.field for one in foreign}
    others = [of_title] if of_title and of_title.retracted and not record.retracted else []
    differences = tuple(one for one in same.differences if one.field not in fields)
    return Match(reference, (*whole(record), *others), differences, tuple(foreign), same.uncompared)


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
    same = compared(reference, reference_of(snippet))
    if of_title is not None and _paper(of_title) != _paper(snippet) and same.likeness < 1:
        return False
    if not snippet.title or not _words(reference) or same.likeness >= ALIKE:
        return True
    agreements = same.agreements
    is_described = all(agreements) and len(agreements) > 1 if reference.read.title else all(agreements)
    return of_title is None and is_described


def _paper(snippet: Snippet) -> str:
    return str(snippet.pmid or _doi(snippet) or snippet.document)


def _named(snippet: Snippet) -> str:
    """Return the title and the year of a record, for a message."""
    record = reference_of(snippet)
    noted = ", ".join(filter(None, [record.year, "retracted" if record.retracted else ""]))
    return f"{record.title or record.id}{f' ({noted})' if noted else ''}"


# --- comparison


class TitleMatch(NamedTuple):
    """A record's title in a reference: how far it is there, from 0 to 1, its words there, and the text around them."""

    likeness: float
    title: str
    before: str = ""
    after: str = ""


class Comparison(NamedTuple):
    """What a reference and a record have in common; `agreements` are of first author and year, where both have them.

    `uncompared` are fields that the reference states and the record lacks.
    """

    likeness: float
    differences: tuple[Difference, ...]
    agreements: tuple[bool, ...]
    uncompared: tuple[str, ...]


@lru_cache(4096)
def _plain_title(text: str) -> str:
    return squeezed(text.lower().translate(_GREEK))


def find_title(reference: ListedReference, record: Reference) -> TitleMatch:
    """Return where a reference has a record's title: its letters in one piece, else the words that come nearest."""
    record = replace(record, title=unmarked(record.title))
    own, wanted = _plain_title(unmarked(reference.read.title)), _plain_title(record.title)
    text = "" if reference.is_record else without_numbers(reference.text)
    begins = len(own) >= LEAST_LETTERS and wanted.startswith(own)  # a subtitle may be left out
    likeness = 1.0 if wanted and (wanted == own or begins) else 0.0
    if not wanted or not text:
        ratio = SequenceMatcher(None, wanted[:400], own[:400], autojunk=False).ratio() if wanted else 0.0
        return TitleMatch(likeness or ratio, reference.read.title, text, text)
    if span := _piece(text, wanted):
        return _whole_title(text, span, record)
    start, end = (begins and _piece(text, own)) or (0, 0)
    if not end or not _is_journal(place_in(text[end:]).journal, record):
        nearest = _nearest_words(text, record.title)
        ratio = SequenceMatcher(None, wanted[:400], _plain_title(text[slice(*nearest)])[:400], autojunk=False).ratio()
        if ratio >= max(ALIKE, 2 * len(own) / len(own + wanted)) or not end:  # nearer than without its subtitle
            likeness, (start, end) = ratio, nearest
    if likeness < ALIKE:
        return TitleMatch(likeness, reference.read.title, text, text)
    return TitleMatch(likeness, text[start:end], text[:start], text[end:])


@lru_cache(AT_ONCE)
def _letters(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the letters and digits of a text as titles are compared, and the place of each."""
    plain = [(letter, place) for place, character in enumerate(text) for letter in _plain_title(character)]
    return "".join(letter for letter, _ in plain), tuple(place for _, place in plain)


def _piece(text: str, wanted: str) -> tuple[int, int] | None:
    """Return where a text has letters in one piece."""
    letters, places = _letters(text)
    start = letters.find(wanted) if len(wanted) >= 8 else -1
    return (places[start], places[start + len(wanted) - 1] + 1) if start >= 0 else None


def _whole_title(text: str, span: tuple[int, int], record: Reference) -> TitleMatch:
    """Return the title that a reference has at a place, which may be longer than the record's."""
    start, end = span
    before, after = text[:start], text[end:].lstrip("”\"'’)]»")
    is_first = not re.search(r"[^\W\d_]\s*\Z", before)
    is_last = len(after) < len(text) - end or bool(re.match(r"\s*(?:\Z|[.?!,(;]|(?:19|20)\d\d)", after))
    if not (is_last or record.title.rstrip().endswith(("?", "!")) or _is_journal(place_in(after).journal, record)):
        rest = re.search(r"[.?!;,\d]", after)
        after = after[rest.start() :] if rest else ""
        return TitleMatch(SAME, text[start : len(text) - len(after)], before, after)
    return TitleMatch(1.0 if is_first and is_last else SAME, text[start:end], before, after)


def _nearest_words(text: str, title: str) -> tuple[int, int]:
    """Return where the words of a text come nearest to those of a title; nowhere if they share less than half."""
    (plain, places), (wanted, _) = _plain_words(text), _plain_words(title)
    if 2 * len(set(wanted) & set(plain)) < len(set(wanted)):
        return 0, 0
    anchor = SequenceMatcher(None, plain, wanted, autojunk=False).find_longest_match()
    low = max(0, anchor.a - anchor.b - 3)
    around = SequenceMatcher(None, plain[low : low + len(wanted) + 6], wanted, autojunk=False)
    blocks = [block for block in around.get_matching_blocks() if block.size]
    start = max(0, low + blocks[0].a - blocks[0].b)
    end = min(len(plain), low + blocks[-1].a + len(wanted) - blocks[-1].b)
    return places[start][0], places[end - 1][1]


@lru_cache(AT_ONCE)
def _plain_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the words of a text as titles are compared, and their places."""
    words = list(re.finditer(r"[^\W_]+(?:[-–’'‐‑][^\W_]+)*", text))
    return [_plain_title(word[0]) for word in words], [word.span() for word in words]


def _same_words(own: str, other: str) -> bool:
    """Return whether two titles differ in spelling and small words alone, not as "increases" and "decreases"."""
    words = [re.findall(r"[^\W_]+", title.lower()) for title in (own, other)]
    for kind, start, end, other_start, other_end in SequenceMatcher(None, words[0], words[1], False).get_opcodes():
        one, two = words[0][start:end], words[1][other_start:other_end]
        if kind == "equal" or "".join(one) == "".join(two) or SMALL_WORDS.issuperset([*one, *two]):
            continue
        if len(one) != len(two) or not all(map(_spelled_alike, one, two)):
            return False
    return True


def _spelled_alike(one: str, two: str) -> bool:
    is_word = min(len(one), len(two)) > 3 and not any(map(str.isdigit, one + two))
    return is_word and one[0] == two[0] and SequenceMatcher(None, one, two).ratio() > ALIKE


def compared(reference: ListedReference, record: Reference) -> Comparison:
    """Return how far a reference has a record's title, and the fields that both state, and not alike."""
    titled = find_title(reference, record)
    if titled.after and not re.search(r"[^\W\d_]", titled.before):  # the title may stand before the authors
        after = titled.after.lstrip(" .,:;")
        end = cited_authors(after)[1]
        if end and not _is_journal(after[:end], record):
            titled = titled._replace(before=after[:end], after=after[end:])
    names = list(_compared_names(reference, record, titled))
    places = list(_compared_place(reference, record, titled))
    stated = [one for one in (*names, *places) if one[1] and one[2]]
    return Comparison(
        titled.likeness,
        tuple(Difference(field, own, other) for field, own, other, agrees in stated if not agrees),
        tuple(agrees for field, _, _, agrees in stated if field in ("first author", "year")),
        tuple(field for field, own, other, _ in (*names[:-2], *places) if own and not other),
    )


Compared: TypeAlias = tuple[str, str, str, bool]  # a field, what a reference and a record state, and whether both agree


def _compared_names(reference: ListedReference, record: Reference, titled: TitleMatch) -> Iterator[Compared]:
    """Yield title, first author and identifiers."""
    read = reference.read
    if reference.text != reference.key and titled.title:
        is_same = titled.likeness == 1 or (
            titled.likeness >= SAME and _same_words(titled.title, unmarked(record.title))
        )
        yield "title", titled.title, record.title, is_same
    if record.authors and not record.authors[0].group:
        family, is_group = record.authors[0].family, bool(read.authors and read.authors[0].group)
        own = read.authors[0].family if read.authors and not is_group else ""
        first, *_ = re.split(r"[,;&]|\b(?:and|et\sal)\b|\d", titled.before[:200])
        words = re.findall(r"[^\W\d_]+", first)
        names = {squeezed("".join(words[n:end])) for n in range(len(words)) for end in range(n + 1, len(words) + 1)}
        agrees = squeezed(family) in names or same_name(own or " ".join(words), family)
        is_stated = reference.is_record or (words and not is_group)
        yield "first author", (own or " ".join(words)) if is_stated else "", family, agrees
    yield "PMID", str(read.pmid or ""), str(record.pmid or ""), read.pmid == record.pmid
    yield "DOI", read.doi, record.doi.lower(), read.doi == record.doi.lower()


def _compared_place(reference: ListedReference, record: Reference, titled: TitleMatch) -> Iterator[Compared]:
    """Yield year, journal, volume and pages."""
    read, own = reference.read, place_in(titled.after)
    if reference.is_record or titled.before == titled.after:
        own = Place(read.date[:1], read.journal, read.volume, read.pages)
    years = place_in(titled.before).years[:1] or own.years[:1] or read.date[:1]
    year = str(next(iter(years), ""))
    yield "year", year, record.year, year == record.year
    journal = own.journal or read.journal
    yield "journal", journal, record.journal or record.abbreviation, _is_journal(journal, record)
    volume, volumes = own.volume or read.volume, {*map(int, re.findall(r"\d{1,9}", record.volume))}
    others = re.findall(r"\d{1,9}", f"{volume} {_NO_VOLUME.sub(' ', titled.after)}")
    is_known = volumes or not record.volume
    yield "volume", volume if is_known else "", record.volume, not volumes.isdisjoint(map(int, others))
    pages, numbers = own.pages or read.pages, () if own.pages else _FIRST_PAGE.findall(titled.after)
    first, stated = ((_FIRST_PAGE.findall(one) or [one])[0].lower() for one in (record.pages, pages))
    yield "pages", pages, record.pages, first in (stated, *map(str.lower, numbers))


def _is_journal(name: str, record: Reference) -> bool:
    """Return whether a name may be of a record's journal."""
    return any(same_journal(name, one) for one in (record.journal, record.abbreviation) if one)
