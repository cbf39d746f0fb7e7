"""The lines of a paper's pages by their place and letters: front matter, notices, running heads, and its text.

Text is what a reader would quote: paragraphs, headings and tables apart from each other, sentences whole on one page.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from statistics import median
from typing import NamedTuple

from biorag.answering.guards.words import rarity, stems
from biorag.corpus.budget import draw
from biorag.corpus.sentences import sentence_starts
from biorag.papers.files.headings import LIST_HEADING
from biorag.utils.text import whole

EDGE = 4  # rows at the top and at the bottom of a page that may be a running head
LONGEST_HEAD = 140  # characters of a running head
LONGEST_HEADING = 100
OTHER_SIZE = 0.4  # points by which letters are of another size
GAP = 1.5  # distances of lines that part a paragraph from the next
MOST_NOTICE = 12  # lines that continue a notice in small print
TITLE_SIZE = 1.2  # of the size of most letters, at least
PROSE_WORDS, MOST_PROSE_LINES = 18, 8  # by which a paragraph is told from names and addresses
SMALL_WORDS, FEWEST_WORDS = 0.6, 4  # of the words of prose, at least, begin with small letters; of a line of it
FULL = 0.8  # of the longest lines of a paragraph, at least, has one that the next one continues
COVER = 25  # lines of a page before a paper, at most
EARLY = 0.4  # of a paper, where a heading of references may be one of a table of contents
LONGEST_MOVED = 1000  # characters of a sentence that move to the page where it begins
YEAR = r"(?P<year>(?:19|20)[0-9]{2})"
_VOLUME = r"(?P<volume>[0-9]{1,4})"
_ISSUE = r"\s*\((?P<issue>[^)]{1,12})\)"
_PAGES = r"(?P<pages>[A-Za-z]{0,2}[0-9]+(?:\s*[-–]\s*[A-Za-z]{0,2}[0-9]+)?)"
_MONTH = r"(?:\s*(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?(?:\s+[0-9]{1,2})?)?"
# Where in a journal a paper stands, as publishers print it: the telling forms first.
PLACES = tuple(
    re.compile(form)
    for form in (
        rf"\(?\b{YEAR}\)?{_MONTH}\s*[;,:.]?\s*{_VOLUME}(?:{_ISSUE})?\s*[:,]\s*{_PAGES}",
        rf"\b{YEAR},\s*[Vv]ol\.\s*{_VOLUME},\s*[Nn]o\.\s*(?P<issue>[0-9]+),?\s+{_PAGES}",
        rf"\b{YEAR}(?:\s*[;:]\s*|,\s*(?=[0-9]+,?\s*\()){_VOLUME},?(?:{_ISSUE}|\s)\s*{_PAGES}",
        rf"\b{_VOLUME}(?:{_ISSUE})?\s*,?\s*\(?{YEAR}(?:\)\s*[:,]?|\s*,)\s*{_PAGES}",
        rf"\b{_VOLUME}(?:{_ISSUE})?\s*[:,]\s*{_PAGES},\s*(?:[A-Z][a-z]+\s)?{YEAR}",
        rf"\b[Vv]ol(?:ume|\.)?\s*(?:No\.?\s*)?(?:{_VOLUME}|[IVXLC]+\b)\.?\s*(?:[,|;]\s*(?:[Ii]ssue|[Nn]o\.?|[Nn]umber)\s*(?P<issue>[0-9]+))?"
        rf"(?:\s*[,|;]?\s*\(?(?:[0-9]{{1,2}}\s+)?(?:[A-Z][a-z]+\s+)?{YEAR}\)?)?"
        rf"(?:\s*[,|;:]\s*(?:[Pp]ages?|[Pp]p?\.|[Aa]rticle)?\s*{_PAGES})?",
        rf"\b{_VOLUME}{_ISSUE}\s*:\s*{_PAGES}",
        rf"\b{_VOLUME}:{_PAGES}(?=[.;,]?\s*(?:https?://)?(?i:doi))",
        rf"\b{_VOLUME}{_ISSUE}\s*,?\s*\(?{YEAR}\)?\s*$",
        rf"\b{_VOLUME}\s*\({YEAR}\)\s*$",
    )
)
_DATED = r"[^.\n]{0,40}\b(?:19|20)[0-9]{2}"
# How lines begin that tell of the paper and are none of its text.
_NOTICE = re.compile(
    r"^\W*(?:[Cc]opyright\b|COPYRIGHT|\([cC]\)\s*(?:19|20)|(?:doi|DOI|Doi)\b|(?:https?://|www\.)\S+|"
    r"[\w.-]+\.(?:com|org)/\S*$|"
    r"E-?[Mm]ails?\b|e-?mail\b|"
    r"Tel(?:ephone)?\b[.:]|Fax\b|Correspond(?:ence|ing [Aa]uthors?)\b|CORRESPONDENCE|Address (?:for )?[Cc]orrespond|"
    r"(?:Article history|Received|Revised|Accepted|Submitted|Posted|Available online|Published(?: online)?|"
    rf"First published)\b(?::|{_DATED})|"
    r"(?:Please |How to )?[Cc]ite (?:this|as)\b|To cite\b|Citation:|Key ?words?\b(?:\s*[:.—-]|\s*$|.*[·•;,|])|"
    r"K ?E ?Y ?W ?O ?R ?D ?S\b|"
    r"(?:e?ISSN|ORCID|PII)\b|Contents lists available|[Jj]ournal homepage|Downloaded from\b|Licensee\b|"
    r"(?:(?:Academic|Handling|Section) )?Editor(?:s|ed by)?:|Publisher['’]s [Nn]ote|"
    r"Open [Aa]ccess\b\W*(?:$|This)|OPEN ACCESS|"
    r"This (?:article|work|is an [Oo]pen)\b.{0,60}(?:open access|Open Access|distributed|licen[sc]ed)|"
    rf"[A-Z][A-Za-z .&]{{1,60}}\b{YEAR}\s*;\s*{_VOLUME}(?:{_ISSUE})?\s*:\s*{_PAGES}\.?\s*(?:$|doi)|"
    r"(?:bio|med)Rxiv preprint|[Aa]rXiv:|All rights reserved|Trial registration number)|^\W*©"
)
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+\.\w+")
_PAGE_NUMBER = re.compile(r"^\W*(?:[Pp]age\s*)?[0-9]{1,5}(?:\s*(?:/|of)\s*[0-9]{1,5})?\W*$")
_LINE_NUMBER = re.compile(r"\W*([0-9]{1,4})(?:\s+|$)")
_SPACED = r"a\s*b\s*s\s*t\s*r\s*a\s*c\s*t"
# What a paper's text begins with.
OPENING = re.compile(
    rf"^\W*(?:[0-9IVX]{{1,3}}\W{{1,2}})?(?:(?:{_SPACED}|summary|synopsis)\b(?!\s*(?-i:[a-z]))|"
    r"(?:background|introduction|objectives?|"
    r"purpose|aims?|importance|context|highlights|key points|what is (?:already )?known[\w ]*)\s*"
    r"(?:[:.—]|$|(?=\s[A-Z])))",
    re.IGNORECASE,
)
_SECTION = re.compile(
    rf"^\W*(?:[0-9IVX]{{1,4}}(?:\.[0-9]+)*\W{{1,3}})?(?:{_SPACED}|summary|background|introduction|objectives?|"
    r"design|setting|(?:(?:patients?|subjects?|participants?|materials?) and )?methods?|results?(?: and discussion)?|"
    r"findings|discussion|conclusions?|interpretation|limitations|acknowledge?ments?|funding|keywords)\W*$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^[1-9](?:\.[1-9])+\.?\s+[A-Z][^.]{2,}$")
_AFTER = re.compile(
    r"^\W*(?:appendix|appendices|supplement\w*|supporting information|figure legends?)\b", re.IGNORECASE
)
_IMPRINT = re.compile(r"^\W*(?:copyright|©|\(c\)|how to cite|cite this)", re.IGNORECASE)
_DOI_ALONE = re.compile(r"(?:doi:?\s*|https?://\S*)10\.\d{4,9}/\S+$", re.IGNORECASE)
_ENDED = re.compile(r"[.?!:][\"'”’)\]]*(?:\s*\[?[0-9]{1,3}(?:[,–-]\s*[0-9]{1,3})*\]?)?\s*$")
_OPEN = re.compile(r"(?:[,(]|\b(?:and|or|the|an?|of|in|to|with|by|for|from|than|that|was|were|is|are|had|no|not))$")
_DIGITS = re.compile(r"[0-9]+")
# Accents that stand beside their letters, as some fonts have them, what combines each, and letters often under it.
_ACCENTS = "¨´`ˆ˜ˇ¸˚¯"
_COMBINING = dict(zip(_ACCENTS, "\u0308\u0301\u0300\u0302\u0303\u030c\u0327\u030a\u0304", strict=True))
_BEARERS = dict(zip(_ACCENTS, ("aoueiy", "aeiouy", "aeiou", "aeiou", "nao", "scrze", "c", "a", "aeiou"), strict=True))
_ACCENT = re.compile(rf"([^\W\d_]?)( ?)([{_ACCENTS}])( ?)([^\W\d_]?)")
_AFTER_LETTER = re.compile(rf"[a-zı][{_ACCENTS}][a-z]")
# A word that was broken at the end of a line, or has its hyphen there; what follows of it.
_BROKEN = re.compile(r"(?<![\w-])([\w-]*[a-z])[-\u2010][^\S\n]*+\n\s*+(?=([a-z]+(?:-[a-z]+)*))")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_UNSEEN = re.compile(r"\0|\u00ad(?:[^\S\n]*+\n\s*+(?=[a-z]))?")


class Line(NamedTuple):
    """A line of a page: the size of its letters and its height above the page's foot, in points.

    `styled` ones are bold or italic, `turned` ones stand at a page's side; `level` is the text without raised letters.
    """

    text: str
    size: float
    height: float = 0.0
    styled: bool = False
    level: str = ""
    turned: bool = False


class PageLayout(NamedTuple):
    """The parts of a paper's pages: what is its text, what tells of it, and its list of references."""

    front: list[Line]  # before its text
    notices: list[str]  # heads, feet and notices of all pages
    texts: list[str]  # of each page, in paragraphs
    references: list[list[Line]]  # of each page
    words: Mapping[str, int]  # how often the paper has each, in small letters


