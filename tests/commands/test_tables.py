"""Tables: tabs stand between cells where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from biorag.commands import show


def test_where_there_is_no_terminal_a_table_has_tabs(capsys):
    show.table("Times", ["stage", "sentence-transformers", "ms"], [["a\tb\nc", "\x1b[31m", 1]])
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["# Times", "stage\tsentence-transformers\tms", "a b c\t\ufffd[31m\t1"]
    show.table("Facts", ["", ""], [("k", 5)])
    assert capsys.readouterr().out == "# Facts\nk\t5\n"


def test_a_narrow_terminal_cuts_no_cell(monkeypatch):
    columns = ["name", "snippets", "MB", "encoder", "changed"]
    row = ["double-blind-trials-of-2019", 14448, "1,234.5", "sentence-transformers/all-MiniLM-L6-v2", "2026-11-28"]
    texts = list(map(str, row))
    for width in (120, 70, 50, 30):
        monkeypatch.setattr(show, "out", Console(width=width, force_terminal=True, file=io.StringIO()))
        show.table("Indexes", columns, [row])
        lines = show.out.file.getvalue().splitlines()
        cells = [[cell.strip() for cell in line[1:-1].split("│")] for line in lines if line.startswith("│")]
        if len(cells[0]) == 2:  # a line for each column
            assert width < 70 and "".join(cell for _, cell in cells) == "".join(texts)
            assert [heading for heading, _ in cells if heading] == columns
        else:
            assert width >= 70 and ["".join(parts) for parts in zip(*cells, strict=True)] == texts
            assert cells[0][1:3] + cells[0][4:] == texts[1:3] + texts[4:]


def test_progress_tells_the_time_left_by_what_this_run_did(monkeypatch, capsys):
    """20 of 50 questions were answered before; each takes 12 seconds. In the end the rate is that of all."""
    now = [100.0]
    monkeypatch.setattr(show.time, "monotonic", lambda: now[0])
    with show.progress("Questions", 50) as advance:
        advance(20)
        for _ in range(30):
            now[0] += 12
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Questions: 23 of 50, 5 minutes left, 0.083/s"
    assert lines[-1] == f"Questions: 50 of 50, 0 seconds left, {50 / 360:.2g}/s"
    with show.progress("Checking", None) as advance:
        advance(256)
        now[0] += 40
        advance(512)
    assert capsys.readouterr().err == "Checking: 768, 13/s\n"
