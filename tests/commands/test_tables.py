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
