"""Cosines of questions with their relevant passages and with others, as in BMRetriever's Figure 6 (appendix E)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biorag.benchmarks.abstention import auroc
from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.models.text_encoder import TextEncoder
from biorag.models.token_projection import unit
from biorag.types import Index, OnProgress, Vectors
from biorag.utils.progress import batched

Cosines = NDArray[np.float64]
Pair = tuple[int, str]  # the number of a question and the id of a snippet

BATCH = 1000  # pairs at a time
EDGES = np.linspace(-1, 1, 41)  # of the bars of the distributions
PERCENTILES = (5, 25, 50, 75, 95)


def measure_similarity(
    data: Dataset, index: Index, encoder: TextEncoder, seed: int, on_progress: OnProgress
) -> dict[str, Any]:
    """Return the distributions of the cosines of both kinds of pairs; `auc` is how often a positive one is larger.

    For each relevant snippet of the index a question has another one drawn with the seed, which is not relevant to it.

    Raises BadInputError if the index has no relevant snippet, or no other.
    """
    ids = list(index.ids())
    positive, negative = pairs_of(data, ids, np.random.default_rng(seed))
    if not positive or not negative:
        raise BadInputError(f"the index has no relevant snippet of {data.name}, or no other one: index its corpus")
    questions = unit(encoder.encode_queries([question.text for question in data.questions]))
    cosines = [
        np.concatenate([*_cosines(pairs, questions, index, encoder, on_progress)]) for pairs in (positive, negative)
    ]
    return {
        "dataset": data.name,
        "questions": len(data.questions),
        "encoder": encoder.identity.id,
        "positive": described(cosines[0]),
        "negative": described(cosines[1]),
        "separation": round(float(cosines[0].mean() - cosines[1].mean()), 6),
        "auc": round(auroc(np.concatenate(cosines), np.arange(len(positive) + len(negative)) < len(positive)), 6),
    }


def pairs_of(data: Dataset, ids: Sequence[str], rng: np.random.Generator) -> tuple[list[Pair], list[Pair]]:
    """Return each question with its relevant snippets among `ids`, and with as many others."""
    known, positive, negative = set(ids), [], []
    for number, question in enumerate(data.questions):
        relevant = [id for id in data.qrels[question.id] if id in known]
        others = len(ids) - len(relevant)
        positive += [(number, id) for id in relevant]
        drawn = rng.choice(len(ids), min(len(relevant), others) + len(relevant), replace=False)
        unlike = [ids[place] for place in drawn if ids[place] not in data.qrels[question.id]]
        negative += [(number, id) for id in unlike[: len(relevant)]]
    return positive, negative


def _cosines(
    pairs: Sequence[Pair], questions: Vectors, index: Index, encoder: TextEncoder, on_progress: OnProgress
) -> Iterator[Cosines]:
    for batch in batched(pairs, BATCH):
        snippets = index.fetch([*dict.fromkeys(id for _, id in batch)])
        vectors = unit(encoder.encode_snippets([snippet.contents for snippet in snippets.values()]))
        row_of = {id: row for row, id in enumerate(snippets)}
        rows = [row_of[id] for _, id in batch]
        yield np.einsum("pd,pd->p", questions[[number for number, _ in batch]], vectors[rows]).astype(np.float64)
        on_progress(len(batch))


def described(cosines: Cosines) -> dict[str, Any]:
    """Return the number, mean, standard deviation and percentiles of cosines, and how many are in each bar."""
    percentiles = np.percentile(cosines, PERCENTILES)
    return {
        "pairs": len(cosines),
        "mean": round(float(cosines.mean()), 6),
        "std": round(float(cosines.std()), 6),
        **{f"p{share}": round(float(value), 6) for share, value in zip(PERCENTILES, percentiles, strict=True)},
        "bars": np.histogram(np.clip(cosines, -1, 1), EDGES)[0].tolist(),
    }
