"""What `biorag indexes clean` removes, and what it must leave."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from biorag.lab.recipes.steps import Step, StepsRun
from biorag.models.exported import PACKAGES, RECORD, ExportRecord, export_folder
from biorag.models.finding import find_encoder
from biorag.registries import LEFTOVERS
from biorag.utils.files import copy_sparse, try_lock
from biorag.utils.locks import DirectoryLock
from biorag.utils.versions import installed_versions
from tests.cli import done, failed, invoke, succeeded

pytestmark = pytest.mark.models
MADE, MEASURED = Step("index in-batch, cosine 0", ("index",)), Step("measured", ("bench",))
TRAINED = Step("retriever", ("train",))
HEX = "0123456789abcdef"
# Modules that extras of biorag install, and that no package which is always installed needs.
OPTIONAL = (
    *(
        "pyarrow",
        "matplotlib",
        "mteb",
        "ray",
        "datasets",
        "accelerate",
        "peft",
        "gguf",
        "bm25s",
        "rank_bm25",
        "colbert",
    ),
    *("mcp", "pandas", "fastapi", "jinja2", "uvicorn", "gepa", "llama_cpp"),
)


@pytest.fixture(scope="module")
def made(tiny_encoder, tmp_path_factory) -> Path:
    """A home with the index `one` of an encoder of its own."""
    home = tmp_path_factory.mktemp("made")
    shutil.copytree(tiny_encoder, home / "encoder")
    (home / "corpus.jsonl").write_text(json.dumps({"id": "a", "title": "", "content": "aspirin lowers fever"}))
    done(invoke("index", home / "corpus.jsonl", "--name", "one", "--encoder", home / "encoder", "--json", home=home))
    return home


@pytest.fixture
def home(made, tmp_path, own_exports, monkeypatch) -> Path:
    """A home of its own, and folders of temporary files that no other process uses."""
    monkeypatch.setattr("biorag.indexes.catalogue.MEMORY", tmp_path / "memory")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    shutil.copytree(made / "indexes", tmp_path / "home" / "indexes", copy_function=copied)
    for name in exports_of(made, "a-deleted-index", "being-written"):
        write(tmp_path / "home" / "exports" / name / "model.onnx")
    for name in exports_of(made):  # not torn: no export could be made
        record = ExportRecord(installed_versions(PACKAGES), reason="tiny")
        (tmp_path / "home" / "exports" / name / RECORD).write_text(json.dumps(asdict(record)))
    return tmp_path / "home"


def exports_of(made: Path, *others: str) -> list[str]:
    """Return the names of the exports that the index uses, the packaged encoder's among them, and others."""
    models = (find_encoder("starter"), find_encoder(str(made / "encoder")))
    return [*(export_folder(Path(), files, "bi-encoder").name for files in models), *others]


def copied(source: str, target: str) -> None:
    """Copy a file with its holes, of which an index's files have many."""
    copy_sparse(Path(source), Path(target))


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(range(256)) * 64)


@pytest.fixture
def run(home, tmp_path) -> Path:
    """The folder of a sweep that made an index, a model and a measurement."""
    out = tmp_path / "out"
    for step in (MADE, TRAINED, MEASURED):
        write(out / StepsRun.manifest_name / f"{step.key}.json")
    shutil.copytree(home / "indexes" / "one", out / "home" / "indexes" / MADE.title, copy_function=copied)
    write(out / "home" / "exports" / "hash" / "model.onnx")
    write(out / "work" / TRAINED.key / "model.safetensors")
    write(out / "work" / MEASURED.key / "per-question.jsonl")
    return out


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_exports_that_no_index_and_no_process_uses_go(home, made):
    failed(invoke("indexes", "clean", "--json", home=home), 2, "give --yes")
    listed = done(invoke("indexes", "clean", "--dry-run", "--json", home=home))
    with DirectoryLock(home / "exports" / "being-written", exclusive=True):
        gone = done(invoke("indexes", "clean", "--yes", "--json", home=home))
    assert [folder["kind"] for folder in listed["folders"]] == ["export", "export"]
    assert [Path(folder["path"]).name for folder in gone["folders"]] == ["a-deleted-index"]
    assert gone["bytes"] == gone["folders"][0]["bytes"] >= 256 * 64
    assert (listed["removed"], gone["removed"]) == (False, True)
    assert names(home / "exports") == set(exports_of(made, "being-written"))
    assert "fever" in succeeded(invoke("search", "fever", "--name", "one", home=home)).stdout


def test_a_damaged_index_is_named_and_the_others_are_cleaned(home, made):
    for name, content in (("cut", b"{"), ("empty", b""), ("binary", bytes(range(256)))):
        write(home / "indexes" / name / "manifest.json")
        (home / "indexes" / name / "manifest.json").write_bytes(content)
    result = succeeded(invoke("indexes", "clean", "--yes", "--json", home=home))
    assert {Path(folder["path"]).name for folder in json.loads(result.stdout)["folders"]} == {
        *("a-deleted-index", "being-written")
    }
    assert names(home / "exports") == set(exports_of(made))
    assert names(home / "indexes") == {"one", "cut", "empty", "binary"}
    for name in ("cut", "empty", "binary"):
        assert f"index '{name}' is damaged" in " ".join(result.stderr.split())


