"""Tables: tabs stand between cells where there is no terminal."""

from __future__ import annotations

from biorag.commands import show


def test_where_there_is_no_terminal_a_table_has_tabs(capsys):
    show.table("Times", ["stage", "sentence-transformers", "ms"], [["a\tb\nc", "\x1b[31m", 1]])
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["# Times", "stage\tsentence-transformers\tms", "a b c\t\ufffd[31m\t1"]
    show.table("Facts", ["", ""], [("k", 5)])
    assert capsys.readouterr().out == "# Facts\nk\t5\n"
