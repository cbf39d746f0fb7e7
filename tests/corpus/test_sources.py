"""From names to files to lines: plain, gzip and its bounds, folders, standard input, files that change meanwhile."""

import gzip
import hashlib
import io
import json
import os
import random
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus import sources
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import (
    ChangedSourceError,
    DamagedSourceError,
    Source,
    demo_file,
    find_sources,
    read_lines,
)
from biorag.errors import BadInputError, BioragError, MissingError
from biorag.indexes import surveying
from biorag.papers.files.pdf import read_pages
from tests.cli import done, failed, invoke

LINES = b'{"id": "a", "content": "one"}\n{"id": "b", "content": "two"}\n'


@pytest.fixture
def spool(tmp_path) -> Path:
    return tmp_path / "spool" / "standard-input"


def ids(sources: list[Source]) -> list[str]:
    return [snippet.id for source in sources for snippet in read_snippets(source)]


def test_gzip_is_known_by_its_content_not_its_name(tmp_path, spool, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_bytes(gzip.compress(LINES))
    (found,) = find_sources(["mine.txt"], spool)
    assert (found.name, found.bytes, ids([found])) == ("mine.txt", len(gzip.compress(LINES)), ["a", "b"])
    assert found.sha256() == hashlib.sha256(found.path.read_bytes()).hexdigest()


def test_standard_input_is_spooled_and_can_be_read_twice(spool, monkeypatch):
    data = gzip.compress(LINES)
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))
    (found,) = find_sources(["-"], spool)
    assert (found.name, found.path, spool.read_bytes()) == ("standard input", spool, data)
    assert ids([found]) == ids([found]) == ["a", "b"]


def test_the_demo_corpus_is_found_and_whole(spool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (found,) = find_sources(["demo"], spool)
    assert (found.name, found.path) == ("demo", demo_file("snippets.jsonl"))
    rows = [json.loads(line) for line in found.path.read_text(encoding="utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) >= 120
    assert ids([found]) == [row["id"] for row in rows]


@pytest.mark.parametrize("name", ["nowhere.jsonl", ""])
def test_a_name_that_is_nothing_is_missing(spool, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("corpus.jsonl").write_bytes(LINES)  # an empty name, as from an unset variable, is not the working folder
    with pytest.raises(MissingError) as caught:
        find_sources([name], spool)
    assert repr(name) in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_folder_without_a_corpus_file_is_bad_input(spool, tmp_path):
    (tmp_path / "README.md").write_text("nothing here")
    with pytest.raises(BadInputError, match=r"holds no corpus file: expected names ending in \.jsonl") as caught:
        find_sources([str(tmp_path)], spool)
    assert str(tmp_path) in str(caught.value)
    assert str(caught.value).count(".xml,") == 1
    assert caught.value.exit_code == 3


def test_a_file_that_may_not_be_read_is_one_of_our_errors(tmp_path, monkeypatch):
    """Root reads everything, so the refusal is played."""
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(LINES)
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BioragError, match=r"corpus\.jsonl"):
        list(read_lines(Source(str(path), path)))
    with pytest.raises(DamagedSourceError, match=r"a\.pdf, page 1: cannot be read: Permission denied"):
        list(read_pages(Source("a.pdf", tmp_path / "a.pdf")))


@given(
    lines=st.lists(
        st.binary(max_size=30).map(lambda line: b"{" + line.replace(b"\n", b"")) | st.just(b" "), max_size=8
    ),
    last_end=st.booleans(),
    zipped=st.booleans(),
)
def test_lines_and_their_numbers_are_those_of_a_plain_split(tmp_path_factory, lines, last_end, zipped):
    data = b"\n".join(lines) + (b"\n" if last_end else b"")
    path = tmp_path_factory.mktemp("lines") / "corpus"
    path.write_bytes(gzip.compress(data) if zipped else data)
    expected = [(n, line.rstrip(b"\r")) for n, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    assert list(read_lines(Source("corpus", path))) == expected


# --- files that change, and gzip at its bounds

ROWS = b"".join(b'{"id": "s%d", "content": "Snippet %d on fever."}\n' % (n, n) for n in range(50))


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'{"id": "late", "content": "A late one."}\n')


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def swap(path: Path) -> None:
    """Another file of the same size and time takes its place."""
    state = path.stat()
    other = path.with_name("other")
    other.write_bytes(ROWS.replace(b"fever", b"cough"))
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)


def test_a_change_between_the_check_and_the_indexing_is_an_error(tmp_path, monkeypatch, tiny_encoder):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(ROWS)
    whole = surveying.survey

    def surveyed(*args):
        files = whole(*args)
        shrink(path)
        return files

    monkeypatch.setattr(surveying, "survey", surveyed)
    command = ["index", path, "--encoder", tiny_encoder, "--on-bad-line", "skip"]
    failed(invoke(*command), 3, "was changed during this run: run the same command again")
    monkeypatch.setattr(surveying, "survey", whole)
    assert done(invoke(*command, "--json"))["snippets"] == 25


@pytest.mark.parametrize("change", [grow, shrink, swap, Path.unlink])
def test_a_change_while_a_file_is_read_is_an_error_at_its_end(tmp_path, change):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(ROWS)
    reader = read_snippets(Source("c", path), lambda _: None)
    next(reader)
    change(path)
    with pytest.raises(ChangedSourceError, match=r"^c was changed"):
        list(reader)


def test_a_gzip_is_read_up_to_its_bounds_and_no_further(tmp_path, monkeypatch):
    """Bounds are scaled down; the lines before the bound are those of the file."""
    monkeypatch.setattr(sources, "RATIO_FROM", 10_000)
    monkeypatch.setattr(sources, "MAX_RATIO", 5)
    path = tmp_path / "c.gz"
    path.write_bytes(gzip.compress(b"x" * 99 + b"\n"))
    assert len(list(read_lines(Source("c", path)))) == 1, "a small file may shrink as it likes"
    path.write_bytes(gzip.compress((b"x" * 99 + b"\n") * 1000))
    with pytest.raises(DamagedSourceError, match="line 1: a gzip that unpacks to over 5 times its size"):
        list(read_lines(Source("c", path)))
    noise = random.Random(0).randbytes(50_000).hex().encode()  # shrinks to a half
    path.write_bytes(gzip.compress(noise))
    assert [line for _, line in read_lines(Source("c", path))] == [noise]
    monkeypatch.setattr(sources, "MAX_UNPACKED", 50_000)
    with pytest.raises(DamagedSourceError, match="a gzip of more than 0 GiB"):
        list(read_lines(Source("c", path)))
