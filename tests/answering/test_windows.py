"""What of a snippet a reader reads."""

from __future__ import annotations

import numpy as np
import pytest

from biorag.answering.readers.windows import CHARACTERS, LONGEST, MOST, EvidenceWindows
from biorag.types import LocatedTokens, Snippet

FILLER = "Nothing of interest was seen in any of the other animals of group {}."


class OneTokenEncoder:
    """Gives a text's sentences one token each, along an axis of its own; a claim is the sum of the axes it names."""

    def __init__(self, near: str) -> None:
        self.near = near
        self.located = 0

    def query_tokens(self, texts):
        return [np.array([[1.0, 0.0]], np.float32) for _ in texts]

    def located_tokens(self, texts):
        self.located += 1
        located = []
        for text in texts:
            starts = [index for index in range(len(text)) if index == 0 or text[index - 2 : index] == ". "]
            vectors = [[1.0, 0.0] if text.startswith(self.near, start) else [0.0, 1.0] for start in starts]
            located.append(LocatedTokens(np.array(vectors, np.float32), [(start, start + 1) for start in starts]))
        return located


def snippet_of(*texts: str) -> Snippet:
    return Snippet("s", "", " ".join(texts))


def test_of_a_short_snippet_each_sentence_and_all_are_read_without_an_encoder():
    windows = EvidenceWindows(lambda: pytest.fail("no encoder is needed"))
    assert windows.read("A claim.", Snippet("s", "A title", "One. Two.")) == ["One.", "Two.", "One. Two."]
    assert windows.read("A claim.", snippet_of("One.")) == ["One."]


def test_what_is_no_evidence_is_not_read():
    said = "BACKGROUND: Zinc is a metal. Does it help? METHODS: We aimed to see. RESULTS: Colds ended. Zinc helped."
    assert EvidenceWindows().read("A claim.", snippet_of(said)) == [
        "Colds ended.",
        "Zinc helped.",
        "Colds ended. Zinc helped.",
    ]
    assert EvidenceWindows().read("A claim.", snippet_of("BACKGROUND: Zinc is a metal.")) == []


@pytest.mark.parametrize("encoder", [None, OneTokenEncoder("The odd one")])
def test_of_a_long_snippet_the_nearest_sentences_and_as_many_as_fit_are_read_in_their_order(encoder):
    fillers = [FILLER.format(n) for n in range(30)]
    odd = "The odd one lowers glucose in mice."
    claim = "Glucose falls in mice."
    loaded = []
    windows = EvidenceWindows(lambda: loaded.append(1) or encoder)
    sentences = [*fillers[:20], odd, *fillers[20:]]
    *nearest, whole = windows.read(claim, snippet_of(*sentences))
    assert nearest == [*fillers[:2], odd], "the first of those that are equally near"
    assert odd in whole and len(whole) + len(claim) <= CHARACTERS
    assert len(whole) + len(claim) + len(fillers[0]) + 1 > CHARACTERS, "it is filled"
    positions = [sentences.index(text) for text in whole.replace(". ", ".|").split("|")]
    assert positions == sorted(positions)
    windows.read(claim, snippet_of(*fillers, odd))
    assert loaded == [1], "the encoder is loaded once"


def test_a_reader_of_long_texts_reads_one_window():
    texts = [FILLER.format(n) for n in range(40)]
    windows = EvidenceWindows(whole=True)
    assert windows.read("A claim.", snippet_of(*texts)) == [" ".join(texts)]
    (read,) = windows.read("A claim.", snippet_of(*texts * 5))
    assert CHARACTERS < len(read) < LONGEST


def test_of_a_book_only_the_sentences_that_share_words_are_compared():
    encoder = OneTokenEncoder("The odd one")
    texts = [FILLER.format(n) for n in range(10 * MOST)]
    texts[7 * MOST] = "The odd one lowers glucose."
    *nearest, whole = EvidenceWindows(lambda: encoder).read("Glucose falls.", snippet_of(*texts))
    assert texts[7 * MOST] in nearest and texts[7 * MOST] in whole
