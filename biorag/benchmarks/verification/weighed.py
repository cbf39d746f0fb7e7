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

from biorag.answering.reversal import reversed_claim
from biorag.answering.stance import StanceReader
from biorag.answering.verification.checker import Checker
from biorag.answering.weighing import STUDIES, Judge, weigh
from biorag.benchmarks.verification.run import VerificationRun
from biorag.benchmarks.verification.sets import DIGITS, named_sets
from biorag.corpus.claims import read_claims
from biorag.engine import load_checker, load_stance_reader, open_index
from biorag.errors import BadInputError
from biorag.settings.settings import Settings
from biorag.types import ClaimLabel, Fetch, Hit, Progress
from biorag.utils.files import sha256_of

MOST = 3  # studies of a column that are predictions
SIDES: Mapping[str, ClaimLabel] = {"supporting": "supports", "opposing": "contradicts"}
VARIANTS = ("both", "claim alone", "rules alone")  # searches with the claim and its reverse, ablations


@dataclass(frozen=True, slots=True)
class LabelledEvidence:
    """A claim and the documents that decide it, none perhaps, for one variant of weighing."""

    id: str
    variant: str
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
    """Weigh the claims of files of labelled claims by what an index holds; return the report of each variant.

    A row's document is its field `snippet`, or the end of its id after "-". An interrupted run resumes in `out`.
    Raises `BadInputError` if the index lacks a document.
    """
    sets = named_sets(sources)
    with open_index(settings) as opened:
        claims = [claim for path in sets.values() for claim in labelled_evidence(path, opened.index.fetch, limit)]
        checker = load_checker(settings, opened.load_encoder)
        judge = load_stance_reader(checker, settings, opened.load_encoder).stances
        judges: dict[str, Judge] = {"both": judge, "claim alone": judge, "rules alone": StanceReader(Checker()).stances}
        found: dict[str, Sequence[Hit]] = {}

        def hits_of(query: str) -> Sequence[Hit]:
            if query not in found:
                found[query] = opened.retriever.search_all([query], STUDIES)[0].hits
            return found[query]

        def work(left: Sequence[LabelledEvidence]) -> Iterator[WeighedClaim]:
            for claim in left:
                turned = reversed_claim(claim.text) if claim.variant != "claim alone" else None
                rankings = [hits_of(query) for query in (claim.text, turned) if query]
                weighing = weigh(claim.text, turned, rankings, judges[claim.variant])
                columns = {name: [one.snippet.id for one in weighing.columns[name]] for name in SIDES}
                reached = {hit.snippet.id for hits in rankings for hit in hits} & set(claim.documents)
                yield {
                    "id": claim.id,
                    "supporting": columns["supporting"],
                    "opposing": columns["opposing"],
                    "reached": sorted(reached),
                }

        identity = {
            "weighing": {name: sha256_of(path) for name, path in sets.items()},
            "index": opened.fingerprint(),
            "limit": limit,
            "verifier": checker.identity(),
        }
        with progress("Claims", len(claims)) as advance:
            rows = VerificationRun(out, identity).fill("weighed.jsonl", WeighedClaim, claims, work, advance)
    pairs = list(zip(claims, rows, strict=True))
    variants = {name: weighing_scores([pair for pair in pairs if pair[0].variant == name]) for name in VARIANTS}
    return {"claims": len(claims) // len(VARIANTS), "config": {"limit": limit}, "weighing": variants}


def labelled_evidence(path: Path, fetch: Fetch, limit: int | None) -> list[LabelledEvidence]:
    """Return the claims of a file, once for each variant, with the documents that are labelled to decide them."""
    claims: dict[str, dict[str, ClaimLabel]] = {}
    for row in read_claims(path):
        document = row.snippet or row.id.rpartition("-")[2]
        if row.label is None or document not in fetch([document]):
            raise BadInputError(f"{path}, claim {row.id}: it needs a label, and the index its document {document!r}")
        documents = claims.setdefault(row.claim, {})
        if row.label != "neither":
            documents[document] = row.label
    chosen = list(claims.items())[:limit]
    return [
        LabelledEvidence(f"{variant}:{path.name}:{number}", variant, text, documents)
        for variant in VARIANTS
        for number, (text, documents) in enumerate(chosen)
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
