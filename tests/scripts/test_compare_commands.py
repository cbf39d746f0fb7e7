"""What two records of command lines differ in."""

from __future__ import annotations

from scripts.compare_commands import command_lines, differences, plain


def test_timings_paths_and_the_last_decimals_do_not_count():
    before = {"hits": [{"score": 0.123441, "id": "a"}], "timings_ms": {"search": 3.1}, "path": "/tmp/x/home"}
    after = {"hits": [{"score": 0.123409, "id": "a"}], "timings_ms": {"search": 9.9}, "path": "/tmp/y/home"}
    assert list(differences(plain(before, "/tmp/x"), plain(after, "/tmp/y"))) == []


def test_what_differs_is_named_by_its_path():
    before = {"exit": 0, "hits": [{"id": "a"}, {"id": "b"}], "gone": 1}
    after = {"exit": 4, "hits": [{"id": "a"}, {"id": "c"}], "new": None}
    assert list(differences(before, after)) == [".exit: 0 → 4", '.hits[1].id: "b" → "c"', ".gone: 1 → null"]
    assert list(differences([1], [1, 2])) == [": [1] → [1, 2]"]


def test_about_two_hundred_command_lines_are_recorded():
    lines = list(command_lines())
    assert len(lines) >= 200
    assert {"search", "ask", "verify", "index", "mine", "tune", "bench"} <= {line.split()[0] for line in lines if line}
