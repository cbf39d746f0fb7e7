"""Numbers that tell whether the evidence retrieved for a question holds an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biorag.answering.extract import candidates
from biorag.answering.sentence_matching import sentence_matches
from biorag.answering.verification.cues import rarity
from biorag.answering.verification.words import WordKind, stems, words
from biorag.retrieval.fusion import Sides
from biorag.retrieval.retriever import Ranking
from biorag.types import Hit, LocatedTokens, SentenceEncoder, Vectors

HITS = 5  # hits that are looked at
LOWEST = 3  # tokens of the question that match worst
FEATURES = (
    "dense_top",  # the best score of the dense side
    "dense_margin_5",  # how far the fifth lies below it
    "dense_margin_20",
    "bm25_share",  # the best BM25 score, as a share of the rarity of the question's words
    "bm25_ratio_5",  # the fifth BM25 score as a share of the best
    "bm25_ratio_20",
    "overlap_10",  # the share of ids that the first ten of both sides have in common
    "hit_score",  # the score of the first hit, after reranking
    "hit_margin_5",
    "words",  # of the question, without function words
    "rarity_sum",  # of these words
    "rarity_max",
    "coverage_first",  # the share of the question's words, weighted by rarity, in the first hit
    "coverage_all",  # in all hits together
    "missing_first",  # the cubed rarity of the words that the first hit lacks: one rare word outweighs many common ones
    "missing_best",  # that the best hit lacks
    "maxsim_first",  # the mean MaxSim of the first hit
    "maxsim_best",  # of the best hit
    "maxsim_special",  # how well the special tokens of the question, which stand for all of it, are matched
    "maxsim_lowest",  # the mean of the tokens that the best hit matches worst
    "weighted_first",  # MaxSim of the first hit, tokens weighted by the rarity of their words
    "weighted_best",
    "weighted_any",  # each token matched by whichever hit matches it best
    "weighted_gap",  # the rarest word that the first hit does not match: rarity times what its match lacks
    "weighted_sentence",  # weighted MaxSim of the best sentence
    "sentence_margin",  # how far the second best sentence lies below the best, by mean MaxSim
    "sentence_coverage",  # the share of the question's words in the best sentence
)


def evidence_features(ranking: Ranking, encoder: SentenceEncoder) -> list[float]:
    """Return the values of `FEATURES` for a ranking of hybrid retrieval; all 0 without a hit.

    Scores depend on the encoder and the size of the index, so coefficients belong to an encoder. The token vectors of
    hits just reranked are not computed again.
    """
    assert ranking.sides is not None, "the features are those of both sides"
    hits = ranking.hits[:HITS]
    if not hits:
        return [0.0] * len(FEATURES)
    question, *passages = encoder.located_tokens([ranking.query, *(hit.snippet.contents for hit in hits)])
    query = question.vectors
    by_hit = best_matches(query, [passage.vectors for passage in passages])
    by_sentence, texts = _by_sentence(query, hits, passages)
    values = {
        **of_sides(ranking.sides, ranking.query),
        **of_hits(ranking.query, hits),
        **of_tokens(ranking.query, question.spans[: len(query)], by_hit, by_sentence, texts),
    }
    return [float(values[name]) for name in FEATURES]


def of_sides(sides: Sides, question: str) -> dict[str, float]:
    """Return the features of the first stage."""
    by_vector, by_word = [scored.score for scored in sides.dense], [scored.score for scored in sides.bm25]
    top, best = _at(by_vector, 0), _at(by_word, 0)
    total = sum(rarity(stem) for stem in dict.fromkeys(stems(question)))
    common = {scored.id for scored in sides.dense[:10]} & {scored.id for scored in sides.bm25[:10]}
    return {
        "dense_top": top,
        "dense_margin_5": top - _at(by_vector, 4),
        "dense_margin_20": top - _at(by_vector, 19),
        "bm25_share": best / (total or 1.0),
        "bm25_ratio_5": _at(by_word, 4) / (best or 1.0),
        "bm25_ratio_20": _at(by_word, 19) / (best or 1.0),
        "overlap_10": len(common) / 10,
    }


def _at(scores: Sequence[float], index: int) -> float:
    """Return a score, of a shorter list the last one, of an empty one 0."""
    return scores[min(index, len(scores) - 1)] if scores else 0.0


def of_hits(question: str, hits: Sequence[Hit]) -> dict[str, float]:
    """Return the features of the hits' scores and words."""
    held, weights = _held(question, [hit.snippet.contents for hit in hits])
    missing = (~held * weights**3).sum(axis=1)
    return {
        "hit_score": hits[0].score,
        "hit_margin_5": hits[0].score - hits[-1].score,
        "words": len(weights),
        "rarity_sum": weights.sum(),
        "rarity_max": weights.max(initial=0.0),
        "coverage_first": _coverage(held[0], weights),
        "coverage_all": _coverage(held.sum(axis=0) > 0, weights),
        "missing_first": missing[0],
        "missing_best": missing.min(),
    }