def test_what_killed_commands_left_and_old_replies_go(home, tmp_path):
    temporary, memory = tmp_path / "tmp", tmp_path / "memory"
    left = [
        home / "indexes" / "one" / f".manifest.json.{HEX}",
        home / "encoders" / f".biorag.{HEX}" / "model" / "weights",
        home / "loading" / "two" / "manifest.json",
        home / "stages" / "three" / "snippets" / "part.parquet",
        home / "cache" / "replies" / "ab" / "abc.json",
        temporary / f".biorag.{HEX}" / "standard-input",
        memory / f".biorag.{HEX}" / "segments" / "payload",
    ]
    held, young = temporary / f".biorag.{HEX[::-1]}" / "standard-input", home / f".biorag.{HEX}" / "file"
    kept = [
        *(held, young, temporary / "biorag-thesis" / "text", temporary / f".mine.{HEX[:8]}", home / "notes.txt"),
        *(home / "cache" / "replies" / "ab" / "asked.json", home / "records" / "paper.json"),
        *(home / "stages" / "begun" / "snippets" / "part.parquet", home / "loading" / "loads" / "manifest.json"),
    ]
    for path in (*left, *kept):
        write(path)
    long_ago = time.time() - 91 * 86_400
    for path in left:
        os.utime(path, (long_ago, long_ago))
    for folder in (left[1].parents[1], left[5].parent, left[6].parents[1], held.parent):
        os.utime(folder, (long_ago, long_ago))
    handle = os.open(held.parent, os.O_RDONLY)
    assert try_lock(handle)
    with DirectoryLock(kept[-1].parent, exclusive=True):
        listed = done(invoke("indexes", "clean", "--dry-run", "--json", home=home))["folders"]
        assert all(path.exists() for path in left)
        gone = done(invoke("indexes", "clean", "--yes", "--json", home=home))
    os.close(handle)
    assert gone["folders"] == listed
    kinds = [(folder["kind"], len(folder["files"]), folder["bytes"] // (256 * 64)) for folder in listed]
    assert kinds == [
        *(("export", 0, 1), ("export", 0, 1)),
        *(("temporary", 2, 2), ("temporary", 1, 1), ("temporary", 1, 1), ("import", 0, 1), ("stage", 0, 1)),
        ("reply", 1, 1),
    ]
    assert [path for path in left if path.exists()] == [path for path in kept if not path.exists()] == []
    assert names(home / "indexes") == {"one"}


def test_no_function_of_leftovers_needs_an_optional_package(home, tmp_path):
    """What an extra installs is blocked from import, as where the extra is not there."""
    write(home / "stages" / "begun" / "part.parquet")
    program = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({OPTIONAL}))\n"
        "from biorag.registries import LEFTOVERS\n"
        "from biorag.settings.sources import load_settings\n"
        f"settings = load_settings({{'home': {str(home)!r}}}, None)\n"
        "print({name: len(list(kind.load()(settings))) for name, kind in LEFTOVERS.items()})\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = ast.literal_eval(ended.stdout)
    assert (found.keys(), found["export"]) == (LEFTOVERS.keys(), 2)


def test_a_torn_export_goes_though_an_index_uses_it(home, made):
    (torn, *_) = exports_of(made)
    (home / "exports" / torn / RECORD).unlink()
    assert torn in [
        Path(folder["path"]).name
        for folder in done(invoke("indexes", "clean", "--dry-run", "--json", home=home))["folders"]
    ]


def test_an_index_whose_model_is_gone_is_named(home, made, tmp_path):
    (made / "encoder").rename(tmp_path / "encoder")
    try:
        result = invoke("indexes", "clean", "--yes", home=home)
    finally:
        (tmp_path / "encoder").rename(made / "encoder")
    failed(result, 4, "index 'one' needs", "put it back, or run 'biorag indexes delete one'")
    assert len(names(home / "exports")) == 4


def test_a_run_keeps_what_it_measured_and_makes_the_rest_again(home, run):
    gone = done(invoke("indexes", "clean", "--run", run, "--yes", "--json", home=home))
    kinds = [folder["kind"] for folder in gone["folders"]]
    assert kinds == ["export", "export", "index", "export", "model"]
    assert names(run / "steps") == {f"{MEASURED.key}.json"}
    assert names(run / "work") == {MEASURED.key}
    assert names(run / "home" / "indexes") == names(run / "home" / "exports") == set()
    assert names(home / "indexes") == {"one"}


def test_only_the_folder_of_a_run_that_no_process_writes(home, run, tmp_path):
    failed(
        invoke("indexes", "clean", "--run", tmp_path / "home", "--yes", home=home), 4, "is not the folder of a sweep"
    )
    with StepsRun(run, {}).locked():
        failed(invoke("indexes", "clean", "--run", run, "--yes", "--json", home=home), 6, "being written")
    assert names(run / "work") == {TRAINED.key, MEASURED.key}