class _Measures(NamedTuple):
    """The size of most letters of a paper's text, and the distance of its lines."""

    size: float
    leading: float

    def is_small(self, line: Line) -> bool:
        return line.size < self.size - OTHER_SIZE

    def is_body(self, line: Line) -> bool:
        return abs(line.size - self.size) <= OTHER_SIZE

    def is_gap(self, line: Line, following: Line) -> bool:
        """Whether there is a gap between a line and one below it."""
        smaller = min(line.size, following.size)
        return line.height - following.height > GAP * max(self.leading, 1.2 * smaller)

    def is_next(self, above: Line, line: Line) -> bool:
        """Whether a line is the next one of a paragraph."""
        is_other = abs(line.size - above.size) > OTHER_SIZE or line.height > above.height
        return not is_other and not self.is_gap(above, line)

    def is_within(self, above: Line, line: Line) -> bool:
        return self.is_next(above, line) and not _ENDED.search(above.text)


class _Paragraph(NamedTuple):
    lines: list[Line]
    is_body: bool


def laid_out(pages: Sequence[Sequence[Line]]) -> PageLayout:
    """Return the parts of a paper's pages."""
    kept, references, imprint = _without_references([_unnumbered(page) for page in pages])
    measures = _measured(kept)
    shapes = _repeated(kept)
    front: list[Line] = []
    notices: list[str] = []
    bodies: list[list[_Paragraph]] = []
    first = 1 if _is_cover(kept, measures) else 0
    for number, page in enumerate(kept):
        draw()
        aside = _edges(page, measures, shapes, EDGE if number <= first else 1) | _notices(page, measures)
        rest = [line for n, line in enumerate(page) if n not in aside]
        if number == first:
            front, rest = _front(rest, measures)
            front = front or list(page)
        notices += [line.text for n, line in enumerate(page) if n in aside or number < first]
        bodies.append(list(_paragraphs(rest, measures)))
    words = Counter(word for page in pages for line in page for word in _WORD.findall(line.text.lower()))
    texts = [[plain("\n".join(line.text for line in paragraph.lines), words) for paragraph in body] for body in bodies]
    for number in range(len(bodies) - 1):
        _join_sentence(bodies, texts, number, words)
    joined = ["\n\n".join(filter(None, paragraphs)) for paragraphs in texts]
    return PageLayout(front, [*notices, *imprint], joined, references, words)


