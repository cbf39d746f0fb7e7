"""`corpus export`, `embed` and `index --vectors` from the command line: the main path, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import done, failed, invoke, succeeded

BAD = '{"id": "b"}'


def lines(path: Path, *texts: str) -> Path:
    path.write_text(
        "".join(json.dumps({"id": f"s{number}", "content": text}) + "\n" for number, text in enumerate(texts))
    )
    return path


@pytest.fixture
def corpus(tmp_path) -> Path:
    return lines(tmp_path / "corpus.jsonl", "Aspirin lowers fever and pain.", "Heparin and warfarin.", "The liver.")


@pytest.fixture
def staged(tmp_path, corpus, tiny_encoder) -> Path:
    """A folder with an export and its vectors."""
    succeeded(invoke("corpus", "export", corpus, "--out", tmp_path / "snippets"))
    succeeded(invoke("embed", tmp_path / "snippets", "--out", tmp_path / "vectors", "--encoder", tiny_encoder))
    return tmp_path


def test_an_index_is_updated_by_vectors_for_it(staged, corpus, tiny_encoder):
    succeeded(invoke("index", corpus, "--name", "mine", "--encoder", tiny_encoder))
    more = lines(staged / "more.jsonl", "Aspirin lowers fever and pain.", "Changed.", "The liver.", "A gene.")
    succeeded(invoke("corpus", "export", more, "--out", staged / "snippets"))
    vectors = staged / "for-index"
    report = done(invoke("embed", staged / "snippets", "--out", vectors, "--for-index", "mine", "--json"))
    assert (report["encoded"], report["unchanged"]) == (2, 2)
    loaded = done(invoke("index", "--vectors", vectors, "--name", "mine", "--json"))
    refused = invoke("index", "--vectors", vectors, "--name", "new")
    failed(refused, 4, "2 snippets of", "have no vectors", "run 'biorag embed")
    resumed = done(invoke("embed", staged / "snippets", "--out", vectors, "--json"))
    assert (resumed["encoded"], resumed["unchanged"]) == (2, 2), "where no index is named all are encoded"
    assert {name: loaded[name] for name in ("added", "updated", "unchanged", "snippets")} == {
        "added": 1,
        "updated": 1,
        "unchanged": 2,
        "snippets": 4,
    }


# --- refusals


def test_vectors_of_another_encoder_or_other_settings_are_refused(staged, corpus, tiny_encoder, tiny_modernbert):
    out = staged / "vectors"
    again = ("embed", staged / "snippets", "--out", out)
    failed(invoke(*again, "--encoder", tiny_modernbert), 5, "was made with encoder", "vectors")
    failed(invoke(*again, "--similarity", "dot"), 5, "cosine similarity, not dot")
    succeeded(invoke("index", corpus, "--name", "other", "--encoder", tiny_modernbert))
    failed(invoke(*again, "--for-index", "other"), 5, f"{out} has vectors made with other encoder", "--out")
    failed(invoke("index", "--vectors", out, "--name", "other"), 5, "was made with encoder")
    failed(invoke("index", "--vectors", out, "--name", "new", "--encoder", tiny_modernbert), 5, "was made with encoder")
    failed(
        invoke("index", "--vectors", out, "--name", "new", "--block-tokens", "20"), 5, "was made with whole snippets"
    )
    succeeded(invoke("index", corpus, "--name", "blocks", "--encoder", tiny_encoder, "--block-tokens", "20"))
    failed(invoke("index", "--vectors", out, "--name", "blocks"), 5, "other blocks than the vectors", "--for-index")


def test_stages_in_the_wrong_order_are_told(tmp_path, staged):
    failed(invoke("embed", tmp_path / "none", "--out", tmp_path / "v"), 4, "is not there", "corpus export CORPUS --out")
    (tmp_path / "file").touch()
    failed(invoke("embed", tmp_path / "file", "--out", tmp_path / "v"), 4, "is a file", "--out FOLDER")
    failed(invoke("index", "--vectors", tmp_path / "none"), 4, "holds no vectors", "biorag embed SNIPPETS --out")
    failed(invoke("index", "--vectors", staged / "snippets"), 5, "something other than a folder of vectors")
    failed(invoke("embed", staged / "vectors", "--out", tmp_path / "v"), 4, "is not there")
    failed(invoke("embed", staged / "snippets", "--out", staged / "snippets"), 2, "is read by this command")
    failed(invoke("corpus", "export", "demo", "--out", staged / "vectors"), 5, "other than a folder of exported")
    failed(
        invoke("embed", staged / "snippets", "--out", tmp_path / "v", "--for-index", "none"), 4, "'none' is not there"
    )
    values = json.loads((staged / "vectors" / "vectors.json").read_text())
    (staged / "vectors" / "vectors.json").write_text(json.dumps({**values, "complete": False}))
    failed(invoke("index", "--vectors", staged / "vectors"), 4, "are not finished: run 'biorag embed' to the end")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("index",), "no corpus is given"),
        (("index", "demo", "--workers", "2"), "--stages, --workers and --gpus are for --ray"),
        (("index", "demo", "--stages", "x"), "--stages, --workers and --gpus are for --ray"),
        (("index", "--vectors", "v", "--ray", "local"), "cannot be combined"),
        (("index", "--vectors", "v", "--stages", "x"), "cannot be combined"),
        (("index", "--vectors", "v", "--estimate"), "--estimate"),
        (("index", "demo", "--ray", "local", "--estimate"), "--estimate"),
        (("index", "a", "b", "--vectors", "v"), "takes one export"),
        (("embed", "s", "--out", "v", "--workers", "2"), "--workers and --gpus are for --ray"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, monkeypatch, words, part):
    monkeypatch.chdir(tmp_path)
    failed(invoke(*words), 2, part)
    assert not (tmp_path / "v").exists()
