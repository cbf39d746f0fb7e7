"""Which weights of merged experts are measured, and exact search by vectors in memory."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.lab.merging.search import (
    FULL_DENSITIES,
    DevelopmentCorpus,
    WeightSearch,
    draw_questions,
    draw_snippets,
    full_grid,
    shares,
)
from biorag.lab.merging.weights import MergeRecipe
from biorag.types import Question, Snippet


def test_shares_sum_to_1_evenly_with_equal_weights_among_them():
    assert set(shares(2)) == {(tenth / 10, (10 - tenth) / 10) for tenth in range(11)}
    for experts, count in ((3, 28), (4, 35)):
        weights = shares(experts)
        assert len(set(weights)) == len(weights) == count
        assert all(sum(share) == pytest.approx(1, abs=1e-5) for share in weights)
        assert weights[0] == tuple([round(1 / experts, 6)] * experts), "of equals the first is taken"


def test_a_corpus_knows_documents_and_pmids_and_the_last_of_an_id():
    blocks = [Snippet(f"d#{n}", "t", f"part {n}", 7, {"document": "d", "block": n}) for n in (0, 1)]
    snippets = [Snippet("s", "", "old", 1), *blocks, Snippet("s", "", "new", 1)]
    asked = [Question("q", "?")]
    judged = [Dataset("x", asked, {"q": {"s": 1}}), Dataset("y", asked, {"q": {"7": 1}})]
    corpus = DevelopmentCorpus.of(judged, snippets, {})
    assert list(corpus.ids) == [("s", 1), *((block.document, 7) for block in blocks)]
    assert corpus.texts[0] == "new"
    for held in (snippets, []):
        with pytest.raises(BadInputError, match="no snippet that z judges"):
            DevelopmentCorpus.of([Dataset("z", asked, {"q": {"8": 1}})], held, {})


def test_measures_are_those_of_the_ranking():
    class Axes:
        """Texts a, b, c as the axes; a question is nearest to its own letter, then to the letters after it."""

        def encode_snippets(self, texts):
            return np.eye(3, dtype=np.float32)[["abc".index(text) for text in texts]]

        def encode_queries(self, texts):
            rows = {"a": [3, 2, 1], "b": [1, 3, 2]}
            return np.array([rows[text] for text in texts], np.float32)

    data = Dataset("d", [Question("1", "a"), Question("2", "b")], {"1": {"a": 1}, "2": {"c": 1}})
    corpus = DevelopmentCorpus.of([data], [Snippet(text, "", text, None) for text in "abc"], {})
    done = []
    found = corpus.measures(Axes(), done.append)["d"]
    assert found["MRR@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["nDCG@10"] == pytest.approx((1 + 1 / np.log2(3)) / 2)
    assert done == [3]


def test_the_full_grid_has_every_proportion_once():
    def proportions(weights):
        return {tuple(Fraction(tenth, sum(tenths)) for tenth in tenths) for tenths in weights}

    combinations = [tenths for tenths in itertools.product(range(10), repeat=3) if any(tenths)]
    grid = [tuple(round(10 * weight) for weight in weights) for weights in full_grid(3, free=False)]
    assert proportions(grid) == proportions(combinations)
    assert len(grid) == len(proportions(grid)) == len(set(grid))
    search = WeightSearch([], "all", "nDCG@10", "fp32", full=True)
    for method, base, count in (("ties", True, 57 * 9), ("linear", True, 99), ("linear", False, 57)):
        candidates = search.candidates(MergeRecipe(method, (0.5, 0.5), 0.2, 1.0), base)
        assert len(candidates) == count
        densities = {candidate.density for candidate in candidates}
        assert densities == ({0.2} if method == "linear" else set(FULL_DENSITIES))


def test_a_sample_of_the_grid_is_drawn_once_with_the_seed():
    recipe = MergeRecipe("ties", (0.5, 0.5), 0.2, 1.0)
    whole = WeightSearch([], "all", "nDCG@10", "fp32", full=True).candidates(recipe, True)
    drawn = [WeightSearch([], "all", "nDCG@10", "fp32", True, 20, seed).candidates(recipe, True) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    places = [whole.index(candidate) for candidate in drawn[0]]
    assert len(places) == 20 and places == sorted(set(places)), "in the order of the grid, none twice"
    assert WeightSearch([], "all", "nDCG@10", "fp32", True, 10**6, 1).candidates(recipe, True) == whole


def test_a_sample_keeps_what_is_judged():
    ids = [f"q{n}" for n in range(30)]
    data = Dataset("d", [Question(id, "?") for id in ids], {id: {f"s{n}": 1} for n, id in enumerate(ids)})
    assert draw_questions(data, 30, seed=1) == data
    drawn = draw_questions(data, 5, seed=1)
    assert list(drawn.qrels) == [question.id for question in drawn.questions]
    assert [question.id for question in drawn.questions] == sorted(drawn.qrels, key=ids.index)
    snippets = [Snippet(f"s{n}", "", "x") for n in range(60)]
    kept = [snippet.id for snippet in draw_snippets(snippets, [drawn], 7, seed=1)]
    judged = {id for grades in drawn.qrels.values() for id in grades}
    assert (judged < set(kept), len(kept), len(set(kept))) == (True, 5 + 7, 5 + 7)
    assert kept == [snippet.id for snippet in draw_snippets(snippets, [drawn], 7, seed=1)]
    assert kept != [snippet.id for snippet in draw_snippets(snippets, [drawn], 7, seed=2)]
