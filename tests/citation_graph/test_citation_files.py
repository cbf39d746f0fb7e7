"""Citations from files: CSV and XML against slow readings, and everything that is neither."""

import gzip
import re
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.citation_graph import sources
from biorag.citation_graph.rows import LARGEST, distinct, parse_row, parse_rows
from biorag.citation_graph.sources import find_citations, read_edges
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, BioragError, MissingError
from tests.pubmed_records import article, deletions, file_of, record

PMID = st.integers(1, LARGEST)
HEADER = b"citing,referenced\n"


def written(folder: Path, content: bytes, name: str = "occ.csv") -> Source:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Source(name, path)


def pairs(keys) -> list[tuple[int, int]]:
    return [(int(key) >> 32, int(key) & LARGEST) for key in keys]


def read(source: Source, skip: bool = False) -> tuple[list[tuple[int, int]], int]:
    found = list(read_edges(source, skip))
    return pairs(np.concatenate([edges.keys for edges in found])), sum(edges.rejected for edges in found)


# --- rows


@given(st.lists(st.tuples(PMID, PMID)))
def test_plain_rows_are_read_at_once(rows):
    block = "".join(f"{citing},{cited}\n" for citing, cited in rows).encode()
    assert pairs(parse_rows(block)) == rows
    assert [parse_row(line) for line in block.splitlines()] == parse_rows(block).tolist()


@given(st.lists(st.sampled_from([b"1", b"20", b"4294967295", b"4294967296", b"0", b",", b"\n", b"7,8\n", b" ", b"x"])))
def test_whatever_is_read_at_once_is_what_the_lines_say(parts):
    block = b"".join(parts)
    slow = [
        (int(row[1]), int(row[2]))
        for row in map(re.compile(rb"([0-9]{1,10}),([0-9]{1,10})\n").fullmatch, block.splitlines(keepends=True))
        if row and 0 < int(row[1]) <= LARGEST and 0 < int(row[2]) <= LARGEST
    ]
    found = parse_rows(block)
    assert (found is not None) == (len(slow) == len(block.splitlines()))
    assert found is None or pairs(found) == slow


@given(st.lists(st.integers(0, 9)))
def test_distinct_values(values):
    assert distinct(np.array(values, np.uint64)).tolist() == sorted(set(values))


# --- CSV


@pytest.mark.parametrize("name", ["occ.csv", "occ.csv.gz"])
@pytest.mark.parametrize("block", [24, 1 << 20])
def test_a_csv_is_read_in_blocks(tmp_path, monkeypatch, name, block):
    monkeypatch.setattr(sources, "BLOCK", block)
    monkeypatch.setattr("biorag.corpus.sources.CHUNK", 30)
    rows = [(Random(0).randrange(1, 10**8) + n, n + 1) for n in range(500)]
    content = HEADER + "".join(f"{one},{other}\n" for one, other in rows).encode()
    assert read(written(tmp_path, content, name)) == (rows, 0)
    assert read(written(tmp_path, content.rstrip(b"\n"), name)) == (rows, 0)
    assert read(written(tmp_path, content.replace(b"\n", b"\r\n"), name)) == (rows, 0)


def test_a_csv_of_another_hand(tmp_path):
    content = b'\xef\xbb\xbf"Citing", "Referenced"\n"12","3"\n\n 4 , 5 \n6,7'
    assert read(written(tmp_path, content)) == ([(12, 3), (4, 5), (6, 7)], 0)
    assert read(written(tmp_path, HEADER)) == ([], 0)


@pytest.mark.parametrize("row", ["x,1", "1", "1,2,3", "-1,2", "0,5", "5,4294967296", "1;2", "1.5,2", "99999999999,1"])
def test_a_bad_row_is_named_or_skipped(tmp_path, monkeypatch, row):
    monkeypatch.setattr(sources, "BLOCK", 24)
    monkeypatch.setattr("biorag.corpus.sources.CHUNK", 8)
    content = HEADER + b"1,2\n3,4\n5,6\n" + row.encode() + b"\n7,8\n"
    source = written(tmp_path, content)
    with pytest.raises(
        BadInputError, match=re.escape(f"occ.csv, line 5: expected two PMIDs, citing,referenced, not '{row}'")
    ):
        read(source)
    assert read(source, skip=True) == ([(1, 2), (3, 4), (5, 6), (7, 8)], 1)


@pytest.mark.parametrize("header", ["", "1,2\n", "referenced,citing\n", "pmid,year,title\n"])
def test_a_csv_needs_its_header(tmp_path, header):
    with pytest.raises(BadInputError, match="line 1: expected the header citing,referenced"):
        read(written(tmp_path, header.encode() + b"3,4\n"), skip=True)


def test_a_line_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 100)
    with pytest.raises(BadInputError, match="line 2: longer than"):
        read(written(tmp_path, HEADER + b"1" * 100_000))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(), skip=st.booleans(), name=st.sampled_from(["x.csv", "x.xml", "x.csv.gz"]))
def test_no_file_raises_anything_but_our_errors(tmp_path, content, skip, name):
    path = tmp_path / name
    path.write_bytes(content)
    source = Source(name, path)
    with suppress(BioragError):
        list(read_edges(source, skip))


# --- XML


def test_records_cite_what_the_reader_of_snippets_says(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "RECORDS", 7)
    random = Random(3)
    records = [record(random, 100 + n) for n in range(60)]
    wanted = [
        (one.snippet.pmid, cited)
        for one in records
        for cited in one.snippet.metadata.get("references", [])
        if cited <= LARGEST
    ]
    content = file_of(*(one.xml for one in records), deletions(5, 6))
    assert len(wanted) > 50
    assert read(written(tmp_path, content, "pubmed.xml.gz")) == (wanted, 0)


def test_a_record_without_a_pmid(tmp_path):
    bad = article(2, "Two.").replace('<PMID Version="1">2</PMID>', '<PMID Version="1">two</PMID>')
    source = written(tmp_path, file_of(article(1, "One."), bad), "pubmed.xml")
    with pytest.raises(BadInputError, match=r"pubmed.xml, line \d+: PMID 'two' is not a positive whole number"):
        read(source)
    assert read(source, skip=True) == ([], 1)


# --- names


def test_files_are_found(tmp_path):
    for name in ("b/two.csv.gz", "a/one.xml", "a/notes.txt", "three.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = find_citations([str(tmp_path / "three.csv"), str(tmp_path)])
    assert [source.path.name for source in found] == ["three.csv", "one.xml", "two.csv.gz", "three.csv"]
    with pytest.raises(BadInputError, match="neither PubMed XML nor CSV"):
        find_citations([str(tmp_path / "a" / "notes.txt")])
    with pytest.raises(MissingError, match="is not there: name PubMed XML"):
        find_citations(["absent.csv"])
    (tmp_path / "a" / "one.xml").unlink()
    with pytest.raises(BadInputError, match="holds no citations"):
        find_citations([str(tmp_path / "a")])
