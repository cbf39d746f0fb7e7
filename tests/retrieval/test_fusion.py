"""Fusion against slow loops."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.retrieval.fusion import linear, min_max, ranked, reciprocal_rank
from biorag.types import ScoredDoc

IDS = st.sampled_from([f"s{number}" for number in range(12)] + ["S1", "é", ""])
SCORES = st.dictionaries(IDS, st.floats(-100, 100))
# Few distinct values, so that ties are common.
RANKINGS = st.lists(IDS, unique=True).map(lambda ids: [ScoredDoc(id, -float(n)) for n, id in enumerate(ids)])


def pairs(scores):
    return [ScoredDoc(*pair) for pair in scores.items()]


@given(SCORES, SCORES, st.floats(0, 10))
def test_linear_is_dense_plus_lambda_times_bm25(dense, bm25, weight):
    slow = {}
    for id in set(dense) | set(bm25):
        score = 0.0
        if id in dense:
            score += dense[id]
        if id in bm25:
            score += weight * bm25[id]
        slow[id] = score
    assert linear(pairs(dense), pairs(bm25), weight) == slow


@given(RANKINGS, RANKINGS, st.integers(1, 100))
def test_reciprocal_rank_sums_one_over_k_plus_rank(dense, bm25, k):
    slow, rankings = {}, (dense, bm25)
    for id in {scored.id for ranking in rankings for scored in ranking}:
        slow[id] = 0.0
        for ranking in rankings:
            ids = [scored.id for scored in ranking]
            if id in ids:
                slow[id] += 1 / (k + ids.index(id) + 1)
    fused = reciprocal_rank(dense, bm25, k)
    assert fused.keys() == slow.keys()
    assert all(isclose(fused[id], slow[id], rel_tol=1e-12) for id in slow)


def test_ties_of_fused_scores_go_by_id():
    one, two = [ScoredDoc("z", 2.0), ScoredDoc("a", 1.0)], [ScoredDoc("a", 2.0), ScoredDoc("z", 1.0)]
    assert [scored.id for scored in ranked(reciprocal_rank(one, two, 60))] == ["a", "z"]
    assert ranked(linear(pairs({"z": 0.5, "a": 0.5, "m": 0.75}), [], 1.0), 2) == [
        ScoredDoc("m", 0.75),
        ScoredDoc("a", 0.5),
    ]


@pytest.mark.parametrize(
    ("scores", "stretched"), [([2.0, -2.0, 1.0], [1.0, 0.0, 0.75]), ([3.0, 3.0], [0.0, 0.0]), ([-1.5], [0.0]), ([], [])]
)
def test_scores_are_stretched_from_0_to_1_and_equal_ones_are_0(scores, stretched):
    assert min_max(scores) == stretched
