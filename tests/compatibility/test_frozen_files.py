"""What the frozen code wrote opens, resumes and gives the frozen results; `runs.py` says how that is compared."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.compatibility.frozen import (
    FILES,
    LanguageModel,
    copied,
    differences,
    installed,
    lines_of,
    localised,
    read_json,
    report_of,
    run,
    selected,
)
from tests.compatibility.runs import ASKED, MERGED, MERGED_VALUES, RUNS, SWEPT, lay_out

pytestmark = pytest.mark.slow
from_each_run = pytest.mark.parametrize("name", RUNS)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of the inputs with the home that the frozen code wrote."""
    folder = tmp_path_factory.mktemp("frozen")
    lay_out(folder)
    unpack(FILES / "home.tar.xz", folder / "home")
    for manifest in folder.glob("home/*/*/manifest.json"):
        held = json.loads(manifest.read_bytes())
        kept = {**localised(held, folder), "versions": held["versions"]}  # which wrote the files, and is no identity
        manifest.write_text(json.dumps(kept))
    return folder


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive, leaving holes for zeros: the engine's files are nearly empty and 32 MiB long."""
    with tarfile.open(archive) as members:
        for member in filter(tarfile.TarInfo.isfile, members):
            path = target / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with members.extractfile(member) as source, path.open("wb") as stream:
                while block := source.read(1 << 16):
                    if block.strip(b"\0"):
                        stream.write(block)
                    else:
                        stream.seek(len(block), 1)
                stream.truncate(member.size)


@pytest.fixture
def folder(home, tmp_path):
    """A folder of the inputs, whose home is that of the module."""
    lay_out(tmp_path)
    (tmp_path / "home").symlink_to(home / "home")
    return tmp_path


@pytest.fixture
def server():
    model = LanguageModel()
    yield model.url
    model.close()


def hashes(folder: Path) -> dict[str, str]:
    """Return the hash of every file but those that are written anew."""
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else [folder]
    rewritten = ("report.json", "lock", "curve.png")
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in rewritten
    }


def hold_the_weights(ours: Path, frozen: Path) -> None:
    """Hold an encoder's weights against frozen ones; another version of torch may round otherwise."""
    tensors, expected = load_file(ours), load_file(frozen)
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor, expected[name], atol=1e-5, err_msg=f"{ours}: {name}")


@pytest.mark.parametrize("name", ASKED)
def test_indexes_and_graphs_open_and_give_the_same(home, name):
    words, values = ASKED[name]
    found = selected(report_of(*words, folder=home), values)
    assert differences(found, read_json("files/asked.json")[name], may_grow=True) == []


def test_an_index_is_brought_up_to_date(home):
    again = report_of("index", "papers.jsonl", "--name", "papers", folder=home)
    assert (again["added"], again["updated"], again["unchanged"]) == (0, 0, 30)


def test_an_index_without_the_fields_of_references_is_searched_shown_and_cited(home):
    bare = ("search", "aspirin", "--name", "papers", "--mode", "bm25", "--no-rerank")
    hit, *_ = report_of(*bare, folder=home)["hits"]
    assert "authors" not in hit["metadata"]
    assert hit["facts"]["cited_by"] is None
    (shown,) = report_of("show", "1", folder=home)["snippets"]
    assert (shown["id"], shown["metadata"]) == (hit["id"], hit["metadata"])
    found = report_of("info", "papers", folder=home)["metadata"]
    assert (found["read"], "authors" in found["fields"]) == (30, False)
    for name in ("table", "md", "csv", "tsv", "ris", "bibtex", "csl-json", "vancouver"):
        written = run(*bare, "--format", name, folder=home)
        assert (written.exit_code, hit["title"][:10] in written.stdout) == (0, True), (name, written.output)


def test_a_snapshot_is_loaded(home):
    (home / "snapshot.tar.gz").write_bytes(lzma.decompress((FILES / "snapshot.tar.gz.xz").read_bytes()))
    report_of("snapshot", "load", "snapshot.tar.gz", "--name", "loaded", folder=home)
    words, values = ASKED["bm25"]
    found = selected(report_of(*words, "--name", "loaded", folder=home), values)
    assert differences(found, read_json("files/asked.json")["bm25"], may_grow=True) == []


def test_a_configuration_file_is_read(tmp_path):
    copied("biorag.toml", tmp_path)
    unset = dict.fromkeys(("BIORAG_PRECISION", "BIORAG_THREADS"), "")
    settings = report_of("--config", "biorag.toml", "info", "--settings", folder=tmp_path, **unset)
    del settings["home"]
    assert differences(settings, read_json("files/settings.json"), tolerance=0, may_grow=True) == []


