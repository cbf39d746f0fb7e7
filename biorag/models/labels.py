"""What the outputs of a reader mean, told from its configuration before it is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles
from biorag.types import LABELS, ClaimLabel, Trust

TRUST = "trust.json"  # in a reader's folder: from which probabilities its words count, and how that was measured
HEAD = "ForSequenceClassification"
MEANINGS: dict[str, ClaimLabel] = {
    **dict.fromkeys(("entailment", "entails", "entailed", "support", "supports", "supported"), "supports"),
    **dict.fromkeys(("contradiction", "contradict", "contradicts", "contradicted", "contradictory"), "contradicts"),
    **dict.fromkeys(("refute", "refutes", "refuted"), "contradicts"),
    **dict.fromkeys(("neutral", "neither", "nei", "notenoughinfo", "notenoughinformation", "noinfo"), "neither"),
}
ANSWERS = "answers"  # a fourth output: the log-odds that the evidence answers a question


def check_head(files: ModelFiles, role: str, made_by: str) -> None:
    """Raise `MissingError` if a model has no trained head, in whose place the library would put a random one."""
    if not any(str(name).endswith(HEAD) for name in files.settings("config.json").get("architectures") or []):
        raise MissingError(
            f"{role} {files.id!r} is not a cross-encoder: it has no trained head ({made_by!r} makes one)"
        )


def label_columns(files: ModelFiles) -> tuple[int, ...]:
    """Return which output of a reader says each of `LABELS`, and, where it has one, which says `ANSWERS`.

    The columns are empty if its one output is the log-odds of support. Raises `MissingError` if it is not a
    cross-encoder, or its labels do not say so.
    """
    check_head(files, "reader", "biorag train reader")
    config = files.settings("config.json")
    labels = config.get("id2label")
    labels = labels if isinstance(labels, dict) else {}
    outputs = len(labels) or config.get("num_labels")
    if outputs == 1:
        return ()
    plain = [re.sub(r"[^a-z]", "", str(labels.get(str(n))).lower()) for n in range(len(labels))]
    meanings = [ANSWERS if label == ANSWERS else MEANINGS.get(label) for label in plain]
    expected = (*LABELS, ANSWERS) if ANSWERS in meanings else LABELS
    if sorted(map(str, meanings)) != sorted(expected):
        named = ", ".join(map(str, labels.values()))[:200]
        raise MissingError(
            f"reader {files.id!r} {f'has the labels {named}' if labels else 'names no labels'}: it needs one output, "
            "or three that id2label in its config.json names entailment, contradiction and neutral"
        )
    return tuple(meanings.index(label) for label in expected)


def trust_of(columns: Sequence[int]) -> Trust:
    """Return the trust in a reader with these `label_columns`; with one output it never contradicts."""
    return Trust() if columns else Trust(contradicts=2.0)


def read_trust(folder: Path) -> Trust:
    """Return from which probabilities a reader's words count, by its folder's `TRUST`, if there is one."""
    file = folder / TRUST
    return Trust(**json.loads(file.read_bytes())["trust"]) if file.is_file() else Trust()
