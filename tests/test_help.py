"""Help of a page, options that stand anywhere, words of a question, and what the shell completes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.commands.application import hoisted
from tests.cli import done, environment, failed, invoke

PAGE = 45  # lines


@pytest.mark.parametrize("words", [[], ["ask"], ["search"], ["index"], ["train", "retriever"], ["bench", "mirage"]])
def test_help_is_a_page_of_80_columns_and_help_all_has_every_option(words):
    def lines(option: str) -> list[str]:
        shown = CliRunner().invoke(app, [*words, option], env={"COLUMNS": "80", "TERM": "dumb"})
        assert shown.exit_code == 0, shown.output
        return shown.stdout.splitlines()

    page = lines("--help")
    assert len(page) <= PAGE
    assert max(map(len, page)) <= 80
    assert "<bool>" not in "\n".join(page)
    assert "[default: (" not in "\n".join(page)
    assert len(lines("--help-all")) >= len(page)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ask", "why", "--offline"], ["--offline", "ask", "why"]),
        (["ask", "--config", "a.toml", "why", "--debug"], ["--config", "a.toml", "--debug", "ask", "why"]),
        (["--debug", "ask", "why"], ["--debug", "ask", "why"]),
        (["ask", "--config=a.toml", "why"], ["--config=a.toml", "ask", "why"]),
        (["ask", "--", "--offline"], ["ask", "--", "--offline"]),
        (["ask", "--config"], ["--config", "ask"]),
    ],
)
def test_options_of_the_program_stand_anywhere(words, expected):
    assert hoisted(words) == expected


def test_several_words_are_one_question(demo_home):
    quoted = done(invoke("search", "what does metformin do", "--mode", "bm25", "--no-rerank", "--json", home=demo_home))
    plain = done(
        invoke("search", "what", "does", "metformin", "do", "--mode", "bm25", "--no-rerank", "--json", home=demo_home)
    )
    assert plain["query"] == "what does metformin do"
    assert [hit["id"] for hit in plain["hits"]] == [hit["id"] for hit in quoted["hits"]]


def test_a_bad_line_is_one_sentence_with_the_nearest_right_one(tmp_path):
    failed(invoke("search", "x", "--mode", "hybird", home=tmp_path), 2, "--mode", "did you mean hybrid")
    failed(invoke("serach", "x", home=tmp_path), 2, "search")
    failed(invoke("search", "x", "--rernak", home=tmp_path), 2, "--rerank")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("biorag search x --mode h", "hybrid"), ("biorag se", "search"), ("biorag search x --fusion r", "rrf")],
)
def test_the_shell_completes_commands_and_values(tmp_path, words, expected):
    asked = {"_BIORAG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "import sys; sys.argv = ['biorag']; from biorag.cli import app; app(prog_name='biorag')"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment(tmp_path, {}), **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in ended.stdout.split(), (ended.stdout, ended.stderr)
