"""The projection of token vectors, against scikit-learn's and against whole vectors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD

from biorag.models.token_projection import fitted, from_text, projected, to_text

DIM, KEPT = 48, 16


@pytest.fixture
def texts():
    draw = np.random.default_rng(0)
    axes = np.linspace(2, 0.05, DIM)
    vectors = [draw.normal(size=(length, DIM)) * axes for length in draw.integers(1, 30, 200)]
    return [(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) for rows in vectors]


def test_the_axes_are_those_of_an_independent_library(texts):
    ours = fitted(texts, KEPT)
    theirs = TruncatedSVD(KEPT, algorithm="arpack", random_state=0).fit(np.concatenate(texts)).components_.T
    assert ours.shape == (DIM, KEPT)
    assert np.abs((ours * theirs).sum(axis=0)) == pytest.approx(1, abs=1e-3)


def test_a_projection_comes_back_from_its_text_bit_by_bit(texts):
    matrix = fitted(texts, KEPT)
    assert np.array_equal(from_text(to_text(matrix), KEPT), matrix)


@pytest.mark.parametrize("text", ["", "no base64!", "AAA=", "AAAA", to_text(np.full((2, KEPT), np.inf, np.float32))])
def test_a_damaged_text_is_refused(text):
    with pytest.raises(ValueError):
        from_text(text, KEPT)


def test_each_text_is_projected_to_unit_length_by_itself(texts):
    matrix = fitted(texts, KEPT)
    given = [*texts, np.empty((0, DIM), np.float32)]
    for rows, (alone,) in zip(projected(given, matrix), (projected([text], matrix) for text in given), strict=True):
        assert rows == pytest.approx(alone, abs=1e-6)
        assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
        assert rows.shape == (len(alone), KEPT)
