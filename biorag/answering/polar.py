"""Yes, no or maybe, by what a reader says of the sentences nearest to a question."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from biorag.answering.extract import SIDED, ScoredSentences, window_of
from biorag.answering.guards.checker import statement_of
from biorag.types import Reader, Vectors

POLAR = ("yes", "no", "maybe")  # in the order of the stances of a claim
TOP = 5  # sentences that count
READ = 12  # sentences that are read by a reader that tells what answers, to find these
ANSWERING = 0.5  # weight of the probability that a sentence answers
TEMPERATURE = 0.3  # of the weights of these sentences, in units of their scores


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
    if reader is None or not scored.rows:
        return None
    if reader is chooser and scored.read:
        rows, stances = np.array(scored.read), scored.stances
        relevance = scored.scores[rows]
    else:
        rows = np.argsort(-scored.scores, kind="stable")[: READ if reader.tells_answers else TOP]
        asked = question if reader.reads_questions else statement_of(question)
        reading = reader.read(asked, [window_of(scored.rows, row) for row in rows.tolist()])
        stances, answers = reading.stances, reading.answers
        relevance = scored.scores[rows] + (0 if answers is None else ANSWERING * answers)
    top = np.argsort(-relevance, kind="stable")[:TOP]
    rows, stances, relevance = rows[top], stances[top], relevance[top]
    weights = np.exp((relevance - relevance.max()) / TEMPERATURE)
    probability = (weights / weights.sum()) @ stances * (1, reader.trust.no, 1)
    probability /= probability.sum()
    side = int(probability[1] > probability[0])
    deciding = int((weights * stances[:, side]).argmax())
    opposing = [
        position
        for position, row in enumerate(rows)
        if stances[position, 1 - side] > SIDED and scored.rows[row].n != scored.rows[rows[deciding]].n
    ]
    opposite = max(opposing, key=lambda position: stances[position, 1 - side], default=None)
    return PolarEvidence(
        probability, int(rows[deciding]), reader.trust.polar, None if opposite is None else int(rows[opposite])
    )
