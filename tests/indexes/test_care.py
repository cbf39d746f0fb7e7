"""Listing, renaming and removing indexes, removing snippets, and the fields of filters, through the command line."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from biorag.indexes.catalogue import summaries
from biorag.indexes.shard_files import shard_files
from biorag.indexes.store import Store
from biorag.types import Snippet
from biorag.utils.locks import DirectoryLock
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag
from tests.fakes import HashEncoder
from tests.indexes.test_writing import Run, corpus
from tests.qdrant_standin import StandIn

pytestmark = pytest.mark.slow


@pytest.fixture
def indexed(settings, tmp_path, snippets):
    """An index `test` of the twelve snippets; gives the command line over its home."""
    Run(settings, corpus(tmp_path / "corpus.jsonl", snippets))
    return lambda *words: invoke(*words, home=settings.home)


def held(settings) -> list[str]:
    store = Store(settings)
    index = store.open(store.require_manifest())
    try:
        return sorted(index.ids())
    finally:
        index.close()


# --- biorag indexes -----------------------------------------------------------------------------------------


def test_the_list_says_what_each_index_is(indexed, settings):
    (listed,) = done(indexed("indexes", "--json"))["indexes"]
    assert listed.pop("bytes") > 1000
    assert listed.pop("updated") == Store(settings).require_manifest().updated
    assert listed == {
        "name": "test",
        "snippets": 12,
        "encoder": HashEncoder().identity.id,
        "store": "edge",
        "state": "complete",
    }
    assert "test" in succeeded(indexed("indexes")).stdout
    lock = DirectoryLock(Store(settings).folder, exclusive=True)
    try:
        assert done(indexed("indexes", "--json"))["indexes"][0]["state"] == "being written"
    finally:
        lock.release()
    for path in shard_files(Store(settings).folder):
        content = path.read_bytes()
        path.unlink()
        assert summaries(settings)[0].state == "damaged", path
        path.write_bytes(content + b" ")  # JSON the engine writes again
        assert summaries(settings)[0].state == ("complete" if path.suffix == ".json" else "damaged"), path
        path.write_bytes(content)
    assert summaries(settings)[0].state == "complete"
    (Store(settings).folder / "manifest.json").write_text("{")
    assert done(indexed("indexes", "--json"))["indexes"][0]["state"] == "damaged"


def test_an_index_is_deleted(indexed, settings):
    failed(indexed("indexes", "delete", "test"), 2, "--yes")
    assert done(indexed("indexes", "delete", "test", "--yes", "--json"))["name"] == "test"
    assert not Store(settings).folder.exists()
    assert [path.name for path in settings.home.iterdir() if path.name.startswith(".")] == []
    failed(indexed("indexes", "delete", "test", "--yes"), 4, "'test' is not there")


def test_what_biorag_did_not_write_stays_where_it_is(indexed, settings):
    thesis = Store(settings).folder / "thesis.txt"
    thesis.write_text("ten years of work")
    for ours in ("rejects.jsonl", ".manifest.json.0123456789abcdef"):
        (thesis.parent / ours).write_text("{}")
    result = indexed("indexes", "delete", "test", "--yes", "--json")
    assert done(result)["kept"] == [str(thesis)]
    assert f"did not write it: {thesis}" in " ".join(result.stderr.split("\n"))
    assert [path.name for path in thesis.parent.iterdir()] == ["thesis.txt"]
    assert thesis.read_text() == "ten years of work"


def test_an_index_in_use_and_what_is_no_index_stay(indexed, settings):
    lock = DirectoryLock(Store(settings).folder, exclusive=False)
    try:
        failed(indexed("indexes", "delete", "test", "--yes"), 6, "is being read")
        failed(indexed("indexes", "rename", "test", "new", "--yes"), 6, "is being read")
    finally:
        lock.release()
    other = settings.indexes / "notes"
    other.mkdir()
    (other / "thesis.txt").write_text("ten years of work")
    for words in (["delete", "notes"], ["rename", "notes", "new"]):
        failed(indexed("indexes", *words, "--yes"), 2, "is not an index")
    (settings.indexes / "link").symlink_to(other)
    failed(indexed("indexes", "delete", "link", "--yes"), 2, "is a link")
    failed(indexed("indexes", "delete", "../x", "--yes"), 2, "--name '../x'")
    assert (other / "thesis.txt").read_text() == "ten years of work"
    assert held(settings)


def test_an_index_is_renamed(indexed, settings):
    failed(indexed("indexes", "rename", "test", "a/b", "--yes"), 2, "a/b")
    assert done(indexed("indexes", "rename", "test", "new", "--yes", "--json")) == {
        "name": "new",
        "renamed_from": "test",
    }
    info = done(indexed("info", "new", "--json"))
    assert (info["name"], info["snippets"]) == ("new", 12)
    file = settings.home / "x.tar.gz"
    succeeded(indexed("snapshot", "save", file, "--name", "new"))
    failed(indexed("indexes", "export", file, "--name", "new"), 2, f"Replace {file}?", "--yes")
    succeeded(indexed("indexes", "export", file, "--name", "new", "--yes"))
    failed(indexed("indexes", "import", file), 2, "index 'new' exists already", "run 'biorag indexes delete new'")
    failed(indexed("indexes", "rename", "new", "new", "--yes"), 2, "index 'new' exists already")
    assert done(indexed("indexes", "list", "--json")) == done(indexed("indexes", "--json"))


# --- biorag delete ------------------------------------------------------------------------------------------


def test_snippets_are_removed_by_id(indexed, settings):
    failed(indexed("delete", "--id", "s1", "--json"), 2, "1 of 12 snippets", "--yes")
    result = indexed("delete", "--id", "s1", "--id", "s3", "--id", "nothing", "--yes", "--json")
    report = done(result)
    assert report.pop("seconds") > 0
    assert report == {"name": "test", "documents": 2, "deleted": 2, "missing": ["nothing"], "snippets": 10}
    assert "nothing" in result.stderr
    assert "Indexing the same files again brings them back" in result.stderr
    assert not {"s1", "s3"} & set(held(settings))
    info = done(indexed("info", "test", "--json"))
    assert (info["snippets"], info["complete"], info["torn"], info["deleted_share"]) == (10, True, [], 0.0)
    assert info["sources"][-1]["deletions"] == 2
    failed(indexed("delete", "--id", "s1", "--yes"), 4, "none of these ids")


def test_snippets_are_removed_by_filter_as_search_understands_it(indexed, settings):
    report = done(indexed("delete", "--filter", "year<2004", "--filter", "type:TRIAL", "--yes", "--json"))
    assert report["deleted"] == 2
    assert {"s0", "s2"} & set(held(settings)) == set()
    nothing = indexed("delete", "--filter", "year<1900", "--yes", "--json")
    assert done(nothing)["deleted"] == 0
    assert "Nothing is removed" in nothing.stderr
    failed(indexed("delete", "--filter", "yaer<2004", "--yes"), 2, "'yaer'", "did you mean 'year'", "type")


# --- biorag indexes copy ------------------------------------------------------------------------------------

QUERIES = ("vitamin K recycling", "What lowers fever?", "glucose in the liver")


@pytest.mark.models
def test_a_copy_on_a_server_and_one_of_that_find_the_same(tmp_path, snippets, tiny_encoder):
    """With token vectors, by each kind of search."""
    run = partial(invoke, home=tmp_path / "home")

    def hits(name: str, *more: str) -> list[list[tuple[str, float]]]:
        answers = (done(run("search", query, "--name", name, "--json", "-k", "5", *more)) for query in QUERIES)
        return [[(hit["id"], round(hit["score"], 3)) for hit in answer["hits"]] for answer in answers]

    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets)
    succeeded(run("index", corpus, "--encoder", tiny_encoder, "--name", "near"))
    with closing(StandIn()) as server:
        copied = done(run("indexes", "copy", "near", "far", "--qdrant", server.url, "--json"))
        assert (copied["name"], copied["snippets"], copied["store"]["url"]) == ("far", 12, server.url)
        succeeded(run("indexes", "copy", "far", "back"))
        for more in ((), ("--mode", "bm25", "--no-rerank"), ("--mode", "dense", "--no-rerank")):
            near, far, back = (hits(name, *more) for name in ("near", "far", "back"))
            assert [[id for id, _ in ranking] for ranking in far] == [[id for id, _ in ranking] for ranking in near]
            assert back == near
    failed(run("indexes", "copy", "near", "back"), 2, "index 'back' exists already")
    failed(run("indexes", "copy", "near", "near"), 2, "a copy needs another name")
    failed(run("indexes", "copy", "gone", "other"), 4, "'gone'")


# --- fields -------------------------------------------------------------------------------------------------


def test_the_fields_of_an_index_are_listed_with_their_commonest_values(indexed):
    found = done(indexed("indexes", "show", "test", "--fields", "--json"))
    fields = {field["name"]: field for field in found["fields"]}
    assert (found["name"], found["snippets"]) == ("test", 12)
    assert fields["type"] == {
        "name": "type",
        "snippets": 12,
        "values": [{"value": "Review", "count": 6}, {"value": "Trial", "count": 6}],
    }
    assert fields["title"] == {"name": "title", "snippets": 11, "values": []}
    assert "Trial (6)" in succeeded(indexed("indexes", "show", "test", "--fields")).stdout


def test_a_number_is_not_compared_with_texts(settings, tmp_path):
    fields = ({"volume": "12", "n": "3"}, {"volume": "13", "n": 4})
    Run(
        settings,
        corpus(tmp_path / "a.jsonl", [Snippet(f"t{k}", "", "Text.", None, held) for k, held in enumerate(fields)]),
    )
    for condition in ("volume=12", "not volume>=12", 'volume<20 and volume="12"'):
        words = ("delete", "--filter", condition, "--yes", "--json")
        failed(invoke(*words, home=settings.home), 2, "'volume' of --filter holds texts", 'volume="')
    for condition, count in {"n>=5": 0, 'volume="12" and n=3': 0, "n=4": 1, 'volume="12"': 1}.items():
        words = ("delete", "--filter", condition, "--yes", "--json")
        assert done(invoke(*words, home=settings.home))["deleted"] == count