def composed(text: str) -> str:
    """Return a text with its accents on their letters: on the one beside that is more often under such.

    Of two such, it is the one after the accent, as TeX sets them, unless a space parts it from that.
    """
    is_spaced = not _AFTER_LETTER.search(text)  # all accents of a font may have a space after them

    def compose(match: re.Match[str]) -> str:
        before, gap, accent, space, after = match.groups()
        first, last = _rank(before, accent), _rank(after, accent)
        in_word = match.string[match.start() - 1 : match.start()].isalpha() or (after and not space)
        if (gap and space) or (first and not in_word):  # a sign, as in "the point A´ and"
            return match[0]
        first *= not gap or before.islower()
        last *= (not space or after.islower()) and (accent != "`" or bool(before))
        if first > last or (first == last and first and space):
            space = "" if is_spaced and after.islower() else space
            return f"{_under(before, accent)}{space}{after}"
        return f"{before}{gap}{_under(after, accent)}" if last else match[0]

    return _ACCENT.sub(compose, text)


def _rank(letter: str, accent: str) -> int:
    """Return how likely a letter is under an accent: 3 for a dotless i, 2 if it often is, 1 if it may be, else 0."""
    often = 3 if letter == "ı" else 2 * (letter.lower() in _BEARERS[accent])
    return (often or len(_under(letter, accent)) == 1) if letter else 0


