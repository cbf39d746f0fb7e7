"""Citations as they are published: PubMed's XML, and the CSV of NIH's Open Citation Collection."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biorag.corpus.citation_graph import LARGEST
from biorag.corpus.pubmed import ARTICLE, read_records, read_references
from biorag.corpus.sources import DamagedSourceError, Source, files_of, read_chunks
from biorag.errors import BadInputError, MissingError
from biorag.registries import READERS

HEADER = b"citing,referenced"
BLOCK = 4 << 20  # bytes of CSV parsed at once
XML, CSV = READERS["PubMed XML"].suffixes, (".csv", ".csv.gz")  # ends of names
EDGES = 50_000  # of XML, yielded at once
_ROW = re.compile(rb'\s*"?\s*([0-9]{1,10})\s*"?\s*,\s*"?\s*([0-9]{1,10})\s*"?\s*')

Pairs = NDArray[np.uint64]  # citing and cited PMID, (edges, 2)


def find_citations(names: Sequence[str]) -> list[Source]:
    """Return the files behind the names: files, and those of folders and their sub-folders, in order.

    Raises `MissingError` if nothing has a name, `BadInputError` at another suffix, or a folder without any of them.
    """
    sources: list[Source] = []
    endings = (*XML, *CSV)
    for name in names:
        path = Path(name)
        if not path.exists():
            raise MissingError(
                f"{name!r} is not there: name PubMed XML, the Open Citation Collection's CSV, or folders"
            )
        files = files_of(path, endings) if path.is_dir() else [path] * name.endswith(endings)
        if not files:
            raise BadInputError(f"{name} has no citations: expected names ending in {', '.join(endings)}")
        sources += [Source(str(file) if path.is_dir() else name, file) for file in files]
    return sources


def read_edges(source: Source) -> Iterator[Pairs]:
    """Yield the edges of a file in its order, self-citations and repetitions among them.

    Raises `DamagedSourceError` at a record that cannot be read, or a CSV without its header.
    """
    return read_csv(source) if source.path.name.endswith(CSV) else read_xml(source)


def read_xml(source: Source) -> Iterator[Pairs]:
    """Yield the edges of PubMed XML, from reference lists and `CommentsCorrections` of type `Cites`."""
    rows: list[tuple[int, int]] = []
    for line, record in read_records(source):
        if record.tag != ARTICLE:
            continue
        try:
            pmid, cited = read_references(record)
        except ValueError as error:
            raise DamagedSourceError(source.name, line, str(error)) from None
        if pmid > LARGEST:
            raise DamagedSourceError(source.name, line, f"PMID {pmid} is larger than {LARGEST}")
        rows += [(pmid, other) for other in cited if other <= LARGEST]
        if len(rows) >= EDGES:
            yield pairs_of(rows)
            rows = []
    yield pairs_of(rows)


def read_csv(source: Source) -> Iterator[Pairs]:
    """Yield the edges of a CSV of two columns, citing and referenced; see `read_edges`."""
    line = 1
    for block in _blocks(source):
        if line == 1:
            header, _, block = block.partition(b"\n")
            if header.replace(b'"', b"").replace(b" ", b"").strip().lower() != HEADER:
                reason = f"expected the header {HEADER.decode()}, not {header[:60].decode(errors='replace')!r}"
                raise DamagedSourceError(source.name, 1, reason)
            line = 2
        yield _parsed(source, block, line)
        line += block.count(b"\n")


def pairs_of(rows: Sequence[tuple[int, int]]) -> Pairs:
    """Return edges as an array, (edges, 2)."""
    return np.array(rows, np.uint64).reshape(-1, 2)


def _parsed(source: Source, block: bytes, first: int) -> Pairs:
    """Return the edges of whole lines, parsed all at once; `first` is the number of the first line."""
    if not block.strip():
        return pairs_of([])
    with suppress(ValueError):
        pairs = np.loadtxt(io.BytesIO(block), np.uint64, None, delimiter=",", quotechar='"', ndmin=2)
        if pairs.shape[1] == 2 and pairs.min() > 0 and pairs.max() <= LARGEST:
            return pairs
    lines = [(number, line) for number, line in enumerate(block.split(b"\n"), first) if line.strip()]
    number, bad = next((row for row in lines if not _is_edge(row[1])), lines[0])
    reason = f"expected two PMIDs, citing,referenced, not {bad[:60].decode(errors='replace')!r}"
    raise DamagedSourceError(source.name, number, reason)


def _is_edge(line: bytes) -> bool:
    match = _ROW.fullmatch(line)
    return match is not None and all(1 <= int(pmid) <= LARGEST for pmid in match.groups())


def _blocks(source: Source) -> Iterator[bytes]:
    """Yield whole lines, about `BLOCK` bytes of them."""
    buffer = bytearray()
    lines = 1
    for chunk in read_chunks(source):
        buffer += chunk
        if len(buffer) >= BLOCK:
            cut = buffer.rfind(b"\n") + 1
            if not cut:
                raise DamagedSourceError(source.name, lines, f"longer than {BLOCK >> 20} MiB")
            block = bytes(buffer[:cut])
            del buffer[:cut]
            lines += block.count(b"\n")
            yield block
    if buffer or lines == 1:
        yield bytes(buffer)
