"""Which words of a passage match one of a question: by the cosine of their tokens, values by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from biorag.api.word_matching import GRADES, LEAST, word_matches
from biorag.types import LocatedTokens
from tests.answering.test_extract import WindowedEncoder


@pytest.mark.parametrize("window", [99, 5])
def test_words_are_matched_and_graded_by_their_cosine(window):
    """An encoder whose words are equal or have nothing in common: matches are 1, and the median pair is 0."""
    texts = ["Zinc shortens colds. Iron and zinc.", "Copper."]
    matched = word_matches("Does zinc shorten colds?", texts, WindowedEncoder(window))
    assert [(texts[0][slice(*match.span)], match.asked) for match in matched[0]] == [
        *(("Zinc", "zinc"), ("colds", "colds")),
        *[("zinc", "zinc")] * (window > 5),
    ]
    assert {(match.similarity, match.grade) for match in matched[0]} == {(1.0, GRADES)}
    assert matched[1] == []
    assert word_matches("Does it?", texts, WindowedEncoder(window)) == [[], []]


class AnglesEncoder:
    """A token for each letter, at an angle of ten degrees for each place of the alphabet."""

    def located_tokens(self, texts):
        located = []
        for text in texts:
            spans = [letter.span() for letter in re.finditer(r"\w", text)]
            angles = np.array([np.radians(10 * (ord(text[start].lower()) - ord("a"))) for start, _ in spans])
            located.append(LocatedTokens(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32), spans))
        return located


def test_a_word_is_as_near_as_its_tokens_are_on_the_mean():
    """Of the question's word "bh" the passage's words are best matched at 10 and 0, 80 and 20, 160 and 100 degrees."""

    def near(*degrees):
        return sum(math.cos(math.radians(angle)) for angle in degrees) / len(degrees)

    (matched,) = word_matches("bh", ["ch jj rr rr rr"], AnglesEncoder())
    assert [match.span for match in matched] == [(0, 2), (3, 5)]
    assert [match.similarity for match in matched] == pytest.approx([near(10, 0), near(80, 20)], abs=1e-6)
    usual = near(160, 100)
    for match in matched:
        above = (match.similarity - usual) / (1 - usual)
        assert LEAST + (match.grade - 1) * (1 - LEAST) / GRADES < above <= LEAST + match.grade * (1 - LEAST) / GRADES
    assert [match.grade for match in matched] == [5, 3]