def _under(letter: str, accent: str) -> str:
    return unicodedata.normalize("NFC", letter.replace("ı", "i") + _COMBINING[accent])


def plain(text: str, words: Mapping[str, int]) -> str:
    """Return lines in one, words that were broken at lines' ends in one.

    A hyphen stays if the paper's `words` have it, or, of a word that they lack, if it parts known words that make none.
    """

    def joined(match: re.Match[str]) -> str:
        before, after = match.groups()
        hyphenated, joint = (words.get(f"{before}{mark}{after}".lower(), 0) for mark in ("-", ""))
        if not hyphenated and not joint and _OPEN.match(after):  # "dose- and time-dependent"
            return f"{before}- "
        last, first = before.rpartition("-")[2], after.partition("-")[0]
        is_compound = (last != before or _is_known(last)) and _is_known(first)  # "human-to-human"
        stays = hyphenated > joint or (not joint and is_compound and not _is_known(last + first))
        return f"{before}-" if stays else before

    return " ".join(_BROKEN.sub(joined, _UNSEEN.sub("", whole(text))).split())


def _is_known(word: str) -> bool:  # of abstracts
    return any(rarity(stem) < 1 for stem in stems(word))


def _unnumbered(page: Sequence[Line]) -> Sequence[Line]:
    """Return a page's lines without numbers, where most are numbered, as those of manuscripts."""
    matches = [_LINE_NUMBER.match(line.text) for line in page]
    numbers = [int(match[1]) if match else 0 for match in matches]
    if 2 * sum(after == before + 1 for before, after in pairwise(numbers)) < max(len(page), 2 * EDGE):
        return page
    return [
        line._replace(text=line.text[match.end() :], level=_LINE_NUMBER.sub("", line.level)) if match else line
        for line, match in zip(page, matches, strict=True)
        if not match or match.end() < len(line.text)
    ]


