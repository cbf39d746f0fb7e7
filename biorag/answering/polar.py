"""Yes, no or maybe, by what a reader says of the sentences nearest to a question."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from biorag.answering.extract import ScoredSentences, window_of
from biorag.answering.guards.checker import statement_of
from biorag.types import Reader, Vectors

POLAR = ("yes", "no", "maybe")  # in the order of the stances of a claim
TOP = 5  # sentences that count
TEMPERATURE = 0.3  # of the weights of these sentences, in units of their scores
SIDED = 0.5  # probability from which a sentence is on a side


class PolarEvidence(NamedTuple):
    """What the nearest sentences say of a yes/no question.

    Attributes
    ----------
    probability : of yes, no and maybe, (3,)
    deciding : the position of the sentence that speaks most for the likelier of yes and no
    trusted_from : the probability from which the reader's "yes" or "no" counts
    other : that of a sentence of another snippet on the other side; None if there is none
    """

    probability: Vectors
    deciding: int
    trusted_from: float
    other: int | None = None

    @property
    def side(self) -> int:
        """0 if yes is likelier than no, else 1."""
        return int(self.probability[1] > self.probability[0])


def polar_evidence(
    question: str, scored: ScoredSentences, reader: Reader | None, chooser: Reader | None
) -> PolarEvidence | None:
    """Return what a reader says of a yes/no question; None without one, or without evidence.

    `scored` may have what the `chooser` of sentences said of them; another reader is asked.
    """
    reader = reader or chooser
    if reader is None or not scored.rows:
        return None
    rows = np.argsort(-scored.scores, kind="stable")[:TOP].tolist()
    if reader is chooser and set(rows) <= set(scored.read):
        stances = scored.stances[[scored.read.index(row) for row in rows]]
    else:
        asked = question if reader.reads_questions else statement_of(question)
        stances = reader.read(asked, [window_of(scored.rows, row) for row in rows]).stances
    relevance = scored.scores[rows]
    weights = np.exp((relevance - relevance.max()) / TEMPERATURE)
    probability = (weights / weights.sum()) @ stances * (1, reader.trust.no, 1)
    probability /= probability.sum()
    side = int(probability[1] > probability[0])
    deciding = int((weights * stances[:, side]).argmax())
    others = [
        place
        for place, row in enumerate(rows)
        if stances[place, 1 - side] > SIDED and scored.rows[row].n != scored.rows[rows[deciding]].n
    ]
    other = max(others, key=lambda place: stances[place, 1 - side], default=None)
    return PolarEvidence(probability, rows[deciding], reader.trust.polar, None if other is None else rows[other])
