"""What a PDF says of the paper that it is: title, authors, year, journal, DOI; and which of its lines are not text.

A paper's facts stand in its metadata, which programs fill in carelessly, and on its first pages, whose lines come with
the sizes of their letters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

FRONT = 3000  # characters of the first page in which DOI, year and journal are looked for
EDGE = 3  # lines at the top and at the bottom of a page that may be a running head
LONGEST_HEAD = 90  # characters of a running head
LEAST_PAGES = 3  # on which a line is a running head, and half of all
MOST_AUTHORS = 200
TITLE_WORDS = 3  # of the text on the first page, at least

_DOI = re.compile(r"\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+", re.IGNORECASE)
_PMID = re.compile(r"\bPMID:?\s*([0-9]{1,9})\b")
_ARXIV = re.compile(r"\barXiv:\s*([0-9]{4}\.[0-9]{4,5})", re.IGNORECASE)
_JUNK = re.compile(
    r"^(?:microsoft (?:word|powerpoint)\b|untitled|slide \d|pii:|doi:|10\.\d{4}|layout \d|print|title)|"
    r"\.(?:docx?|indd|qxd|tex|dvi|pdf|ps|fm|rtf|pptx?)\b|^\W*\w*\d\w*\W*$|^\S+$",
    re.IGNORECASE,
)
_YEAR = r"((?:19|20)[0-9]{2})"
_YEARS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:©|\(c\)|copyright)\s*(?:the authors?(?:\(s\))?[,.]?\s*)?{_YEAR}",
        rf"\bpublished(?: online)?:?[^.\n]{{0,24}}?{_YEAR}",
        rf"\b{_YEAR}\s*;\s*[0-9]+\s*(?:\([^)]+\))?\s*:",
        rf"\baccepted:?[^.\n]{{0,24}}?{_YEAR}",
        rf"\({_YEAR}\)",
    )
)
_JOURNALS = tuple(
    re.compile(rf"^(?P<journal>[A-Z][\w&.,' -]{{2,80}}?)[.,]?\s*{place}")
    for place in (
        rf"\(?{_YEAR}\)?\s*[;,]\s*(?P<volume>[0-9]+)\s*(?:\((?P<issue>[^)]{{1,12}})\))?\s*[:,]\s*"
        r"(?P<pages>[A-Za-z]?[0-9]+(?:\s*[-–]\s*[A-Za-z]?[0-9]+)?)",
        rf"(?P<volume>[0-9]+)(?:\((?P<issue>[^)]{{1,12}})\))?\s*\({_YEAR}\)\s*"
        r"(?P<pages>[A-Za-z]?[0-9]+(?:\s*[-–]\s*[A-Za-z]?[0-9]+)?)",
    )
)
_IMPRINT = re.compile(
    r"^\W*(?:copyright|©|\(c\)|doi\b|https?://(?:dx\.)?doi\.org|published|how to cite)", re.IGNORECASE
)
_CREATED = re.compile(rf"D?:?{_YEAR}")
_AFFILIATED = re.compile(
    r"\b(?:university|universit|department|institute|hospital|school|college|cent(?:er|re)|faculty|division|"
    r"laborator|abstract|summary|background|introduction|correspond|e-?mail|received|accepted|keywords|doi|©|@|www|"
    r"https?|journal|volume|copyright)",
    re.IGNORECASE,
)
_MARKS = re.compile(r"(?<=[^\W\d])[0-9*†‡§¶∥#,]*[0-9*†‡§¶∥#](?=[\s,;.]|$)|[*†‡§¶∥#]+")
_DEGREES = re.compile(
    r",?\s*\b(?:M\.?D|Ph\.?D|M\.?Sc|B\.?Sc|M\.?P\.?H|Dr\.?P\.?H|FRCP|MBBS|RN|MS|MA|BA|DO)\b\.?", re.IGNORECASE
)
_PARTICLES = frozenset(
    ["van", "von", "de", "der", "den", "del", "della", "di", "da", "dos", "du", "la", "le", "el", "al", "bin", "ter"]
)
_HEADING = re.compile(
    r"^\W*(?:[0-9IVX]{1,4}\W{1,3})?(?:references?(?: and notes)?|bibliography|literature cited|works cited)\W*$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"^\W*(?:appendix|appendices|supplement\w*|supporting information|figure legends?)\b", re.IGNORECASE
)
_DIGITS = re.compile(r"[0-9]+")


class Line(NamedTuple):
    """A line of a page, and the size of its letters in points."""

    text: str
    size: float


def facts_of(metadata: Mapping[str, str], front: Sequence[Line], pages: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a paper that a PDF has: `title`, `authors`, `year`, `journal`, `doi` …, as far as known.

    `metadata` are the texts of its own fields, `front` the lines of its first page, `pages` the texts of all pages.
    """
    imprint = [line for line in "\n".join(pages[1:][-1:]).split("\n") if _IMPRINT.match(line)]
    opening = "\n".join([*pages[:1], *imprint])
    title, after = _titled(front)
    own = " ".join(metadata.get("title", "").split())
    if own and not _JUNK.search(own) and (not title or _said(own, opening)):
        title, after = own, _lines_after(own, front) or after
    places = (metadata.get("subject", ""), *opening[:FRONT].split("\n"))
    cited = next((match for text in places for form in _JOURNALS if (match := form.match(text))), None)
    numbers = cited.groupdict() if cited else {}
    return {
        "title": title,
        "authors": _own_authors(metadata.get("author", "")) or _authors(after),
        "year": _year(metadata, opening, cited),
        "journal": " ".join((metadata.get("journal") or numbers.get("journal") or "").split()),
        "volume": numbers.get("volume") or "",
        "issue": numbers.get("issue") or "",
        "pages": re.sub(r"\s*[-–]\s*", "-", numbers.get("pages") or ""),
        "doi": _doi(metadata, opening),
        "pmid": _found(_PMID, opening[:FRONT]),
    }