def _held(question: str, texts: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which words of a question each text holds, (texts, words), and how rare they are, (words,)."""
    asked = list(dict.fromkeys(stems(question)))
    held = [[stem in there for stem in asked] for there in (set(stems(text)) for text in texts)]
    return np.array(held, bool).reshape(len(texts), len(asked)), np.array([rarity(stem) for stem in asked])


def _coverage(held: NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
    return float(weights[held].sum() / weights.sum()) if weights.sum() else 1.0


def of_tokens(
    question: str,
    spans: Sequence[tuple[int, int]],
    by_hit: NDArray[np.float64],
    by_sentence: NDArray[np.float64],
    texts: Sequence[str],
) -> Mapping[str, float]:
    """Return the features of token vectors.

    `spans` are the (start, end) of the question's tokens; `by_hit` and `by_sentence` the best match of each in each
    hit, (query tokens, hits), and in each sentence of `texts`, (query tokens, sentences).
    """
    rarities = token_rarities(question, spans)
    weights = rarities / rarities.sum() if rarities.any() else np.full(len(spans), 1 / len(spans))
    special = np.array([start == end for start, end in spans])
    ordinary = np.sort(by_hit[~special], axis=0)
    weighted, means = weights @ by_hit, by_sentence.mean(axis=0)
    best = int(means.argmax())
    held, words_rarity = _held(question, [texts[best]])
    return {
        "maxsim_first": by_hit[:, 0].mean(),
        "maxsim_best": by_hit.mean(axis=0).max(),
        "maxsim_special": by_hit[special].max(axis=1).mean() if special.any() else 0.0,
        "maxsim_lowest": ordinary[:LOWEST].mean(axis=0).max() if len(ordinary) else 0.0,
        "weighted_first": weighted[0],
        "weighted_best": weighted.max(),
        "weighted_any": weights @ by_hit.max(axis=1),
        "weighted_gap": (rarities * (1 - by_hit[:, 0])).max(),
        "weighted_sentence": (weights @ by_sentence).max(),
        "sentence_margin": means[best] - np.sort(means)[-2:][0],
        "sentence_coverage": _coverage(held[0], words_rarity),
    }


def best_matches(query: Vectors, passages: Sequence[Vectors]) -> NDArray[np.float64]:
    """Return `max_j ⟨q_i, d_j⟩` for each token of the query and each passage, (query tokens, passages)."""
    columns = [(query @ tokens.T).max(axis=1) if len(tokens) else np.zeros(len(query)) for tokens in passages]
    return np.stack(columns, axis=1).astype(float)


def token_rarities(question: str, spans: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Return the rarity of the word that each token begins in, (tokens,); 0 for function words and special tokens."""
    rarities = np.zeros(len(spans))
    for word in words(question):
        if word.kind in (WordKind.CONTENT, WordKind.NAME, WordKind.NUMBER):
            for index, (start, end) in enumerate(spans):
                if start < end and word.start <= start < word.end:
                    rarities[index] = rarity(word.key)
    return rarities


def _by_sentence(
    query: Vectors, hits: Sequence[Hit], passages: Sequence[LocatedTokens]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return the best match of each query token in each sentence, (query tokens, sentences), and the sentences.

    Sentences beyond the encoder's window have no tokens and are left out.
    """
    columns: list[Vectors] = []
    texts: list[str] = []
    rows = candidates(hits)
    for n, (tokens, spans) in enumerate(passages, 1):
        of_hit = [row for row in rows if row.n == n]
        if of_hit and len(tokens):
            matches = sentence_matches(query, tokens, spans, [(row.start, row.end) for row in of_hit])
            seen = [index for index, row in enumerate(matches) if not np.isnan(row).any()]
            columns += [matches[index] for index in seen]
            texts += [of_hit[index].text for index in seen]
    if not texts:
        return np.zeros((len(query), 1)), [""]
    return np.stack(columns, axis=1).astype(float), texts
