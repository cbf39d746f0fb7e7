"""Long texts as blocks: nothing lost, nothing too long, cut where sentences or words end."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from biorag.corpus.blocks import WHOLE, Splitter, cut
from biorag.types import Snippet


def words(text: str) -> list[int]:
    """Where words begin."""
    return [match.start() for match in re.finditer(r"\S+", text)]


def letters(text: str) -> list[int]:
    """Every character but white space a token, as a wordpiece tokenizer may have it."""
    return [match.start() for match in re.finditer(r"\S", text)]


def blocks_of(text: str, starts: list[int], most: int, overlap: int) -> list[str]:
    return [text[start:end].strip() for start, end in cut(text, starts, most, overlap)]


def test_blocks_end_with_sentences_and_overlap_by_them():
    text = "One two three four. Five six. Seven eight nine ten. Eleven twelve."
    assert blocks_of(text, words(text), 8, 3) == [
        "One two three four. Five six.",
        "Five six. Seven eight nine ten. Eleven twelve.",
    ]


def test_without_a_sentence_s_end_blocks_end_with_words():
    text = "alpha beta gamma delta epsilon zeta eta theta"
    assert blocks_of(text, words(text), 4, 1) == ["alpha beta gamma delta", "delta epsilon zeta eta", "eta theta"]
    assert blocks_of("a" * 25, letters("a" * 25), 10, 2) == ["a" * 10, "a" * 10, "a" * 5], (
        "a word that is longer is cut"
    )
    assert blocks_of(text, letters(text), 12, 0) == ["alpha beta", "gamma delta", "epsilon zeta", "eta theta"]


texts = st.lists(
    st.sampled_from(["word", "Longer words", "End. ", "Next? ", "(See this.) ", " ", "\n", "ß—", "x" * 30])
    | st.text(max_size=4),
    max_size=60,
).map("".join)


@given(text=texts, most=st.integers(1, 20), share=st.floats(0, 0.5), starts_of=st.sampled_from([words, letters]))
@example(text="", most=1, share=0.0, starts_of=words)
def test_blocks_cover_the_text_in_order(text, most, share, starts_of):
    starts, overlap = starts_of(text), int(most * share)
    spans = cut(text, starts, most, overlap)
    assert (len(spans) > 1) == (len(starts) > most)
    assert [spans[0][0], spans[-1][1]] == [0, len(text)]
    for start, end in spans:
        assert sum(start <= token < end for token in starts) in range(1, most + 1) or not starts
    for (start, end), (following, last) in pairwise(spans):
        assert start < following <= end < last
        assert sum(following <= token < end for token in starts) <= overlap


LONG = Snippet("d", "Title", "One two three. Four five six. Seven eight.", 5, {"year": 2020})


def test_a_long_document_s_blocks_have_its_title_fields_and_number():
    blocks = Splitter(4, 1, words)(LONG)
    contents = ["One two three.", "three. Four five six.", "six. Seven eight."]
    assert blocks == [
        Snippet(f"d#{n}", "Title", content, 5, {"year": 2020, "document": "d", "block": n, "blocks": 3})
        for n, content in enumerate(contents)
    ]
    assert [block.document for block in blocks] == ["d"] * 3


def test_a_short_document_stays_as_it_is():
    assert Splitter(8, 1, words)(LONG) == [LONG] == WHOLE(LONG)
    assert LONG.document == "d"


def test_an_id_like_a_block_s_is_refused_where_there_are_blocks():
    odd = Snippet("d#1", "", "Text.")
    WHOLE.check(odd)
    with pytest.raises(ValueError, match="id 'd#1' ends as a block's does"):
        Splitter(8, 1, words).check(odd)


@pytest.mark.parametrize(
    "metadata", [{}, {"document": "d"}, {"document": "e", "block": 1}, {"document": 1, "block": 1}, {"block": 1}]
)
def test_a_corpus_s_own_fields_make_no_block(metadata):
    assert Snippet("d#1", "", "Text.", None, metadata).document == "d#1"
