import numpy as np

from biorag.answering.stance import (
    CLIP,
    PRODUCT,
    SENTENCES,
    ReadSentence,
    StanceModel,
    StanceReader,
    own_tokens,
    read_all,
    stance_model,
)
from biorag.answering.verification.checker import Checker
from biorag.types import LocatedTokens, Snippet, Verdict

RNG = np.random.default_rng(0)
HIDDEN, LAYER, FEATURES, DIMENSION = 5, 4, 3, 6


def array(*shape):
    return RNG.normal(size=shape).astype(np.float32)


WEIGHTS = {
    "temperature": np.float32(3.0),
    "neither": np.float32(0.4),
    "mean": array(FEATURES),
    "deviation": np.abs(array(FEATURES)) + 0.1,
    "compare": array(HIDDEN, 4 * DIMENSION),
    "compare_bias": array(HIDDEN),
    "hidden": array(LAYER, 4 * HIDDEN + FEATURES),
    "hidden_bias": array(LAYER),
    "out": array(3, LAYER),
    "out_bias": array(3),
}


def slow_side(own, other):
    """Compare each token with what it attends to, one at a time."""
    values = []
    for token in own:
        weights = [np.exp(WEIGHTS["temperature"] * float(token @ each)) for each in other]
        attended = sum(weight * each for weight, each in zip(weights, other, strict=True)) / sum(weights)
        pair = [*token, *attended, *(PRODUCT * token * attended), *np.abs(token - attended)]
        values.append(
            [
                max(0.0, float(np.dot(row, pair)) + bias)
                for row, bias in zip(WEIGHTS["compare"], WEIGHTS["compare_bias"], strict=True)
            ]
        )
    return [*np.mean(values, axis=0), *np.max(values, axis=0)]


def test_log_odds_are_those_of_a_loop_over_tokens():
    claim = array(4, DIMENSION)
    sentences = [ReadSentence("", array(n, DIMENSION), 9 * array(FEATURES)) for n in (1, 7)]
    for sentence, row in zip(sentences, StanceModel(WEIGHTS).log_odds(claim, sentences), strict=True):
        features = (sentence.features - WEIGHTS["mean"]) / WEIGHTS["deviation"]
        inputs = [
            *slow_side(claim, sentence.tokens),
            *slow_side(sentence.tokens, claim),
            *(min(max(value, -CLIP), CLIP) for value in features),
        ]
        hidden = [
            max(0.0, float(np.dot(w, inputs)) + b)
            for w, b in zip(WEIGHTS["hidden"], WEIGHTS["hidden_bias"], strict=True)
        ]
        np.testing.assert_allclose(row, WEIGHTS["out"] @ hidden + WEIGHTS["out_bias"], rtol=1e-3, atol=1e-3)


def test_one_sentence_suffices_to_support():
    model = StanceModel({**WEIGHTS, "neither": np.float32(0.0)})
    alone, beside = np.array([[2.0, 0, 0]]), np.array([[2.0, 0, 0], [-9.0, -9, 0]])
    np.testing.assert_allclose(model.probabilities(alone), np.exp([2, 0, 0]) / (np.e**2 + 2), rtol=1e-6)
    np.testing.assert_allclose(model.probabilities(beside), model.probabilities(alone), atol=1e-3)


class Letters:
    """An encoder whose tokens are words, of which equal ones have equal vectors; a window of nine."""

    def located_tokens(self, texts):
        return [self._located(text) for text in texts]

    def _located(self, text):
        spans, start = [(0, 0)], 0
        for word in text.split():
            start = text.index(word, start)
            spans.append((start, start + len(word)))
            start += len(word)
        vectors = [np.eye(8, dtype=np.float32)[sum(map(ord, text[a:b].strip("."))) % 8] for a, b in spans]
        return LocatedTokens(np.stack(vectors)[:9], spans)


def test_the_nearest_sentences_within_the_window_are_read_in_their_order():
    snippet = Snippet("1", "Title words.", "Zinc cures colds. Iron does. Copper is far beyond what is read here.")
    (claimed,) = Letters().located_tokens(["Zinc cures colds."])
    tokens = own_tokens(claimed.vectors, claimed.spans)
    assert len(tokens) == 3  # the special token is left out
    (read,) = read_all("Zinc cures colds.", tokens, [snippet], Letters())
    texts = [sentence.text for sentence in read]
    assert "Zinc cures colds." in texts and len(texts) <= SENTENCES
    assert sorted(texts, key=snippet.contents.index) == texts


def test_the_rules_go_first_and_judge_alone_without_an_encoder():
    claim = "Zinc shortens colds."
    said = Snippet("1", "", "Zinc shortens colds.")
    denied = Snippet("2", "", "Zinc does not shorten colds.")
    other = Snippet("3", "", "Birds sing.")
    stances = StanceReader(Checker()).stances(claim, [said, denied, other])
    assert [stance.verdict for stance in stances] == [Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSUPPORTED]
    assert stances[0].quote == "Zinc shortens colds." and stances[0].probability == 1.0


def test_the_weights_are_there_and_finite():
    weights = stance_model()._weights
    assert all(np.isfinite(values).all() for values in weights.values())
    assert weights["hidden"].shape[1] == 4 * weights["compare"].shape[0] + len(weights["mean"])
