"""Weighing measured end to end: the studies of an index for and against claims whose evidence people labelled.

A prediction is a study among the first three of a column. Precision, recall and F1 of the labels of abstracts are
SciFact's (Wadden et al., EMNLP 2020), without its sentences. The recalls and reciprocal ranks, of claims that have such
evidence, follow the proxy for task A of TREC's BioGen track (arXiv 2603.17580), restated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from biorag.answering.weighing import STUDIES, weigh
from biorag.benchmarks.verification import DIGITS, VerificationRun, named_sets
from biorag.corpus.claims import read_claims
from biorag.engine import load_checker, open_index
from biorag.errors import BadInputError
from biorag.settings.settings import Settings
from biorag.types import ClaimLabel, Fetch, Progress
from biorag.utils.files import sha256_of

MOST = 3  # studies of a column that are predictions
SIDES: Mapping[str, ClaimLabel] = {"supporting": "supports", "opposing": "contradicts"}


@dataclass(frozen=True, slots=True)
class LabelledEvidence:
    """A claim and the documents that decide it, none perhaps."""

    id: str
    text: str
    documents: Mapping[str, ClaimLabel]


class WeighedClaim(TypedDict):
    """A row of `weighed.jsonl`: the documents of either column, the likeliest first, and those that were judged."""

    id: str
    supporting: list[str]
    opposing: list[str]
    reached: list[str]


def examine_weighing(
    sources: Sequence[Path], settings: Settings, limit: int | None, out: Path, progress: Progress
) -> dict[str, Any]:
    """Weigh the claims of files of labelled claims by what an index holds; return the report.

    A row's document is its field `snippet`, or the end of its id after "-". An interrupted run resumes in `out`.
    Raises `BadInputError` if the index lacks a document.
    """
    sets = named_sets(sources)
    with open_index(settings) as opened:
        claims = [claim for path in sets.values() for claim in labelled_evidence(path, opened.index.fetch, limit)]
        checker = load_checker(settings, opened.load_encoder)

        def work(left: Sequence[LabelledEvidence]) -> Iterator[WeighedClaim]:
            for claim in left:
                hits = opened.retriever.search_all([claim.text], STUDIES)[0].hits
                weighing = weigh(claim.text, hits, checker.stances)
                yield {
                    "id": claim.id,
                    "supporting": [study.snippet.id for study in weighing.supporting],
                    "opposing": [study.snippet.id for study in weighing.opposing],
                    "reached": sorted({hit.snippet.id for hit in hits} & set(claim.documents)),
                }

        identity = {
            "weighing": {name: sha256_of(path) for name, path in sets.items()},
            "index": opened.fingerprint(),
            "limit": limit,
            "reader": checker.identity(),
        }
        with progress("Claims", len(claims)) as advance:
            rows = VerificationRun(out, identity).fill("weighed.jsonl", WeighedClaim, claims, work, advance)
    pairs = list(zip(claims, rows, strict=True))
    return {"claims": len(claims), "config": {"limit": limit}, "weighing": weighing_scores(pairs)}


def labelled_evidence(path: Path, fetch: Fetch, limit: int | None) -> list[LabelledEvidence]:
    """Return the claims of a file with the documents that are labelled to decide them."""
    claims: dict[str, dict[str, ClaimLabel]] = {}
    for row in read_claims(path):
        document = row.snippet or row.id.rpartition("-")[2]
        if row.label is None or document not in fetch([document]):
            raise BadInputError(f"{path}, claim {row.id}: it needs a label, and the index its document {document!r}")
        documents = claims.setdefault(row.claim, {})
        if row.label != "neither":
            documents[document] = row.label
    return [
        LabelledEvidence(f"{path.name}:{number}", text, documents)
        for number, (text, documents) in enumerate(list(claims.items())[:limit])
    ]


def weighing_scores(pairs: Sequence[tuple[LabelledEvidence, WeighedClaim]]) -> dict[str, Any]:
    """Return the measures of weighed claims."""
    gold = {(claim.id, *item) for claim, _ in pairs for item in claim.documents.items()}
    called = {
        (claim.id, document, label)
        for claim, row in pairs
        for name, label in SIDES.items()
        for document in _column(row, name)[:MOST]
    }
    right = len(gold & called)
    precision, recall = right / max(1, len(called)), right / max(1, len(gold))
    sides = {name: _of_side(pairs, name) for name in SIDES}
    weights = [sides[name]["claims"] for name in SIDES]
    weighted = sum(sides[name]["MRR"] * weight for name, weight in zip(SIDES, weights, strict=True))
    return {
        "abstracts": len(gold),
        "reached": round(sum(len(row["reached"]) for _, row in pairs) / max(1, len(gold)), DIGITS),
        "precision": round(precision, DIGITS),
        "recall": round(recall, DIGITS),
        "f1": round(2 * precision * recall / max(precision + recall, 1e-9), DIGITS),
        **sides,
        "weighted_MRR": round(weighted / max(1, sum(weights)), DIGITS),
    }


def _of_side(pairs: Sequence[tuple[LabelledEvidence, WeighedClaim]], name: str) -> dict[str, Any]:
    """Return, of the claims with evidence on a side, in how many it is among the first three, and its mean 1 / rank."""
    ranks = []
    for claim, row in pairs:
        if gold := {document for document, label in claim.documents.items() if label == SIDES[name]}:
            column = _column(row, name)
            ranks.append(next((rank for rank, document in enumerate(column, 1) if document in gold), 0))
    count = max(1, len(ranks))
    return {
        "claims": len(ranks),
        "recall@3": round(sum(0 < rank <= MOST for rank in ranks) / count, DIGITS),
        "MRR": round(sum(1 / rank for rank in ranks if rank) / count, DIGITS),
    }


def _column(row: WeighedClaim, name: str) -> list[str]:
    return row["supporting"] if name == "supporting" else row["opposing"]
