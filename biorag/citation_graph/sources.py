"""Citations as they are published: PubMed's XML, and the CSV of NIH's Open Citation Collection."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.citation_graph.graph import LARGEST
from biorag.corpus.pubmed import ARTICLE, read_records, read_references
from biorag.corpus.sources import DamagedSourceError, Source, files_of, read_chunks
from biorag.errors import BadInputError, MissingError
from biorag.registries import CITATIONS, suffixes

HEADER = b"citing,referenced"
BLOCK = 4 << 20  # bytes of CSV parsed at once
RECORDS = 10_000  # of XML
_ROW = re.compile(rb'\s*"?([0-9]{1,10})"?\s*,\s*"?([0-9]{1,10})"?\s*')

Pairs = NDArray[np.uint64]  # citing and cited PMID, (edges, 2)


class Edges(NamedTuple):
    """Some edges of a file, and how many lines or records among them could not be read."""

    pairs: Pairs
    rejected: int = 0


def find_citations(names: Sequence[str]) -> list[Source]:
    """Return the files behind the names: files, and those of folders and their sub-folders, in order.

    Raises `MissingError` if nothing has a name, `BadInputError` at another suffix, or a folder without any of them.
    """
    sources: list[Source] = []
    endings = suffixes(CITATIONS)
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


def read_edges(source: Source, skip: bool = False) -> Iterator[Edges]:
    """Yield the edges of a file in its order, self-citations and repetitions among them.

    With `skip`, unreadable records are counted; else they raise `DamagedSourceError`, as a CSV without its header does.
    """
    kind = next(kind for kind in CITATIONS.values() if source.path.name.endswith(kind.suffixes))
    edges: Iterator[Edges] = kind.load()(source, skip)
    return edges


def read_xml(source: Source, skip: bool) -> Iterator[Edges]:
    """Yield the edges of PubMed XML, from reference lists and `CommentsCorrections` of type `Cites`."""
    rows: list[tuple[int, int]] = []
    rejected = records = 0
    for line, record in read_records(source):
        if record.tag != ARTICLE:
            continue
        try:
            pmid, cited = read_references(record)
            if pmid > LARGEST:
                raise ValueError(f"PMID {pmid} is larger than {LARGEST}")
        except ValueError as error:
            if not skip:
                raise _unreadable(source, line, error) from None
            rejected += 1
            continue
        rows += [(pmid, other) for other in cited if other <= LARGEST]
        records += 1
        if records % RECORDS == 0:
            yield Edges(pairs_of(rows), rejected)
            rows, rejected = [], 0
    yield Edges(pairs_of(rows), rejected)


def read_csv(source: Source, skip: bool) -> Iterator[Edges]:
    """Yield the edges of a CSV of two columns, citing and referenced; see `read_edges`."""
    line = 1
    for block in _blocks(source):
        if line == 1:
            header, _, block = block.partition(b"\n")
            if header.replace(b'"', b"").replace(b" ", b"").strip().lower() != HEADER:
                reason = f"expected the header {HEADER.decode()}, not {header[:60].decode(errors='replace')!r}"
                raise DamagedSourceError(source.name, 1, reason)
            line = 2
        pairs = _parsed(block)
        yield _by_lines(source, block, line, skip) if pairs is None else Edges(pairs)
        line += block.count(b"\n")


def pairs_of(rows: Sequence[tuple[int, int]]) -> Pairs:
    """Return edges as an array, (edges, 2)."""
    return np.array(rows, np.uint64).reshape(-1, 2)


def _parsed(block: bytes) -> Pairs | None:
    """Return the edges of whole lines, all at once; None if one of them is not two PMIDs."""
    if not block.strip():
        return pairs_of([])
    try:
        pairs = np.loadtxt(io.BytesIO(block), np.uint64, None, delimiter=",", quotechar='"', ndmin=2)
    except ValueError:
        return None
    return pairs if pairs.shape[1] == 2 and pairs.min() > 0 and pairs.max() <= LARGEST else None


def _by_lines(source: Source, block: bytes, first: int, skip: bool) -> Edges:
    """Return the edges of lines of which some cannot be read; blank ones are skipped."""
    rows: list[tuple[int, int]] = []
    rejected = 0
    for number, line in enumerate(block.split(b"\n"), first):
        match = _ROW.fullmatch(line)
        citing, cited = map(int, match.groups()) if match else (0, 0)
        if 1 <= citing <= LARGEST and 1 <= cited <= LARGEST:
            rows.append((citing, cited))
        elif line.strip():
            if not skip:
                shown = line[:60].decode(errors="replace")
                raise _unreadable(source, number, f"expected two PMIDs, citing,referenced, not {shown!r}")
            rejected += 1
    return Edges(pairs_of(rows), rejected)


def _unreadable(source: Source, line: int, reason: object) -> DamagedSourceError:
    return DamagedSourceError(source.name, line, f"{reason}: --on-bad-line skip passes over it")


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
