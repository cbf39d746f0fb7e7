"""Exact hybrid search against a full scan of all snippets' two scores."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from biorag.retrieval.fusion import best_of_all, linear
from biorag.types import IndexQuery, ScoredDoc


class ListedIndex:
    """Two given scores of every snippet; lists are in the order of ids where scores are equal, or in its reverse."""

    def __init__(self, dense: dict[str, float], bm25: dict[str, float], reverse: bool) -> None:
        self.sides, self.reverse, self.deepest = (dense, bm25), reverse, 0

    def search(self, probes):
        return [self._one(probe) for probe in probes]

    def _one(self, probe):
        self.deepest = max(self.deepest, probe.limit)
        scores = self.sides[isinstance(probe.query, str)]
        kept = [(id, score) for id, score in scores.items() if probe.among is None or id in probe.among]
        by_id = sorted(kept, reverse=self.reverse)
        # Which of equal scores make it into the limit is the engine's choice; what it returns is in order.
        best = sorted(by_id, key=lambda pair: -pair[1])[: probe.limit]
        return [ScoredDoc(*pair) for pair in sorted(best, key=lambda pair: (-pair[1], pair[0]))]


def scanned(dense: dict[str, float], bm25: dict[str, float], weight: float) -> list[ScoredDoc]:
    """The slow, obvious result: every snippet's sum."""
    sums = [ScoredDoc(id, score + weight * bm25[id] if id in bm25 else score) for id, score in dense.items()]
    return sorted(sums, key=lambda scored: (-scored.score, scored.id))


SCORES = st.one_of(st.sampled_from([-0.5, 0.0, 0.5, 1.0]), st.floats(-2, 2))
WORDS = st.one_of(st.none(), st.sampled_from([0.5, 1.0, 30.0]), st.floats(0.001, 40))


@hypothesis_settings(max_examples=20)
@given(
    st.lists(st.tuples(SCORES, WORDS), max_size=40),
    st.sampled_from([0.0, 0.03, 1.0, 1.5]),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
)
def test_the_threshold_algorithm_gives_the_list_of_a_full_scan(scores, weight, limit, depth, reverse):
    dense = {f"s{number:02d}": pair[0] for number, pair in enumerate(scores)}
    bm25 = {f"s{number:02d}": pair[1] for number, pair in enumerate(scores) if pair[1] is not None}
    probes = [IndexQuery(np.zeros(1, np.float32), depth)], [IndexQuery("q", depth)]
    index, fuse = ListedIndex(dense, bm25, reverse), partial(linear, lambda_=weight)
    (found,) = best_of_all(index, *probes, limit, fuse)
    assert found.ranking == scanned(dense, bm25, weight)[:limit]


def test_it_reads_no_deeper_than_it_must_and_each_query_as_if_it_were_alone():
    dense, bm25 = {f"s{n:03d}": 1 - n / 1000 for n in range(900)}, {f"s{n:03d}": 9.0 - n / 100 for n in range(900)}
    index, fuse = ListedIndex(dense, bm25, False), partial(linear, lambda_=0.1)
    best_of_all(index, [IndexQuery(np.zeros(1, np.float32), 10)], [IndexQuery("q", 10)], 5, fuse)
    assert index.deepest == 10, "both sides agree, so the fifth sum is above the tenth scores' sum at once"
    flat = ListedIndex(dict.fromkeys(dense, 0.5), {}, True)
    (found,) = best_of_all(flat, [IndexQuery(np.zeros(1, np.float32), 10)], [IndexQuery("q", 10)], 5, fuse)
    assert [id for id, _ in found.ranking] == ["s000", "s001", "s002", "s003", "s004"], "equal scores in order of ids"
    assert flat.deepest == 1280, "whatever the engine chose of equal scores"
