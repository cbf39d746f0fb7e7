"""Text and Markdown files as passages of some 300 words, each under its section; the parts of a paper's file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from biorag.corpus.blocks import cut
from biorag.corpus.budget import draw, within
from biorag.corpus.publications import described
from biorag.corpus.readers import LONGEST_TEXT, FileReader, as_id, text_of, with_values
from biorag.corpus.sources import DamagedSourceError, Source, read_lines
from biorag.papers.files.facts import without_citation
from biorag.papers.files.headings import without_list
from biorag.references.authors import inverted
from biorag.types import Snippet
from biorag.utils.text import whole

NONE: Mapping[str, Any] = MappingProxyType({})
WORDS = 300  # of a passage at most
MARKDOWN = (".md", ".md.gz", ".markdown", ".markdown.gz")
LONGEST_FRONT, LARGEST_FRONT = 200, 1 << 16  # lines and characters of front matter
LONGEST_HEADING = 1000  # characters; every passage repeats the headings above it
_HEADING = re.compile(rf" {{0,3}}(#{{1,6}})[ \t]++(.{{0,{LONGEST_HEADING}}})")
FENCE = re.compile(r" {0,3}(```+|~~~+)")
_WORD = re.compile(r"\S+")


class PaperPart(NamedTuple):
    """A passage or a page of a paper's file, or its fault; `facts` are of the paper and of the part."""

    file: str
    position: str  # in the file: `page=3`, or `s1p2`, the second passage of the first section; `p2` in plain text
    title: str
    text: str
    facts: Mapping[str, Any] = NONE
    fault: str = ""


def parse_part(part: PaperPart) -> Snippet:
    """Return the snippet of a part; raises `ValueError` if it has no text, or the file's name cannot begin an id."""
    if part.fault:
        raise ValueError(part.fault)
    if len(part.text) > LONGEST_TEXT:
        raise ValueError(f"more than {LONGEST_TEXT:,} characters")
    metadata = with_values(part.facts)
    pmid = metadata.pop("pmid", None)
    return Snippet(
        as_id(f"{part.file}#{part.position}", "id"), part.title, part.text, int(pmid) if pmid else None, metadata
    )


def reader(read: Callable[[Source], Iterator[tuple[int, PaperPart]]]) -> FileReader:
    """Return the reader of a format whose files are papers, by a function that yields the parts with their lines."""
    return FileReader(lambda source: within(source.name, read(source)), parse_part, lambda part: part.text)


class _Section(NamedTuple):
    """The text under a heading: its first line's number, the headings, the outer ones first, and the lines."""

    line: int
    headings: tuple[str, ...]
    lines: list[str]


def read_passages(source: Source) -> Iterator[tuple[int, PaperPart]]:
    """Yield the passages of a file, each with the line where its section begins.

    The title is the first heading of a Markdown file, else the file's name. Raises `DamagedSourceError` at a line that
    is not text, or beyond the budget of a document.
    """
    markdown = source.path.name.lower().endswith(MARKDOWN)
    lines, front = without_front(text_lines(source)) if markdown else (text_lines(source), NONE)
    title = plain_value(front, "title")
    kept, cited = without_citation(lines, title)
    facts = {**cited, **_front_facts(front)}
    yield from passages_of(source, kept, title or source.stem, markdown, facts, is_title=bool(title))


def without_front(lines: Iterator[tuple[int, str]]) -> tuple[Iterator[tuple[int, str]], Mapping[str, Any]]:
    """Return the lines of Markdown after its front matter, and that: YAML between two lines of "---" at the start."""
    read = list(islice(lines, 1))
    if not read or read[0][1].rstrip() != "---":
        return chain(read, lines), NONE
    for number, line in islice(lines, LONGEST_FRONT):
        if line.rstrip() in ("---", "...") and sum(len(text) for _, text in read) <= LARGEST_FRONT:
            try:
                front = yaml.safe_load("\n".join(text for _, text in read[1:]))
            except (yaml.YAMLError, ValueError, RecursionError):
                front = None
            return (lines, front) if isinstance(front, dict) else (chain(read, [(number, line)], lines), NONE)
        read.append((number, line))
    return chain(read, lines), NONE


def _front_facts(front: Mapping[str, Any]) -> dict[str, Any]:
    """Return what front matter says of a paper, under the names of a snippet's fields."""
    authors = front.get("authors") or front.get("author") or []
    names = [authors] if isinstance(authors, str) else authors if isinstance(authors, list) else []
    facts = described({name: [plain_value(front, name)] for name in ("journal", "year", "date", "doi")})
    return with_values({**facts, "authors": inverted([whole(name) for name in names if isinstance(name, str)])})


def plain_value(front: Mapping[str, Any], name: str) -> str:
    """Return a value of front matter that is a text, a number or a date; a nested one may be a bomb of aliases."""
    value = front.get(name)
    try:
        return whole(" ".join(str(value).split())) if isinstance(value, str | int | date) else ""
    except ValueError:  # a number of thousands of digits
        return ""


def passages_of(
    source: Source,
    lines: Iterable[tuple[int, str]],
    title: str,
    markdown: bool = True,
    facts: Mapping[str, Any] = NONE,
    is_title: bool = False,
) -> Iterator[tuple[int, PaperPart]]:
    """Yield the passages of numbered lines, without lists of references, with a file's facts.

    The first heading of Markdown is the title, unless `is_title` says that it has one.
    """
    number, is_list = 0, False
    for section in _sections(lines, markdown):
        if markdown and section.headings and not number and not is_title:
            title, is_title = section.headings[0], True
        above = [heading for heading in section.headings if heading != title]
        whole_text, text = ("\n".join(lines).strip() for lines in (section.lines, without_list(section.lines, above)))
        is_list = is_list or bool(whole_text and not number and not text)  # the file itself, which is kept
        passages = _cut(whole_text if is_list else text)
        draw(passages=len(passages))
        number += bool(passages)
        for count, text in enumerate(passages, start=1):
            position = f"s{number}p{count}" if markdown else f"p{count}"
            where = {"file": source.label, "part": position, "section": " > ".join(above)}
            yield section.line, PaperPart(source.label, position, title, text, {**facts, **where})


def text_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file of text, drawn on the budget of a document."""
    for number, content in read_lines(source, blank=True):
        try:
            line = text_of(content)
        except ValueError as error:
            raise DamagedSourceError(source.name, number, str(error)) from None
        draw(characters=len(line), lines=1)
        yield number, line


def _sections(lines: Iterable[tuple[int, str]], markdown: bool) -> Iterator[_Section]:
    """Yield the sections of Markdown; plain text is one."""
    section, fence = _Section(1, (), []), ""
    levels: dict[int, str] = {}
    for number, line in lines:
        if markdown and (mark := FENCE.match(line)):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = _HEADING.fullmatch(line) if markdown and not fence else None
        if heading is None:
            section.lines.append(line)
            continue
        yield section
        levels = {level: text for level, text in levels.items() if level < len(heading[1])}
        levels[len(heading[1])] = heading[2].rstrip(" \t").rstrip("#").rstrip(" \t")
        section = _Section(number, tuple(filter(None, levels.values())), [])
    yield section


def _cut(text: str) -> list[str]:
    """Return a text in passages of at most `WORDS` words, which end where sentences do if they can."""
    starts = [word.start() for word in _WORD.finditer(text)]
    return [text[start:end].strip() for start, end in cut(text, starts, WORDS, 0) if starts]


READER = reader(read_passages)
