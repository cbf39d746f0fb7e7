"""Files of rows and their manifests: where a run resumes, and what is refused."""

import json
import os
import re
import resource
from dataclasses import dataclass

import pytest
from typing_extensions import TypedDict

from biorag.errors import MismatchError, ServiceError
from biorag.utils.runs import Filled, Rows, RunDirectory

IDENTITY = {"kind": "squares", "ranks": (1, 5), "index": {"name": "x"}}


@dataclass
class Number:
    id: int


class Square(TypedDict):
    id: int
    square: int


NUMBERS = [Number(n) for n in (3, 1, 4, 1, 5, 9, 2)]


class Squares:
    """Squares numbers but for 4, which has no row; stops before `fails_at`."""

    def __init__(self, fails_at=None):
        self.asked = []
        self.fails_at = fails_at

    def __call__(self, numbers):
        for number in numbers:
            if number.id == self.fails_at:
                raise KeyboardInterrupt
            self.asked.append(number.id)
            yield None if number.id == 4 else {"id": number.id, "square": number.id**2}


def rows_at(path, **identity):
    def tally(rows):
        return {"odd": sum(row["square"] % 2 for row in rows)}

    return Rows(path, {**IDENTITY, **identity}, Square, tally=tally)


@pytest.fixture
def rows(tmp_path):
    return rows_at(tmp_path / "new" / "rows.jsonl")


def fill(rows, work=None, **options):
    done = []
    filled = rows.fill(NUMBERS, work or Squares(), done.append, **options)
    assert sum(done) == len(NUMBERS)
    return filled


COUNTS = {"items": 7, "rows": 6, "odd": 5}


def test_rows_counts_and_manifest(rows):
    assert rows.counts() is None
    assert fill(rows) == Filled(COUNTS, 0)
    assert [row["square"] for row in rows.read()] == [9, 1, 1, 25, 81, 4]
    manifest = json.loads(rows.manifest.read_bytes())
    assert (manifest["complete"], manifest["counts"], manifest["identity"]["ranks"]) == (True, COUNTS, [1, 5])
    idle = Squares()
    assert fill(rows, idle) == Filled(COUNTS, 6)
    assert idle.asked == []


def test_a_file_cut_at_any_byte_is_filled_to_the_same_bytes(rows, tmp_path):
    fill(rows)
    whole = rows.path.read_bytes()
    cut = rows_at(tmp_path / "cut.jsonl")
    left = [[3, 1, 4, 1, 5, 9, 2], [1, 4, 1, 5, 9, 2], [4, 1, 5, 9, 2], [5, 9, 2], [9, 2], [2], []]
    for size in range(len(whole) + 1):
        cut.path.write_bytes(whole[:size])
        cut.save(complete=False)
        squares, kept = Squares(), whole[:size].count(b"\n")
        assert fill(cut, squares) == Filled(COUNTS, kept)
        assert cut.path.read_bytes() == whole
        assert squares.asked == left[kept]


def test_a_run_in_batches_resumes_at_one(rows):
    with pytest.raises(KeyboardInterrupt):
        fill(rows, Squares(fails_at=9))
    assert len(list(rows.read())) == 4, "each row is written as it comes"
    assert rows.counts() is None
    squares = Squares()
    assert fill(rows, squares, batch=4).resumed == 3
    assert squares.asked == [5, 9, 2]


def test_other_work_and_other_files_are_refused(rows, tmp_path):
    fill(rows)
    many = {"kind": "c" * 99, "settings": {"k": 5}, "seed": 1, "ranks": (1, 5, 10)}
    for change, named in (
        ({"kind": "cubes"}, 'kind ("squares" → "cubes")'),
        ({"index": {"name": "y"}}, 'index.name ("x" → "y")'),
        (many, "kind, ranks ([1, 5] → [1, 5, 10]), seed (null → 1) and 1 more"),
    ):
        with pytest.raises(MismatchError, match=re.escape(f"was made with other {named}: choose another --out")):
            rows_at(rows.path, **change).counts()
    (tmp_path / "precious").write_text("precious")
    with pytest.raises(MismatchError, match="without the manifest"):
        fill(rows_at(tmp_path / "precious"))
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_complete_file_that_was_changed_is_refused(rows):
    fill(rows)
    rows.path.write_bytes(b"{}\n")
    with pytest.raises(MismatchError, match="was changed after it was made"):
        fill(rows)
    rows.remove()
    assert fill(rows).resumed == 0


def test_a_manifest_of_the_users_own_is_not_called_damaged(rows):
    rows.manifest.parent.mkdir()
    rows.manifest.write_text('{"name": "mine"}')
    with pytest.raises(MismatchError, match="is there, and biorag did not write it: choose another"):
        fill(rows)
    assert rows.manifest.read_text() == '{"name": "mine"}'


def test_a_file_that_cannot_grow_is_named(rows):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(OSError) as fault, rows.appending() as stream:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
        try:
            os.write(stream.fileno(), bytes(10))
            os.write(stream.fileno(), b"0")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert fault.value.filename == str(rows.path)


@pytest.mark.parametrize("text", ["", "[]", '{"identity": 3, "complete": true}', '{"identity": {}, "complete": true}'])
def test_a_damaged_manifest_is_refused(rows, text):
    fill(rows)
    rows.manifest.write_text(text)
    with pytest.raises(MismatchError, match="is damaged"):
        rows.counts()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"id": 3, "square": 9}', "belongs to none"),
        (b'{"id": 8, "square": 64}', "belongs to none"),
        (b'{"id": 1}', "is damaged"),
        (b"\xff", "is damaged"),
        (b"", "is damaged"),
    ],
)
def test_rows_of_something_else_are_refused(rows, line, fault):
    rows.save(complete=False)
    rows.path.write_bytes(b'{"id": 3, "square": 9}\n' + line + b"\n")
    with pytest.raises(MismatchError, match=rf"rows\.jsonl, line 2 {fault}"):
        fill(rows)


def test_one_process_writes_a_file_at_a_time(rows):
    def twice(numbers):
        with pytest.raises(ServiceError, match=r"rows\.jsonl is being written by another .*choose another --out"):
            fill(rows)
        yield from Squares()(numbers)

    assert fill(rows, twice).counts == COUNTS


class SquaresRun(RunDirectory):
    kind = "run of squares"
    manifest_name = "manifest.json"


def test_rows_in_a_directory_lean_on_its_manifest(tmp_path):
    run = SquaresRun(tmp_path / "run", IDENTITY)
    done = []

    def work(fails_at=None):
        file = run.rows_in("rows.jsonl", Square)
        filled = file.fill(NUMBERS, Squares(fails_at), done.append)
        assert not file.manifest.exists()
        return {"counts": filled.counts, "resumed": filled.resumed}

    with pytest.raises(KeyboardInterrupt):
        run.perform(lambda: work(fails_at=9))
    assert run.finished() is None
    manifest = run.perform(work)
    assert (manifest["counts"], manifest["resumed"]) == ({"items": 7, "rows": 6}, 4)
    assert run.perform(lambda: {}) == manifest
    assert sorted(path.name for path in run.path.iterdir()) == ["manifest.json", "rows.jsonl"]
