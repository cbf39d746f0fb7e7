"""Corpus files that change under the reader, and gzip at its bounds."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.corpus import sources
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import ChangedSourceError, DamagedSourceError, Source, read_lines
from biorag.indexes import surveying

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


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(("change", "skip"), [(shrink, True), (swap, False)])
def test_a_change_between_the_check_and_the_indexing_is_an_error(tmp_path, monkeypatch, tiny_encoder, change, skip):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(ROWS)
    whole = surveying.survey

    def surveyed(*args):
        found = whole(*args)
        change(path)
        return found

    monkeypatch.setattr(surveying, "survey", surveyed)
    arguments = ["index", str(path), "--encoder", str(tiny_encoder), *(["--on-bad-line", "skip"] if skip else [])]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 3, result.output
    assert "was changed during this run: run the same command again" in result.output
    monkeypatch.setattr(surveying, "survey", whole)
    again = CliRunner().invoke(app, [*arguments, "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["snippets"] == {shrink: 25, swap: 50}[change]


@pytest.mark.parametrize("change", [grow, shrink, swap, remove])
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
