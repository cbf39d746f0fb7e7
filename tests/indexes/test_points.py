"""What a store answers is held against what was asked, whoever answers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.indexes.points import StoredError, digests_of, payload, snippets_of, vectors_by_id
from biorag.types import Snippet

SNIPPET = Snippet("a", "Title", "Text", 7, {"year": 2020, "tags": ["x", {"y": None}]})
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_snippet_comes_back_from_its_payload():
    assert snippets_of([payload(SNIPPET)]) == {"a": SNIPPET}
    assert digests_of([payload(SNIPPET)]) == {"a": SNIPPET.digest}
    bare = Snippet("b", "", "")
    assert snippets_of([{"id": "b", "title": "", "content": "", "digest": bare.digest}]) == {"b": bare}
    with pytest.raises(StoredError, match="differs from its digest"):
        snippets_of([{**payload(SNIPPET), "content": "Other"}])


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


@pytest.mark.parametrize("vector", [None, {"dense": [1.0]}, {"dense": [1.0, float("nan")]}, {"dense": ["a", "b"]}])
def test_vectors_have_the_dimension_and_are_finite(vector):
    record = SimpleNamespace(payload={"id": "a"}, vector=vector)
    with pytest.raises(StoredError, match="no dense vectors of 'a'"):
        vectors_by_id([record], "dense", 2)
    good = SimpleNamespace(payload={"id": "a"}, vector={"dense": [1.0, 2.0]})
    assert vectors_by_id([good], "dense", 2)["a"].tolist() == [1.0, 2.0]
    assert vectors_by_id([good], "dense", 2)["a"].dtype == np.float32
