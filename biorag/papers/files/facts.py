"""What a PDF says of the paper that it is: title, authors, year, journal, DOI.

A paper's facts stand in its metadata, which programs fill in carelessly, in the lines before its text, and in its
heads, feet and notices; never in its text or its list of references, which are of other papers too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape
from itertools import pairwise
from typing import Any

from biorag.corpus.budget import draw
from biorag.papers.files.pdf_layout import OPENING, OTHER_SIZE, PLACES, Line, is_prose
from biorag.references.authors import GROUP, SUFFIX, cited_authors, inverted, is_name

FRONT = 6000  # characters of the first page in which DOI, year and journal are looked for
MOST_AUTHORS = 200
MASTHEAD_LINES = 4
AUTHOR_LINES, LONGEST_AUTHORS = 60, 20_000  # lines after a title in which authors are looked for; their characters
TITLE_WORDS, MOST_TITLE_WORDS, MOST_RUNS = 3, 70, 12  # runs of lines in letters of one size that may be the title
NAME_SIZE = 0.8  # by which letters of what may be a name count as those of a title
FAR = 2.6  # sizes of letters between lines of a title, at most
MOST_WORDS = 12  # of a journal's name
CITED_LINES = 10  # over which a paper's own citation runs

_DOI = re.compile(r"\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+", re.IGNORECASE)
_PMID = re.compile(r"\bPMID:?\s*([0-9]{1,9})\b")
_ARXIV = re.compile(r"\barXiv:\s*([0-9]{4}\.[0-9]{4,5})", re.IGNORECASE)
_JUNK = re.compile(
    r"^(?:microsoft (?:word|powerpoint)\b|word document|untitled|slide \d|pii:|doi:|10\.\d{4}|layout \d|print|title)|"
    r"\.(?:docx?|indd|qxd|tex|dvi|pdf|ps|fm|rtf|pptx?)\b|^\W*\w*\d\w*\W*$|^\S+$|\d\.\.\d|#x[0-9a-f]{2,4};",
    re.IGNORECASE,
)
_YEAR = r"((?:19|20)[0-9]{2})"
_YEARS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:©|\(c\)|copyright)\s*(?:the authors?(?:\(s\))?[,.]?\s*)?{_YEAR}",
        rf"\b(?:published(?: online)?|available online|posted):?[^.\n]{{0,24}}?{_YEAR}",
        rf"\baccepted:?[^.\n]{{0,24}}?{_YEAR}",
    )
)
_CITE = re.compile(
    r"^\W*(?:(?:please |how to )?cite this(?: article)?(?: as)?|to cite(?: this article)?|citation)\b\s*:?\s*",
    re.IGNORECASE,
)
_SIGNS = str.maketrans("", "", "®™")
# Authors, and a title whose last word is in small letters; abbreviated names, as "Front. Immunol.", have capitals.
_BEFORE_JOURNAL = re.compile(
    r"^.*(?:\bet al\b[.,]?\s*|\s/\s|\s[a-z][\w-]*\)?[.?!]\s+(?=[A-Z])|\s[A-Z][a-z]{7,}[.?!]\s+(?=[A-Z][^.]*$))"
)
_DATED = re.compile(r"\b(?:received|accepted|revised|published|submitted|posted|online)\b", re.IGNORECASE)
_JOURNAL = re.compile(
    r"(?:the )?(?:[\w-]+ ){0,3}(?:journal|annals|archives|proceedings|transactions|frontiers) (?:of|in)\b(?!.*[:?])",
    re.IGNORECASE,
)
_LONE_YEAR = re.compile(rf"(?<![\w/.-]){_YEAR}(?![\w/-]|\.\d)")
_AFFILIATION_MARK = re.compile(r"[^\w,;]*\d{1,2}[\s.)]*[^\W\d]")
_MARKS = re.compile(r"(?<=[^\W\d]|[.,;])\s?[0-9*†‡§¶∥#]+(?:,\s?[0-9*†‡§¶∥#]+)*|[*†‡§¶∥#]+")
_GLUED = re.compile(r"(?<=[a-z])(?=[A-Z][a-z.])|(?<=[A-Z]\.)(?=[A-Z][a-z]{2})")  # names without a space
_HAS_WORD = re.compile(r"[^\W\d_]{2}")  # of a word
_DEGREES = re.compile(r"[,\s]\s*(?:M\.?D|Ph\.?D|[MB]\.?Sc|M\.?P\.?H|FRCP|RN)\b\.?(?=\W|$)")
_ROLE = re.compile(r"(?:\s+[a-z][a-z-]*)+$")  # as in "Mary Jones associate professor"; a particle is before a name
_ABBREVIATED = re.compile(r"(?:[A-Z]{1,2}\.?){2,5}")  # a degree among names in capitals
_SEPARATED = re.compile(r"[,;·•|&]|\band\b")
# A date, an address or a page's number beside a journal's name in a head or a foot.
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_BESIDE = re.compile(
    rf"(?<!\S)\S+\.(?:com|org)\b\S*|\([A-Z][a-z]+\)|^[0-9]+\s|(?:[0-9]{{1,2}}\s+)?\b(?:{_MONTH}\s?[-–/]\s?)?"
    rf"{_MONTH}(?:(?:\s[0-9]{{1,2}},)?\s{_YEAR}|\W*$)|\b[peEo]?-?ISSN\b.*$"
)
_PREPRINTS = re.compile(r"\b((?:bio|med)Rxiv|arXiv(?=:))\b")
# The rest of a DOI that a narrow column breaks.
_BROKEN_DOI = re.compile(
    r"(10\.[0-9]{4,9}/\S{1,100})\n(?=[a-z\d.-]*\d)(?:(?<=[._-]\n)|(?=[\d.]*[a-z-]))([a-z\d.-]+)$", re.MULTILINE
)


def facts_of(metadata: Mapping[str, str], front: Sequence[Line], notices: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a paper that a PDF has: `title`, `authors`, `year`, `journal`, `doi` …, as far as known.

    `metadata` are the texts of its own fields, `front` the lines before its text, `notices` its heads, feet and the
    like.
    """
    lines = [*(" ".join(line.text.split()) for line in front), *notices]
    opening = "\n".join(lines)
    mastheads = [*lines, *(" ".join(pair).partition("©")[0] for pair in pairwise(lines[:MASTHEAD_LINES]))]
    places = (metadata.get("subject", ""), *lines)
    front = front[: next((n for n, line in enumerate(front) if n and OPENING.match(line.text)), len(front))]
    known = " ".join(metadata.get("journal", "").split()) if re.search(r"\w{2}", metadata.get("journal", "")) else ""
    title, above, after = _titled(front, known or _place(places, "")[0] or _masthead(mastheads))
    own = printable(metadata.get("title", ""))
    # With a subtitle, no text.
    goes_on = _plain(title).startswith(_plain(own)) and title[len(own) : len(own) + 1] != "."
    if own and not goes_on and (not title or _said(own, _text(front))):
        ends = [n for n, line in enumerate(front, 1) if _HAS_WORD.search(line.text) and _said(line.text, own, 1.0)]
        title, after = own, front[ends[-1] :] if ends else after
    journal, numbers = _place(places, title)
    published = year_in(metadata.get("published", ""))
    if published and abs(int(numbers.get("year", published)) - published) > 1:
        numbers = {"year": str(published)}
    dated = [line for line in lines if not _said(line, title, 1.0)]
    cited = opening[: 2 * FRONT]
    authors = _authors(after, cited) or _authors(above, cited)
    return {
        "title": title,
        "authors": _agreed(own_authors(metadata.get("author", ""), cited), authors, opening),
        "year": int(numbers.get("year") or published or 0) or _year(metadata, dated),
        "journal": _expanded(known or journal or _masthead(mastheads), (*places, *mastheads)),
        "volume": numbers.get("volume") or "",
        "issue": numbers.get("issue") or "",
        "pages": re.sub(r"\s*[-–]\s*", "-", numbers.get("pages") or ""),
        "doi": _doi(metadata, opening),
        "pmid": _found(_PMID, opening[:FRONT]),
    }


