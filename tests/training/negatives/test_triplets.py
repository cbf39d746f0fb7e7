"""The mined file and its manifest: what is refused, and where a run goes on."""

import json

import pytest

from biorag.errors import BadInputError, MismatchError
from biorag.training.negatives.triplets import Done, MiningReport, TripletFile, fingerprint, to_line
from biorag.types import TrainingRow
from tests.training.negatives.small_corpus import negative, row

ROWS = [row("a?", "A."), row("b?", "B."), row("c?", "C.")]
IDENTITY = {"kind": "bm25", "seed": 0, "ranks": (1, 5), "index": {"name": "x"}}


def line(number: int, count: int = 2) -> bytes:
    return to_line(ROWS[number], [negative(f"n{n}", f"text {n}", n, 0.5) for n in range(1, count + 1)], "bm25")


@pytest.fixture
def out(tmp_path):
    return TripletFile(tmp_path / "mined.jsonl", IDENTITY)


def finish(out: TripletFile) -> None:
    out.path.write_bytes(line(0) + line(2))
    out.finish(MiningReport(rows=2, negatives=4, without=1, resumed=1))


def test_a_file_that_is_not_there_is_not_finished(out):
    assert out.finished() is None
    out.save(complete=True, counts={}, sha256="")
    assert out.finished() is None, "the manifest of a file that was deleted is no file"


def test_a_finished_file_tells_its_counts(out):
    finish(out)
    assert out.finished() == MiningReport(rows=2, negatives=4, without=1, resumed=2)
    assert json.loads(out.manifest.read_bytes())["identity"]["ranks"] == [1, 5]


def test_a_file_without_a_manifest_is_left_alone(out):
    out.path.write_text("precious")
    with pytest.raises(MismatchError, match="choose another --out"):
        out.finished()
    assert out.path.read_text() == "precious"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "other seed:"),
        ({"seed": 1, "kind": "random"}, "other kind, seed:"),
        ({"index": {"name": "y"}}, "other index:"),
        ({"new": None, "ranks": (1, 6)}, "other ranks:"),
        ({"new": 1}, "other new:"),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_file_of_other_settings_is_refused_by_their_names(out, change, named, complete):
    finish(out)
    if not complete:
        out.save(complete=False)
    with pytest.raises(MismatchError, match=named):
        TripletFile(out.path, {**IDENTITY, **change}).finished()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"identity": 3, "complete": true}', '{"identity": {}, "complete": true}', "\ufffd"]
)
def test_a_damaged_manifest_is_refused(out, text):
    finish(out)
    out.manifest.write_text(text)
    with pytest.raises(MismatchError, match="is damaged"):
        out.finished()


def test_a_finished_file_that_was_changed_is_refused(out):
    finish(out)
    out.path.write_bytes(line(0))
    with pytest.raises(MismatchError, match="was changed after it was made"):
        out.finished()


def test_resuming_goes_on_after_the_last_whole_line(out):
    assert out.resume(ROWS) == Done()
    out.path.write_bytes(b"")
    assert out.resume(ROWS) == Done()
    whole = line(0) + line(2, 3)
    for tail in (b"", line(1)[:-1], b"{", b"\x00"):
        out.path.write_bytes(whole + tail)
        assert out.resume(ROWS) == Done(next_row=3, rows=2, negatives=5, size=len(whole))


def test_rows_that_are_alike_are_passed_one_by_one(out):
    out.path.write_bytes(line(1))
    assert out.resume([ROWS[1], ROWS[1]]).next_row == 1
    out.path.write_bytes(line(1) + line(1))
    assert out.resume([ROWS[1], ROWS[1]]).next_row == 2


@pytest.mark.parametrize(
    "lines",
    [
        line(1) + line(0),
        line(0) + line(0),
        line(0) + b'{"query": "b?", "positive": "Other.", "negatives": []}\n',
        line(0) + b'{"query": "b?", "positive": "B."}\n',
        line(0) + b'{"query": "b?", "positive": "B.", "negatives": 3}\n',
        line(0) + b"\xff\n",
        line(0) + b"[]\n",
        line(0) + b"\n",
    ],
)
def test_lines_that_this_run_did_not_write_are_refused(out, lines):
    out.path.write_bytes(lines)
    with pytest.raises(BadInputError, match=r"mined\.jsonl, line 2:"):
        out.resume(ROWS)


def test_the_fingerprint_tells_rows_apart():
    rows = [TrainingRow("a?", "A.", query_id="q", positive_id="s"), row("b?", "B.")]
    same = [TrainingRow("a?", "A.", ("a negative",), (0.5, 0.1), "bm25", "q", "s"), row("b?", "B.")]
    assert fingerprint(rows) == fingerprint(same), "negatives that rows have already are not read"
    others = [rows[::-1], rows[:1], [rows[0], row("b?", "B.", "s")], [rows[0], row("b?B.", "")]]
    assert len({fingerprint(rows), *map(fingerprint, others)}) == 5
