"""Synthetic snippets of any number: sentences of real ones recombined, vectors of some of them perturbed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from biorag.corpus.sentences import sentences
from biorag.types import Encoder, FieldFilter, Snippet, Vectors
from biorag.utils.progress import batched

BATCH = 1024  # drawn from one state of the generator, so that a smaller corpus is the start of a larger one
# Snippets per encoded one whose vectors are perturbed copies; further vectors lie between two encoded ones. With more
# copies than the 32 links of a point in the graph, copies lie where no link leads, as no real corpus's do.
COPIES = 25
YEARS = (1966, 2024)
YEARLY = 0.04  # by which a year has more snippets than the one before
HEADINGS = 400  # MeSH headings; the one of rank r is on a share 0.6 / r of the snippets
COMMONEST = 0.6
# 36 % of the snippets are of 2015 or later, and 5 % have the heading of rank 12.
COMMON = (FieldFilter("year", ">=", 2015),)
FILTER = (*COMMON, FieldFilter("mesh", "=", "Heading 12"))
NOISE = 0.5  # length of the noise beside a vector's own: a cosine of about 0.89 to where it came from
CHUNK = 65_536  # vectors that the exact search compares at once


class SyntheticCorpus:
    """Any number of snippets made of the sentences of `sources`, with vectors; the same for the same seed.

    A snippet has a source's title and as many sentences as one of the sources, each drawn from all of them. Their
    statistics of words are the sources', but no snippet is about anything. The first `encoded` snippets have their
    own vectors; each of the others has that of one of these with Gaussian noise added, at the length it had. Beyond
    `COPIES` of each, it is a mean of two of them, in random parts, to which noise is added. Years and MeSH headings are
    drawn, for filters.
    """

    def __init__(self, sources: Sequence[Snippet], encoder: Encoder, seed: int, encoded: int) -> None:
        self._titles = [snippet.title for snippet in sources]
        texts = [text for text in (sentences(snippet.content or snippet.title) for snippet in sources) if text]
        self._sentences = [sentence for text in texts for sentence in text]
        self._lengths = np.array([len(text) for text in texts])
        self._seed = seed
        contents = (snippet.contents for snippet in self.snippets(encoded))
        self._base = np.concatenate([encoder.encode_snippets(batch) for batch in batched(contents, BATCH)])

    def snippets(self, size: int) -> Iterator[Snippet]:
        """Yield the first `size` snippets; their ids are their numbers from 0."""
        for start in range(0, size, BATCH):
            rng = np.random.default_rng([self._seed, start, 0])
            titles = rng.integers(len(self._titles), size=BATCH).tolist()
            lengths = rng.choice(self._lengths, BATCH)
            drawn = rng.integers(len(self._sentences), size=int(lengths.sum())).tolist()
            ends = np.cumsum(lengths).tolist()
            metadata = _metadata(np.random.default_rng([self._seed, start, 2]))
            for row in range(min(BATCH, size - start)):
                rows = drawn[ends[row] - int(lengths[row]) : ends[row]]
                content = " ".join(self._sentences[sentence] for sentence in rows)
                yield Snippet(str(start + row), self._titles[titles[row]], content, None, metadata[row])

    def vectors(self, size: int) -> Iterator[Vectors]:
        """Yield the vectors of the first `size` snippets in batches, (up to `BATCH`, dimension)."""
        for start in range(0, size, BATCH):
            rng = np.random.default_rng([self._seed, start, 1])
            near = self._base[rng.integers(len(self._base), size=BATCH)]
            if start >= COPIES * len(self._base):
                near = between(near, self._base[rng.integers(len(self._base), size=BATCH)], rng)
            batch = perturbed(near, rng)
            own = self._base[start : start + BATCH]
            batch[: len(own)] = own
            yield batch[: size - start]


def _metadata(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Draw the years and the MeSH headings of a batch of snippets."""
    years = np.arange(YEARS[0], YEARS[1] + 1)
    weights = np.exp(YEARLY * (years - YEARS[0]))
    drawn = rng.choice(years, BATCH, p=weights / weights.sum()).tolist()
    has = rng.random((BATCH, HEADINGS)) < COMMONEST / np.arange(1, HEADINGS + 1)
    return [
        {"year": year, "mesh": [f"Heading {rank + 1}" for rank in np.flatnonzero(row).tolist()]}
        for year, row in zip(drawn, has, strict=True)
    ]


def between(left: Vectors, right: Vectors, rng: np.random.Generator) -> Vectors:
    """Return a point between each pair of vectors, drawn uniformly from the half nearer to the left one, at its length.

    Parameters
    ----------
    left, right : (vectors, dimension)
    """
    part = rng.uniform(0.5, 1, (len(left), 1)).astype(np.float32)
    mixed = part * left + (1 - part) * right
    return mixed * (np.linalg.norm(left, axis=1, keepdims=True) / np.linalg.norm(mixed, axis=1, keepdims=True))


def perturbed(vectors: Vectors, rng: np.random.Generator) -> Vectors:
    """Return `‖v‖ (v + ε) / ‖v + ε‖` of each vector, ε Gaussian with an expected square of `(NOISE ‖v‖)²`.

    Parameters
    ----------
    vectors : (vectors, dimension)
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    moved = vectors + rng.standard_normal(vectors.shape, np.float32) * (NOISE * lengths / np.sqrt(vectors.shape[1]))
    return (moved * (lengths / np.linalg.norm(moved, axis=1, keepdims=True))).astype(np.float32)


def exact_top(vectors: Vectors, queries: Vectors, limit: int, chunk: int = CHUNK) -> list[list[int]]:
    """Return the rows of `vectors` with the largest inner products with each query, best first.

    Parameters
    ----------
    vectors : (snippets, dimension), of unit length where cosines are meant; may lie in a file
    queries : (queries, dimension)
    """
    best = np.empty((len(queries), 0), np.float32)
    rows = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(vectors), chunk):
        scores = queries @ vectors[start : start + chunk].T
        best = np.hstack([best, scores])
        rows = np.hstack([rows, np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)])
        if best.shape[1] > limit:
            kept = np.argpartition(-best, limit - 1, axis=1)[:, :limit]
            best, rows = np.take_along_axis(best, kept, 1), np.take_along_axis(rows, kept, 1)
    return np.take_along_axis(rows, np.argsort(-best, axis=1), 1).tolist()


def recall(retrieved: Sequence[Sequence[str]], exact: Sequence[Sequence[str]]) -> float:
    """Return the mean share of each query's exact ids that were retrieved."""
    shares = [len(set(ids) & set(truth)) / len(truth) for ids, truth in zip(retrieved, exact, strict=True)]
    return float(np.mean(shares))