def without_citation(lines: Iterable[tuple[int, str]], title: str) -> tuple[list[tuple[int, str]], dict[str, Any]]:
    """Return numbered lines without the paragraph by which a text of a title cites itself, and the facts in that.

    It begins with "Citation:" or "Cite this as" and ends with its DOI, else with its journal, volume and pages.
    """
    numbered = list(lines)
    for start, (_, line) in enumerate(numbered):
        opening = _CITE.match(line)
        if not opening or not opening[0].rstrip().endswith((":", "as")):
            continue
        draw()
        rest = [text for _, text in numbered[start : start + CITED_LINES]]
        cited = rest[: next((n for n, text in enumerate(rest) if not text.strip()), len(rest))]
        end = next((n for n, text in enumerate(cited, 1) if _DOI.search(text)), 0)
        end = end or next((n for n in range(1, len(cited) + 1) if _place([" ".join(cited[:n])], "")[0]), 0)
        if end:
            authors, _ = cited_authors(" ".join(_CITE.sub("", " ".join(cited[:end])).split()))
            names = [", ".join(filter(None, author[:3])) for author in authors]
            facts = {**facts_of({"title": title}, (), cited[:end]), "authors": names}
            known = {name: fact for name, fact in facts.items() if fact and name != "title"}
            return numbered[:start] + numbered[start + end :], known
    return numbered, {}


