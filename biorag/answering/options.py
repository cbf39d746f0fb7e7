"""Multiple choice by the evidence alone: each option held against the sentences of the hits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from biorag.answering.verification.checker import Checker
from biorag.answering.verification.statements import asserted
from biorag.corpus.sentences import sentences
from biorag.types import CheckedSentence, Hit, Verdict

POLAR = ("yes", "no", "maybe")
_ASKED = re.compile(
    r"^.*?\b(?:which|what|who|whom|whose|where|when|how)\b(?:\s+(?:one\s+)?of\s+the\s+following)?", re.IGNORECASE
)


def statements(question: str, option: str) -> list[str]:
    """Return what choosing an option asserts, in the wordings that it is compared in; "maybe" asserts nothing.

    "Which vitamin prevents neuropathy?" with "Pyridoxine" gives "Pyridoxine prevents neuropathy."
    """
    answer = option.strip().lower().rstrip(".")
    if answer in POLAR:
        return [] if answer == "maybe" else [asserted(question, answer)]
    last = (sentences(question) or [""])[-1].rstrip("?:. ")
    rest = _ASKED.sub("", last).strip()
    without_noun = rest.partition(" ")[2]
    variants = [f"{option} {rest}.", f"{option} {without_noun}."]
    return list(dict.fromkeys(" ".join(variant.split()) for variant in variants))


def held(question: str, option: str, hits: Sequence[Hit], checker: Checker) -> CheckedSentence:
    """Return the verdict on an option: the best of what its wordings get, with the option as its text."""
    snippets = [hit.snippet for hit in hits]
    order = (Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSUPPORTED)
    checked = [checker.check_claim(statement, snippets) for statement in statements(question, option)]
    best = min(checked, key=lambda sentence: order.index(sentence.verdict), default=CheckedSentence("", order[-1]))
    supporting = tuple(span.n for span in best.evidence if span.verdict is Verdict.SUPPORTED)
    return replace(best, text=option, citations=supporting)
