"""The check of claims measured on claims that people labelled, each judged by its own text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, NotRequired

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from biorag.answering.guards.checker import Checker
from biorag.benchmarks.abstention import expected_calibration_error
from biorag.corpus.claims import read_claims
from biorag.engine import load_checker
from biorag.errors import BadInputError, UsageError
from biorag.settings.settings import Settings
from biorag.types import LABEL_OF, LABELS, ClaimLabel, Progress, Snippet, Verdict
from biorag.utils.files import sha256_of
from biorag.utils.runs import RunDirectory

# How many claims of each label, by row, were called each, by column, in the order of `LABELS`, (3, 3).
Table = NDArray[np.int64]
Floats = NDArray[np.float64]

DIGITS = 4
FALSE_SUPPORT = 0.03  # share of the claims that are not supported which may be called supported
SAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a set, the snippet that it is held against, and what people say of it."""

    id: str
    set: str
    text: str
    snippet: Snippet
    label: ClaimLabel


class JudgedClaim(TypedDict):
    """A row of `claims.jsonl`; `kind` is the name of its set, `evidence` has snippet ids and quotations."""

    id: str
    kind: str
    claim: str
    verdict: Verdict
    evidence: list[dict[str, str]]
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


def named_sets(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files of claims by their names without endings; raise `UsageError` if two have the same."""
    names = {path.name.removesuffix(".gz").removesuffix(".jsonl"): path for path in paths}
    if len(names) < len(paths):
        raise UsageError("two of these files have the same name: measure them one at a time")
    return names


def labelled_claims(sets: Mapping[str, Path], limit: int | None = None) -> list[Claim]:
    """Return the claims of the sets, of each at most `limit`.

    Raises as `read_claims` does, and `BadInputError` at a claim without label or text, or if a set has none.
    """
    claims = []
    for name, path in sets.items():
        rows = list(read_claims(path))[:limit]
        if not rows:
            raise BadInputError(f"{path} has no claims")
        for row in rows:
            if row.label is None or row.text is None:
                raise BadInputError(f"{path}, claim {row.id}: to be measured it needs label, title and sentences")
            claims.append(Claim(f"{name}:{row.id}", name, row.claim, row.text, row.label))
    return claims


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


def scores(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Return the measures of the judged claims of one set, rows of `claims.jsonl`.

    Where the check is not sure, F1 and the table take the label that it leans to, and `support` its verdicts.
    """
    from sklearn.metrics import confusion_matrix

    labels = [row["label"] for row in rows]
    table = confusion_matrix(labels, [_leaning(row) for row in rows], labels=LABELS)
    verdicts = confusion_matrix(labels, [LABEL_OF[row["verdict"]] for row in rows], labels=LABELS)
    labelled = table.sum(1) > 0
    majority = int(table.sum(1).argmax())
    always = np.zeros_like(table)
    always[:, majority] = table.sum(1)
    by_rates = np.outer(table.sum(1), table.sum(1))
    return {
        "claims": len(rows),
        "macro_f1": _rounded(macro_f1(table, labelled)),
        "interval": [_rounded(bound) for bound in macro_f1_interval(table, seed)],
        "labels": _by_label(table),
        "support": _point(operating_point(verdicts)),
        "unsure": sum(row["verdict"] == Verdict.UNSURE for row in rows),
        **_of_probabilities(rows, labels),
        "floor": {
            "label": LABELS[majority],
            "always": _rounded(macro_f1(always, labelled)),
            "base_rates": _rounded(macro_f1(by_rates, labelled)),
        },
    }


def _by_label(table: Table) -> dict[str, Any]:
    right, of_label, called = np.diagonal(table), table.sum(1), table.sum(0)
    scored = {"precision": share(right, called), "recall": share(right, of_label), "f1": f1_scores(table)}
    return {
        label: {
            "claims": int(table[row].sum()),
            **{name: _rounded(values[row]) for name, values in scored.items()},
            "called": dict(zip(LABELS, table[row].tolist(), strict=True)),
        }
        for row, label in enumerate(LABELS)
    }


def _of_probabilities(rows: Sequence[Mapping[str, Any]], labels: Sequence[ClaimLabel]) -> dict[str, Any]:
    """Return what probabilities tell; nothing without any. What the rules decided alone counts as certain."""
    judged = [index for index, row in enumerate(rows) if row.get("probability")]
    if not judged:
        return {}
    probabilities = np.array([_probabilities(row) for row in rows])
    error = calibration_error([labels[index] for index in judged], probabilities[judged])
    return {
        "support_at_3_percent": _point(support_recall(np.array(labels) == "supports", probabilities[:, 0])),
        "calibration": {"claims": len(judged), "error": _rounded(error)},
    }


def _leaning(row: Mapping[str, Any]) -> ClaimLabel:
    if row["verdict"] == Verdict.UNSURE:
        return LABELS[int(_probabilities(row).argmax())]
    return LABEL_OF[row["verdict"]]


def _probabilities(row: Mapping[str, Any]) -> Floats:
    """Return the judge's probabilities; where the rules decided alone, their verdict is certain."""
    verdict: str = row["verdict"]
    known: Mapping[str, float] = row.get("probability") or {LABEL_OF[verdict]: 1.0}
    return np.array([known.get(label, 0.0) for label in LABELS])


def f1_scores(tables: Table) -> Floats:
    """Return the F1 of each label of tables of confusion, (..., 3, 3); 0 of one that no claim has or is called."""
    return share(2 * np.diagonal(tables, axis1=-2, axis2=-1), tables.sum(-1) + tables.sum(-2))


def macro_f1(tables: Table, labelled: NDArray[np.bool_]) -> Floats:
    """Return the mean F1 of the labels that claims have, (3,), of tables of confusion, (..., 3, 3)."""
    mean: Floats = f1_scores(tables)[..., labelled].mean(-1)
    return mean


def share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Floats:
    """Return part / whole, 0 where there is nothing."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0)


class OperatingPoint(NamedTuple):
    """Share of the supported claims that are called so, and of the others; `threshold` of the probability, if any."""

    recall: float
    false_support: float
    threshold: float | None = None


def _point(point: OperatingPoint) -> dict[str, float]:
    return {name: _rounded(value) for name, value in point._asdict().items() if value is not None}


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)


def macro_f1_interval(table: Table, seed: int) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of macro-F1, claims being redrawn.

    To draw as many claims with replacement is to draw a table from the multinomial distribution of its cells.
    """
    total = int(table.sum())
    drawn = np.random.default_rng(seed).multinomial(total, table.ravel() / total, SAMPLES)
    low, high = np.quantile(macro_f1(drawn.reshape(SAMPLES, *table.shape), table.sum(1) > 0), [0.025, 0.975])
    return float(low), float(high)


def operating_point(table: Table) -> OperatingPoint:
    """Return what the verdicts of a table of confusion do."""
    totals = table.sum(1)
    others = share(table[1:, 0].sum(), totals[1:].sum())
    return OperatingPoint(float(share(table[0, 0], totals[0])), float(others))


def support_recall(supported: NDArray[np.bool_], probabilities: Floats) -> OperatingPoint:
    """Return the point of the lowest threshold at which at most `FALSE_SUPPORT` of the others are called supported.

    `supported`: whether the label is "supports", (claims,); `probabilities`: of support, (claims,). A claim is called
    supported from the threshold on; without such a threshold none is.
    """
    best = OperatingPoint(0.0, 0.0)
    for threshold in np.unique(probabilities)[::-1]:
        called = probabilities >= threshold
        false_support = float(share((called & ~supported).sum(), (~supported).sum()))
        if false_support > FALSE_SUPPORT:
            break
        best = OperatingPoint(float(share((called & supported).sum(), supported.sum())), false_support, threshold)
    return best


def calibration_error(labels: Sequence[ClaimLabel], probabilities: Floats) -> float:
    """Return the expected calibration error; the confidence is the probability of the likeliest class.

    `probabilities`: of the classes, (claims, 3).
    """
    right = probabilities.argmax(1) == [LABELS.index(label) for label in labels]
    return expected_calibration_error(probabilities.max(1), right)
