"""The process that reads a PDF: `python -m biorag.corpus.pdf_pages FILE` writes a JSON line a page.

The first line has title and number of pages, or `damage`. A page beyond its limits ends the process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

LARGEST_FILE = 256 << 20
MOST_PAGES = 10_000
MEMORY = 4 << 30  # bytes of address space
PAGE_SECONDS = 20  # of computing
HEADER = 1024  # bytes in which a PDF says that it is one


def write_pages(path: Path) -> None:
    """Write the title and the text of each page of a PDF."""
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
        title, pages = reader.metadata and reader.metadata.title, len(reader.pages)
    except (DependencyError, WrongPasswordError):  # the former: AES
        return _write(damage="encrypted: save it without a password")
    except Exception as error:  # whatever pypdf raises at a damaged file
        return _write(damage=f"a PDF that cannot be read ({_reason(error)})")
    if not 0 < pages <= MOST_PAGES:
        return _write(damage=f"a PDF of {pages:,} pages, not of 1 to {MOST_PAGES:,}: split it")
    _write(title=title if isinstance(title, str) else "", pages=pages)
    for index in range(pages):
        _allow(PAGE_SECONDS)
        try:
            _write(text=reader.pages[index].extract_text())
        except Exception as error:
            _write(fault=f"a page that cannot be read ({_reason(error)})")
    return None


def _write(**values: Any) -> None:
    sys.stdout.buffer.write(json.dumps(values).encode() + b"\n")
    sys.stdout.buffer.flush()


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _allow(seconds: int) -> None:
    """Let this process compute for so many seconds more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, hard))


if __name__ == "__main__":
    write_pages(Path(os.fsdecode(sys.argv[1])))
