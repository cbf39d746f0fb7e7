"""The marks of a manuscript, and what each cites its reference for.

Marks are numbers in brackets, in round brackets where there are no others, or raised; authors with a year; PMIDs and
DOIs; and the keys of LaTeX and pandoc. Patterns have bounded lengths, so that any text takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from biorag.corpus.budget import draw
from biorag.corpus.sentences import sentence_spans
from biorag.papers.manuscripts.manuscript import (
    CLOSE,
    OPEN,
    CitedClaim,
    CitingSentence,
    ListedReference,
    Paragraph,
    bare,
)
from biorag.references.authors import FAMILY
from biorag.references.reference import Genre, Reference
from biorag.utils.text import squeezed

MOST_BEYOND = 10  # by which a number in round brackets that is a mark may be beyond the list
MOST_IN_RANGE = 100  # references that "[1-9]" may stand for
LEAST_WORDS = 3  # of what others are said to have found
LEAST_SHORT = 3  # letters of a group's short name
LEAST_LETTERS, MOST_NAMESAKES = 4, 100  # of a name with which texts begin; texts of one name and year
LEAST_CLAUSE = 5  # words of a clause that is judged without the rest of its sentence
_YEAR = r"(?:(?:19|20)\d\d[a-z]?|n\.\s?d\.|in press|forthcoming)"
_WIDE = str.maketrans("（）［］；，：", "()[];,:")
_ITEM = r"\^?\d{1,4}(?:\s{0,2}[-–—−]\s{0,2}\d{1,4})?"
NUMBERS = rf"{_ITEM}(?:\s{{0,2}}[,;]\s{{0,2}}{_ITEM}){{0,60}}"
_NUMBER_LIST = re.compile(NUMBERS)
_RAISED = re.compile(rf"{OPEN}([^{OPEN}{CLOSE}]{{1,400}}){CLOSE}")
_SUPERSCRIPT = re.compile(r"(?<![⁺⁻])[⁰¹²³⁴-⁹]{1,4}(?:[,˒⁻–-]\s?[⁰¹²³⁴-⁹]{1,4}){0,60}")
_SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹˒⁻", "0123456789,-")
_BRACKET = re.compile(r"\[([^\[\]]{1,400})\](?:\(#[^()\s]{0,100}\))?")
_LOCATOR = r"(?:[,:]\s{0,2}[^\W\d_][^\[\]();,:]{0,40}?\d[\w–-]{0,20}){0,3}"  # "p. 5", "Table 2"
_SEE = r"(?:(?:but\s|also\s)?see(?:\salso)?|cf\.?|e\.g\.,?|refs?\.?|vgl\.|siehe|voir|véase)"
# In round brackets stand numbers of other things too.
_PLACE = (
    r"(?:[,:]\s{0,2}(?:pp?|tables?|figs?|figures?|chap\w{0,5}|sect\w{0,5}|box|eq\w{0,6})\b\.?\s?\w[\w–-]{0,20}){0,3}"
)
_LOCATED = rf"(?:{_SEE}\s){{0,2}}{NUMBERS}{_LOCATOR}"
_NUMBERED = re.compile(rf"{_LOCATED}(?:;\s?{_LOCATED}){{0,20}}", re.IGNORECASE)
_WITHOUT = re.compile(rf"(?<=\d){_LOCATOR}(?=;|\Z)|[^\W\d_][^;\d]{{0,20}}(?=\d)")
_ROUND = re.compile(rf"(?<=[\s\w.,;])\(((?:{_SEE}\s){{0,2}}{NUMBERS}{_PLACE})\)(?![\w%(])", re.IGNORECASE)
_REFERRED = re.compile(
    rf"\(?\b(?:see\s)?(?:refs?\.|refs|references?)\s?({NUMBERS}(?:\sand\s{_ITEM})?)\)?", re.IGNORECASE
)
_PAREN = re.compile(r"\(([^()]{5,600})\)")
_NOTES = r"(?:\[[^\[\]]{0,200}\]|\([^()]{0,200}\)){0,4}"  # before and after what is cited
_KEYS = rf"{_NOTES}\{{[^{{}}]{{1,400}}\}}"
LATEX_CITE = re.compile(rf"\\[A-Za-z]{{0,12}}cite(?:[A-Za-z]{{0,11}}s(?:{_KEYS}){{1,30}}|[A-Za-z]{{0,12}}\*?{_KEYS})")
_SUBJECT = re.compile(r"\\(?:[Cc]itet|[Cc]itealt|[Tt]extcite|citeauthor|[Cc]iteA)\b")
_PANDOC = re.compile(r"(?<![\w@])-?@\{?(\w[\w:.#$%&+?<>~/-]{0,100}\w|\w)")
_AND, _ET_AL = r"(?:&|and|und|et|y|e|i|en|og|och|и)", r"\s(?:et\sal|[ye]\scols?|i\swsp|и\sдр|u\.\s?a)\b\.?"
_NAMED = re.compile(
    rf"({FAMILY})((?:{_ET_AL}|,?\s{_AND}\s{FAMILY}|,\s{FAMILY}){{0,6}})(?:,\s?|\s)\(?({_YEAR}(?:\s?[,;]\s?{_YEAR}|\s?,\s?[a-z]\b(?!\.|\s?\d)){{0,6}})"
)
_DATED = re.compile(rf"\s?\(({_YEAR}(?:\s?[,;]\s?{_YEAR}){{0,6}})(?:[,:]\s?[^();]{{1,60}})?\)")
_NAMES_BEFORE = re.compile(
    rf"({FAMILY})(?:'s|’s)?((?:{_ET_AL}|,?\s{_AND}\s(?:{FAMILY}|colleagues|co-?workers)|,\s{FAMILY}){{0,6}})\Z"
)
_PMIDS = re.compile(
    r"[(\[]?\bPMIDs?\b\s?[:#]?\s?(\d{1,9}(?:\s?(?:,|;|and)\s?(?:PMID\s?:?\s?)?\d{1,9}){0,30})[)\]]?", re.IGNORECASE
)
_LINK = re.compile(
    r"[(\[<]?(?:https?://(?:dx\.|www\.)?doi\.org/|\bdoi\s?:\s?)(10\.[0-9]{4,9}/[^\s\"<>{}|\\^`()\[\]]{1,200}(?:\([^\s()]{1,40}\)[^\s\"<>()\[\]]{0,40})?)[)\]>]?"
    r"|[(\[<]?https?://pubmed\.ncbi\.nlm\.nih\.gov/(\d{1,9})/?[)\]>]?",
    re.IGNORECASE,
)
_EXPONENT = re.compile(r"(?:(?<![\d.])10|[×^]\s?\d{1,3})\Z")
_UNIT = re.compile(r"(?:(?<![A-Za-z])(?:[kcmdµμn]?m|in|ft|[RrIixXns]|[χλσ])|\Wm)\Z")
_REPORTED = re.compile(
    r"\A.{0,120}?\b(?:show(?:ed|n|s)?|found|finds|report(?:ed|s)?|demonstrat(?:ed|es?)|observed|conclud(?:ed|es?)|"
    r"suggest(?:ed|s)?|noted|confirm(?:ed|s)?|reveal(?:ed|s)?|indicat(?:ed|es?)|estimat(?:ed|es?)|established)\s+that\s+",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:not|no|never|failed|nor|without|un\w+)\b|n['’]t\b", re.IGNORECASE)
_OPENING = re.compile(
    r"\A(?:(?:in addition|additionally|moreover|furthermore|likewise|similarly|interestingly|importantly|notably|"
    r"of note|indeed|however|thus|therefore|in contrast|by contrast|on the other hand|for (?:example|instance))\s*,\s*|"
    r"there is (?:\w+ ){0,3}evidence that\s+)",
    re.IGNORECASE,
)
_NAMES_LEAD = re.compile(
    rf"\A(?:(?:and|while|whereas|but)\s)?{FAMILY}(?:\sand\s{FAMILY}|\set\sal\.?|\sand\scolleagues){{0,2}}\s*,?\s+(?=[a-z])"
)
_JOINT = re.compile(
    r"\A[\s,;:–—-]*(?:(?:and|but|or|nor|whereas|while|although|though|however|yet|whilst|as well as)\b[\s,]*)?",
    re.IGNORECASE,
)
_NEW_CLAUSE = re.compile(
    r"\A\s*(?:[,;:–—]\s*(?:and|but|or|nor|whereas|while|although|though|however|yet|with|which)?\b|(?:and|but|whereas|while|although|though)\b)",
    re.IGNORECASE,
)
_NO_SUBJECT = re.compile(
    r"\A(?:is|are|was|were|has|have|had|does|do|did|can|may|might|will|could|should|not|also|\w+(?:ed|izes|ises)|reduces?|"
    r"increases?|lowers?|improves?|decreases?|prevents?|causes?|in|of|for|with|by|to|on|at|among|from|between)\b"
)
_LEFT_OVER = re.compile(
    r"(?:[\s.,;:(–-]|\s(?:and|but|or|whereas|while|although|though|however)(?=[\s,]*\Z)){1,20}\Z", re.IGNORECASE
)
_OTHERS = re.compile(r"\b(?:et\sal\.?|colleagues)[\s,]*\Z")
_AS = re.compile(r"(?:\A|\W)(?:as|see|by|of|from|in|with|like|also|cf\.?)\s*\Z", re.IGNORECASE)
_ADJUNCT = re.compile(
    r"\A\s*(?:in|among|for|with|during|after|before|compared|unlike|according|since|following|by|at|on|as|like|such)\b",
    re.IGNORECASE,
)


class Mark(NamedTuple):
    r"""A citation mark: its place, the keys of the references that it names, and the parts that name none.

    One that `leads` follows a name, or with `is_subject` is one: "Smith (2019) showed", "\citet{smith} showed".
    """

    start: int
    end: int
    keys: tuple[str, ...]
    unlisted: tuple[str, ...] = ()
    leads: bool = False
    is_subject: bool = False


class Register:
    """The references of a manuscript, as marks name them; those that a mark brings itself are added.

    With `round_numbers` numbers in round brackets are marks.
    """

    def __init__(self, references: Sequence[ListedReference], paragraphs: Sequence[Paragraph]) -> None:
        self._order = {reference.key: reference for reference in reversed(references)}  # the first of a key counts
        self._order = {reference.key: self._order[reference.key] for reference in references}
        self._has_records = any(reference.is_record for reference in references)
        self._numbers = {reference.key for reference in references if not reference.is_record}
        self._identifiers = {
            identifier: key for key, one in self._order.items() for identifier in (one.read.pmid, one.read.doi)
        }
        self._years: dict[str, dict[str, list[ListedReference]]] = {}
        self._begins: dict[str, list[tuple[str, int, ListedReference]]] = {}
        for number, reference in enumerate(references):
            draw()
            years = re.findall(rf"\b{_YEAR}(?!\w)", reference.text) + [str(part) for part in reference.read.date[:1]]
            family = reference.read.authors[0].family.split() if reference.read.authors else []
            names = {squeezed(" ".join(family[n:])) for n in range(len(family))}  # but for particles
            is_group = not reference.read.authors or reference.read.authors[0].group
            words = reference.text.partition(".")[0].split() if is_group else []
            if len(short := "".join(word[0] for word in words if word[0].isupper())) >= LEAST_SHORT:
                names.add(squeezed(short))
            begins = squeezed(reference.text[:200])
            for year in dict.fromkeys(years):
                for name in names:
                    self._years.setdefault(year, {}).setdefault(name, []).append(reference)
                self._begins.setdefault(year, []).append((begins, number, reference))
        for texts in self._begins.values():
            texts.sort(key=itemgetter(0, 1))
        self._round = False
        self._round = not any(self.marks(one.text, of_numbers=True) for one in paragraphs)

    @property
    def all(self) -> tuple[ListedReference, ...]:
        """All references, in their order."""
        return tuple(self._order.values())

    def marks(self, text: str, of_numbers: bool = False) -> list[Mark]:
        """Return the marks of a text in their order; only numbers in brackets or raised, if asked for."""
        text = text.translate(_WIDE)
        finders = [self._of_latex, self._raised, self._bracketed]
        if not of_numbers:
            finders += [self._referred, self._identified, self._parenthesised, self._narrative, self._of_pandoc]
        marks: list[Mark] = []
        taken = bytearray(len(text) + 1)
        for finder in finders:
            draw()
            for mark in finder(text):
                draw(citations=1 + len(mark.keys))
                if (mark.keys or mark.unlisted) and not any(taken[mark.start : mark.end]):
                    taken[mark.start : mark.end] = b"\1" * (mark.end - mark.start)
                    marks.append(mark)
        return sorted(mark for mark in marks if not (of_numbers and text[mark.start] == "\\"))

    def _raised(self, text: str) -> Iterator[Mark]:
        for match in (*_RAISED.finditer(text), *_SUPERSCRIPT.finditer(text)):
            content = (match[1] if match.re is _RAISED else match[0].translate(_SMALL)).strip(" \t[]()")
            before = text[max(0, match.start() - 12) : match.start()]
            after = text[match.end() : match.end() + 1]
            if _NUMBER_LIST.fullmatch(content) and not after.isalnum() and after not in tuple("⁺⁻"):  # ¹⁴C, Ca²⁺
                is_power = _EXPONENT.search(before) or (content in ("2", "3", "4") and _UNIT.search(before))
                yield self._mark_of_numbers(match, content) if not is_power else Mark(*match.span(), ())

    def _mark_of_numbers(self, match: re.Match[str], content: str) -> Mark:
        """Return the mark of a list of numbers, perhaps with locators; those that are not listed are told."""
        named = _numbered(_WITHOUT.sub("", content))
        keys = tuple(key for key in named if key in self._numbers)
        lacking = tuple(key for key in named if key not in self._numbers) if keys else (bare(match[0]),)
        is_mark = bool(self._order) and "0" not in named  # "[0, 1]" is an interval
        return Mark(*match.span(), keys if is_mark else (), lacking if is_mark else ())

    def _referred(self, text: str) -> Iterator[Mark]:
        for match in _REFERRED.finditer(text):
            yield self._mark_of_numbers(match, match[1])

    def _bracketed(self, text: str) -> Iterator[Mark]:
        for match in _BRACKET.finditer(text):
            content = match[1].strip()
            if _NUMBERED.fullmatch(content):
                is_name = text[match.end() : match.end() + 1].isalpha()  # "[1,2,4]triazole"
                yield Mark(*match.span(), ()) if is_name else self._mark_of_numbers(match, content)
            elif content.startswith("^") and " " not in content:
                yield self._mark_of_keys(match, [content[1:]], "[^{}]")
            elif "@" in content:
                yield self._mark_of_keys(match, map(self._key, _PANDOC.findall(content)), "@{}")
            else:
                yield from self._with_years(match)

    def _mark_of_keys(self, match: re.Match[str], keys: Iterable[str], shown: str) -> Mark:
        """Return the mark of keys; those that are not listed are told as `shown` has them."""
        keys = list(filter(None, keys))
        lacking = (shown.format(key) for key in keys if key not in self._order)
        is_subject = bool(_SUBJECT.match(match[0]))
        return Mark(*match.span(), tuple(filter(self._order.get, keys)), tuple(lacking), is_subject, is_subject)

    def _key(self, key: str) -> str:
        """Return a key of pandoc's, without the sentence's stop if it is listed so."""
        stripped = key.rstrip(".,:;")
        return stripped if key not in self._order and stripped in self._order else key

    def _of_latex(self, text: str) -> Iterator[Mark]:
        for match in LATEX_CITE.finditer(text):
            groups = re.findall(r"\{([^{}]+)\}", re.sub(r"\[[^\[\]]*\]", "", match[0]))
            yield self._mark_of_keys(match, [key.strip() for group in groups for key in group.split(",")], "{}")

    def _of_pandoc(self, text: str) -> Iterator[Mark]:
        for match in _PANDOC.finditer(text):
            key = self._key(match[1])
            is_listed = key in self._order
            end = match.start() + match[0].rindex(key) + len(key) if is_listed else match.end()
            lacking = () if is_listed or not self._has_records else (match[0],)
            yield Mark(match.start(), end, (key,) if is_listed else (), lacking, is_listed, is_listed)

    def _identified(self, text: str) -> Iterator[Mark]:
        for match in _PMIDS.finditer(text):
            pmids = filter(None, map(int, re.findall(r"\d+", match[1])))
            yield Mark(*match.span(), tuple(map(self._identified_by, pmids)))
        for match in _LINK.finditer(text):
            doi = (match[1] or "").rstrip(".,;:")
            cut = len(match[1] or "") - len(doi)
            key = self._identified_by(doi.lower() or int(match[2]))
            yield Mark(match.start(), match.end() - cut, (key,))

    def _identified_by(self, identifier: int | str) -> str:
        """Return the key of the reference that a PMID or a DOI names, which is added if it is not listed."""
        if key := self._identifiers.get(identifier):
            return key
        pmid, doi = (identifier, "") if isinstance(identifier, int) else (None, identifier)
        key = f"PMID {pmid}" if pmid else f"doi:{doi}"
        self._order.setdefault(key, ListedReference(key, key, Reference("", "", "", Genre.OTHER, pmid, doi=doi)))
        return key

    def _parenthesised(self, text: str) -> Iterator[Mark]:
        if self._round:
            for match in _ROUND.finditer(text):
                if all(int(number) <= len(self._numbers) + MOST_BEYOND for number in re.findall(r"\d+", match[1])):
                    yield self._mark_of_numbers(match, match[1])
        for match in _PAREN.finditer(text):
            yield from self._with_years(match)

    def _with_years(self, match: re.Match[str]) -> Iterator[Mark]:
        """Yield the mark of brackets that hold authors with years, if they do."""
        keys: list[str] = []
        lacking: list[str] = []
        for part in re.sub(r"\s?\[[^\[\]]{1,20}\]", "", match[1]).split(";"):  # "Organization [WHO], 2012"
            for named in _NAMED.finditer(part):
                is_mark = bool(named[2]) or named.end() == len(part.rstrip()) or part[named.end()] in ",:"
                before = part[max(0, named.start(3) - 80) : named.start(3)]  # of a group, with small words
                for year in _years(named[3]):
                    key = self._named(named[1], named[2], year) or self._named(before, "", year)
                    if key:
                        keys.append(key)
                    elif is_mark and self._years:
                        lacking.append(f"{named[1]}{named[2]}, {year}")
        if keys or lacking:
            yield Mark(match.start(), match.end(), tuple(dict.fromkeys(keys)), tuple(dict.fromkeys(lacking)))

    def _narrative(self, text: str) -> Iterator[Mark]:
        for match in _DATED.finditer(text):
            before = text[max(0, match.start() - 80) : match.start()]
            last = before.rpartition(" ")[2]
            can_name = last[:1].isupper() or last in ("al", "al.", "colleagues", "coworkers", "co-workers")
            if names := _NAMES_BEFORE.search(before) if can_name else None:
                listed = [(year, self._named(names[1], names[2], year)) for year in _years(match[1])]
                is_mark = bool(names[2] or self._round) and bool(self._years)
                lacking = [f"{names[0]} ({year})" for year, key in listed if not key and is_mark]
                yield Mark(match.start(), match.end(), tuple(key for _, key in listed if key), tuple(lacking), True)

    def _named(self, name: str, others: str, year: str) -> str:
        """Return the key of the one reference of this year whose first author has this name; "" if there is none.

        A second name decides between several.
        """
        words = name.split()
        asked = [squeezed(" ".join(words[n:])) for n in range(len(words))]  # "As Smith": a sentence may begin with it
        candidates = next(filter(None, (self._with_name(each, year) for each in asked if len(each) > 1)), [])
        if not candidates and len(year) > 4 and (plain := [self._with_name(each, year[:4]) for each in asked]):
            candidates = next((those[ord(year[4]) - ord("a") :] for those in plain if those), [])
        if len(candidates) > 1 and others and "al" not in others.split():
            second = squeezed(re.split(r"\s(?:&|and)\s", others)[-1])
            candidates = [one for one in candidates[:MOST_NAMESAKES] if second in squeezed(one.text)] or candidates
        return candidates[0].key if candidates else ""

    def _with_name(self, name: str, year: str) -> Sequence[ListedReference]:
        """Return the references of a year whose first author, or whose text, begins with a name."""
        if authors := self._years.get(year, {}).get(name):
            return authors
        texts = self._begins.get(year, []) if len(name) >= LEAST_LETTERS else []
        start = bisect_left(texts, name, key=itemgetter(0))
        same = takewhile(lambda each: each[0].startswith(name), texts[start : start + MOST_NAMESAKES])
        return [reference for _, _, reference in sorted(same, key=itemgetter(1))]


@lru_cache
def _numbered(numbers: str) -> tuple[str, ...]:
    """Return the keys that a list of numbers may name."""
    keys: list[str] = []
    for item in re.split(r"[,;]|\sand\s", numbers):
        first, *last = (int(number) for number in re.findall(r"\d+", item)[:2])
        end = last[0] if last else first
        keys += map(str, range(first, end + 1 if 0 <= end - first < MOST_IN_RANGE else first))
    return tuple(dict.fromkeys(keys))


def _years(text: str) -> list[str]:
    """Return the years of "2019a, b, 2020"."""
    years: list[str] = []
    for part in re.findall(rf"{_YEAR}|\b[a-z]\b", text):
        years.append(part if len(part) > 1 else years[-1][:4] + part)
    return years


def citing_sentences(paragraph: Paragraph, register: Register) -> Iterator[CitingSentence]:
    """Yield the sentences of a paragraph that have marks, each mark with the clause that it stands behind."""
    marks = register.marks(paragraph.text)
    if not marks:
        return
    plain = _Unmarked(paragraph.text, marks)
    spans = sentence_spans(plain.text) or [(0, 0)]
    starts = [start for start, _ in spans]
    by_sentence: dict[int, list[int]] = {}
    for n, place in enumerate(plain.places):
        sentence = max(0, bisect_right(starts, place) - 1)
        by_sentence.setdefault(max(0, sentence - (place == starts[sentence])), []).append(
            n
        )  # a mark may follow the stop
    for sentence, numbers in by_sentence.items():
        start, end = spans[sentence]
        ends = [marks[n].end for n in numbers]
        span = (min(plain.origin(start), marks[numbers[0]].start), max(plain.origin(end), *ends))
        groups = _grouped(plain.text, [(min(max(plain.places[n], start), end), marks[n]) for n in numbers])
        placed = [(place - start, mark) for place, mark in groups]
        yield CitingSentence(
            bare(paragraph.text[slice(*span)]),
            paragraph,
            span,
            tuple(dict.fromkeys(_claims(plain.text[start:end], placed))),
            tuple(text for n in numbers for text in marks[n].unlisted),
        )


class _Unmarked:
    """A text without its marks, the `places` in it where they stood, and where in the original a place is."""

    def __init__(self, text: str, marks: Sequence[Mark]) -> None:
        self.places: list[int] = []
        pieces: list[str] = []
        self._starts, self._origins = [0], [0]
        length = end = 0
        for mark in marks:
            piece = text[end : mark.start]
            following = text[mark.end : mark.end + 1]
            if mark.is_subject:
                piece += "They"  # so that the sentence has one
            elif not following or following in " \n\t.,;:)?!":
                piece = piece.rstrip(" ")
            pieces.append(piece)
            length, end = length + len(piece), mark.end
            self.places.append(length)
            self._starts.append(length)
            self._origins.append(end)
        self.text = "".join([*pieces, text[end:]])

    def origin(self, place: int) -> int:
        """Return the place in the original; where a mark stood, behind it."""
        piece = bisect_right(self._starts, place) - 1
        return self._origins[piece] + place - self._starts[piece]


def _grouped(text: str, placed: Sequence[tuple[int, Mark]]) -> list[tuple[int, Mark]]:
    """Return marks with their places, those with nothing between them as one."""
    groups: list[tuple[int, Mark]] = []
    for place, mark in placed:
        draw()
        between = text[groups[-1][0] : place].strip() if groups else "-"
        if groups and not between.strip(",;–-"):
            first, before = groups[-1]
            inner = _range(before.keys, mark.keys) if between in ("–", "-") else []
            keys = (*before.keys, *inner, *mark.keys)
            groups[-1] = first, before._replace(keys=tuple(dict.fromkeys(keys)))
        else:
            groups.append((place, mark))
    return groups


def _range(first: Sequence[str], last: Sequence[str]) -> list[str]:
    """Return the numbers between "[1]" and "[3]" of "[1]-[3]"."""
    ends = [*first[-1:], *last[:1]]
    is_range = len(ends) == 2 and all(end.isdecimal() for end in ends) and int(ends[1]) - int(ends[0]) < MOST_IN_RANGE
    return list(map(str, range(int(ends[0]) + 1, int(ends[1])))) if is_range else []


def _claims(sentence: str, groups: Sequence[tuple[int, Mark]]) -> Iterator[CitedClaim]:
    """Yield what a sentence cites each reference for: a clause where its marks part it into some, else the sentence.

    A mark after a name stands before its clause: "Smith et al. [1] found …".
    """
    bounds = [0, *(place for place, _ in groups), len(sentence)]
    whole = _worded(sentence)
    for n, (place, mark) in enumerate(groups):
        before, after = sentence[bounds[n] : place], sentence[place : bounds[n + 2]]
        names = _NAMES_BEFORE.search(before[-120:])
        clause = ""
        is_aside = bool(names and place and _AS.search(before[: len(before) - len(names[0])]))
        if (mark.leads or (names and names[2])) and not is_aside:
            following = _NAMES_BEFORE.search(after[-120:]) if n + 1 < len(groups) else None
            clause = after[: len(after) - len(following[0])] if following else after
            clause = clause if len(clause.split()) >= LEAST_CLAUSE else ""
        else:
            is_last = n + 1 == len(groups)
            is_apart = not is_last or bool(_NEW_CLAUSE.match(after) and len(after.split()) >= LEAST_CLAUSE)
            joined = before if is_apart else sentence[bounds[n] :]
            stripped = joined[len(_JOINT.match(joined)[0]) :]  # type: ignore[index]
            clause = stripped if _is_clause(stripped, n == 0) else ""
        claim = _worded(clause) or whole
        yield from (CitedClaim(key, claim) for key in mark.keys)


def _worded(text: str) -> str:
    """Return what a sentence or a clause says, as a sentence; "" if nothing is left of it."""
    claim = _LEFT_OVER.sub("", _reported(bare(text))) or bare(text)
    claim = claim if claim.endswith((".", "?", "!")) or not claim else f"{claim}."
    return claim[:1].upper() + claim[1:]


def _is_clause(text: str, is_first: bool) -> bool:
    """Return whether a part of a sentence may be judged without the rest."""
    if len(text.split()) < LEAST_CLAUSE:
        return False
    return not (_ADJUNCT.match(text) if is_first else _NO_SUBJECT.match(text))


def _reported(claim: str) -> str:
    """Return what a sentence says that others found, without that they did."""
    claim = claim[opening.end() :] if (opening := _OPENING.match(claim)) else claim
    names = _NAMES_LEAD.match(claim)
    lead = _REPORTED.match(claim)
    if lead and not _DENIED.search(lead[0]) and len(claim[lead.end() :].split()) >= LEAST_WORDS:
        return claim[lead.end() :]
    return claim[names.end() :] if names and _OTHERS.search(names[0]) else claim
