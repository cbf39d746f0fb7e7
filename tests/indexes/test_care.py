"""Listing, renaming and removing indexes, removing snippets, and the fields of filters, through the command line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from biorag.indexes.deleting import delete_documents, select_ids
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.fields import field_counts
from biorag.indexes.store import Store
from biorag.types import IndexQuery, Snippet
from biorag.utils.locks import DirectoryLock
from tests.cli import done, failed, invoke, succeeded
from tests.fakes import HashEncoder
from tests.indexes.test_writing import Run, corpus

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
    (Store(settings).folder / "manifest.json").write_text("{")
    assert done(indexed("indexes", "--json"))["indexes"][0]["state"] == "damaged"


def test_an_index_is_deleted(indexed, settings):
    failed(indexed("indexes", "delete", "test"), 2, "--yes")
    assert done(indexed("indexes", "delete", "test", "--yes", "--json"))["name"] == "test"
    assert not Store(settings).folder.exists()
    assert list(settings.home.glob(".removed-*")) == []
    failed(indexed("indexes", "delete", "test", "--yes"), 4, "'test' is not there")


def test_what_biorag_did_not_write_stays_where_it_is(indexed, settings):
    thesis = Store(settings).folder / "thesis.txt"
    thesis.write_text("ten years of work")
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


def test_a_deletion_that_is_killed_is_completed_by_the_same_command(indexed, settings, monkeypatch):
    monkeypatch.setattr(EdgeIndex, "optimize", _fails)
    words = ("delete", "--filter", "year<2006", "--yes", "--json")
    assert indexed(*words).exit_code == 1
    monkeypatch.undo()
    report = done(invoke(*words, home=settings.home))
    assert report["snippets"] == 6
    info = done(invoke("info", "test", "--json", home=settings.home))
    assert (info["complete"], info["snippets"], bool(info["checksums"])) == (True, 6, True)


def _fails(index):
    raise RuntimeError("killed")


@examples(max_examples=3)
@given(gone=st.sets(st.integers(0, 11), min_size=1, max_size=11))
def test_after_a_deletion_bm25_scores_as_an_index_without_what_was_removed(tmp_path_factory, snippets, gone):
    from biorag.settings.settings import Settings

    home = tmp_path_factory.mktemp("home")
    settings = Settings.of(home=home, name="test")
    store = Run(settings, corpus(home / "corpus.jsonl", snippets)).store
    index = store.open(store.require_manifest())
    selection = select_ids(index, store.require_manifest(), [f"s{place}" for place in gone])
    index.close()
    delete_documents(store, selection, lambda _: None)
    rest = [snippet for place, snippet in enumerate(snippets) if place not in gone]
    fresh = EdgeIndex(home / "fresh", store.require_manifest(), writable=True)
    fresh.upsert(rest, np.asarray(HashEncoder().encode_snippets([each.contents for each in rest])))
    ours = store.open(store.require_manifest())
    try:
        for query in ("glucose liver", "heart blood", "isoniazid months"):
            expected, found = (i.search([IndexQuery(query, 12)])[0] for i in (fresh, ours))
            assert [hit.id for hit in found] == [hit.id for hit in expected]
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected])
    finally:
        fresh.close()
        ours.close()


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


VALUES = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b"]), st.booleans())


@given(st.lists(st.dictionaries(st.sampled_from(["x", "y"]), st.one_of(VALUES, st.lists(VALUES, max_size=3)))))
def test_counts_are_those_of_a_slow_count(rows):
    snippets = [Snippet(str(place), "t", "c", None, row) for place, row in enumerate(rows)]
    counts = {count.name: count for count in field_counts(snippets, commonest=100)}
    for name in ("x", "y"):
        values = [row[name] if isinstance(row[name], list) else [row[name]] for row in rows if name in row]
        having = [each for each in values if each]
        assert (counts[name].snippets if name in counts else 0) == len(having)
        slow = {repr(value): sum(_in(value, each) for each in having) for each in having for value in each}
        assert {repr(value): times for value, times in (counts[name].values if name in counts else ())} == slow


def _in(value, values) -> bool:
    return any(type(each) is type(value) and each == value for each in values)
