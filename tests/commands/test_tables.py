"""Tables: no word is broken in a terminal, and tabs stand between cells elsewhere."""

from __future__ import annotations

import io

import pytest

from biorag.commands import show

COLUMNS = ["stage", "sentence-transformers", "ms"]
ROWS = [["encode a question", "12.5", 3], ["rerank twenty candidates of it", "26.5", 4]]


@pytest.fixture
def terminal(monkeypatch):
    """Print a table in a terminal of a width."""

    def printed(width: int) -> list[str]:
        written = io.StringIO()
        console = show.ShowingConsole(file=written, force_terminal=True, width=width, no_color=True, color_system=None)
        monkeypatch.setattr(show, "out", console)
        show.table("Times", COLUMNS, ROWS)
        return [line.rstrip() for line in written.getvalue().splitlines()]

    return printed


@pytest.mark.parametrize("width", [30, 40, 50, 80])
def test_no_word_is_broken_at_any_width(terminal, width):
    words = " ".join(terminal(width)).replace("│", " ").replace("┃", " ").split()
    assert {"sentence-transformers", "candidates", "question", "26.5"} <= set(words)


def test_a_narrow_terminal_has_rows_below_one_another(terminal):
    lines = terminal(30)
    assert "  stage                  encode a question" in lines
    assert "  sentence-transformers  12.5" in lines
    assert not any("│" in line for line in lines)


def test_elsewhere_a_table_has_tabs(capsys):
    show.table("Times", COLUMNS, [["a\tb\nc", "\x1b[31m", 1]])
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["# Times", "stage\tsentence-transformers\tms", "a b c\t\ufffd[31m\t1"]
    show.table("Facts", ["", ""], [("k", 5)])
    assert capsys.readouterr().out == "# Facts\nk\t5\n"
