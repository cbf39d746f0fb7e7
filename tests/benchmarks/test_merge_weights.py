"""Which weights of merged experts are measured, and exact search by vectors in memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from biorag.benchmarks.tuning.merging import (
    FULL_DENSITIES,
    GRID,
    DevelopmentCorpus,
    DevelopmentSample,
    FullGrid,
    StepwiseSearch,
)
from biorag.benchmarks.tuning.study import Study
from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.types import Question, Snippet


def study_of(folder, score) -> Study:
    """A study whose one measure is a function of the candidate."""
    return Study(folder, {"of": "weights"}, lambda candidate: {"d": {"m": score(candidate)}})


def peak(*place):
    return lambda candidate: -sum((value - wanted) ** 2 for value, wanted in zip(candidate, place, strict=True))


def test_two_experts_share_a_weight_of_1(tmp_path):
    study = study_of(tmp_path, peak(0.3, 0.7, 0.5))
    assert StepwiseSearch(2, "m", 0.5, (), False).best(study) == (0.3, 0.7, 0.5)
    assert set(study.points) == {(weight, round(1 - weight, 6), 0.5) for weight in GRID}


def test_three_experts_go_one_after_the_other_and_keep_their_proportions(tmp_path):
    study = study_of(tmp_path, peak(0.2, 0.4, 0.4, 0.7))
    assert StepwiseSearch(3, "m", 0.5, (0.1, 0.7), False).best(study) == (0.2, 0.4, 0.4, 0.7)
    assert all(sum(weights) == pytest.approx(1, abs=1e-5) for *weights, _ in study.points)
    assert {(0.0, 0.5, 0.5, 0.5), (1.0, 0.0, 0.0, 0.5), (0.2, 0.4, 0.4, 0.1)} <= set(study.points)
    assert len(study.points) <= 1 + 3 * len(GRID) + 2


def test_the_others_are_equal_where_one_had_all_the_weight(tmp_path):
    """A best weight of 1 leaves the others no proportions."""
    study = study_of(tmp_path, peak(1, 0, 0, 0.5))
    assert StepwiseSearch(3, "m", 0.5, (), False).best(study) == (1, 0, 0, 0.5)
    assert (0.8, 0.2, 0.0, 0.5) in study.points


def test_task_vectors_have_weights_of_their_own(tmp_path):
    study = study_of(tmp_path, peak(0.9, 0.8, 0.5))
    assert StepwiseSearch(2, "m", 0.5, (), True).best(study) == (0.9, 0.8, 0.5)
    assert (0.0, 0.0, 0.5) not in study.points


def test_of_equals_the_first_is_taken(tmp_path):
    assert StepwiseSearch(2, "m", 0.5, (0.2,), False).best(study_of(tmp_path, lambda _: 1.0)) == (0.5, 0.5, 0.5)


def test_a_corpus_knows_documents_and_pmids_and_the_last_of_an_id():
    blocks = [Snippet(f"d#{n}", "t", f"part {n}", 7, {"document": "d", "block": n}) for n in (0, 1)]
    corpus = DevelopmentCorpus.of([Snippet("s", "", "old", 1), *blocks, Snippet("s", "", "new", 1)], {})
    assert list(corpus.ids) == [("s", 1), *((block.document, 7) for block in blocks)]
    assert corpus.texts[0] == "new"
    asked = [Question("q", "?")]
    corpus.check([Dataset("x", asked, {"q": {"s": 1}}), Dataset("y", asked, {"q": {"7": 1}})])
    with pytest.raises(BadInputError, match="no snippet that z judges"):
        corpus.check([Dataset("z", asked, {"q": {"8": 1}})])
    with pytest.raises(BadInputError, match="no snippet that z judges"):
        DevelopmentCorpus.of([], {}).check([Dataset("z", asked, {"q": {"8": 1}})])


def test_measures_are_those_of_the_ranking():
    class Axes:
        """Texts a, b, c as the axes; a question is nearest to its own letter, then to the letters after it."""

        def encode_snippets(self, texts):
            return np.eye(3, dtype=np.float32)[["abc".index(text) for text in texts]]

        def encode_queries(self, texts):
            rows = {"a": [3, 2, 1], "b": [1, 3, 2]}
            return np.array([rows[text] for text in texts], np.float32)

    corpus = DevelopmentCorpus.of([Snippet(text, "", text, None) for text in "abc"], {})
    data = Dataset("d", [Question("1", "a"), Question("2", "b")], {"1": {"a": 1}, "2": {"c": 1}})
    done = []
    found = corpus.measures([data], Axes(), done.append)["d"]
    assert found["MRR@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["nDCG@10"] == pytest.approx((1 + 1 / np.log2(3)) / 2)
    assert done == [3]


def test_the_full_grid_has_every_proportion_once(tmp_path):
    from fractions import Fraction

    grid = FullGrid(3, "m", (0.5,), free=False)
    tenths = [each for each in itertools.product(range(10), repeat=3) if any(each)]
    proportions = {tuple(Fraction(each, sum(weights)) for each in weights) for weights in tenths}
    found = [tuple(round(10 * weight) for weight in weights) for *weights, _ in grid.candidates()]
    assert {tuple(Fraction(each, sum(weights)) for each in weights) for weights in found} == proportions
    assert len(found) == len(proportions) == len(set(found))
    assert len(FullGrid(2, "m", FULL_DENSITIES, free=True).candidates()) == 99 * 9
    small = FullGrid(2, "m", (0.3, 0.5), free=False)
    study = study_of(tmp_path, peak(0.3, 0.4, 0.5))
    assert small.best(study) == (0.3, 0.4, 0.5)
    assert set(study.points) == set(small.candidates())


def test_a_sample_keeps_what_is_judged():
    ids = [f"q{n}" for n in range(30)]
    data = Dataset("d", [Question(id, "?") for id in ids], {id: {f"s{n}": 1} for n, id in enumerate(ids)})
    drawn = {count: DevelopmentSample(count, 7, seed=1).dataset(data) for count in (5, 9, 30)}
    assert drawn[30] == data
    assert {q.id for q in drawn[5].questions} < {q.id for q in drawn[9].questions}
    assert set(drawn[5].qrels) == {q.id for q in drawn[5].questions}
    snippets = [Snippet(f"s{n}", "", "x") for n in range(60)]
    kept = {snippet.id for snippet in DevelopmentSample(5, 7, seed=1).snippets(snippets, [drawn[5]])}
    judged = {id for found in drawn[5].qrels.values() for id in found}
    assert (judged < kept, len(kept)) == (True, 5 + 7)
    assert {snippet.id for snippet in DevelopmentSample(5, 9, seed=1).snippets(snippets, [drawn[5]])} > kept
    assert DevelopmentSample(5).identity == {}
