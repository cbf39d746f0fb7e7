"""Models that compute nothing twice give what the plain ones give."""

from __future__ import annotations

import numpy as np
import pytest

from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.models.caching import CachedEncoder, CachedReranker
from biorag.retrieval.retriever import Retriever
from tests.fakes import HashEncoder, OverlapReranker

QUERIES = ["Which drug thins blood?", "What lowers fever?", "Which drug thins blood?"]


class Counting(OverlapReranker):
    def __init__(self):
        self.pairs = []

    def score_all(self, queries, candidates):
        self.pairs += [(query, each.id) for query, found in zip(queries, candidates, strict=True) for each in found]
        return super().score_all(queries, candidates)


class CountingEncoder(HashEncoder):
    asked: tuple[str, ...] = ()

    def encode_queries(self, texts):
        self.asked += tuple(texts)
        return super().encode_queries(texts)


def test_scores_are_the_rerankers_and_no_pair_is_scored_twice(snippets):
    plain, counting = OverlapReranker(), Counting()
    cached = CachedReranker(counting)
    for candidates in (
        [snippets[:3], [], snippets[2:5]],
        [snippets[5:1:-1], snippets[:2], []],
        [snippets, snippets, snippets],
    ):
        expected = plain.score_all(QUERIES, candidates)
        for ours, theirs in zip(cached.score_all(QUERIES, candidates), expected, strict=True):
            assert ours.dtype == np.float32 and ours.tolist() == theirs.tolist()
    before = len(counting.pairs)
    assert len(set(counting.pairs)) == 2 * len(snippets)
    cached.score_all(QUERIES, [snippets] * 3)
    assert len(counting.pairs) == before


def test_vectors_are_the_encoders_and_no_question_is_encoded_twice():
    counting = CountingEncoder()
    cached = CachedEncoder(counting)
    assert cached.identity == counting.identity
    for _ in range(2):
        assert cached.encode_queries(QUERIES).tolist() == HashEncoder().encode_queries(QUERIES).tolist()
    assert counting.asked == tuple(dict.fromkeys(QUERIES))


@pytest.fixture
def retriever(settings, snippets):
    encoder = HashEncoder()
    store = Store(settings)
    index = EdgeIndex(store.folder, store.new_manifest(encoder.identity, 10.0), writable=True)
    index.upsert(snippets, encoder.encode_snippets([snippet.contents for snippet in snippets]))
    yield Retriever(index, encoder, [OverlapReranker()], settings.retrieval)
    index.close()


@pytest.mark.parametrize(
    "changes", [{"lambda_": 0.2}, {"interpolation": 2.0, "k_init": 3}, {"rerank": False, "mode": "bm25"}]
)
def test_a_variant_is_the_retriever_of_the_changed_settings(retriever, settings, changes):
    changed = settings.replace(**changes)
    rerankers = [OverlapReranker()] if changed.retrieval.rerank else None
    expected = Retriever(retriever._index, HashEncoder(), rerankers, changed.retrieval)
    remembering = retriever.with_cache()
    remembering.search_all(QUERIES[:2])
    for found in (retriever.variant(**changes), remembering.variant(**changes)):
        assert [ranking.hits for ranking in found.search_all(QUERIES)] == [
            ranking.hits for ranking in expected.search_all(QUERIES)
        ]
