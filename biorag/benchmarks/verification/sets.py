"""Sets of claims that people labelled, each beside the text that it is to be judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from biorag.benchmarks.verification import measures
from biorag.corpus.claims import read_claims
from biorag.errors import BadInputError, UsageError
from biorag.types import LABEL_OF, LABELS, ClaimLabel, Snippet, Verdict
from biorag.utils.confusion import Floats, Table, class_scores, confusion, macro_f1

DIGITS = 4


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a set, the snippet that it is held against, and what people say of it."""

    id: str
    set: str
    text: str
    snippet: Snippet
    label: ClaimLabel


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


def scores(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Return the measures of the judged claims of one set, rows of `claims.jsonl`.

    Where the check is not sure, F1 and the table take the label that it leans to, and `support` its verdicts.
    """
    labels = [row["label"] for row in rows]
    table = confusion(labels, [_leaning(row) for row in rows])
    verdicts = confusion(labels, [LABEL_OF[row["verdict"]] for row in rows])
    labelled = table.sum(1) > 0
    majority = int(table.sum(1).argmax())
    always = np.zeros_like(table)
    always[:, majority] = table.sum(1)
    by_rates = np.outer(table.sum(1), table.sum(1))
    return {
        "claims": len(rows),
        "macro_f1": _rounded(macro_f1(table, labelled)),
        "interval": [_rounded(bound) for bound in measures.macro_f1_interval(table, seed)],
        "labels": _by_label(table),
        "support": _point(measures.operating_point(verdicts)),
        "unsure": sum(row["verdict"] == Verdict.UNSURE for row in rows),
        **_of_probabilities(rows, labels),
        "floor": {
            "label": LABELS[majority],
            "always": _rounded(macro_f1(always, labelled)),
            "base_rates": _rounded(macro_f1(by_rates, labelled)),
        },
    }


def _by_label(table: Table) -> dict[str, Any]:
    scored = class_scores(table)
    return {
        label: {
            "claims": int(table[row].sum()),
            **{name: _rounded(values[row]) for name, values in scored._asdict().items()},
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
    supported = np.array(labels) == "supports"
    return {
        "support_at_3_percent": _point(measures.support_recall(supported, probabilities[:, 0])),
        "calibration": {
            "claims": len(judged),
            "error": _rounded(measures.calibration_error([labels[index] for index in judged], probabilities[judged])),
        },
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


def _point(point: measures.OperatingPoint) -> dict[str, float]:
    return {name: _rounded(value) for name, value in point._asdict().items() if value is not None}


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)