def _without_references(pages: Sequence[Sequence[Line]]) -> tuple[list[list[Line]], list[list[Line]], list[str]]:
    """Return the pages' lines without the list of references, those of the list, and the imprint within or after it."""
    bodies: list[list[Line]] = []
    listed: list[list[Line]] = []
    imprint: list[str] = []
    heading, inside = _list_heading(pages), False
    for page in pages:
        lines = []
        listed.append([])
        for line in page:
            if line is heading:
                inside = True
            elif inside and _AFTER.match(line.text):
                inside = False
            if not inside:
                lines.append(line)
            elif _IMPRINT.match(line.text):
                if listed[-1] and _DOI_ALONE.match(listed[-1][-1].text):
                    imprint.append(listed[-1].pop().text)
                imprint.append(line.text)
            elif line.text.endswith(".") or not (LIST_HEADING.fullmatch(line.text) or _PAGE_NUMBER.match(line.text)):
                listed[-1].append(line)
        bodies.append(lines)
    return bodies, listed, imprint


def _list_heading(pages: Sequence[Sequence[Line]]) -> Line | None:
    """Return the heading of the list of references: the first in the later part of a paper, else its last one."""
    lines = [line for page in pages for line in page]
    headings = {n: line for n, line in enumerate(lines) if LIST_HEADING.fullmatch(line.text)}
    later = (line for n, line in headings.items() if n > len(lines) * EARLY)
    return next(later, next(reversed(headings.values()), None))


def _measured(pages: Sequence[Sequence[Line]]) -> _Measures:
    sizes: Counter[float] = Counter()
    for page in pages:
        for line in page:
            sizes[line.size] += len(line.text)
    size = sizes.most_common(1)[0][0] if sizes else 0.0
    drops = [
        above.height - below.height
        for page in pages
        for above, below in pairwise(page)
        if above.size == below.size == size and 0 < above.height - below.height < 4 * size
    ]
    return _Measures(size, median(drops) if drops else 1.2 * size)


def _rows(page: Sequence[Line]) -> list[list[int]]:
    """Return the numbers of a page's lines by their height, the highest first."""
    rows: list[list[int]] = []
    for number in sorted(range(len(page)), key=lambda n: -page[n].height):
        if rows and page[rows[-1][0]].height - page[number].height < 2:
            rows[-1].append(number)
        else:
            rows.append([number])
    return rows


def _repeated(pages: Sequence[Sequence[Line]]) -> set[str]:
    """Return the shapes of lines at the edges of a third of the pages, two at least."""
    counts: Counter[str] = Counter()
    for page in pages:
        rows = _rows(page)
        counts.update({_shape(page[n].text) for row in (*rows[:EDGE], *rows[-EDGE:]) for n in row})
    return {shape for shape, count in counts.items() if count >= max(2, len(pages) / 3)}


def _shape(line: str) -> str:
    """Return a line as it is on each page: its numbers are not."""
    return _DIGITS.sub("#", " ".join(line.lower().split()))


def _edges(page: Sequence[Line], measures: _Measures, shapes: set[str], most: int) -> set[int]:
    """Return the numbers of lines at a page's side, in its head and its foot: of `shapes`, and up to `most` others."""
    turned = {n for n, line in enumerate(page) if line.turned}
    edges = turned if 2 * len(turned) < len(page) else set()
    has_body = any(map(measures.is_body, page))
    for rows in (_rows(page), _rows(page)[::-1]):
        for count in range(min(EDGE, len(rows) - 1), 0, -1):
            last, following = page[rows[count - 1][0]], page[rows[count][0]]
            gap = measures.is_gap(last, following) or measures.is_gap(following, last)
            odd = [row for row in rows[:count] if not all(_is_head(page[n].text, shapes) for n in row)]
            is_apart = gap and has_body and all(_is_apart(page[n], measures) for row in odd for n in row)
            is_head = not odd or (is_apart and len(odd) <= most)  # more rows are those of a table
            if is_head and (gap or abs(last.size - following.size) > OTHER_SIZE):
                edges |= {n for row in rows[:count] for n in row}
                break
    return edges


