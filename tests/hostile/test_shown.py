"""Nothing of a file, a model or a name reaches a terminal as anything but text."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.commands import show, show_answer
from biorag.types import Answer, Citation, Hit, Question, Snippet
from biorag.utils.text import UNSHOWABLE, showable
from tests.cli import invoke
from tests.hostile.test_hostile_files import ESCAPES

MARKED = f"[bold]B[/bold] [link=http://e.example]L[/link] :pill: {ESCAPES}"


def assert_shown(text: str) -> None:
    assert not UNSHOWABLE.findall(text)


@given(st.text(st.characters()))
def test_what_is_shown_is_the_text_but_for_what_a_terminal_acts_on(text):
    expected = ""
    for character in text:
        code = ord(character)
        acts = (code < 32 and character not in "\n\t") or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF
        reorders = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
        of_a_name = f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ""
        expected += of_a_name or ("\ufffd" if acts or reorders or UNSHOWABLE.match(character) else character)
    assert showable(text) == expected
    expected.encode()


WHOLE = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(WHOLE, WHOLE, max_size=3))
def test_printed_json_says_the_same_without_a_command(values):
    with redirect_stdout(StringIO()) as stream:
        show.print_json(values)
    printed = stream.getvalue()
    assert_shown(printed)
    assert json.loads(printed) == values


def test_tables_titles_lines_and_notes_show_markup_as_text(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    snippet = Snippet("i", MARKED, f"Fever. {MARKED} fever", None)
    hits = (Hit(1, snippet, 1.0),)
    show.table(MARKED, [MARKED, "n"], [(MARKED, 1)])
    show_answer.evidence("fever", hits)
    citation = Citation(1, MARKED, None, MARKED, MARKED, 1.0)
    question = Question("q", "Q?", {"A": MARKED, "B": "b"})
    show_answer.answer(
        Answer(question, reply="{}", text=MARKED, choice="A", citations=(citation,), hits=hits, notes=(MARKED,))
    )
    show.err.print(f"kept in {MARKED}")
    out, err = capsys.readouterr()
    for text in (out, err):
        assert_shown(text)
        assert ":pill:" in text
        assert "[link=http://e.example]" in re.sub(r"\s+", "", text)


@pytest.fixture
def canary_corpus(tmp_path) -> Path:
    rows = [{"id": f"s{n}", "title": MARKED, "content": f"Fever {n} and {MARKED}.", "x": ESCAPES} for n in range(4)]
    rows += [{"id": "s1", "content": f"Fever again {MARKED}"}]  # which is warned of
    path = tmp_path / f"corpus {ESCAPES.replace('/', '')}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no JSON\n", encoding="utf-8")
    return path


def test_a_canary_corpus_sends_no_command(canary_corpus, tiny_encoder):
    index = ["index", str(canary_corpus), "--encoder", str(tiny_encoder)]
    runs = [
        index,
        [*index, "--on-bad-line", "skip"],
        ["info", "default"],
        ["search", "fever"],
        ["ask", "fever?", "--llm", "none"],
        ["ask", "fever?", "--llm", "none", "--json"],
        ["search", "fever", "--mode", ESCAPES],
        ["--debug", "search", "fever", "--name", "absent", "--filter", ESCAPES],
    ]
    codes = []
    for arguments in runs:
        result = invoke(*arguments)
        codes.append(result.exit_code)
        assert_shown(result.stdout)
        # What the user typed is repeated by the option parser; the rest of its message is ours.
        assert_shown(result.stderr)
    assert codes == [3, 0, 0, 0, 0, 0, 2, 4]
