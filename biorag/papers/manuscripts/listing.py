"""Reference lists: where one stands in a manuscript, and its items."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from biorag.corpus.budget import draw
from biorag.papers.files.headings import AFTER, HAS_YEAR, heads_list
from biorag.papers.manuscripts.manuscript import ListedReference, Paragraph, bare
from biorag.references.authors import cited_authors
from biorag.references.reading import read_reference

LONGEST_ITEM, MOST_LEFT_OUT = 6, 2  # lines of the items of a list, on average; numbers left out between two
_NUMBER = re.compile(
    r"\s*(?:\[\^([\w.-]{1,60})\]:|\[(\d{1,5})\]|\(?(\d{1,5})[.)](?=\s|[^\W\d_])|(\d{1,5})\t|(\d{1,5})\s+(?=[^\W\d_]))\s*"
)
_ENDED = re.compile(r"(?:[.\d)\]]|\S/\S{1,200})\s*\Z")  # of a reference: by a stop, a number, an identifier
_WORDS = re.compile(r"[^\W_]{2}.{0,99}?\W[^\W_]{2}|\d{4}")
_BULLET = re.compile(r"\s*[-*+•]\s+")


def parted(paragraphs: Sequence[Paragraph]) -> tuple[list[Paragraph], list[Paragraph]]:
    """Return a manuscript's text and its list of references: what follows its last heading of that name, if any.

    Without a heading it is the paragraphs at the end that are numbered from 1.
    """
    headings = [n for n, one in enumerate(paragraphs) if heads_list(one.text)]
    if headings:
        start = headings[-1]
        rest = range(start + 1, len(paragraphs))
        end = next(
            (n for n in rest if paragraphs[n].is_heading or AFTER.fullmatch(paragraphs[n].text)), len(paragraphs)
        )
        return [*paragraphs[:start], *paragraphs[end:]], list(paragraphs[start + 1 : end])
    start = next((n for n in range(len(paragraphs) - 1, -1, -1) if _number(paragraphs[n].text) == "1"), len(paragraphs))
    start = start if _are_numbered(paragraphs[start:]) else len(paragraphs)
    return list(paragraphs[:start]), list(paragraphs[start:])


def _are_numbered(paragraphs: Sequence[Paragraph]) -> bool:
    """Return whether paragraphs, up to what follows a list, are items numbered from 1, with a year in most."""
    texts = [line for one in paragraphs for line in one.text.splitlines() if line.strip()]
    numbers = [_number(text) for text in texts]
    dated = sum(bool(HAS_YEAR.search(text)) for text in texts)
    return numbers == [str(n) for n in range(1, len(texts) + 1)] and 2 * dated > len(texts)


def _number(text: str) -> str:
    draw()
    match = _NUMBER.match(text)
    return next(filter(None, match.groups()), "") if match else ""


def items(paragraphs: Sequence[Paragraph]) -> list[ListedReference]:
    """Return the references of a list: an item a number or a bullet, else a paragraph, or lines from authors on.

    The key of one without a number is its place in the list.
    """
    lines = [line for paragraph in paragraphs for line in _lines(paragraph)]
    starts = beginnings([text for text, _, _ in lines], [is_first for _, _, is_first in lines])
    references: list[ListedReference] = []
    for start, end in pairwise([*starts, len(lines)]):
        draw()
        text, paragraph, _ = lines[start]
        number = starts[start]
        opening = _NUMBER.match(text) if number else _BULLET.match(text)
        whole = " ".join([text[opening.end() if opening else 0 :], *(text for text, _, _ in lines[start + 1 : end])])
        key, plain = number or str(len(references) + 1), bare(whole)
        references.append(ListedReference(key, plain, read_reference(plain), paragraph.number, paragraph.place))
    return references


def beginnings(lines: Sequence[str], are_first: Sequence[bool]) -> dict[int, str]:
    """Return which lines of a list begin its items, with their numbers, "" where there are none."""
    numbers = {n: number for n, line in enumerate(lines) if (number := _number(line))}
    if numbers and all(lines[n].lstrip().startswith("[^") for n in numbers):  # footnotes, whatever their keys
        return numbers
    ordered: dict[int, str] = {}
    last = 0
    for n, number in numbers.items():
        if number.isdecimal() and last < int(number) <= last + MOST_LEFT_OUT + 1:
            ordered[n], last = number, int(number)
    if 2 * len(numbers) > len(lines) and 2 * len(ordered) < len(numbers):
        return numbers
    if ordered and min(ordered) < 2 and LONGEST_ITEM * len(ordered) > len(lines):  # a numbering begins with its list
        return ordered
    bullets = {n: "" for n, line in enumerate(lines) if _BULLET.match(line)}
    if LONGEST_ITEM * len(bullets) > len(lines):
        return bullets
    is_a_line = all(_ENDED.search(line) and HAS_YEAR.search(line) for line in lines)
    starts, is_dated = {}, False
    for n, line in enumerate(lines):
        is_ended = is_dated and _ENDED.search(lines[n - 1]) and not line[0].isspace()
        if are_first[n] or is_a_line or (is_ended and _begins_with_authors(line)):
            starts[n], is_dated = "", False
        is_dated = is_dated or bool(HAS_YEAR.search(line))
    return starts


def _lines(paragraph: Paragraph) -> Iterator[tuple[str, Paragraph, bool]]:
    """Yield the lines of a paragraph of a list, at their places, and whether each is its first."""
    is_first = True
    for offset, line in enumerate(paragraph.text.splitlines()):
        if _WORDS.search(line) or (not is_first and re.search(r"[^\W_]", line)):
            number = paragraph.line + offset
            at_line = replace(paragraph, line=number, place=f"line {number}") if paragraph.line else paragraph
            yield line, at_line, is_first
            is_first = False


def _begins_with_authors(line: str) -> bool:
    """Return whether a line begins with authors: a group, several, or one with initials, which no journal has."""
    authors, _ = cited_authors(line)
    return len(authors) > 1 or any(one.group or re.match(r"\w\.|\W*\w{1,3}\Z", one.given) for one in authors)
