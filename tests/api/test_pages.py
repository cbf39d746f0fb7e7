"""docs/python.md and docs/python.ipynb: every line runs, and gives what the page shows."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import write_judged

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A working directory with a folder of judged questions."""
    monkeypatch.chdir(tmp_path)
    write_judged(tmp_path / "judged", {"q1": "Why is pyridoxine given with isoniazid?"}, [("q1", "demo_044", 1)])


def test_every_line_of_the_page_gives_what_it_shows(judged):
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    session = "\n".join(re.findall(r"^```pycon\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    examples = doctest.DocTestParser().get_doctest(session, {}, "python.md", None, 0)
    assert len(examples.examples) > 15
    complaints: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(examples, out=complaints.append)
    assert not complaints, "".join(complaints)


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    notebook = nbformat.read(DOCS / "python.ipynb", as_version=4)
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(DOCS.parent), os.environ.get("PYTHONPATH", "")]))
    ran = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in ran.cells for output in cell.get("outputs", [])]
    texts = "".join(str(output.get("text", "")) + str(output.get("data", "")) for output in shown)
    assert "text/markdown" in texts and "demo_044" in texts and "supported" in texts and "@misc" in texts
