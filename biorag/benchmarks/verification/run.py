"""Measuring the check of claims: each claim's verdict, written as it comes, and accuracy by the way it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from biorag.answering.verification.checker import Checker
from biorag.benchmarks.significance import bootstrap_interval
from biorag.benchmarks.verification.claims import TRUE_KINDS, Claim
from biorag.benchmarks.verification.falsification import KINDS
from biorag.types import OnProgress, Verdict
from biorag.utils.files import json_line, write_json
from biorag.utils.parsing import opened_regular
from biorag.utils.runs import RunDirectory, whole_rows

CLAIMS, REPORT = "claims.jsonl", "report.json"


class Evidence(TypedDict):
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
    evidence: list[Evidence]


class VerificationRun(RunDirectory):
    """A directory with a line for each judged claim, and the report."""

    kind = "verification benchmark"
    manifest_name = "manifest.json"

    def judge(self, claims: Sequence[Claim], checker: Checker, on_progress: OnProgress) -> list[dict[str, Any]]:
        """Judge the claims that no earlier run has judged; return the rows of all."""
        path = self.path / CLAIMS
        with self.locked():
            if self.finished() is None:
                self.begin({})
            judged_before = list(whole_rows(path, JudgedClaim))[: len(claims)]
            rows = [row for _, row in judged_before]
            on_progress(len(rows))
            with opened_regular(path, "ab") as stream:
                stream.truncate(sum(size for size, _ in judged_before))
                for claim in claims[len(rows) :]:
                    rows.append(judged(claim, checker))
                    stream.write(json_line(rows[-1]))
                    stream.flush()
                    on_progress(1)
        return rows

    def end(self, report: Mapping[str, Any]) -> None:
        """Write the report and mark the run as complete."""
        write_json(self.path / REPORT, report)
        self.finish({"claims": report["claims"]})


def judged(claim: Claim, checker: Checker) -> dict[str, Any]:
    """Return a claim with its verdict, as a row of `claims.jsonl`."""
    checked = checker.check_claim(claim.text, claim.snippets)
    return {
        "id": claim.id,
        "kind": claim.kind,
        "claim": claim.text,
        "source": claim.source,
        "verdict": checked.verdict.value,
        "evidence": [{"id": span.id, "quote": span.quote} for span in checked.evidence],
    }


def report(rows: Sequence[Mapping[str, Any]], name: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the shares of verdicts and the accuracy of each kind: true claims supported, falsified ones not."""
    kinds = {}
    for kind in (*TRUE_KINDS, *KINDS):
        verdicts = [row["verdict"] for row in rows if row["kind"] == kind]
        if verdicts:
            kinds[kind] = _shares(verdicts, kind in TRUE_KINDS, seed)
    return {"dataset": name, "claims": len(rows), "config": dict(config), "kinds": kinds}


def _shares(verdicts: Sequence[str], true: bool, seed: int) -> dict[str, Any]:
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
