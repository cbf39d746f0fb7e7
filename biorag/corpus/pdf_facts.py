"""What a PDF says of the paper that it is: title, authors, year, journal, DOI.

A paper's facts stand in its metadata, which programs fill in carelessly, in the lines before its text, and in its
heads, feet and notices; never in its text or its list of references, which are of other papers too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from biorag.corpus.pdf_layout import PLACES, Line

FRONT = 6000  # characters of the first page in which DOI, year and journal are looked for
MOST_AUTHORS = 200
TITLE_WORDS = 3  # of the text on the first page, at least
MOST_WORDS = 12  # of a journal's name
CITED_LINES = 6  # over which a paper's own citation runs

_DOI = re.compile(r"\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+", re.IGNORECASE)
_PMID = re.compile(r"\bPMID:?\s*([0-9]{1,9})\b")
_ARXIV = re.compile(r"\barXiv:\s*([0-9]{4}\.[0-9]{4,5})", re.IGNORECASE)
_JUNK = re.compile(
    r"^(?:microsoft (?:word|powerpoint)\b|word document|untitled|slide \d|pii:|doi:|10\.\d{4}|layout \d|print|title)|"
    r"\.(?:docx?|indd|qxd|tex|dvi|pdf|ps|fm|rtf|pptx?)\b|^\W*\w*\d\w*\W*$|^\S+$",
    re.IGNORECASE,
)
_YEAR = r"((?:19|20)[0-9]{2})"
_YEARS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:©|\(c\)|copyright)\s*(?:the authors?(?:\(s\))?[,.]?\s*)?{_YEAR}",
        rf"\b(?:published(?: online)?|available online|posted):?[^.\n]{{0,24}}?{_YEAR}",
        rf"\b{_YEAR}\s*;\s*[0-9]+\s*(?:\([^)]+\))?\s*:",
        rf"\baccepted:?[^.\n]{{0,24}}?{_YEAR}",
        rf"\({_YEAR}\)",
    )
)
_CITE = re.compile(
    r"^\W*(?:(?:please |how to )?cite this(?: article)?(?: as)?|to cite(?: this article)?|citation)\s*:?\s*",
    re.IGNORECASE,
)
# Authors, and a title whose last word is in small letters; abbreviated names, as "Front. Immunol.", have capitals.
_BEFORE_JOURNAL = re.compile(r"^.*\bet al\b[.,]?\s*|^.*\s/\s|^.*\s[a-z][\w-]*\)?[.?!]\s+(?=[A-Z])")
_MONTHS = re.compile(r"\b(?:received|accepted|revised|published|submitted|posted|online)\b", re.IGNORECASE)
# What stands in large letters above a title.
_MASTHEAD = re.compile(
    r"(?:the )?(?:[\w-]+ ){0,3}(?:journal|annals|archives|proceedings|transactions|frontiers) (?:of|in)\b(?!.*[:?])|"
    r"contents lists|"
    r"(?:original|research|review|short|open|case|brief)\b[\w ]*\b"
    r"(?:article|paper|research|report|communication|access)s?$",
    re.IGNORECASE,
)
_LONE_YEAR = re.compile(rf"(?<![\w/.-]){_YEAR}(?![\w/-]|\.\d)")
_CREATED = re.compile(rf"D?:?{_YEAR}")
_AFFILIATED = re.compile(
    r"\b(?:university|universit|department|institute|hospital|school|college|cent(?:er|re)|faculty|division|"
    r"laborator|abstract|summary|background|introduction|correspond|e-?mail|received|accepted|keywords|doi|©|@|www|"
    r"https?|journal|volume|copyright)",
    re.IGNORECASE,
)
_MARKS = re.compile(r"(?<=[^\W\d]|[.,;])\s?[0-9*†‡§¶∥#]+(?:,\s?[0-9*†‡§¶∥#]+)*|[*†‡§¶∥#]+")
_LETTERS = re.compile(r"(?<=\w)(?:[,\s]\s*[a-z]\b(?!\s+[A-Z][a-z]))+\s*(?=[,;*]|$|\band\b)")  # marks that stand level
_GROUP = re.compile(
    r"(?:(?:on behalf of|for)\s+)?(?:the\s+)?(.{2,80}\b(?:investigators?|collaborat(?:ors?|ion)|groups?|"
    r"consorti(?:um|a)|networks?|committee|team|trialists|alliance|society|initiative|association|organi[sz]ation))",
    re.IGNORECASE,
)
_DEGREES = re.compile(
    r",?\s*\b(?:M\.?D|Ph\.?D|M\.?Sc|B\.?Sc|M\.?P\.?H|Dr\.?P\.?H|FRCP|MBBS|RN|MS|MA|BA|DO)\b\.?", re.IGNORECASE
)
_PARTICLES = frozenset(
    ["van", "von", "de", "der", "den", "del", "della", "di", "da", "dos", "du", "la", "le", "el", "al", "bin", "ter"]
)


def facts_of(metadata: Mapping[str, str], front: Sequence[Line], notices: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a paper that a PDF has: `title`, `authors`, `year`, `journal`, `doi` …, as far as known.

    `metadata` are the texts of its own fields, `front` the lines before its text, `notices` its heads, feet and the
    like.
    """
    lines = [*(" ".join(line.text.split()) for line in front), *notices]
    opening = "\n".join(lines)
    places = (metadata.get("subject", ""), *lines)
    title, after = _titled(front, metadata.get("journal") or _place(places, "")[0])
    own = printable(metadata.get("title", ""))
    if own and (not title or _said(own, opening)):
        title, after = own, _lines_after(own, front) or after
    journal, numbers = _place(places, title)
    return {
        "title": title,
        "authors": own_authors(metadata.get("author", "")) or _authors(after),
        "year": int(numbers["year"]) if numbers.get("year") else _year(metadata, opening),
        "journal": " ".join((metadata.get("journal") or journal).split()),
        "volume": numbers.get("volume") or "",
        "issue": numbers.get("issue") or "",
        "pages": re.sub(r"\s*[-–]\s*", "-", numbers.get("pages") or ""),
        "doi": _doi(metadata, opening),
        "pmid": _found(_PMID, opening[:FRONT]),
    }


