"""Which index a command takes where none is named, and that it says so."""

from __future__ import annotations

import json

import pytest

from biorag.indexes.manifest import MANIFEST
from biorag.indexes.store import name_for, unnamed_index
from tests.cli import failed, invoke

URL = "https://qdrant.example.org:6333"


def manifest(url: str | None = None, sources: tuple[str, ...] = ()) -> str:
    store = {"kind": "qdrant", "url": url} if url else {"kind": "edge"}
    return json.dumps(
        {
            "name": "x",
            "encoder": {"id": "e", "revision": "", "sha256": "0" * 64, "dimension": 4},
            "similarity": "cosine",
            "quantized": False,
            "bm25": {"k": 0.9, "b": 0.4, "avg_len": 10.0, "text": "comparable"},
            "store": store,
            "created": "2026-01-01",
            "updated": "2026-01-01",
            "sources": [{"name": name, "sha256": "1" * 64, "bytes": 1, "snippets": 1} for name in sources],
            "format": 1,
        }
    )


@pytest.fixture
def place(settings):
    """Put a manifest where an index of a name has it."""

    def put(name: str, **of: object) -> None:
        folder = settings.indexes / name
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text(manifest(**of))

    return put


@pytest.mark.parametrize(
    ("names", "expected"),
    [([], None), (["mine"], "mine"), (["default"], "default"), (["a", "default", "z"], "default"), (["a", "b"], None)],
)
def test_the_only_index_is_read_or_else_the_default(settings, place, names, expected):
    for name in names:
        place(name)
    assert unnamed_index(settings) == expected


def test_where_a_server_is_named_its_indexes_alone_count(settings, place):
    place("here")
    place("default")
    place("there", url=URL)
    assert unnamed_index(settings) == "default"
    assert unnamed_index(settings.replace(qdrant=URL)) == "there"
    assert unnamed_index(settings.replace(qdrant="https://other.example.org")) is None


def test_the_packaged_corpus_goes_into_demo_and_all_others_into_default(settings, tmp_path, monkeypatch):
    assert name_for(["demo"], settings) == "demo"
    assert name_for(["corpus.jsonl"], settings) == name_for(["demo", "corpus.jsonl"], settings) == "default"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("")
    assert name_for(["demo"], settings) == "default", "a file of that name is the user's"


def test_no_default_is_made_beside_the_users_own_indexes(settings, place, tmp_path):
    place("demo")
    assert name_for(["corpus.jsonl"], settings) == "default"
    place("mine")
    assert name_for(["demo"], settings) == "demo"
    failed(invoke("index", tmp_path, home=settings.home), 2, "which index? Give --name", "one of mine to add to it")
    place("default")
    assert name_for(["corpus.jsonl"], settings) == "default"


def test_several_indexes_without_a_default_are_listed(settings, place):
    place("a")
    place("b")
    failed(invoke("search", "x", "--json", home=settings.home), 4, "which index? Name one of a, b", "--name")


@pytest.mark.parametrize("how", ["option", "variable", "file"])
def test_a_name_that_is_set_anywhere_counts(settings, place, how):
    place("a")
    words, variables = ["search", "x"], {}
    if how == "option":
        words += ["--name", "other"]
    elif how == "variable":
        variables = {"BIORAG_NAME": "other"}
    else:
        (settings.home / "biorag.toml").write_text('name = "other"\n')
    sentence = failed(invoke(*words, home=settings.home, **variables), 4, "'other' is not there")
    assert "Index 'a'" not in sentence
