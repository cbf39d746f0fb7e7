"""The measures of BioASQ's evaluator (`EvaluatorTask1b -phaseA -e 8`): MAP, GMAP, mean precision, recall and F1.

They are those of the guidelines, "Evaluation measures for task B" by Malakasiotis et al., as the evaluator's source
computes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from biorag.benchmarks.bioasq.golden import Span

MOST = 10  # documents, and snippets, that a submission may have of a question
EPSILON = 1e-5
MEASURES = ("MAP", "GMAP", "precision", "recall", "F1")


@dataclass(frozen=True, slots=True)
class RankingScore:
    """One question's values; `average_precision` is NaN where nothing is relevant and so nothing is defined."""

    precision: float
    recall: float
    f1: float
    average_precision: float


def score_documents(golden: Sequence[str], returned: Sequence[str]) -> RankingScore:
    """Measure a ranking of at most ten documents.

    AP is `Σ_r P(r)·rel(r) / min(10, |golden|)`, as of BioASQ 8. Editions 3 to 7 divide by 10, the first two by
    |golden|. It is 0 where there is no golden document.

    `golden`: relevant documents, each once; `returned`: best first, each once.
    """
    relevant = set(golden)
    hits = precisions = 0.0
    for rank, document in enumerate(returned, 1):
        if document in relevant:
            hits += 1
            precisions += hits / rank
    precision, recall = _share(hits, len(returned)), _share(hits, len(golden))
    return RankingScore(precision, recall, _f1(precision, recall), _share(precisions, min(MOST, len(golden))))


def score_snippets(golden: Sequence[Span], returned: Sequence[Span]) -> RankingScore:
    """Measure a ranking of at most ten snippets by the characters that they share with golden ones.

    Overlapping snippets are merged first, on both sides. Precision and recall are shares of all characters
    returned and golden. AP is `Σ_r P(r)·rel(r) / min(10, |golden|)` with such a P(r) of the first r snippets;
    the evaluator takes a snippet as relevant if any golden one is of its document, even without overlap.
    Several snippets in one golden one all count, so AP may pass 1; F1 is the official measure since BioASQ 9.
    """
    relevant, ranked = merged(golden), merged(returned)
    documents = {span.document for span in relevant}
    shared = size = 0
    precisions = 0.0
    for span in ranked:
        shared += sum(span.overlap(other) for other in relevant)
        size += span.size
        if span.document in documents:
            precisions += _share(shared, size)
    precision, recall = _share(shared, size), _share(shared, sum(span.size for span in relevant))
    average = precisions / min(MOST, len(relevant)) if relevant else math.nan
    return RankingScore(precision, recall, _f1(precision, recall), average)


def merged(spans: Sequence[Span]) -> list[Span]:
    """Return the spans with those that overlap joined, each at the place of the first of them."""
    joined: list[Span] = []
    for span in spans:
        touching = [other for other in joined if other.overlap(span)]
        if not touching:
            joined.append(span)
            continue
        begin, end = min(other.begin for other in (*touching, span)), max(other.end for other in (*touching, span))
        joined[joined.index(touching[0])] = Span(span.document, span.sections, begin, end)
        joined = [other for other in joined if other not in touching[1:]]
    return joined


def summary(scores: Sequence[RankingScore]) -> dict[str, float]:
    """Return the measures of a set of questions, at least one: `MEASURES`."""
    return {
        "MAP": float(np.mean([defined(score.average_precision) for score in scores])),
        "GMAP": geometric_mean(score.average_precision for score in scores),
        "precision": float(np.mean([score.precision for score in scores])),
        "recall": float(np.mean([score.recall for score in scores])),
        "F1": float(np.mean([score.f1 for score in scores])),
    }


def geometric_mean(averages: Iterable[float]) -> float:
    """Return `exp(mean(log(AP + 1e-5)))`; the evaluator takes the logarithm of an undefined AP as 0."""
    return math.exp(float(np.mean([0.0 if math.isnan(value) else math.log(value + EPSILON) for value in averages])))


def defined(average: float) -> float:
    """Return an average precision as it enters MAP: 0 where it is undefined."""
    return 0.0 if math.isnan(average) else average


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision and recall else 0.0
