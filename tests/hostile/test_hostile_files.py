"""Every hostile file through the command that meets it: one sentence, its exit code, and no code run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.utils.text import UNSHOWABLE
from tests.hostile.hostile_files import CANARY, CASES, ESCAPES, SNIPPETS, Case
from tests.hostile.tiny_gguf import tiny_llama

pytestmark = pytest.mark.faults


@pytest.fixture(scope="session")
def indexed_home(tmp_path_factory, tiny_encoder) -> Path:
    """A home whose index "default" holds eight snippets."""
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "corpus.jsonl").write_bytes(SNIPPETS)
    arguments = ["index", str(folder / "corpus.jsonl"), "--encoder", str(tiny_encoder)]
    result = CliRunner().invoke(app, arguments, env={"BIORAG_HOME": str(folder / "home")})
    assert result.exit_code == 0, result.output
    return folder / "home"


@pytest.fixture
def arguments(tmp_path, monkeypatch, request):
    """Makes a case's files in the scratch folder, which is the working folder too."""

    def make(case: Case) -> list[str]:
        monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
        if case.indexed:
            shutil.copytree(request.getfixturevalue("indexed_home"), tmp_path / "home")
        monkeypatch.chdir(tmp_path)
        return case.make(tmp_path)

    return make


def check(case: Case, folder: Path, code: int, said: str) -> None:
    assert code == case.code, said
    assert "Traceback" not in said
    assert "internal error" not in said
    assert case.said in said.replace("\n", " ") or case.said in said.replace("\n", "")
    assert not UNSHOWABLE.findall(said.replace("\r\n", "\n"))
    assert not list(folder.rglob(CANARY)), "code ran"
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == (1 if code else 0)


def test_there_are_at_least_sixty_and_no_two_of_one_name():
    assert len({case.name for case in CASES}) == len(CASES) >= 60


def marked(case: Case):
    return pytest.param(case, marks=[pytest.mark.slow] if case.loads else [], id=ascii(case.name))


@pytest.mark.parametrize("case", map(marked, CASES))
def test_a_hostile_file_gives_one_sentence(case, arguments, tmp_path):
    command = arguments(case)
    before = set(sys.modules)
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    check(case, tmp_path, result.exit_code, result.output)
    if not case.loads:
        assert not {"torch", "llama_cpp"} & (set(sys.modules) - before), "it was refused before anything was loaded"


def test_the_gguf_that_crafted_ones_are_made_from_is_whole(tmp_path):
    from biorag.models.formats.gguf import read_header

    header = read_header(tiny_llama().write(tmp_path / "tiny.gguf"))
    assert header.trained_window() == 2048
    assert {tensor.name for tensor in header.tensors} == set(tiny_llama().tensors)


def test_the_escapes_are_what_terminals_act_on():
    assert {"\x1b", "\x9b", "\x07", "\x08", "\x7f", "\u202e", "\u2066"} <= set(UNSHOWABLE.findall(ESCAPES))