def _is_head(text: str, shapes: set[str]) -> bool:
    return len(text) <= 2 * LONGEST_HEAD and (
        bool(_PAGE_NUMBER.match(text) or _NOTICE.match(text))
        or (len(text) <= LONGEST_HEAD and (_shape(text) in shapes or _is_place(text)))
    )


def _is_apart(line: Line, measures: _Measures) -> bool:
    return measures.is_small(line) and len(line.text) <= LONGEST_HEAD and not re.match(r"\W*(?:Tab|Fig)", line.text)


def _notices(page: Sequence[Line], measures: _Measures) -> set[int]:
    """Return the numbers of lines that are notices, not within a sentence of the text, with what continues them."""
    numbers: set[int] = set()
    for start, line in enumerate(page):
        is_small = measures.is_small(line)
        is_mail = bool(_MAIL.search(line.text))
        if not (is_mail or _NOTICE.match(line.text) or (is_small and _is_place(line.text))):
            continue
        is_text = not is_small and start and start - 1 not in numbers and measures.is_within(page[start - 1], line)
        if is_text and not line.text.lstrip("([{\"'“‘’<*")[:1].isupper():
            continue
        numbers.add(start)
        numbers |= _continued(page, start, measures, MOST_NOTICE if is_small else 0 if is_mail else 2)
    return numbers


def _continued(page: Sequence[Line], start: int, measures: _Measures, most: int) -> set[int]:
    """Return the numbers of up to `most` lines that follow one in letters of its size without a gap."""
    numbers: set[int] = set()
    line = page[start]
    for number in range(start + 1, min(start + 1 + most, len(page))):
        upper, lower = page[number - 1], page[number]
        ended = not measures.is_small(line) and _ENDED.search(upper.text)
        begins = OPENING.match(lower.text) or _SECTION.match(lower.text) or lower.styled > line.styled
        if ended or begins or not measures.is_next(upper, lower):
            break
        numbers.add(number)
    return numbers


def _is_place(text: str) -> bool:
    """Whether a line is a journal's name with volume and pages."""
    return len(text) <= LONGEST_HEAD and any(form.search(text) for form in PLACES)


def _is_cover(pages: Sequence[Sequence[Line]], measures: _Measures) -> bool:
    """Whether the first page is one that a repository puts before a paper: short, and the next one has a title."""
    large = TITLE_SIZE * measures.size
    front = _front(list(pages[1]), measures)[0] if len(pages) > 1 and len(pages[0]) < COVER else []
    return any(line.size > large and len(line.text.split()) > 2 for line in front)


def _front(lines: list[Line], measures: _Measures) -> tuple[list[Line], list[Line]]:
    """Return the lines before a paper's text, and those of it, of its first page, whose title may be drawn last."""
    start = _start(lines, measures) or 0
    large = TITLE_SIZE * measures.size
    titles = [n for n, line in enumerate(lines) if line.size > large and len(line.text.split()) > 2]
    title = max(titles, key=lambda n: (lines[n].size, -n), default=0)
    if not titles or titles[0] < start:
        return lines[:start], lines[start:]
    length = _start(lines[title:], measures)
    return lines[title:][:length], lines if length is None else lines[:title] + lines[title + length :]


def _start(lines: list[Line], measures: _Measures) -> int | None:
    """Return the number of the line of a first page with which its text begins; None if nothing tells."""
    largest = max((line.size for line in lines), default=0.0)
    for number, line in enumerate(lines):
        if number and OPENING.match(line.text) and line.size < largest:
            return number
        run = takewhile(lambda pair: measures.is_next(*pair), pairwise(lines[number : number + MOST_PROSE_LINES]))
        text = " ".join([line.text, *(below.text for _, below in run)])
        is_full = len(text.split()) >= PROSE_WORDS and is_prose(text) and sentence_starts(f"{text} A")
        if is_full and is_prose(line.text) and line.size < largest:
            above = lines[:number]  # of the same paragraph, if about as long: not names
            while above and len(above[-1].text) >= FULL * len(line.text) and measures.is_within(above[-1], line):
                line = above.pop()
            return len(above)
    return None


