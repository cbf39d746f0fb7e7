"""PDF files, a paper each whose pages are snippets, read in a separate process of bounded time and memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from biorag.corpus.joining import joined
from biorag.corpus.readers import LONGEST_TEXT, FileReader, as_id, with_values
from biorag.corpus.sources import DamagedSourceError, Source, faults_named, opened
from biorag.papers.files.pdf_facts import facts_of
from biorag.papers.files.pdf_layout import Line, laid_out, plain
from biorag.papers.files.pdf_pages import AVERAGE_SECONDS, LARGEST_FILE, MEMORY, PAGE_SECONDS
from biorag.types import Snippet
from biorag.utils.text import whole

LONGEST_TITLE = 1000  # characters; every page repeats it
LONGEST_PAPER = 64 << 20  # characters
LONGEST_LINE = 16 * LONGEST_TEXT  # bytes of a page as JSON
NO_TEXT = "no text on any page, as in a scan: make it searchable by OCR first"
TOO_MUCH = (
    f"takes more than {PAGE_SECONDS} s, {AVERAGE_SECONDS} s a page in all, or {MEMORY >> 30} GiB of memory, "
    "as a bomb does"
)
_SUFFIX = re.compile(r"\.pdf\Z", re.IGNORECASE)


class Page(NamedTuple):
    """The text of a page, or why it has none, and what is known of its paper."""

    file: str
    title: str
    number: int
    pages: int
    text: str
    fault: str = ""
    facts: Mapping[str, Any] = {}


class Paper(NamedTuple):
    """What was read of a PDF: its metadata, number of pages, the lines of those read, faults."""

    metadata: Mapping[str, str]
    pages: int
    lines: Sequence[Sequence[Line]]
    faults: Mapping[int, str]


def read_pages(source: Source) -> Iterator[tuple[int, Page]]:
    """Yield the pages that have text, each under its number; one fault for a file without any.

    Raises `DamagedSourceError` if it cannot be read, is encrypted, or is beyond a limit of size, time or memory.
    """
    if source.bytes > LARGEST_FILE:
        raise DamagedSourceError(source.name, 1, f"more than {LARGEST_FILE >> 20} MiB: split it", "page")
    has_pages = False
    with faults_named(source, lambda: 1, "page"), opened(source) as stream:
        stream.read1()  # later failures are not the file's fault
    paper = read_paper(source)
    layout = laid_out(paper.lines)
    title, facts = _identified(source, facts_of(paper.metadata, layout.front, layout.notices))
    for number, text in enumerate(layout.texts, 1):
        if text or number in paper.faults:
            has_pages = True
            yield number, Page(source.label, title, number, paper.pages, text, paper.faults.get(number, ""), facts)
    if len(paper.lines) < paper.pages:
        raise DamagedSourceError(source.name, len(paper.lines) + 1, TOO_MUCH, "page")
    if not has_pages:
        yield 1, Page(source.label, title, 1, paper.pages, "", NO_TEXT)


def read_paper(source: Source) -> Paper:
    """Read a PDF up to the page that is beyond a limit."""
    pages: list[list[Line]] = []
    faults: dict[int, str] = {}
    size = 0
    with opened(source), _reading(source) as lines:
        head = _line(lines)
        if "pages" not in head:
            raise DamagedSourceError(source.name, 1, head.get("damage", TOO_MUCH), "page")
        for number in range(1, head["pages"] + 1):
            values = _line(lines)
            if not values or size > LONGEST_PAPER:
                break
            pages.append([Line(" ".join(whole(line[0]).split()), *line[1:]) for line in values.get("lines", ())])
            size += sum(len(line.text) for line in pages[-1])
            if "fault" in values:
                faults[number] = values["fault"]
    return Paper(head["metadata"], head["pages"], pages, faults)


def _identified(source: Source, facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a paper's title and facts: those of its record beside the file, else what the file says of itself."""
    stem = _SUFFIX.sub("", source.label.rpartition("/")[2])
    title = plain(facts.pop("title"))[:LONGEST_TITLE]
    return joined(source, title, facts, stem)[:2]


@contextmanager
def _reading(source: Source) -> Iterator[IO[bytes]]:
    """Run `biorag.papers.files.pdf_pages` and give its output; it is ended with the block."""
    # -P: the working folder is not where modules come from.
    command = [sys.executable, "-P", "-m", "biorag.papers.files.pdf_pages", os.fspath(source.path.resolve())]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing) as child:
        assert child.stdout
        try:
            yield child.stdout
        finally:
            child.kill()


def _line(lines: IO[bytes]) -> dict[str, Any]:
    """Return the next line that the process wrote; nothing where it ended."""
    line = lines.readline(LONGEST_LINE)
    return dict(json.loads(line)) if line.endswith(b"\n") else {}


def parse_page(page: Page) -> Snippet:
    """Return the snippet of a page; raises `ValueError` if it has no text, or the file's name cannot begin an id."""
    if page.fault:
        raise ValueError(page.fault)
    if len(page.text) > LONGEST_TEXT:
        raise ValueError(f"more than {LONGEST_TEXT:,} characters")
    place = {"file": page.file, "page": page.number, "pages_of_file": page.pages, "abstract": False}
    facts = {name: value for name, value in page.facts.items() if name != "pmid"}
    metadata = with_values({**facts, **place})
    pmid = int(page.facts["pmid"]) if page.facts.get("pmid") else None
    return Snippet(as_id(f"{page.file}#page={page.number}", "id"), page.title, page.text, pmid, metadata)


READER = FileReader(read_pages, parse_page, lambda page: page.text)
