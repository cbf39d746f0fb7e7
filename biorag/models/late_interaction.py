"""Late interaction: a query and a snippet compared token by token (ColBERT, Khattab & Zaharia 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from threadpoolctl import ThreadpoolController

from biorag.errors import MismatchError
from biorag.models.finding import ModelFiles
from biorag.types import Index, IndexQuery, Snippet, TokenEncoder, Vectors

# NumPy's BLAS: its threads spin for tens of milliseconds after a product, on the cores that the encoder wants next.
BLAS = ThreadpoolController().select(user_api="blas")
KEPT = 1 << 28  # bytes of token vectors
MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")  # as sentence-transformers and PyLate save them


class LateInteraction:
    """Scores snippets by their mean MaxSim to the query's tokens, encoding both.

    The token vectors of the snippets scored last are kept, at most so many bytes, and not encoded again.
    """

    def __init__(self, encoder: TokenEncoder, keep: int = 0) -> None:
        self._encoder, self._keep = encoder, keep
        self._kept: dict[str, Vectors] = {}

    def keeping(self, keep: int = KEPT) -> LateInteraction:
        """Return one that keeps token vectors: for many questions over one index."""
        return LateInteraction(self._encoder, keep)

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's scores of its candidates; a snippet that several queries found is encoded once."""
        texts = sorted({snippet.contents for snippets in candidates for snippet in snippets})
        tokens = {text: self._kept[text] for text in texts if text in self._kept}
        if new := [text for text in texts if text not in tokens]:
            tokens.update(zip(new, self._encoder.snippet_tokens(new), strict=True))
        self._remember(tokens)
        return [
            mean_maxsim(query, [tokens[snippet.contents] for snippet in snippets])
            for query, snippets in zip(self._encoder.query_tokens(queries), candidates, strict=True)
        ]

    def _remember(self, tokens: Mapping[str, Vectors]) -> None:
        """Keep these token vectors, the last of all, in place of the oldest."""
        kept = {text: vectors for text, vectors in self._kept.items() if text not in tokens} | dict(tokens)
        held = sum(vectors.nbytes for vectors in kept.values())
        for text in list(kept):
            if held <= self._keep:
                break
            held -= kept.pop(text).nbytes
        self._kept = kept


class StoredLateInteraction:
    """Scores snippets by their stored token vectors, which are of the same `encoder`: only queries are encoded."""

    def __init__(self, encoder: TokenEncoder, index: Index) -> None:
        self._encoder = encoder
        self._index = index

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's scores of its candidates, the mean MaxSim as the engine computes it."""
        scores = [np.zeros(len(snippets), np.float32) for snippets in candidates]
        asking = [index for index, snippets in enumerate(candidates) if snippets]
        tokens = self._encoder.query_tokens(queries)
        among = [frozenset(snippet.id for snippet in snippets) for snippets in candidates]
        probes = [IndexQuery(tokens[index], len(candidates[index]), among=among[index]) for index in asking]
        for index, scored in zip(asking, self._index.search(probes) if probes else (), strict=True):
            by_id = dict(scored)
            if lacking := [snippet.id for snippet in candidates[index] if snippet.id not in by_id]:
                raise MismatchError(f"the index holds no token vectors of {lacking[0]!r}: index the corpus again")
            scores[index][:] = [by_id[snippet.id] / len(tokens[index]) for snippet in candidates[index]]
        return scores


def is_late_interaction(files: ModelFiles) -> bool:
    """Return whether a model is a ColBERT checkpoint: Stanford's, PyLate's or sentence-transformers'."""
    kind = files.settings("config_sentence_transformers.json").get("model_type")
    stanford = "HF_ColBERT" in (files.settings("config.json").get("architectures") or [])
    return kind in MULTI_VECTOR or stanford


def mean_maxsim(query: Vectors, documents: Sequence[Vectors]) -> Vectors:
    """Return `1/m Σ_i max_j ⟨q_i, d_j⟩` for each document: MaxSim divided by the query's token count m.

    The query is (query tokens, dim), each document (tokens, dim), the scores (documents,) float32; a document without
    tokens scores 0.
    """
    scores = np.zeros(len(documents), dtype=np.float32)
    filled = [index for index, document in enumerate(documents) if len(document)]
    if not filled:
        return scores
    tokens = np.concatenate([documents[index] for index in filled]).astype(np.float32)
    starts = np.cumsum([0] + [len(documents[index]) for index in filled[:-1]])
    with BLAS.limit(limits=1):
        best = np.maximum.reduceat(query.astype(np.float32) @ tokens.T, starts, axis=1)
    scores[filled] = best.mean(axis=0)
    return scores
