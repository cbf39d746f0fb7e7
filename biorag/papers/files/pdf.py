"""PDF files, a paper each whose pages are snippets, read in a separate process of bounded time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from biorag.corpus.budget import draw
from biorag.corpus.joining import joined
from biorag.corpus.readers import LONGEST_TEXT
from biorag.corpus.sources import DamagedSourceError, Source, faults_named, opened
from biorag.papers.files.facts import facts_of
from biorag.papers.files.pdf_layout import Line, composed, laid_out, plain
from biorag.papers.files.pdf_pages import AVERAGE_SECONDS, LARGEST_FILE, MEMORY, PAGE_SECONDS
from biorag.papers.files.texts import PaperPart, reader
from biorag.utils.text import whole

LIGATURES = {ord(mark): letters for mark, letters in zip("ﬀﬁﬂﬃﬄﬆ", ("ff", "fi", "fl", "ffi", "ffl", "st"), strict=True)}
LONGEST_TITLE = 1000  # characters; every page repeats it
LONGEST_PAPER = 64 << 20  # characters
LAYOUT_SECONDS = 0.05  # that a page gives to its paper's budget; ten times what one takes
LONGEST_LINE = 16 * LONGEST_TEXT  # bytes of a page as JSON
NO_TEXT = "no text on any page, as in a scan: make it searchable by OCR first"
TOO_MUCH = (
    f"takes more than {PAGE_SECONDS} s, {AVERAGE_SECONDS} s a page in all, or {MEMORY >> 30} GiB of memory, "
    "as a bomb does"
)


class PdfContent(NamedTuple):
    """What was read of a PDF: its metadata, number of pages, the lines of those read, faults by page."""

    metadata: Mapping[str, str]
    pages: int
    lines: Sequence[Sequence[Line]]
    faults: Mapping[int, str]


def read_pages(source: Source) -> Iterator[tuple[int, PaperPart]]:
    """Yield the pages that have text, each under its number; one fault for a file without any.

    Raises `DamagedSourceError` if it cannot be read, is encrypted, or is beyond a limit of size, time or memory.
    """
    pdf = read_pdf(source)
    layout = laid_out(pdf.lines)
    facts = facts_of(pdf.metadata, layout.front, layout.notices)
    # The facts of a record beside the file come first, then what the file says of itself.
    title = plain(facts.pop("title").replace("- ", "-\n"), layout.words)
    title, facts, _ = joined(source, title[:LONGEST_TITLE], facts)
    faults = pdf.faults or ({} if any(layout.texts) or len(pdf.lines) < pdf.pages else {1: NO_TEXT})
    for number, text in enumerate(layout.texts, 1):
        if text or number in faults:
            where = {"file": source.label, "page": number, "pages_of_file": pdf.pages, "abstract": False}
            part = PaperPart(source.label, f"page={number}", title, text, {**facts, **where}, faults.get(number, ""))
            yield number, part
    if len(pdf.lines) < pdf.pages:
        raise DamagedSourceError(source.name, len(pdf.lines) + 1, TOO_MUCH, "page")


def read_pdf(source: Source) -> PdfContent:
    """Read a PDF up to the page that is beyond a limit; raises as `read_pages` does."""
    if source.bytes > LARGEST_FILE:
        raise DamagedSourceError(source.name, 1, f"more than {LARGEST_FILE >> 20} MiB: split it", "page")
    with faults_named(source, lambda: 1, "page"), opened(source) as stream:
        stream.read1()  # later failures are not the file's fault
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
            draw(seconds=-LAYOUT_SECONDS)
            pages.append(_lines_of(values.get("lines", ())))
            size += sum(len(line.text) for line in pages[-1])
            if "fault" in values:
                faults[number] = values["fault"]
    return PdfContent(head["metadata"], head["pages"], pages, faults)


def _lines_of(values: Sequence[Sequence[Any]]) -> list[Line]:
    """Return a page's lines, with accents on their letters."""
    texts = [" ".join(whole(text).translate(LIGATURES).split()) for line in values for text in (line[0], line[4])]
    texts = composed("\n".join(texts)).split("\n")
    return [Line(*line)._replace(text=texts[2 * n], level=texts[2 * n + 1]) for n, line in enumerate(values)]


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


READER = reader(read_pages)
