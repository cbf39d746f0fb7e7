"""The stance of a study on a claim: by the rules where they decide, else by a small model of tokens and cues.

The model is decomposable attention (Parikh et al., EMNLP 2016) over the token vectors that the starter encoder gives
anyway: each token of the claim is compared with the mixture of the sentence's tokens that it attends to, and the
reverse; beside it stand the features of the yes/no lead and of the rules. `scripts/fit_stance.py` fits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from typing import NamedTuple

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence, owners_of
from biorag.answering.verification.analysis import Analysis, analyse
from biorag.answering.verification.checker import Checker
from biorag.answering.verification.rules import Fault, assess
from biorag.answering.yes_no import FEATURES, sentence_features, softmax
from biorag.corpus.sentences import best_sentence, sentence_spans, terms
from biorag.types import LABEL_OF, SentenceEncoder, Snippet, Vectors, Verdict

SENTENCES = 3  # of a snippet, the nearest to the claim
TOKENS = 48  # of a claim or a sentence that are compared
MOST_SENTENCES = 64  # of a snippet that are looked at, from its beginning
WEIGHTS = "stance.npz"
CLIP = 5.0  # standard deviations of a feature
PRODUCT = 10.0  # scale of the product of two unit vectors' components
# A stance counts from this probability, if it is so many times that of the opposite; one that falls short is unsure.
# Chosen on development claims: four in five supports of SciFact, Citation-Integrity and Evidence Inference are right.
COUNTS_FROM, TIMES, UNSURE_FROM = 0.4, 2.0, 0.35
DENYING = ("denies", "null_result", "unlikely", "opposed")  # features of a sentence that supports no plain claim


@dataclass(frozen=True, slots=True)
class Stance:
    """What a snippet does to a claim, with what probability, and the sentence that says so, verbatim.

    `leaning` is the side that the probability is of where the verdict is unsure, if that is known.
    """

    verdict: Verdict
    probability: float
    quote: str
    leaning: Verdict | None = None


class ReadSentence(NamedTuple):
    """A sentence as the model reads it beside a claim: its text, token vectors (tokens, dim), features (features,)."""

    text: str
    tokens: Vectors
    features: Vectors


class StanceModel:
    """The model; see the module. `weights` are the arrays of `stance.npz`."""

    def __init__(self, weights: Mapping[str, Vectors]) -> None:
        self._weights = {name: np.asarray(values, np.float32) for name, values in weights.items()}

    def log_odds(self, claim: Vectors, sentences: Sequence[ReadSentence]) -> Vectors:
        """Return the log-odds of supports, contradicts and neither, (sentences, 3); `claim` is (tokens, dim)."""
        w = self._weights
        rows = []
        for sentence in sentences:
            similarity: Vectors = np.multiply(w["temperature"], claim @ sentence.tokens.T, dtype=np.float32)
            sides = ((claim, softmax(similarity) @ sentence.tokens), (sentence.tokens, softmax(similarity.T) @ claim))
            compared = [self._compared(own, attended) for own, attended in sides]
            pooled = [part for values in compared for part in (values.mean(axis=0), values.max(axis=0))]
            features = np.clip((sentence.features - w["mean"]) / w["deviation"], -CLIP, CLIP)
            rows.append(np.concatenate([*pooled, features]))
        hidden = np.maximum(np.stack(rows) @ w["hidden"].T + w["hidden_bias"], 0)
        log_odds: Vectors = hidden @ w["out"].T + w["out_bias"]
        return log_odds

    def _compared(self, own: Vectors, attended: Vectors) -> Vectors:
        w = self._weights
        pairs = np.concatenate([own, attended, PRODUCT * own * attended, np.abs(own - attended)], axis=1)
        values: Vectors = np.maximum(pairs @ w["compare"].T + w["compare_bias"], 0)
        return values

    def probabilities(self, log_odds: Vectors) -> Vectors:
        """Return the probabilities of a text of these sentences, (3,); one suffices to support or contradict."""
        sides = np.logaddexp.reduce(log_odds[:, :2], axis=0)
        return softmax(np.array([*sides, log_odds[:, 2].mean() + self._weights["neither"]]))


class StanceReader:
    """Reads the stance of snippets on a claim: the rules where they decide, else a model of the starter's vectors.

    `load_encoder` is called when a model is first needed; where it returns None, the rules judge alone.
    """

    def __init__(self, checker: Checker, load_encoder: Callable[[], SentenceEncoder | None] = lambda: None) -> None:
        self._checker, self._encoder = checker, cache(load_encoder)

    def stances(self, claim: str, snippets: Sequence[Snippet]) -> list[Stance]:
        """Return the stance of each snippet, in their order."""
        stances = [self._by_rules(claim, snippet) for snippet in snippets]
        undecided = [n for n, stance in enumerate(stances) if stance.verdict in (Verdict.UNSUPPORTED, Verdict.UNSURE)]
        encoder = self._encoder() if undecided and self._checker.judge is None else None
        if encoder is None:
            return stances
        model = stance_model()
        (claimed,) = encoder.located_tokens([claim])
        tokens = own_tokens(claimed.vectors, claimed.spans)
        for n, read in zip(undecided, read_all(claim, tokens, [snippets[n] for n in undecided], encoder), strict=True):
            if len(tokens) and read:
                stances[n] = _stance(model, model.log_odds(tokens, read), read)
        return [_guarded(claim, stance) for stance in stances]

    def _by_rules(self, claim: str, snippet: Snippet) -> Stance:
        checked = self._checker.check_claim(claim, [snippet])
        quote = checked.evidence[0].quote if checked.evidence else best_sentence(snippet.contents, terms(claim))
        return Stance(checked.verdict, checked.probability.get(LABEL_OF[checked.verdict], 1.0), quote)


def _stance(model: StanceModel, log_odds: Vectors, read: Sequence[ReadSentence]) -> Stance:
    chances = model.probabilities(log_odds)
    side = int(chances[1] > chances[0])
    quote, probability = read[int(log_odds[:, side].argmax())].text, float(chances[side])
    verdict = (Verdict.SUPPORTED, Verdict.CONTRADICTED)[side]
    if probability >= max(COUNTS_FROM, TIMES * chances[1 - side]):
        return Stance(verdict, probability, quote)
    if probability >= UNSURE_FROM:
        return Stance(Verdict.UNSURE, probability, quote, leaning=verdict)
    return Stance(Verdict.UNSUPPORTED, float(chances[2]), quote)


def _guarded(claim: str, stance: Stance) -> Stance:
    """Return a stance that does not support a claim which denies nothing by a sentence that denies something."""
    analysis = analyse(claim)
    if stance.verdict is not Verdict.SUPPORTED or any(word.denied for word in analysis.content):
        return stance
    row = EvidenceSentence(1, 0, len(stance.quote), stance.quote)
    cues = dict(zip(FEATURES, sentence_features(claim, analysis, row), strict=True))
    return replace(stance, verdict=Verdict.UNSURE) if any(cues[name] for name in DENYING) else stance


@cache
def stance_model() -> StanceModel:
    """Return the model that comes with biorag."""
    with as_file(files("biorag.answering") / WEIGHTS) as path, np.load(path, allow_pickle=False) as weights:
        return StanceModel(dict(weights))


def own_tokens(vectors: Vectors, spans: Sequence[tuple[int, int]]) -> Vectors:
    """Return the vectors of a text's own tokens, at most `TOKENS`, without special ones."""
    own = [n for n, (start, end) in enumerate(spans[: len(vectors)]) if end > start]
    return np.asarray(vectors, np.float32)[own[:TOKENS]]


