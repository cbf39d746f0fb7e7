"""Measuring the check of claims: each claim's verdict, written as it comes, and accuracy by the way it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from biorag.answering.verification.checker import Checker
from biorag.benchmarks.significance import bootstrap_interval
from biorag.benchmarks.verification.claims import TRUE_KINDS, Claim, read_claims
from biorag.benchmarks.verification.falsification import KINDS
from biorag.engine import load_checker, open_stored
from biorag.settings.settings import Settings
from biorag.types import Progress, Verdict
from biorag.utils.runs import RunDirectory


class QuotedEvidence(TypedDict):
    """A quotation and the snippet that it stands in."""

    id: str
    quote: str


class JudgedClaim(TypedDict):
    """A row of `claims.jsonl`."""

    id: str
    kind: str
    claim: str
    source: str
    verdict: Verdict
    evidence: list[QuotedEvidence]


class VerificationRun(RunDirectory):
    """A directory with a line for each judged claim, and the report."""

    kind = "verification benchmark"
    manifest_name = "manifest.json"


def examine(
    dataset: Path, settings: Settings, half: str, limit: int | None, out: Path, progress: Progress
) -> dict[str, Any]:
    """Judge the claims of a half of a dataset, resuming in `out`; return the report."""
    checker = load_checker(settings)
    with open_stored(settings) as (manifest, index):
        claims = read_claims(dataset, index.fetch, half, settings.seed, limit)
    name, config = dataset.resolve().name, {"half": half, "limit": limit, "seed": settings.seed}
    identity = {"dataset": name, "index": manifest.fingerprint(), **config, "verifier": checker.identity()}

    def work(left: Sequence[Claim]) -> Iterator[JudgedClaim]:
        return (judged(claim, checker) for claim in left)

    with progress("Claims", len(claims)) as advance:
        rows = VerificationRun(out, identity).fill("claims.jsonl", JudgedClaim, claims, work, advance)
    return report(rows, name, {**config, "verifier": settings.generation.verifier}, settings.seed)


def judged(claim: Claim, checker: Checker) -> JudgedClaim:
    """Return a claim with its verdict."""
    checked = checker.check_claim(claim.text, claim.snippets)
    return {
        "id": claim.id,
        "kind": claim.kind,
        "claim": claim.text,
        "source": claim.source,
        "verdict": checked.verdict,
        "evidence": [{"id": span.id, "quote": span.quote} for span in checked.evidence],
    }


def report(rows: Sequence[JudgedClaim], name: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the shares of verdicts and the accuracy of each kind: true claims supported, falsified ones not."""
    by_kind = {kind: [row["verdict"] for row in rows if row["kind"] == kind] for kind in (*TRUE_KINDS, *KINDS)}
    kinds = {kind: _shares(verdicts, kind in TRUE_KINDS, seed) for kind, verdicts in by_kind.items() if verdicts}
    return {"dataset": name, "claims": len(rows), "config": dict(config), "kinds": kinds}


def _shares(verdicts: Sequence[Verdict], true: bool, seed: int) -> dict[str, Any]:
    right = [float((verdict == Verdict.SUPPORTED) == true) for verdict in verdicts]
    low, high = bootstrap_interval(right, seed, samples=2000)
    shares = {verdict.value: round(verdicts.count(verdict) / len(verdicts), 4) for verdict in Verdict}
    return {
        "claims": len(verdicts),
        "true": true,
        **shares,
        "accuracy": round(sum(right) / len(right), 4),
        "interval": [round(low, 4), round(high, 4)],
    }
