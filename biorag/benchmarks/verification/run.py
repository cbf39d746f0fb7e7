"""Measuring the check of claims that people labelled: each verdict, written as it comes, and the measures of a set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from biorag.answering.guards.checker import Checker
from biorag.benchmarks.verification.sets import Claim, labelled_claims, named_sets, scores
from biorag.engine import load_checker
from biorag.errors import UsageError
from biorag.settings.settings import Settings
from biorag.types import ClaimLabel, Progress, Verdict
from biorag.utils.files import sha256_of
from biorag.utils.runs import RunDirectory


class QuotedEvidence(TypedDict):
    """A quotation and the snippet that it stands in."""

    id: str
    quote: str


class JudgedClaim(TypedDict):
    """A row of `claims.jsonl`; `kind` is the name of its set."""

    id: str
    kind: str
    claim: str
    verdict: Verdict
    evidence: list[QuotedEvidence]
    label: ClaimLabel
    probability: NotRequired[dict[ClaimLabel, float]]


class VerificationRun(RunDirectory):
    """A directory with a line for each judged claim, and the report."""

    kind = "verification benchmark"
    manifest_name = "manifest.json"


def examine(
    sources: Sequence[Path], settings: Settings, limit: int | None, out: Path, progress: Progress
) -> dict[str, Any]:
    """Judge the claims of files of labelled claims, each by its own text; return the report.

    An interrupted run resumes in `out`. Raises `UsageError` if a source is a folder.
    """
    if folder := next(filter(Path.is_dir, sources), None):
        raise UsageError(f"{folder} is a folder: give JSONL files of labelled claims")
    checker, sets = load_checker(settings), named_sets(sources)
    claims = labelled_claims(sets, limit)

    def work(left: Sequence[Claim]) -> Iterator[JudgedClaim]:
        return (judged(claim, checker) for claim in left)

    hashes = {name: sha256_of(path) for name, path in sets.items()}
    run = VerificationRun(out, {"sets": hashes, "limit": limit, "reader": checker.identity()})
    with progress("Claims", len(claims)) as advance:
        rows = run.fill("claims.jsonl", JudgedClaim, claims, work, advance)
    by_set = groupby(rows, key=lambda row: row["kind"])
    measured = {name: scores(list(of_set), settings.seed) for name, of_set in by_set}
    config = {"limit": limit, "seed": settings.seed, "reader": settings.generation.reader}
    return {"claims": len(rows), "config": config, "sets": measured}


def judged(claim: Claim, checker: Checker) -> JudgedClaim:
    """Return a claim with its verdict."""
    checked = checker.check_claim(claim.text, (claim.snippet,))
    row: JudgedClaim = {
        "id": claim.id,
        "kind": claim.set,
        "claim": claim.text,
        "verdict": checked.verdict,
        "evidence": [{"id": span.id, "quote": span.quote} for span in checked.evidence],
        "label": claim.label,
    }
    if checked.probability:
        row["probability"] = dict(checked.probability)
    return row
