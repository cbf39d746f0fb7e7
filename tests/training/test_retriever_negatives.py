"""The retriever's negatives against a slow ranking by every vector; the margin by numbers that a hand can check."""

from types import SimpleNamespace

import numpy as np
import pytest

from biorag.errors import UsageError
from biorag.retrieval.retriever import Retriever
from biorag.training import mining
from biorag.training.mining import MiningPlan, highest_score, parse_ranks
from biorag.types import TrainingRow
from tests.training.small_corpus import ENCODER, NO_GOLD, corpus, gold_of, indexed, row, settings

SNIPPETS = corpus(80)
INDEX = indexed(SNIPPETS)
QUERY = "heparin fever blood"


def ranking(mode: str) -> list[tuple[str, int, float]]:
    """Id, rank and score of every snippet, from the vectors and the formula of BM25."""
    vector = ENCODER.encode_queries([QUERY])[0]
    weight = {"dense": 0.0, "hybrid": 0.1}[mode]
    scores = {id: INDEX.dense(vector, id) + weight * INDEX.bm25(QUERY, id) for id in INDEX.snippets}
    order = sorted(scores, key=lambda id: (-scores[id], id))
    return [(id, rank, scores[id]) for rank, id in enumerate(order, 1)]


def found_in(tmp_path, mode, ranks, margin=None, positive: str | None = None):
    retriever = Retriever(INDEX, ENCODER, None, settings(tmp_path, mode=mode, lambda_=0.1, depth=80).retrieval)
    plan = MiningPlan("retriever", None, 0, ranks, margin)
    kind = mining.retriever(plan, SimpleNamespace(index=INDEX, retriever=retriever, encoder=None), [])
    if positive is None:
        return kind(row(QUERY), NO_GOLD)
    one = TrainingRow(QUERY, INDEX.snippets[positive].contents, positive_id=positive)
    return kind(one, gold_of(one))


def same(found, expected) -> None:
    assert [(one.id, one.rank) for one in found] == [(id, rank) for id, rank, _ in expected]
    np.testing.assert_allclose([one.score for one in found], [score for _, _, score in expected], atol=1e-5)
    assert all(one.text == INDEX.snippets[one.id].contents for one in found)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
@pytest.mark.parametrize("ranks", [(1, 50), (1, 1), (10, 20), (80, 80), (70, 100), (90, 100)])
def test_the_ranks_are_those_of_the_full_ranking(tmp_path, mode, ranks):
    same(found_in(tmp_path, mode, ranks), ranking(mode)[ranks[0] - 1 : ranks[1]])


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
@pytest.mark.parametrize("margin", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("place", [0, 6, 30])
def test_the_margin_keeps_what_scores_clearly_less_than_the_positive(tmp_path, mode, margin, place):
    whole = ranking(mode)
    id, _, score = whole[place]
    expected = [one for one in whole[4:60] if one[0] != id and one[2] <= (1 - margin) * score]
    same(found_in(tmp_path, mode, (5, 60), margin, positive=id), expected)


@pytest.mark.parametrize(
    ("positive", "margin", "limit"),
    [(0.8, 0.05, 0.76), (0.8, 0.0, 0.8), (0.8, 1.0, 0.0), (12.0, 0.25, 9.0), (-2.0, 0.5, -3.0), (0.0, 0.5, 0.0)],
)
def test_the_most_that_a_negative_may_score(positive, margin, limit):
    assert highest_score(positive, margin) == pytest.approx(limit)


# --- ranks ---


@pytest.mark.parametrize("text", ["", "5", "0-5", "6-5", "1-10001", "1-", "-5", "1–5", "a-b", "1-5-9", "1.0-5", "-1-5"])
def test_other_ranks_are_refused(text):
    with pytest.raises(UsageError, match="FIRST-LAST"):
        parse_ranks(text)
