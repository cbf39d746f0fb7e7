"""`bench similarity`: pairs and their cosines, against slow loops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from biorag.benchmarks.pictures import distributions
from biorag.benchmarks.similarity import described, measure_similarity, pairs_of
from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.types import Question, Snippet

TEXTS = {f"s{number}": f"text {number}" for number in range(30)}
QRELS = {"q1": {"s1": 1, "s2": 2}, "q2": {"s3": 1, "gone": 1}, "q3": {"s1": 1}}


def data_set(qrels: dict[str, dict[str, int]] = QRELS) -> Dataset:
    return Dataset("set", [Question(text=f"question {id}", id=id) for id in qrels], qrels)


class Shelf:
    """An index of texts."""

    def ids(self) -> list[str]:
        return list(TEXTS)

    def fetch(self, ids: list[str]) -> dict[str, Snippet]:
        return {id: Snippet(id, "", TEXTS[id]) for id in ids}


class Hashing:
    """An encoder whose vectors depend on the text alone, and are not of unit length."""

    identity = SimpleNamespace(id="hashing")

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        seeds = [sum(ord(letter) * place for place, letter in enumerate(text)) for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=8) * (1 + seed % 3) for seed in seeds])

    encode_snippets = encode_queries


def test_each_relevant_snippet_has_another_that_is_not_relevant():
    positive, negative = pairs_of(data_set(), list(TEXTS), np.random.default_rng(0))
    assert positive == [(0, "s1"), (0, "s2"), (1, "s3"), (2, "s1")]
    assert [number for number, _ in negative] == [0, 0, 1, 2] and len(set(negative)) == 4
    assert all(id not in QRELS[f"q{number + 1}"] for number, id in negative)
    assert negative == pairs_of(data_set(), list(TEXTS), np.random.default_rng(0))[1]


def test_cosines_are_those_of_the_pairs():
    shelf: Any = Shelf()
    encoder: Any = Hashing()
    report = measure_similarity(data_set(), shelf, encoder, 5, lambda _: None)
    pairs = pairs_of(data_set(), list(TEXTS), np.random.default_rng(5))
    slow = [
        [
            float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))
            for number, id in kind
            for a, b in [encoder.encode_queries([f"question q{number + 1}", TEXTS[id]])]
        ]
        for kind in pairs
    ]
    for kind, cosines in zip(("positive", "negative"), slow, strict=True):
        assert report[kind]["mean"] == pytest.approx(np.mean(cosines), abs=1e-5)
        assert report[kind]["p50"] == pytest.approx(np.median(cosines), abs=1e-5)
        assert sum(report[kind]["bars"]) == report[kind]["pairs"] == len(cosines)
    assert report["separation"] == pytest.approx(np.mean(slow[0]) - np.mean(slow[1]), abs=1e-5)
    assert report["auc"] == pytest.approx(np.mean([a > b for a in slow[0] for b in slow[1]]), abs=1e-6)
    shares = distributions(report)[0].lines["positive"]
    assert sum(share for _, share in shares) == pytest.approx(1)


def test_rounding_stays_inside_the_bars():
    assert described(np.array([1.0000001, -1.0]))["bars"][::39] == [1, 1]


def test_an_index_without_the_relevant_snippets_is_refused():
    shelf: Any = Shelf()
    encoder: Any = Hashing()
    with pytest.raises(BadInputError, match="no relevant snippet of set"):
        measure_similarity(data_set({"q": {"gone": 1}}), shelf, encoder, 0, lambda _: None)