def _place(lines: Sequence[str], title: str) -> tuple[str, dict[str, str]]:
    """Return the journal that a line names and the numbers beside it: those of the most telling form."""
    texts = [" ".join(lines[n : n + CITED_LINES]) if _CITE.match(line) else line for n, line in enumerate(lines)]
    for form in PLACES:
        for number, text in enumerate(texts):
            match = form.search(text)
            before = text[: match.start()] if match else ""
            before = before if before.strip() or not number else lines[number - 1]  # a name has a line of its own
            journal = _journal(before, title) if match else ""
            if match and journal:
                return journal, {name: value for name, value in match.groupdict().items() if value}
    return "", {}


def _journal(text: str, title: str) -> str:
    """Return the journal's name at the end of a text, after a paper's authors and title; "" if it is none."""
    text = " ".join(_CITE.sub("", text.translate(_SIGNS)).split())
    start = text.lower().rfind(title.lower()) if title else -1
    text = text[start + len(title) :] if start >= 0 else text
    parts = _BESIDE.sub(" | ", _BEFORE_JOURNAL.sub("", text)).split(" | ")
    stripped = [part.strip(" .,;:|/–-()") for part in parts[::-1]]
    name = next((part for part in stripped if part and not part.isdigit()), "")
    is_name = (
        re.match(r"(?:[a-z]|npj )?[A-Z][^\d@]*[A-Za-z.)]$", name) and len(name) > 2 and len(name.split()) <= MOST_WORDS
    )
    is_other = _DATED.search(name)
    return name if is_name and not is_other else ""


def _expanded(name: str, texts: Sequence[str]) -> str:
    """Return the name that a journal's abbreviation stands for, if one of a file's texts has it."""
    words = re.findall(r"[^\W\d_]+", name)[:MOST_WORDS]
    joint = r"\W+(?:(?:of|and|the|in|for|on)\W+){0,3}"
    long = re.compile(r"\b(?:The\s)?" + joint.join(rf"{word}[^\W\d_]{{0,20}}" for word in words) + r"\b", re.IGNORECASE)
    is_short = len(words) > 1 and not any(map(str.islower, words))  # no "of" is in an abbreviation
    names = [match[0] for text in texts if (match := long.search(text))] if is_short else []
    return max([name, *names], key=lambda other: (len(other), not other.isupper()))


def _masthead(lines: Sequence[str]) -> str:
    """Return the journal that a masthead names, or the server of a preprint; "" if there is none."""
    names = (_found(_PREPRINTS, line) or (_journal(line, "") if _JOURNAL.match(line) else "") for line in lines)
    return " ".join(word.capitalize() if word.isupper() else word for word in next(filter(None, names), "").split())


