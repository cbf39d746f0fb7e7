"""What a line of a conversation says."""

from __future__ import annotations

import pytest

from biorag.chat.lines import Line, parse_line, parse_options
from biorag.errors import UsageError


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" What is asthma? ", Line("", "What is asthma?")),
        ("", Line("", "")),
        ("/help", Line("/help", "")),
        ("/SHOW  2 ", Line("/show", "2")),
        ("/filter year>=2020 and not retracted", Line("/filter", "year>=2020 and not retracted")),
        ("/save my file.md", Line("/save", "my file.md")),
    ],
)
def test_a_line_is_a_question_or_a_command_with_its_argument(text, line):
    assert parse_line(text) == line


@pytest.mark.parametrize(
    ("text", "meant"), [("/sav x", "/save"), ("/filtre x", "/filter"), ("/shwo 1", "/show"), ("/ct 1", "/cite")]
)
def test_an_unknown_command_is_answered_with_the_nearest(text, meant):
    with pytest.raises(UsageError, match=rf"unknown command .*did you mean {meant}\?"):
        parse_line(text)


def test_a_path_is_no_command():
    with pytest.raises(UsageError, match="use one of /cite, /filter"):
        parse_line("/etc/passwd")


def test_options_are_texts_by_letters():
    assert parse_options("A=thiamine B=vitamin B6 (pyridoxine)  C=folate") == {
        "A": "thiamine",
        "B": "vitamin B6 (pyridoxine)",
        "C": "folate",
    }
    assert parse_options("") == {}


@pytest.mark.parametrize("text", ["thiamine", "A=x A=y", "x A=y"])
def test_options_that_cannot_be_read(text):
    with pytest.raises(UsageError, match="write /options A=thiamine"):
        parse_options(text)