@from_each_run
def test_a_killed_run_resumes_to_the_same_end(folder, server, name):
    this = RUNS[name]
    for path in sorted((FILES / "half").glob(f"{name}*")):
        copied(f"half/{path.name}", folder)
    this.adopt(folder, server)
    report = report_of(*this.arguments(server), folder=folder, BIORAG_CONCURRENCY="1")
    frozen = localised(read_json(f"files/finished/{name}.json"), folder)
    assert differences(selected(report, this.values), frozen) == []
    hold_the_files(folder / name, FILES / "finished" / name)


def hold_the_files(ours: Path, frozen: Path) -> None:
    """Hold what a run wrote against what was frozen: weights, rows and replies."""
    if frozen.is_file():
        assert differences(lines_of(ours), lines_of(frozen), tolerance=1e-5) == []
        return
    for path in frozen.rglob("*.safetensors"):
        hold_the_weights(ours / path.relative_to(frozen), path)
    for path in frozen.glob("*/rag_*/**/*.json"):
        assert (ours / path.relative_to(frozen)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", [name for name in RUNS if name != "questions.jsonl"])  # see runs.py
def test_a_finished_run_is_not_run_again(folder, server, name):
    for path in (FILES / "finished").glob(f"{name}*"):
        if path.name != f"{name}.json":
            copied(f"finished/{path.name}", folder)
    this = RUNS[name]
    before = hashes(folder / name)
    report = report_of(*this.arguments(server), folder=folder, BIORAG_CONCURRENCY="1")
    values = [value for value in this.values if value not in ("resumed", "manifest.resumed", "manifest.answered")]
    frozen = localised(read_json(f"files/finished/{name}.json"), folder)
    assert differences(selected(report, values), {value: frozen[value] for value in values}) == []
    made_since = {"questions.jsonl"} if name == "mirage" else set()  # of a run of 0.1.0 it is written from its replies
    assert {path: value for path, value in hashes(folder / name).items() if path not in made_since} == before


@pytest.mark.parametrize(
    ("name", "more", "named"),
    [
        ("retriever", ("--learning-rate", "1e-4"), "train_learning_rate"),
        ("mirage", ("--max-tokens", "99"), "settings"),
        ("mined.rows.jsonl", ("--mode", "hybrid"), "mode"),
        ("tuned", ("--mode", "dense"), "settings"),
        ("searched", ("--measure", "R@5"), "measure"),
    ],
)
def test_a_killed_run_of_other_settings_is_told_apart(folder, server, name, more, named):
    for path in (FILES / "half").glob(f"{name}*"):
        copied(f"half/{path.name}", folder)
    result = run(*RUNS[name].arguments(server), *more, folder=folder)
    assert (result.exit_code, result.stdout) == (5, "")
    assert all(part in result.stderr for part in (name, named, "--out"))


def test_a_merged_model_is_opened_and_is_made_again(folder):
    copied("finished/merged", folder)
    before = hashes(folder / "merged")
    frozen = read_json("files/finished/merged.json")
    assert differences(selected(report_of(*MERGED, folder=folder), MERGED_VALUES), frozen) == []
    assert hashes(folder / "merged") == before
    report_of(*MERGED[:-1], "again", folder=folder)
    hold_the_weights(folder / "again" / "model.safetensors", folder / "merged" / "model.safetensors")
    indexed = report_of("index", "papers.jsonl", "--encoder", "merged", folder=folder, home=folder / "own")
    assert indexed["snippets"] == 30


def test_a_sweep_has_the_same_steps(folder):
    """A step's key is a hash of, among others, the installed versions, so that others cannot be put in."""
    versions = read_json("files/half/mined.rows.jsonl.manifest.json")["identity"]["versions"]
    if installed(versions) != versions:
        pytest.skip("the frozen sweep was made with other versions of its packages")
    copied("finished/sweep", folder)
    copied("sweep.toml", folder)
    steps = sorted(path.name for path in (folder / "sweep" / "steps").iterdir())
    report = report_of("ablate", "sweep.toml", "--out", "sweep", folder=folder)
    assert differences(selected(report, SWEPT), read_json("files/finished/sweep.json")) == []
    assert sorted(path.name for path in (folder / "sweep" / "steps").iterdir()) == steps, "steps ran again"
