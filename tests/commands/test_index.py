"""`biorag index`: reports, bad lines, later runs, token vectors and estimates."""

from __future__ import annotations

import gzip
import json
import re
from functools import partial

import pytest

from biorag.types import Snippet
from tests.cli import done, failed, invoke
from tests.conftest import _tiny_bert, write_medrag


@pytest.fixture
def run(tmp_path):
    """Run a command in the scratch home, or in `home`."""
    return partial(invoke, home=tmp_path / "home")


def ids(found):
    return [hit["id"] for hit in found["hits"]]


def test_index_reads_files_folders_gzip_and_standard_input(run, snippets, tiny_encoder, tmp_path):
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    write_medrag(folder / "a.jsonl", snippets[:3])
    plain = write_medrag(tmp_path / "b", snippets[3:6])
    (folder / "deep" / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    piped = write_medrag(tmp_path / "c", snippets[6:9]).read_bytes()
    beir = tmp_path / "corpus.jsonl"
    beir.write_text(json.dumps({"_id": "beir", "title": "BEIR", "text": "Rabies is fatal.", "metadata": {"year": 1}}))
    found = done(run("index", folder, "-", beir, "--encoder", tiny_encoder, "--json", input=piped))
    assert found["added"] == found["snippets"] == 10
    sources = done(run("info", "default", "--json"))["sources"]
    assert [(source["name"], source["snippets"]) for source in sources] == [
        (str(folder / "a.jsonl"), 3),
        (str(folder / "deep" / "b.jsonl.gz"), 3),
        ("standard input", 3),
        (str(beir), 1),
    ]


def searched(run, *options) -> list[tuple[str, float]]:
    found = done(run("search", "aspirin for fever in the liver", "--json", "-k", 8, *options))
    return [(hit["id"], hit["score"]) for hit in found["hits"]]


def test_stored_token_vectors_rank_as_those_encoded_anew(run, corpus_file, snippets, tiny_encoder, tmp_path):
    anew = write_medrag(tmp_path / "more.jsonl", [Snippet("new", "Aspirin", "Aspirin and the liver.", 77)])
    for name, flags in (("fresh", ["--store-tokens", "none"]), ("full", ["--store-tokens", "full"]), ("compact", [])):
        done(run("index", corpus_file, "--name", name, "--encoder", tiny_encoder, *flags, "--json"))
        done(run("index", anew, "--name", name, "--json"))  # what comes later has token vectors too
    fresh = searched(run, "--name", "fresh")
    for name, precision in (("full", 2e-3), ("compact", 0.03)):
        stored = dict(searched(run, "--name", name))
        assert stored == pytest.approx(dict(fresh), abs=precision)
        tokens = done(run("info", name, "--json"))["tokens"]
        assert (tokens["reranker"], tokens["dimension"], tokens["pooling"]) == ("encoder", 32, 1)
    assert done(run("info", "fresh", "--json"))["tokens"] is None


@pytest.mark.slow
def test_a_later_run_keeps_the_projection_of_the_first(run, tmp_path):
    """The second run has another corpus, to which another projection would be fitted."""
    from sentence_transformers import SentenceTransformer

    _tiny_bert(tmp_path / "bert", seed=3, hidden_size=160)
    SentenceTransformer(str(tmp_path / "bert"), device="cpu").save(str(tmp_path / "wide"))
    texts = ["Aspirin lowers fever.", "Warfarin thins the blood.", "Metformin lowers glucose in the liver."]
    rows = [Snippet(f"s{number}", "", text, number + 1) for number, text in enumerate(texts)]
    first, second = (write_medrag(tmp_path / f"{len(part)}.jsonl", part) for part in (rows[:1], rows[1:]))
    home = tmp_path / "home" / "indexes" / "default" / "manifest.json"
    done(run("index", first, "--encoder", tmp_path / "wide", "--json"))
    before = json.loads(home.read_text())["tokens"]
    done(run("index", second, "--json"))
    assert json.loads(home.read_text())["tokens"] == before
    assert (before["dimension"], before["kept"]) == (128, "compact")
    shown = done(run("info", "default", "--json"))["tokens"]
    assert len(shown["projection"]) == 64, "its hash"
    found = done(run("search", "Does aspirin lower fever?", "--json", "-k", 3))
    assert found["hits"][0]["id"] == "s0"


def test_token_vectors_cannot_be_added_to_an_index(run, corpus_file, tiny_encoder):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--store-tokens", "none", "--json"))
    failed(run("index", corpus_file, "--store-tokens", "compact"), 5, "was made with no token vectors", "--name")
    stored = run("search", "aspirin", "--json", BIORAG_STORE_TOKENS="compact")
    assert done(stored)["hits"], "what a new index is to store is no matter of searching"


@pytest.mark.parametrize("flags", [["--token-pooling", 2], ["--reranker", "encoder"]], ids=lambda flags: flags[0])
def test_what_is_stored_cannot_be_said_without_storing_it(run, corpus_file, tiny_encoder, flags):
    arguments = ["index", corpus_file, "--encoder", tiny_encoder, "--store-tokens", "none"]
    failed(run(*arguments, *flags), 2, "this index stores none")


def test_an_estimate_tells_what_it_would_take_and_writes_nothing(run, corpus_file, tiny_encoder):
    arguments = ["index", corpus_file, "--encoder", tiny_encoder, "--estimate", "--json"]
    plain = done(run(*arguments, "--store-tokens", "none"))
    assert (plain["name"], plain["snippets"], plain["sample"]) == ("default", 12, 12)
    assert list(plain["parts"]) == ["loading", "reading", "encoding", "writing"]
    assert plain["seconds"] == pytest.approx(sum(plain["parts"].values()), abs=0.3), "rounded"
    assert plain["bytes"] == 12 * plain["bytes_per_snippet"]
    assert plain["memory_bytes"] > 12 * 4 * 32
    compact, full = (done(run(*arguments, "--store-tokens", kept))["bytes_per_snippet"] for kept in ("compact", "full"))
    assert full > plain["bytes_per_snippet"] + 2 * 32 * 4, "token vectors in half precision"
    assert full - plain["bytes_per_snippet"] == pytest.approx(4 * (compact - plain["bytes_per_snippet"]), abs=4)
    failed(run("info", "default"), 4, "there is none yet")
    shown = run("index", corpus_file, "--encoder", tiny_encoder, "--estimate")
    assert "bytes_per_snippet" in shown.output
    assert re.search(r"seconds\t\d+ \(loading .* seconds, reading .*, encoding .*, writing .* seconds\)", shown.output)