def is_prose(text: str) -> bool:
    """Whether most words of a text begin with small letters, as those of names and addresses do not."""
    words: list[str] = re.findall(r"[^\W\d_]{2,}", text)
    return sum(word[0].islower() for word in words) >= SMALL_WORDS * max(FEWEST_WORDS, len(words))


def _paragraphs(lines: Sequence[Line], measures: _Measures) -> Iterator[_Paragraph]:
    """Yield the paragraphs, headings and tables of a page; a sentence that a table interrupts is joined."""
    headings = _headings(lines, measures)
    paragraphs: list[_Paragraph] = []
    flow: _Paragraph | None = None
    last: Line | None = None
    for number, line in enumerate(lines):
        is_heading, is_body = number in headings, measures.is_body(line) and number not in headings
        current = paragraphs[-1] if paragraphs else None
        if is_body and flow and _continues(flow.lines[-1].text, line.text):
            current = flow
        elif last and current:
            other = abs(line.size - last.size) > OTHER_SIZE or is_heading != (number - 1 in headings)
            is_section = is_heading and _SECTION.match(line.text)
            if other or current.is_body != is_body or is_section or measures.is_gap(last, line):
                current = None
        if current is None:
            current = _Paragraph([], is_body)
            paragraphs.append(current)
        current.lines.append(line)
        flow = None if is_heading else current if is_body else flow
        last = line
    yield from paragraphs


def _continues(before: str, after: str) -> bool:
    """Whether a text is the rest of a sentence."""
    return not _ENDED.search(before) and bool(after.lstrip()[:1].islower() or _OPEN.search(before.rstrip()))


def _headings(lines: Sequence[Line], measures: _Measures) -> set[int]:
    """Return the numbers of lines that are headings; more than three that look like one are an abstract in bold."""
    headings: set[int] = set()
    run: list[int] = []
    for number, line in enumerate([*lines, Line("", 0.0)]):
        text = line.text.strip()
        is_short = 0 < len(text) <= LONGEST_HEADING and not text.endswith((",", ";"))
        is_numbered = bool(_NUMBERED.match(text))
        above = lines[number - 1] if number else line
        # Within a paragraph a line in italics is none.
        is_free = number - 1 in run or above.styled or not measures.is_body(above) or bool(_ENDED.search(above.text))
        stands_out = ((line.styled or is_numbered) and (is_free or not number)) or (
            line.size > measures.size + OTHER_SIZE
        )
        if is_short and (_SECTION.match(text) or stands_out):
            run.append(number)
            continue
        if len(run) <= 3:
            headings.update(run)
        run = []
    return headings


def _join_sentence(bodies: list[list[_Paragraph]], texts: list[list[str]], number: int, words: Counter[str]) -> None:
    """Move the end of a sentence that a page's end cuts to the page where it begins."""
    ends = [n for n, paragraph in enumerate(bodies[number]) if paragraph.is_body and texts[number][n]]
    begins = [n for n, paragraph in enumerate(bodies[number + 1]) if paragraph.is_body]
    if not ends or not begins:
        return
    last, first = ends[-1], begins[0]
    lines = bodies[number][last].lines
    before, after = texts[number][last], texts[number + 1][first]
    is_full = len(lines) > 2 and len(lines[-1].text) > FULL * max(len(line.text) for line in lines)
    if not _continues(before, after) and (_ENDED.search(before) or not is_full):
        return
    joined = plain(f"{before}\n{after}", words)
    start = next((start for start in sentence_starts(joined) if start >= len(before)), len(joined))
    is_whole = start < len(joined) or _ENDED.search(joined)
    if is_whole and start - len(before) <= LONGEST_MOVED:
        texts[number][last], texts[number + 1][first] = joined[:start].rstrip(), joined[start:]