def read_all(
    claim: str, tokens: Vectors, snippets: Sequence[Snippet], encoder: SentenceEncoder
) -> list[list[ReadSentence]]:
    """Return the sentences of each snippet that come nearest to a claim, as the model reads them, in their order."""
    analysis = analyse(claim)
    located = encoder.located_tokens([snippet.contents for snippet in snippets])
    return [
        _read(claim, analysis, tokens, snippet, np.asarray(vectors, np.float32), spans)
        for snippet, (vectors, spans) in zip(snippets, located, strict=True)
    ]


def _read(
    claim: str,
    analysis: Analysis,
    tokens: Vectors,
    snippet: Snippet,
    vectors: Vectors,
    spans: Sequence[tuple[int, int]],
) -> list[ReadSentence]:
    """Read a snippet; sentences that the encoder's window does not reach are left out."""
    text = snippet.contents
    bounds = sentence_spans(text)[:MOST_SENTENCES]
    owners = owners_of(spans[: len(vectors)], bounds)
    owned = [vectors[owners == number] for number in range(len(bounds))]
    whole = [number for number, own in enumerate(owned) if len(own)]
    matches = {number: (tokens @ owned[number].T).max(axis=1) for number in whole}
    nearest = sorted(whole, key=lambda number: -float(matches[number].mean()))[:SENTENCES]
    best = float(matches[nearest[0]].mean()) if nearest else 0.0
    read = []
    for number in sorted(nearest):
        start, end = bounds[number]
        own = [
            *pair_features(claim, analysis, text[start:end], snippet.title),
            number / max(1, len(bounds) - 1),
            *_likeness(matches[number]),
            float(number == 0 and bool(snippet.title)),
            float(matches[number].mean()) - best,
        ]
        read.append(ReadSentence(text[start:end], owned[number][:TOKENS], np.array(own, np.float32)))
    return read


def _likeness(matches: Vectors) -> tuple[float, float, float]:
    """Return the mean, the least, and the mean of the three least of the best matches of a claim's tokens."""
    ascending = np.sort(matches)
    return float(matches.mean()), float(ascending[0]), float(ascending[:3].mean())


def pair_features(claim: str, analysis: Analysis, text: str, title: str) -> list[float]:
    """Return what the yes/no lead and the rules say of a sentence beside a claim."""
    said = analyse(text)
    judgement = assess(analysis, said)
    pair, vetoes = judgement.pair, judgement.vetoes
    numbers = [n for n, word in enumerate(analysis.content) if word.key[0] == "#"]
    return [
        *sentence_features(claim, analysis, EvidenceSentence(1, 0, len(text), text, title=title)),
        judgement.coverage,
        pair.coverage(frozenset()),
        pair.likeness,
        len(pair.reversals),
        len(pair.missing) / max(1, len(analysis.content)),
        sum(n in pair.missing for n in numbers),
        len(numbers),
        *(float(fault in judgement.faults) for fault in Fault),
        *(float(fault in vetoes) for fault in Fault),
        float(analysis.hedged),
        float(said.hedged),
        float(said.aims),
        float(any(word.denied for word in analysis.content)),
        min(len(text.split()) / 40, 3.0),
        len(analysis.content) / 10,
    ]
