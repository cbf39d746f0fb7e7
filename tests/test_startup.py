"""`biorag --help` is quick because of what it does not import; `scripts/start_up.py` measures its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli import invoke, succeeded

LIGHT = {
    *("annotated_doc", "annotated_types", "biorag", "click", "markdown_it", "mdurl", "platformdirs", "pydantic"),
    *("pydantic_core", "pygments", "rich", "shellingham", "typer", "typing_extensions", "typing_inspection"),
}
LOOK = """
import json, sys
before = set(sys.modules)
from biorag.cli import app
try:
    app(json.loads(sys.argv[1]))
except SystemExit as end:
    code = end.code
print(json.dumps({"code": code, "modules": sorted(set(sys.modules) - before)}))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "mirage", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments):
    command = [sys.executable, "-c", LOOK, json.dumps(arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    look = json.loads(ended.stdout.splitlines()[-1])
    assert look["code"] == 0, ended.stderr
    assert "biorag.commands.search" not in look["modules"], "a command is imported when it runs"
    packages = {module.partition(".")[0] for module in look["modules"] if not module.startswith("_sysconfigdata")}
    assert packages - sys.stdlib_module_names - LIGHT == set()


@pytest.mark.models
def test_a_bm25_search_imports_few_modules(corpus_file, tiny_encoder, tmp_path):
    home = tmp_path / "home"
    succeeded(invoke("index", corpus_file, "--encoder", tiny_encoder, home=home))
    search = ["search", "aspirin", "--mode", "bm25", "--no-rerank", "--json"]
    command, environment = [sys.executable, "-c", LOOK, json.dumps(search)], {**os.environ, "BIORAG_HOME": str(home)}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    look = json.loads(ended.stdout.splitlines()[-1])
    assert look["code"] == 0, ended.stderr
    assert len([module for module in look["modules"] if module.partition(".")[0] == "biorag"]) <= 80


HEAVY = {"torch", "transformers", "sentence_transformers", "scipy", "sklearn", "pandas", "onnx"}


@pytest.mark.models
def test_a_question_imports_no_torch(corpus_file, tiny_encoder, tmp_path, own_exports):
    home = tmp_path / "home"
    succeeded(invoke("index", corpus_file, "--encoder", tiny_encoder, home=home))
    for arguments in (["search", "aspirin and fever"], ["ask", "Which drug lowers fever?"]):
        command = [sys.executable, "-c", LOOK, json.dumps([*arguments, "--json"])]
        environment = {**os.environ, "BIORAG_HOME": str(home)}
        ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        look = json.loads(ended.stdout.splitlines()[-1])
        assert look["code"] == 0, ended.stderr
        packages = {module.partition(".")[0] for module in look["modules"]}
        assert "onnxruntime" in packages
        assert packages & HEAVY == set()