def text_of_paper(pages: Sequence[str]) -> list[str]:
    """Return the pages' texts without running heads and without the list of references."""
    heads = _running_heads(pages)
    kept, in_references = [], False
    seen = sum(map(len, pages))
    before = 0
    for page in pages:
        lines = page.split("\n")
        edges = {*range(min(EDGE, len(lines))), *range(max(0, len(lines) - EDGE), len(lines))}
        body = []
        for number, line in enumerate(lines):
            if not in_references and before > seen * 0.4 and _HEADING.match(line):
                in_references = True
            elif in_references and _AFTER.match(line):
                in_references = False
            before += len(line) + 1
            if not in_references and not (number in edges and _shape(line) in heads):
                body.append(line)
        kept.append("\n".join(body))
    return kept


def _running_heads(pages: Sequence[str]) -> set[str]:
    counts: Counter[str] = Counter()
    for page in pages:
        lines = [line for line in page.split("\n") if line.strip()]
        counts.update({_shape(line) for line in (*lines[:EDGE], *lines[-EDGE:]) if len(line) <= LONGEST_HEAD})
    return {shape for shape, count in counts.items() if count >= max(LEAST_PAGES, len(pages) / 2)}


def _shape(line: str) -> str:
    """Return a line as it is on each page: its numbers are not."""
    return _DIGITS.sub("#", " ".join(line.lower().split()))


def _titled(front: Sequence[Line]) -> tuple[str, Sequence[Line]]:
    """Return the title that the first page's largest letters make, and the lines after it; "" if there is none."""
    for size in sorted({line.size for line in front}, reverse=True)[:4]:
        start = next(n for n, line in enumerate(front) if line.size == size)
        end = start
        while end < len(front) and front[end].size == size:
            end += 1
        title = " ".join(" ".join(line.text.split()) for line in front[start:end])
        is_body = end - start > 6
        if len(title.split()) >= TITLE_WORDS and not is_body and not _DOI.search(title):
            return title, front[end:]
    return "", front


def _lines_after(title: str, front: Sequence[Line]) -> Sequence[Line]:
    words = _plain(title)
    for start in range(len(front)):
        text = ""
        for end in range(start, min(start + 6, len(front))):
            text = f"{text} {_plain(front[end].text)}".strip()
            if text == words:
                return front[end + 1 :]
    return ()


