"""BM25 and random negatives against slow references, over the slow index and over Qdrant Edge."""

from types import SimpleNamespace

import numpy as np
import pytest

from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.training import mining
from biorag.training.mining import Gold, MiningPlan
from biorag.types import TrainingRow
from tests.training.small_corpus import ENCODER, NO_GOLD, corpus, gold_of, indexed, row, settings

SNIPPETS = corpus(80)
REFERENCE = indexed(SNIPPETS)
QUERY = "heparin fever blood"


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    store = Store(Settings.of(home=tmp_path_factory.mktemp("home"), name="edge"))
    store.folder.mkdir(parents=True)
    index = EdgeIndex(store.folder, store.new_manifest(ENCODER.identity, REFERENCE.mean), writable=True)
    index.upsert(SNIPPETS, np.stack([REFERENCE.vectors[snippet.id] for snippet in SNIPPETS]))
    index.optimize()
    yield index
    index.close()


@pytest.fixture(params=["slow", "edge"])
def kind(request, tmp_path):
    index = REFERENCE if request.param == "slow" else request.getfixturevalue("edge")
    return miner(mining.bm25, index, tmp_path)


def miner(build, index, folder):
    retriever = Retriever(index, None, None, settings(folder, mode="bm25").retrieval)
    return build(None, SimpleNamespace(index=index, retriever=retriever, encoder=None), [])


def draws(index, seed, count):
    return mining.random(MiningPlan("random", count, seed), SimpleNamespace(index=index), [])


def ranking(query: str) -> list[tuple[str, int, float]]:
    """Id, rank and score of every snippet that shares a word with the query, from the formula."""
    scores = {id: REFERENCE.bm25(query, id) for id in REFERENCE.snippets}
    order = sorted((id for id in scores if scores[id] > 0), key=lambda id: (-scores[id], id))
    return [(id, rank, scores[id]) for rank, id in enumerate(order, 1)]


def same(found, expected) -> None:
    assert [(one.id, one.rank) for one in found] == [(id, rank) for id, rank, _ in expected]
    np.testing.assert_allclose([one.score for one in found], [score for _, _, score in expected], atol=1e-5)
    assert all(one.text == REFERENCE.snippets[one.id].contents for one in found)


def window(kind, query, *positives: str):
    rows = [TrainingRow(query, REFERENCE.snippets[id].contents, positive_id=id) for id in positives] or [row(query)]
    return kind(rows[0], gold_of(*rows))


def test_of_the_top_42_the_bottom_32_are_kept(kind):
    whole = ranking(QUERY)
    assert len(whole) > 42
    same(window(kind, QUERY), whole[10:42])


@pytest.mark.parametrize("places", [[0], [0, 5], [20], [41], [0, 1, 2, 3, 4, 20, 30, 41], [50], list(range(12))])
def test_gold_is_removed_before_the_bottom_is_taken(kind, places):
    whole = ranking(QUERY)
    gold = {whole[place][0] for place in places}
    left = [one for one in whole[:42] if one[0] not in gold]
    same(window(kind, QUERY, *gold), left[-32:])


def test_bm25_hits_are_the_top_ten_without_gold(request, tmp_path):
    for index in (REFERENCE, request.getfixturevalue("edge")):
        kind = miner(mining.bm25_hits, index, tmp_path)
        whole = ranking(QUERY)
        same(window(kind, QUERY), whole[:10])
        gold = [whole[place][0] for place in (0, 4, 30)]
        same(window(kind, QUERY, *gold), [one for one in whole[:10] if one[0] not in gold])
    assert kind(row("nothing of this"), gold_of(row("nothing of this"))) == []


@pytest.mark.parametrize("count", [1, 5, 77, 78, 200])
def test_draws_are_snippets_of_the_corpus_without_gold(count):
    snippets = corpus(80)
    gold = Gold(frozenset({"s03"}), frozenset({snippets[7].contents}))
    found = draws(indexed(snippets), 0, count)(row("pain"), gold)
    assert len(found) == min(count, 78)
    texts = {snippet.id: snippet.contents for snippet in snippets}
    assert all(one.text == texts[one.id] for one in found)
    assert len({one.id for one in found}) == len(found)
    assert not {"s03", "s07"} & {one.id for one in found}
    assert [one.rank for one in found] == list(range(1, len(found) + 1))
    assert all(one.score is None for one in found)


def test_draws_depend_on_seed_and_row_alone():
    snippets = corpus(80)
    first = draws(indexed(snippets), 0, 5)
    again = draws(indexed(snippets[::-1]), 0, 5)
    again(row("another"), NO_GOLD)
    assert first(row("pain"), NO_GOLD) == again(row("PAIN "), NO_GOLD)
    assert first(row("pain"), NO_GOLD) != first(row("pain", "other"), NO_GOLD)
    assert first(row("pain"), NO_GOLD) != draws(indexed(snippets), 1, 5)(row("pain"), NO_GOLD)
