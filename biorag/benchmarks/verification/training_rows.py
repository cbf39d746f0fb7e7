"""Training rows for a verifier: evidence as the query, what it says as the positive, what it does not as negatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from biorag.benchmarks.verification.claims import REWORDED, VERBATIM, Claim
from biorag.types import TrainingRow

KIND = "synthetic"


def training_rows(claims: Iterable[Claim]) -> Iterator[TrainingRow]:
    """Yield a row for each falsified claim, with a true one of the same sentence, reworded and verbatim in turn.

    Sentences of the answers as they were written are left out: whether one sentence supports them is not known.
    """
    for source, group in groupby(claims, key=lambda claim: claim.source):
        of_source = list(group)
        true = [claim.text for kind in (REWORDED, VERBATIM) for claim in of_source if claim.kind == kind]
        false = [claim for claim in of_source if not claim.true]
        for number, claim in enumerate(false):
            yield TrainingRow(source, true[number % len(true)], (claim.text,), kind=KIND)
