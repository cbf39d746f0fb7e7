"""What makes a vector besides the weights: each part is noticed, notes of libraries and prompts for queries are not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from biorag.errors import MissingError
from biorag.models.finding import find_encoder
from tests.cli import failed, invoke, succeeded

pytestmark = pytest.mark.models


def edit(path: Path, **changes: object) -> None:
    values = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**values, **changes}))


def swapped_vocabulary(folder: Path) -> None:
    path = folder / "tokenizer.json"
    text = path.read_text().replace('"aspirin"', '"swapped"').replace('"heparin"', '"aspirin"')
    assert text != path.read_text()
    path.write_text(text)


CHANGES = {
    "tokenizer": swapped_vocabulary,
    "pooling": lambda folder: edit(next(folder.glob("*_Pooling/config.json")), pooling_mode="max"),
    "prompts": lambda folder: edit(folder / "config_sentence_transformers.json", prompts={"document": "passage: "}),
    "maximum length": lambda folder: edit(folder / "sentence_bert_config.json", max_seq_length=7),
    "settings": lambda folder: edit(folder / "config.json", hidden_act="relu", model_type="bert"),
}
HARMLESS = [
    lambda folder: edit(folder / "config.json", transformers_version="9.9.9"),
    lambda folder: edit(folder / "config_sentence_transformers.json", prompts={"query": "search: "}),
    lambda folder: (folder / "config.json").write_text(
        json.dumps(dict(reversed(json.loads((folder / "config.json").read_text()).items())), indent=9)
    ),
]


@pytest.fixture
def model(tiny_encoder, tmp_path) -> Path:
    return Path(shutil.copytree(tiny_encoder, tmp_path / "model"))


@pytest.mark.parametrize(("part", "change"), CHANGES.items())
def test_each_part_is_noticed_by_its_name(model, part, change):
    before = find_encoder(str(model)).configuration()
    change(model)
    after = find_encoder(str(model)).configuration()
    assert [name for name in before if before[name] != after[name]] == [part]


@pytest.mark.parametrize("change", HARMLESS)
def test_what_does_not_count_is_not(model, change):
    before = find_encoder(str(model)).configuration()
    change(model)
    assert find_encoder(str(model)).configuration() == before


def test_an_index_is_not_searched_with_a_changed_encoder(model, corpus_file):
    succeeded(invoke("index", corpus_file, "--encoder", model))
    swapped_vocabulary(model)
    failed(invoke("search", "fever", "-k", "1"), 5, "has its weights but another", "tokenizer", "--name")
    failed(invoke("index", corpus_file), 5, "has its weights but another", "tokenizer")


def test_a_model_that_only_an_index_names_is_not_downloaded(model, corpus_file, tmp_path, monkeypatch):
    succeeded(invoke("index", corpus_file, "--encoder", model))
    path = tmp_path / "home" / "indexes" / "default" / "manifest.json"
    values = json.loads(path.read_text())
    values["encoder"]["id"] = "someone/model"
    path.write_text(json.dumps(values))
    asked = []

    def download(repo: str, **options: object) -> str:
        asked.append(options["local_files_only"])
        raise OSError("not there")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    failed(invoke("search", "fever"), 4, "someone/model", "not on this machine", "--encoder")
    assert asked == [True]
    failed(invoke("search", "fever", "--encoder", "someone/model"), 4, "cannot be downloaded")
    assert asked == [True, False]
    sentence = "model 'someone/model' is not on this machine, and --offline (BIORAG_OFFLINE) downloads nothing: run"
    failed(invoke("--offline", "search", "fever", "--encoder", "someone/model"), 4, sentence)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: os.mkfifo(folder / "vocab.json"), "is neither a file nor a folder"),
        (lambda folder: (folder / "vocab.json").symlink_to("/etc/hostname"), "a link to something outside"),
        (lambda folder: edit(folder / "sentence_bert_config.json", tokenizer_name_or_path="/etc"), "sets tokenizer_n"),
        (lambda folder: edit(folder / "sentence_bert_config.json", model_args={"subfolder": "../x"}), "sets subfolder"),
        (lambda folder: edit(folder / "config.json", num_labels=10**9), "sets num_labels to 1,000,000,000"),
        (lambda folder: edit(folder / "config.json", id2label={str(n): "x" for n in range(9000)}), "9,000 labels"),
        (lambda folder: edit(folder / "config.json", max_position_embeddings=2**30), "sets max_position_embeddings"),
    ],
)
def test_what_a_model_must_not_hold_is_refused_before_it_is_loaded(model, change, says):
    change(model)
    with pytest.raises(MissingError, match=says):
        find_encoder(str(model))


def test_a_model_in_the_hubs_cache_is_made_of_links_to_its_blobs(model, tmp_path):
    blobs, snapshot = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    for number, path in enumerate(sorted(path for path in model.rglob("*") if path.is_file())):
        shutil.copy(path, blobs / str(number))
        target = snapshot / path.relative_to(model)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(blobs / str(number))
    assert find_encoder(str(snapshot)).configuration() == find_encoder(str(model)).configuration()


def test_weights_that_are_not_numbers_are_an_error(model, corpus_file):
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    weights["embeddings.LayerNorm.bias"][3] = float("nan")
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    failed(invoke("index", corpus_file, "--encoder", model), 4, "not finite", "weights are damaged")
