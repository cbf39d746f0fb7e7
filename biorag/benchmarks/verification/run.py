"""Measuring the check of claims: each claim's verdict, written as it comes, and what they come to by kind or set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from biorag.answering.guards.checker import Checker
from biorag.benchmarks.significance import bootstrap_interval
from biorag.benchmarks.verification.claims import HALVES, TRUE_KINDS, Claim, read_claims
from biorag.benchmarks.verification.falsification import KINDS
from biorag.benchmarks.verification.sets import labelled_claims, named_sets, scores
from biorag.engine import load_checker, open_stored
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
    """A row of `claims.jsonl`."""

    id: str
    kind: str
    claim: str
    source: str
    verdict: Verdict
    evidence: list[QuotedEvidence]
    label: NotRequired[ClaimLabel]
    probability: NotRequired[dict[ClaimLabel, float]]


class VerificationRun(RunDirectory):
    """A directory with a line for each judged claim, and the report."""

    kind = "verification benchmark"
    manifest_name = "manifest.json"


def examine(
    sources: Sequence[Path], settings: Settings, half: str, limit: int | None, out: Path, progress: Progress
) -> dict[str, Any]:
    """Judge the claims of a half of a dataset, a folder, or of files of labelled claims; return the report.

    An interrupted run resumes in `out`. Raises `UsageError` if a folder is not alone, or a half of files is asked for.
    """
    checker = load_checker(settings)
    if dataset := _dataset(sources, half):
        with open_stored(settings) as (manifest, index):
            claims = read_claims(dataset, index.fetch, half, settings.seed, limit)
        config: dict[str, Any] = {"half": half, "limit": limit, "seed": settings.seed}
        identity = {"dataset": dataset.resolve().name, "index": manifest.fingerprint(), **config}
    else:
        sets = named_sets(sources)
        claims = labelled_claims(sets, limit)
        config = {"limit": limit, "seed": settings.seed}
        identity = {"sets": {name: sha256_of(path) for name, path in sets.items()}, "limit": limit}

    def work(left: Sequence[Claim]) -> Iterator[JudgedClaim]:
        return (judged(claim, checker) for claim in left)

    run = VerificationRun(out, {**identity, "reader": checker.identity()})
    with progress("Claims", len(claims)) as advance:
        rows = run.fill("claims.jsonl", JudgedClaim, claims, work, advance)
    config["reader"] = settings.generation.reader
    if dataset:
        return report(rows, dataset.resolve().name, config, settings.seed)
    by_set = groupby(rows, key=lambda row: row["kind"])
    measured = {name: scores(list(of_set), settings.seed) for name, of_set in by_set}
    return {"claims": len(rows), "config": config, "sets": measured}


def _dataset(sources: Sequence[Path], half: str) -> Path | None:
    """Return the folder of a dataset; None for files of claims."""
    first, *rest = sources
    if not rest and not first.is_file() and ".jsonl" not in first.suffixes:
        return first
    if folder := next(filter(Path.is_dir, sources), None):
        raise UsageError(f"{folder} is a folder: give the folder of a dataset alone, or files of claims")
    if half != HALVES[0]:
        raise UsageError("--half divides the questions of a dataset: leave it out with files of claims")
    return None


def judged(claim: Claim, checker: Checker) -> JudgedClaim:
    """Return a claim with its verdict."""
    checked = checker.check_claim(claim.text, claim.snippets)
    row: JudgedClaim = {
        "id": claim.id,
        "kind": claim.kind,
        "claim": claim.text,
        "source": claim.source,
        "verdict": checked.verdict,
        "evidence": [{"id": span.id, "quote": span.quote} for span in checked.evidence],
    }
    if claim.label:
        row["label"] = claim.label
    if checked.probability:
        row["probability"] = dict(checked.probability)
    return row


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
