"""What a store answers is held against what was asked, whoever answers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.indexes.points import StoredError, best_first, dense_by_id, digests_of, ids_of, payload, snippets_of
from biorag.types import IndexQuery, ScoredDoc, Snippet

SNIPPET = Snippet("a", "Title", "Text", 7, {"year": 2020, "tags": ["x", {"y": None}]})
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def hit(id: object = "a", score: float = 1.0) -> SimpleNamespace:
    return SimpleNamespace(payload={"id": id}, score=score)


def test_a_snippet_comes_back_from_its_payload():
    assert snippets_of([payload(SNIPPET)]) == {"a": SNIPPET}
    assert digests_of([payload(SNIPPET)]) == {"a": SNIPPET.digest}
    assert snippets_of([{"id": "b", "title": "", "content": "", "digest": "x"}]) == {"b": Snippet("b", "", "")}
    assert snippets_of([{**payload(SNIPPET), "metadata": None}])["a"].metadata == {}


@given(json_values, st.sampled_from(["id", "title", "content", "pmid", "metadata", "digest", ""]))
def test_any_payload_is_read_in_its_types_or_refused(value, key):
    changed = {**payload(SNIPPET), key: value} if key else value
    for read in (snippets_of, digests_of):
        try:
            found = read([changed])
        except StoredError:
            continue
        ((id, kept),) = found.items()
        assert isinstance(id, str)
        if isinstance(kept, Snippet):
            assert [type(kept.title), type(kept.content), type(kept.metadata)] == [str, str, dict]
            assert kept.pmid is None or type(kept.pmid) is int


@pytest.mark.parametrize("id", [None, 1, "x" * 5000])
def test_an_id_is_a_short_text(id):
    for points in ([hit(id)], [hit(), hit(id)]):
        with pytest.raises(StoredError, match="id"):
            ids_of(points)
    with pytest.raises(StoredError):
        ids_of([SimpleNamespace(payload=None)])


def test_hits_are_sorted_by_score_and_id():
    assert best_first([hit("b", 1), hit("c", 2), hit("a", 1)], IndexQuery("x", 3)) == [
        ScoredDoc("c", 2.0),
        ScoredDoc("a", 1.0),
        ScoredDoc("b", 1.0),
    ]


@pytest.mark.parametrize(
    ("points", "among", "says"),
    [
        ([hit("a"), hit("b"), hit("c")], None, "not asked for"),
        ([hit("a"), hit("a")], None, "not asked for"),
        ([hit("b")], frozenset("a"), "not asked for"),
        ([hit("a", float("nan"))], None, "not a finite number"),
    ],
)
def test_hits_that_were_not_asked_for_are_refused(points, among, says):
    with pytest.raises(StoredError, match=says):
        best_first(points, IndexQuery("x", 2, among=among))


@pytest.mark.parametrize("vector", [None, {"dense": [1.0]}, {"dense": [1.0, float("nan")]}, {"dense": ["a", "b"]}])
def test_vectors_have_the_dimension_and_are_finite(vector):
    record = SimpleNamespace(payload={"id": "a"}, vector=vector)
    with pytest.raises(StoredError, match="no dense vector of 'a'"):
        dense_by_id([record], 2)
    good = SimpleNamespace(payload={"id": "a"}, vector={"dense": [1.0, 2.0]})
    assert dense_by_id([good], 2)["a"].tolist() == [1.0, 2.0]
    assert dense_by_id([good], 2)["a"].dtype == np.float32
