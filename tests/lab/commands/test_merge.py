"""`biorag merge` from the command line."""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from biorag.lab.merging.search import shares
from tests import cli
from tests.cli import done, failed
from tests.conftest import write_medrag
from tests.lab.commands.test_tune import write_questions


@pytest.fixture(scope="module")
def place(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A folder of a data set, a corpus and three experts of the tiny encoder, which the tests only read."""
    place = tmp_path_factory.mktemp("merge")
    write_medrag(place / "corpus.jsonl", snippets)
    write_questions(place / "asked")
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        folder = shutil.copytree(tiny_encoder, place / name)
        random = np.random.default_rng(seed)
        tensors = load_file(folder / "model.safetensors")
        moved = {key: value + random.normal(scale=0.05, size=value.shape) for key, value in tensors.items()}
        save_file({key: value.astype(np.float32) for key, value in moved.items()}, folder / "model.safetensors")
    return place


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return partial(cli.invoke, BIORAG_PRECISION="fp32")


def hash_of(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_merge_is_indexed_with_and_its_manifest_says_how_it_came_about(invoke, place, tmp_path):
    words = ("merge", place / "a", place / "b", "--method", "linear", "--weights", "1,3", "--out", "m", "--json")
    found = done(invoke(*words))
    manifest = json.loads((tmp_path / "m" / "merge.json").read_bytes())
    assert found == {"out": "m", **manifest}
    assert (found["complete"], found["weights"], found["search"], found["base"]) == (True, [1, 3], None, None)
    assert [(each["sha256"], each["weight"]) for each in found["experts"]] == [
        (hash_of(place / "a"), 1),
        (hash_of(place / "b"), 3),
    ]
    assert found["versions"]["biorag"]
    one, two, merged = (
        load_file(folder / "model.safetensors") for folder in (place / "a", place / "b", tmp_path / "m")
    )
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor, one[name] / 4 + 3 * two[name] / 4, atol=1e-6)
    assert done(invoke("index", place / "corpus.jsonl", "--encoder", "m", "--json"))["snippets"] == 12
    written = (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns
    assert done(invoke(*words)) == found
    assert (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns == written
    failed(invoke(*words, "--weights", "2,3"), 5, "weights", "--out")
    failed(invoke("merge", place / "a", "--method", "linear", "--out", place / "b"), 5, "something other than a merge")


def searched(place, *words):
    data = ("--search", place / "asked", "--corpus", place / "corpus.jsonl")
    return ("merge", place / "a", place / "b", *data, *words, "--json")


def test_the_search_measures_what_bench_retrieval_does_and_takes_the_best(invoke, place, tmp_path):
    found = done(invoke(*searched(place, "--method", "linear", "--out", "m")))
    points = {tuple(point["weights"]): point["mean"] for point in found["search"]["points"]}
    assert set(points) == set(shares(2))
    assert points[tuple(found["weights"])] == max(points.values())
    assert len(set(points.values())) > 1
    for folder, weights in ((place / "b", (0, 1)), ("m", tuple(found["weights"]))):
        name = Path(folder).name
        done(invoke("index", place / "corpus.jsonl", "--encoder", folder, "--name", name, "--json"))
        measured = done(
            invoke("bench", "retrieval", place / "asked", "--name", name, "--mode", "dense", "--no-rerank", "--json")
        )
        assert points[weights] == pytest.approx(measured["metrics"]["nDCG@10"], abs=1e-6)
    assert {path.name for path in (tmp_path / "m").iterdir()}.isdisjoint({"candidate", "lock"})


def test_a_data_set_is_searched_in_its_own_corpus_by_its_development_split(invoke, place, tmp_path):
    copied = shutil.copytree(place / "asked", tmp_path / "asked")
    shutil.copy(place / "corpus.jsonl", copied)
    (copied / "qrels" / "test.tsv").rename(copied / "qrels" / "dev.tsv")
    words = ("merge", place / "a", place / "b", "--method", "linear", "--search", copied, "--json")
    dev = ("--split", "dev", "--out")
    sampled = done(invoke(*words, "--sample-questions", 1, "--sample-passages", 2, *dev, "sampled"))
    assert sampled["search"]["questions"] == {"asked": 1}
    assert 2 < sampled["search"]["snippets"] < 12
    failed(invoke(*words, "--out", "x"), 4, "qrels/test.tsv")


def test_a_killed_search_goes_on(invoke, place, tmp_path, monkeypatch):
    from biorag.lab.merging.search import DevelopmentCorpus

    whole = done(invoke(*searched(place, "--method", "linear", "--out", "whole")))
    measures, calls = DevelopmentCorpus.measures, []

    def counted(*words):
        calls.append(words)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return measures(*words)

    monkeypatch.setattr(DevelopmentCorpus, "measures", counted)
    words = searched(place, "--method", "linear", "--out", "m")
    assert invoke(*words).exit_code == 130
    assert len((tmp_path / "m" / "candidates.jsonl").read_bytes().splitlines()) == 4
    failed(invoke(*words, "--density", "0.3", "--measure", "R@5"), 5, "density, measure", "--out")
    resumed = done(invoke(*words))
    assert len(calls) == 5 + len(shares(2)) - 4
    assert (resumed["weights"], resumed["search"]) == (whole["weights"], whole["search"])
    assert hash_of(tmp_path / "m") == hash_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--method", "slerp"), ("unknown method 'slerp'", "linear, ties")),
        (("--method", "ties"), ("--base",)),
        (("--method", "linear", "--weights", "1"), ("1 weights for 2 experts",)),
        (("--method", "linear", "--weights", "0,0"), ("above 0",)),
        (("--method", "linear", "--held-out"), ("--held-out", "--search")),
        (("--method", "linear", "--corpus", "x"), ("--corpus", "--search")),
        (("--method", "linear", "--search", "{place}/asked", "--weights", "1,1"), ("leave --weights out",)),
        (("--method", "linear", "--out", "m\udcff"), ("m\\xff is not UTF-8", "--out")),
    ],
)
def test_what_does_not_go_together_is_said(invoke, place, tmp_path, words, parts):
    words = [word.format(place=place) for word in words]
    failed(invoke("merge", place / "a", place / "b", "--out", "out", *words), 2, *parts)
    assert list(tmp_path.iterdir()) == []
