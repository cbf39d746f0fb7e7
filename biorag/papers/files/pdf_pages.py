"""The process that reads a PDF: `python -m biorag.papers.files.pdf_pages FILE` writes a JSON line a page.

The first line has the file's own metadata and number of pages, or `damage`; that of a page its lines, as
`biorag.papers.files.pdf_layout.Line` has them. A page beyond its limits ends the process.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

LARGEST_FILE = 256 << 20
MOST_PAGES = 10_000
MEMORY = 4 << 30  # bytes of address space
PAGE_SECONDS, AVERAGE_SECONDS = 20, 0.5  # of computing: a page at most, and all of a file's beyond one
LONGEST_FIELD = 4000  # characters
RAISED = 0.9  # size of raised letters, at most, as a share of their line's
_STYLED = re.compile(r"bold|black|heavy|demi|italic|oblique", re.IGNORECASE)
HEADER = 1024  # bytes in which a PDF says that it is one
GAP, WIDE = 120, 2000  # thousandths of the size of letters: between words at least; wider than any space


def write_pages(path: Path) -> None:
    """Write the metadata and the lines of each page of a PDF."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _allow(PAGE_SECONDS)
    with path.open("rb") as stream:
        if b"%PDF-" not in stream.read(HEADER):
            return _write(damage="not a PDF")
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, WrongPasswordError

    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise WrongPasswordError
        metadata, pages = own_metadata(reader), len(reader.pages)
    except (DependencyError, WrongPasswordError):  # the former: AES
        return _write(damage="encrypted: save it without a password")
    except Exception as error:  # whatever pypdf raises at a damaged file
        return _write(damage=f"a PDF that cannot be read ({_reason(error)})")
    if not 0 < pages <= MOST_PAGES:
        return _write(damage=f"a PDF of {pages:,} pages, not of 1 to {MOST_PAGES:,}: split it")
    _write(metadata=metadata, pages=pages)
    end = _used() + PAGE_SECONDS + pages * AVERAGE_SECONDS
    for index in range(pages):
        if _used() > end:  # pages may share one slow content
            return None
        _allow(PAGE_SECONDS)
        try:
            lines, page = Lines(), reader.pages[index]
            prepare(page)
            page.extract_text(visitor_text=lines.take)
            _write(lines=lines.all())
        except Exception as error:
            _write(fault=f"a page that cannot be read ({_reason(error)})")
    return None


_XMP = {
    "doi": r"<(?:prism:doi|pdfx:doi|pdfx:WPS-ARTICLEDOI|crossmark:DOI)>([^<]+)<",
    "journal": r"<prism:publicationName>([^<]+)<",
    "published": r"<prism:(?:publicationDate|coverDate|coverDisplayDate)>(?:<[^>]+>\s*)*([^<]+)<",
}


def own_metadata(reader: PdfReader) -> dict[str, str]:
    """Return a PDF's own metadata: title, author, subject, keywords, doi, journal, published, created."""
    own: Mapping[str, Any] = reader.metadata or {}
    names = {"/Title": "title", "/Author": "author", "/Subject": "subject", "/Keywords": "keywords", "/doi": "doi"}
    names |= {"/DOI": "doi", "/WPS-ARTICLEDOI": "doi", "/CreationDate": "created"}
    fields = {name: str(own[key])[:LONGEST_FIELD] for key, name in names.items() if isinstance(own.get(key), str)}
    try:
        stream = reader.root_object.get("/Metadata")
        xmp = stream.get_object().get_data()[: 1 << 20].decode("utf-8", "replace") if stream else ""
    except Exception:  # whatever pypdf raises at a damaged stream: the file is read without it
        xmp = ""
    matches = {name: re.search(pattern, xmp) for name, pattern in _XMP.items()}
    return {**fields, **{name: match[1].strip()[:LONGEST_FIELD] for name, match in matches.items() if match}}


def prepare(page: PageObject) -> None:
    """Change how a page shows its text so that pypdf tells words apart, and letters of one size from others.

    It takes for a space what is wide beside the font's own, which fonts that have none give at random: gaps between
    words are widened, and stepped back from. It gives a visitor what one font shows: each size gets a font of its own.
    """
    from pypdf.generic import ContentStream, NameObject

    if "/Contents" not in page:
        return
    content = ContentStream(page["/Contents"].get_object(), page.pdf, "bytes")
    font, scale, operations = None, None, []
    for operands, operator in content.operations:
        if operator == b"TJ" and operands and isinstance(operands[0], list):
            operands = [_parted(operands[0])]
        operations.append((operands, operator))
        if operator == b"Tf":
            font, scale = operands, None
        elif operator == b"Tm" and font and operands[:4] != scale:
            scale = operands[:4]
            operations.append((font, b"Tf"))
    content.operations = operations
    page[NameObject("/Contents")] = content


def _parted(shown: list[Any]) -> list[Any]:
    """Return what is shown with wide gaps between words; letters that are spaced out stay as they are."""
    is_gap = [isinstance(part, int | float) and part <= -GAP for part in shown]
    letters = sum(len(part) for part in shown if isinstance(part, str | bytes))
    if letters < 2 * sum(is_gap):
        return shown
    parts = [[-WIDE, part + WIDE] if gap else [part] for part, gap in zip(shown, is_gap, strict=True)]
    return type(shown)(chain.from_iterable(parts))


class _Piece(NamedTuple):
    text: str
    size: float
    height: float
    styled: bool = False
    turned: bool = False


class Lines:
    """Takes the pieces of a page's text, and gives its lines with their letters and places."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    def take(self, text: str, cm: list[float], tm: list[float], font: Mapping[str, object] | None, size: float) -> None:
        """Take a piece with its matrices, as pypdf's visitors get them."""
        scale = (tm[2] ** 2 + tm[3] ** 2) ** 0.5 * (cm[2] ** 2 + cm[3] ** 2) ** 0.5
        height = tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
        rise, run = tm[0] * cm[1] + tm[1] * cm[3], tm[0] * cm[0] + tm[1] * cm[2]
        styled = bool(_STYLED.search(str((font or {}).get("/BaseFont", ""))))
        self._pieces.append(_Piece(text, round(abs(size) * scale, 1), round(height, 1), styled, abs(rise) > abs(run)))

    def all(self) -> list[tuple[str, float, float, bool, str, bool]]:
        """Return the lines that have text."""
        lines = []
        line: list[_Piece] = []
        for piece in [*self._pieces, _Piece("\n", 0.0, 0.0)]:
            first, *rest = piece.text.split("\n")
            line.append(piece._replace(text=first))
            for following in rest:
                content = "".join(part.text for part in line)
                if content.strip():
                    main = max(line, key=lambda part: len(part.text.strip()))
                    lines.append((content, main.size, main.height, main.styled, _level(line, main.size), main.turned))
                line = [piece._replace(text=following)]
        return lines


def _level(line: Sequence[_Piece], size: float) -> str:
    """Return a line's text without raised letters, which part names as commas do."""
    return "".join(part.text if part.size > RAISED * size else ", " if part.text.strip() else " " for part in line)


def _write(**values: Any) -> None:
    sys.stdout.buffer.write(json.dumps(values).encode() + b"\n")
    sys.stdout.buffer.flush()


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _allow(seconds: int) -> None:
    """Let this process compute for so many seconds more."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(_used()) + seconds, hard))


def _used() -> float:
    """Return the seconds that this process has computed."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    write_pages(Path(os.fsdecode(sys.argv[1])))
