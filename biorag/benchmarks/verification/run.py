"""Measuring the check of claims: each claim's verdict, written as it comes, and accuracy by the way it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from biorag.answering.verification.checker import Checker
from biorag.benchmarks.significance import bootstrap_interval
from biorag.benchmarks.verification.claims import TRUE_KINDS, Claim
from biorag.benchmarks.verification.falsification import KINDS
from biorag.types import OnProgress, Verdict
from biorag.utils.files import write_json
from biorag.utils.runs import RunDirectory, whole_lines

CLAIMS, REPORT = "claims.jsonl", "report.json"


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
            rows = [json.loads(line) for line in whole_lines(path)][: len(claims)]
            on_progress(len(rows))
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
            with path.open("a", encoding="utf-8") as stream:
                for claim in claims[len(rows) :]:
                    rows.append(judged(claim, checker))
                    stream.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
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
