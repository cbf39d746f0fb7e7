"""A kind registered from one file outside works in the commands, in help, in checks and in sweeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from biorag.errors import MissingError, UsageError
from biorag.lab.recipes.sweep import load_sweep
from biorag.lab.tuning.parameters import PARAMETERS
from biorag.settings.settings import Settings
from biorag.utils.registry import Kind, Registry
from tests import plugin
from tests.cli import done, failed, invoke, succeeded

TEXTS = [
    "Isoniazid lowers pyridoxine and hurts nerves.",
    "Pyridoxine is given with isoniazid to protect the nerves of patients.",
    "Aspirin lowers fever.",
    "Heparin thins the blood of patients who cannot take warfarin for some reason.",
    "Statins lower cholesterol in the liver.",
    "Insulin lowers glucose in blood.",
]


@pytest.fixture
def registered(monkeypatch):
    for registry in plugin.REGISTRIES:
        monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    plugin.register()


@pytest.fixture
def home(registered, tmp_path, tiny_encoder) -> Path:
    """An index of a file in the plugin's format, in the plugin's store."""
    corpus = tmp_path / "corpus" / "corpus.tabs"
    corpus.parent.mkdir()
    corpus.write_text("".join(f"s{place}\t{text}\n" for place, text in enumerate(TEXTS)))
    report = done(invoke("index", corpus.parent, "--encoder", tiny_encoder, "--json", BIORAG_STORE="numpy"))
    assert report["snippets"] == len(TEXTS)
    return tmp_path


def ids(*words: object) -> list[str]:
    return [hit["id"] for hit in done(invoke("search", "isoniazid pyridoxine", *words, "-k", 6, "--json"))["hits"]]


def test_a_store_is_chosen_when_an_index_is_made_and_its_manifest_says_it_from_then_on(home):
    assert done(invoke("info", "default", "--json"))["store"] == {"kind": "numpy"}
    assert set(ids("--mode", "bm25", "--no-rerank")) == {"s0", "s1"}
    failed(invoke("index", "demo", "--name", "default", BIORAG_STORE="edge"), 5, "numpy", "edge")
    failed(invoke("index", "demo", BIORAG_STORE="paper"), 2, "paper", "numpy")
    failed(invoke("snapshot", "save", home / "x.tar.gz"), 2, "default", "cannot be exported")


def test_a_reader_names_the_bad_line(home):
    bad = home / "bad.tabs"
    bad.write_text("s9 no tab\n")
    failed(invoke("index", bad), 3, "bad.tabs", "line 1", "no tab")


def test_a_fusion_searches_with_true_scores_of_both_sides(home):
    found = ids("--fusion", "highest", "--no-rerank")
    assert found[:2] in (["s0", "s1"], ["s1", "s0"]), "BM25 scores are above cosines"
    assert len(found) == len(TEXTS)
    failed(invoke("search", "x", "--fusion", "lowest"), 2, "highest", "linear", "rrf")
    assert "linear" in PARAMETERS["lambda"].needs(Settings.of(fusion="highest"))


def test_an_output_format_writes_the_hits(home):
    words = ["search", "isoniazid pyridoxine", "--mode", "bm25", "--no-rerank"]
    assert set(succeeded(invoke(*words, "--format", "ids")).stdout.split()) == {"s0", "s1"}
    failed(invoke(*words, "--format", "names"), 2, "names", "ids", "ris")


def test_a_reranker_takes_its_prefix_and_its_weight(home):
    by_length = [f"s{place}" for place in sorted(range(len(TEXTS)), key=lambda place: len(TEXTS[place]))]
    assert ids("--reranker", "short:x", "--interpolation", 0) == by_length
    assert ids("--reranker", "encoder,short:x@2", "--interpolation", 0) != by_length


def test_negatives_are_mined(home):
    pairs = home / "pairs.jsonl"
    pairs.write_text(json.dumps({"query": "isoniazid blood nerves", "positive": TEXTS[0]}) + "\n")
    report = done(invoke("mine", pairs, "--negatives", "last", "--out", home / "mined.jsonl", "--json"))
    assert (report["kind"], report["negatives"]) == ("last", 2)
    failed(invoke("mine", pairs, "--negatives", "last", "--ranks", "1-2", "--out", home / "m"), 2, "--ranks", "last")
    failed(invoke("mine", pairs, "--negatives", "first", "--out", home / "m"), 2, "first", "last", "citation")


def test_a_published_format_is_converted(registered, tmp_path):
    (tmp_path / "x.tabs").write_text("s1\tIsoniazid.\n")
    report = done(invoke("data", "convert", "tabs", tmp_path / "x.tabs", "--out", tmp_path / "out", "--json"))
    assert (report["snippets"], report["files"]) == (1, ["corpus.jsonl"])
    failed(invoke("data", "convert", "tabs", tmp_path / "x.tabs", "--split", "dev", "--out", "o"), 2, "train, test")


def test_a_sweep_takes_the_negatives(registered, tmp_path):
    for name in ("train", "corpus", "test"):
        (tmp_path / name).mkdir()
    sweep = tmp_path / "sweep.toml"
    places = {"train": [str(tmp_path / "train")], "corpus": [str(tmp_path / "corpus")]}
    values = {**places, "evaluate": [str(tmp_path / "test")], "negatives": ["last"]}
    sweep.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    assert load_sweep(sweep).negatives == ("last",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("search",), ["highest (the better score)", "short:ID (by length)", "ids (an id a line)"]),
        (("data", "convert"), ["tabs (id and text)"]),
    ],
)
def test_help_shows_what_was_registered_before_the_command_line_was_made(words, shown):
    code = f"from tests import plugin; plugin.register(); from biorag.cli import app; app({[*words, '--help-all']!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    text = " ".join(ended.stdout.replace("│", " ").split())
    assert [part for part in shown if part not in text] == [], text


def test_a_registry_refuses_names_by_its_keys_and_names_the_extra():
    registry = Registry("colour", Kind(name="red", target="no_such_package.x:y", summary="warm", extra="paint"))
    with pytest.raises(UsageError, match="unknown colour 'blue': use one of red"):
        registry.named("blue")
    with pytest.raises(UsageError, match="registered twice"):
        registry.register(registry["red"])
    with pytest.raises(MissingError, match=r"no_such_package.*pip install 'biorag\[paint\]'"):
        registry["red"].load()


def test_registries_import_nothing_heavy():
    code = "import biorag.registries, sys; print(sorted({'torch', 'numpy', 'qdrant_edge', 'lxml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