def _titled(front: Sequence[Line], journal: str) -> tuple[str, Sequence[Line], Sequence[Line]]:
    """Return the title that the first page's largest letters make, the lines next above it, and all below it."""
    runs: list[list[Line]] = []
    for line in front:
        last = runs[-1][-1] if runs else line
        is_unlike = not runs or line.size != last.size or (runs[-1][0].styled and not line.styled)
        if is_unlike or last.height - line.height > FAR * line.size:
            runs.append([])
        runs[-1].append(line)
    # What may be a name, such as a masthead's, comes after what is not, in letters about as large.
    sizes = [run[0].size * (NAME_SIZE if list(_names(_text(run[:MOST_WORDS]))) else 1) for run in runs]
    for number in sorted(range(len(runs)), key=lambda n: (-sizes[n], n))[:MOST_RUNS]:
        run, after = runs[number], [line for later in runs[number + 1 :] for line in later]
        first = _text(run[:1])  # the kind of paper stands above some titles, in other letters of their size
        is_label = run[0].styled != run[-1].styled and not first.endswith(":")
        title = _text(run[len(first.split()) <= TITLE_WORDS and bool(is_label) :])
        is_other = journal and _plain(journal).startswith(_plain(title))
        if is_other or not TITLE_WORDS <= len(title.split()) <= MOST_TITLE_WORDS:
            continue
        below = runs[number + 1] if after else []
        subtitle, following = _text(below), after[len(below) :]
        is_subtitle = following and following[0].size < below[0].size < run[0].size
        people = len(list(_names(subtitle)))  # one of four words and more is a title
        if is_subtitle and people < 2 and len(subtitle.split()) >= TITLE_WORDS + people and _authors(following, ""):
            return f"{title.rstrip(' :')}: {subtitle}", (), following
        return title, runs[number - 1] if number else (), after
    return "", (), front


def _text(lines: Sequence[Line]) -> str:
    return " ".join(" ".join(line.text.split()) for line in lines)


def printable(title: str) -> str:
    """Return the title that a file's own field gives, in one line; "" if a program made it up."""
    line = " ".join(unescape(title).split())
    return "" if _JUNK.search(line) else line


def _said(title: str, text: str, share: float = 0.6) -> bool:
    """Whether most words of a title stand in a text."""
    words = set(_plain(title).split())
    return len(words & set(_plain(text).split())) >= share * len(words)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _doi(metadata: Mapping[str, str], opening: str) -> str:
    """Return the DOI that is the paper's own: from its metadata, else the first on its first page or in its imprint."""
    own = " ".join(metadata.get(name, "") for name in ("doi", "subject", "keywords", "title"))
    for text in (own, re.sub("[\u2010\u2011]", "-", opening)):
        whole = _BROKEN_DOI.sub(r"\1\2", re.sub(r"(?<=/)\s+(?=\S)|(?<=doi\.org)\s+(?=/)", "", text))
        if match := _DOI.search(whole):
            return match[0].rstrip(".,;:)]'")
    arxiv = _found(_ARXIV, opening)
    return f"10.48550/arXiv.{arxiv}" if arxiv else ""