def _place(lines: Sequence[str], title: str) -> tuple[str, dict[str, str]]:
    """Return the journal that a line names and the numbers beside it: those of the most telling form."""
    texts = [" ".join(lines[n : n + CITED_LINES]) if _CITE.match(line) else line for n, line in enumerate(lines)]
    for form in PLACES:
        for text in texts:
            match = form.search(text)
            journal = _journal(text[: match.start()], title) if match else ""
            if match and journal:
                return journal, {name: value for name, value in match.groupdict().items() if value}
    return "", {}


def _journal(text: str, title: str) -> str:
    """Return the journal's name at the end of a text, after a paper's authors and title; "" if it is none."""
    text = " ".join(_CITE.sub("", text).split())
    start = text.lower().rfind(title.lower()) if title else -1
    text = text[start + len(title) :] if start >= 0 else text
    name = _BEFORE_JOURNAL.sub("", text).strip(" .,;:|/–-()")
    is_name = re.match(r"[A-Z][^\d@]*[A-Za-z.)]$", name) and len(name) > 2 and len(name.split()) <= MOST_WORDS
    return name if is_name and not _MONTHS.search(name) and not _DOI.search(name) else ""


def _titled(front: Sequence[Line], journal: str) -> tuple[str, Sequence[Line]]:
    """Return the title that the first page's largest letters make, and the lines after it; "" if there is none."""
    for size in sorted({line.size for line in front}, reverse=True)[:4]:
        start = next(n for n, line in enumerate(front) if line.size == size)
        end = start
        while end < len(front) and front[end].size == size:
            end += 1
        title = " ".join(" ".join(line.text.split()) for line in front[start:end])
        is_body = end - start > 6
        is_masthead = _MASTHEAD.match(title) or (journal and _plain(title) == _plain(journal))
        if len(title.split()) >= TITLE_WORDS and not is_body and not is_masthead and not _DOI.search(title):
            return title, front[end:]
    return "", front


def printable(title: str) -> str:
    """Return the title that a file's own field gives, in one line; "" if a program made it up."""
    own = " ".join(title.split())
    return "" if _JUNK.search(own) else own


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


def _year(metadata: Mapping[str, str], opening: str) -> int | None:
    """Return the year in which a paper was published, as far as it is printed; the file's making tells nothing."""
    texts = (metadata.get("subject", ""), opening[:FRONT], opening[-FRONT // 3 :])
    found = (match[1] for pattern in _YEARS for text in texts if (match := pattern.search(text)))
    heads = (_found(_LONE_YEAR, line) for line in opening.split("\n") if not _MONTHS.search(line))
    year = _found(_CREATED, metadata.get("published", "")) or next(found, "") or next(filter(None, heads), "")
    return int(year) if year else None


def own_authors(value: str) -> list[str]:
    """Return the authors that a file's own field names; none if it names a program, a login or one word."""
    names = [name for name in re.split(r"\s*;\s*|\s+and\s+|\s*&\s*", value.strip()) if name]
    if len(names) == 1 and not re.fullmatch(r"[^\s,]+,[^,]+", names[0]):  # "Smith, John" is one
        names = [name for name in re.split(r"\s*,\s*", names[0]) if name]
    return inverted(names) if names and all(_is_name(name) for name in names) else []


def _authors(lines: Sequence[Line]) -> list[str]:
    """Return the authors of the lines after a title, which end where affiliations or the text begin."""
    names: list[str] = []
    size = None
    for line in lines[:8]:
        text = " ".join((line.level or line.text).split())
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
    if _LONE_YEAR.search(text):
        return
    text = _LETTERS.sub(" ", _MARKS.sub("", _DEGREES.sub("", text)))
    text = re.sub(r"^by\s+", "", text.replace(" ,", ","), flags=re.IGNORECASE)
    parts = re.split(
        r"\s*[,;·•|]\s*(?:and\s+|&\s*)?|\s+and\s+|^and\s+|\s*&\s*|\s+(?=(?:for|on behalf of)\s+the\b)", text
    )
    names = [part.strip(" .*") for part in parts if part.strip(" .*")]
    if names and all(_GROUP.fullmatch(name) or _is_name(name) for name in names):
        yield from (group[1] if (group := _GROUP.fullmatch(name)) else name for name in names)


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
    """Return names as "Family, Given"; a group's as it is."""
    inverted = []
    for name in names:
        words = name.split()
        if "," in name or len(words) < 2 or _GROUP.fullmatch(name):
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