def _said(title: str, text: str) -> bool:
    """Whether most words of a title stand in a text."""
    words = set(_plain(title).split())
    return len(words & set(_plain(text).split())) >= 0.6 * len(words)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _doi(metadata: Mapping[str, str], opening: str) -> str:
    """Return the DOI that is the paper's own: from its metadata, else the first on its first page or in its imprint."""
    own = " ".join(metadata.get(name, "") for name in ("doi", "subject", "keywords", "title"))
    for text in (own, opening):
        if match := _DOI.search(re.sub(r"(?<=/)\s+(?=\S)|(?<=doi\.org)\s+(?=/)", "", text)):
            return match[0].rstrip(".,;:)]'")
    arxiv = _found(_ARXIV, opening)
    return f"10.48550/arXiv.{arxiv}" if arxiv else ""


def _year(metadata: Mapping[str, str], opening: str, cited: re.Match[str] | None) -> int | None:
    if cited and (stated := re.search(_YEAR, cited[0])):
        return int(stated[0])
    texts = (metadata.get("subject", ""), opening[:FRONT], opening[-FRONT // 3 :])
    found = (match[1] for pattern in _YEARS for text in texts if (match := pattern.search(text)))
    published = _found(_CREATED, metadata.get("published", ""))
    created = _found(_CREATED, metadata.get("created", ""))
    year = published or next(found, created)
    return int(str(year)) if year else None


def _own_authors(value: str) -> list[str]:
    """Return the authors that a PDF's own field names; none if it names a program, a login or one word."""
    names = [name for name in re.split(r"\s*;\s*|\s+and\s+|\s*&\s*", value.strip()) if name]
    if len(names) == 1 and not re.fullmatch(r"[^\s,]+,[^,]+", names[0]):  # "Smith, John" is one
        names = [name for name in re.split(r"\s*,\s*", names[0]) if name]
    return inverted(names) if names and all(_is_name(name) for name in names) else []


def _authors(lines: Sequence[Line]) -> list[str]:
    """Return the authors of the lines after a title, which end where affiliations or the text begin."""
    names: list[str] = []
    size = None
    for line in lines[:8]:
        text = " ".join(line.text.split())
        if not text or _AFFILIATED.search(text) or (names and size is not None and abs(line.size - size) > 1):
            if names or _AFFILIATED.search(text):
                break
            continue
        found = list(_names(text))
        if not found:
            break
        names, size = [*names, *found], line.size
    return inverted(names)[:MOST_AUTHORS]


def _names(text: str) -> Iterator[str]:
    """Yield the names of a line of authors; nothing if a part of it is none."""
    parts = re.split(r"\s*[,;·•]\s*|\s+and\s+|\s*&\s*", _MARKS.sub("", _DEGREES.sub("", text)).replace(" ,", ","))
    names = [part.strip(" .*") for part in parts if part.strip(" .*")]
    if names and all(map(_is_name, names)):
        yield from names


def _is_name(text: str) -> bool:
    """Whether a text can be a person's name: two to five words that begin with capitals, or particles."""
    words = text.replace(",", " ").split()
    return 2 <= len(words) <= 5 and all(
        word.lower() in _PARTICLES or (word[0].isupper() and not any(map(str.isdigit, word))) for word in words
    )


def year_in(text: str) -> int | None:
    """Return the first year from 1900 to 2099 in a text."""
    found = re.search(_YEAR, text)
    return int(found[1]) if found else None


def inverted(names: Sequence[str]) -> list[str]:
    """Return names as "Family, Given"."""
    inverted = []
    for name in names:
        words = name.split()
        if "," in name or len(words) < 2:
            inverted.append(name)
            continue
        start = next((n for n, word in enumerate(words[1:], 1) if word.lower() in _PARTICLES), len(words) - 1)
        initials_last = re.fullmatch(r"[A-Z]{1,3}", words[-1]) and not re.fullmatch(r"[A-Z]\.?|[A-Z]{1,3}", words[0])
        family, given = (words[:-1], words[-1:]) if initials_last else (words[start:], words[:start])
        inverted.append(f"{' '.join(family)}, {' '.join(given)}")
    return list(dict.fromkeys(inverted))


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