def _year(metadata: Mapping[str, str], lines: Sequence[str]) -> int | None:
    """Return the year in which a paper was published, as far as lines that are no prose print it."""
    opening, brief = "\n".join(lines), [line for line in lines if not is_prose(line)]
    texts = (metadata.get("subject", ""), opening[:FRONT], opening[-FRONT // 3 :])
    years = (match[1] for pattern in _YEARS for text in texts if (match := pattern.search(text)))
    heads = [_found(_LONE_YEAR, line) for line in (texts[0], *brief) if not _DATED.search(line)]
    pages = {head for head in filter(None, heads) if len({str(int(head) + n) for n in (-2, -1, 1, 2)} & set(heads)) > 1}
    year = next(years, "") or next((head for head in heads if head and head not in pages), "")
    return int(year) if year else None


def own_authors(value: str, cited: str = "") -> list[str]:
    """Return the authors that a file's own field names; none if it names a program, a login or one word."""
    names = [name for name in re.split(r"\s*;\s*|\s+and\s+|\s*&\s*", " ".join(value.split())) if name]
    if len(names) == 1 and not re.fullmatch(r"[^\s,]+,[^,]+", names[0]):  # "Smith, John" is one
        names = [name for name in re.split(r"\s*,\s*", names[0]) if name]
    return inverted(names[:MOST_AUTHORS], cited) if names and all(map(is_name, names)) else []


def _agreed(own: list[str], printed: list[str], text: str) -> list[str]:
    """Return a file's own authors or those printed: the longer list, if both have an author, else those in a text.

    A file may name the first author alone, or who made it.
    """
    families, others = ({_plain(name.split(",")[0]).split(" ")[-1] for name in names} for names in (own, printed))
    if families & others:
        return own if len(own) >= len(printed) else printed
    return own if own and (not printed or _said(" ".join(families), text)) else printed


def _authors(lines: Sequence[Line], cited: str) -> list[str]:
    """Return the authors of the lines after a title, which end where affiliations or the text begin."""
    names: list[str] = []
    text, is_open, last = "", False, None
    for line in lines[:AUTHOR_LINES]:
        added = " ".join((line.level or line.text).split())[:LONGEST_AUTHORS]
        is_other = _AFFILIATION_MARK.match(line.text) or (last and abs(line.size - last.size) > OTHER_SIZE)
        if is_other and (not last or line.height < last.height - 1):
            if names:
                break
            text = ""
        text, last = f"{text}{' ' if is_open else ', '}{added}" if text else added, line
        is_open = bool(_SEPARATED.search(text))  # a line may end within a name, unless each has one
        names = list(_names(text[:LONGEST_AUTHORS])) or names
    if last and len(names) == 1:  # others may stand beside it, each above an affiliation
        row = [line.level or line.text for line in lines[:AUTHOR_LINES] if abs(line.height - last.height) < 1]
        names = list(_names(", ".join(row)[:LONGEST_AUTHORS])) or names
    return inverted(names[:MOST_AUTHORS], cited)


def _names(text: str) -> Iterator[str]:
    """Yield the names of a line of authors; nothing if a part of it is none."""
    if _LONE_YEAR.search(text):
        return
    text = SUFFIX.sub(r" \1", _MARKS.sub("", _DEGREES.sub("", text)))
    text = re.sub(r"^by\s+", "", text.replace(" ,", ","), flags=re.IGNORECASE)
    text = re.sub(r"(?<=\b[A-Z]\.)(?=[A-Z][^\W\d_.]{2})|(?<=\w-) (?=[A-Z])", lambda gap: "" if gap[0] else " ", text)
    parts = re.split(
        r"\s*[,;·•|]\s*(?:(?:and|AND)\b\s*|&\s*)?|\s[.Æ]\s|\s+(?:and|AND)(?:\s+|$)|^and\s+|\s*&\s*|"
        r"\s+(?=(?i:(?:for|on behalf of)\s+the)\b)",
        text,
    )
    parts = [part if " " in part.strip() else _GLUED.sub(" ", part) for part in parts]
    names = [part.strip(" .*") for part in parts if re.search(r"\w{2}", part)]
    names = [name if len(parts) == 1 or GROUP.fullmatch(name) else _ROLE.sub("", name) for name in names]
    is_capital = text.replace(" and ", "").isupper()
    names = [name for name in names if not (_ABBREVIATED.fullmatch(name) if is_capital else _is_degree(name))]
    whole = [name for name in names if GROUP.fullmatch(name) or is_name(name)]
    if whole and whole[0] == names[0] and len(whole) >= 0.8 * len(names):
        yield from (group[1] if (group := GROUP.fullmatch(name)) else name for name in whole)


def _is_degree(text: str) -> bool:
    """Whether a text has no word but such as "MD" or "PhD"."""
    words = text.replace(".", "").split()
    return all(sum(map(str.isupper, word)) >= 2 and len(word) <= (5 if word.isupper() else 7) for word in words)


def year_in(text: str) -> int | None:
    """Return the first year from 1900 to 2099 in a text."""
    match = re.search(_YEAR, text)
    return int(match[1]) if match else None


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
