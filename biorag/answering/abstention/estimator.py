"""From the features of a retrieval to the probability that the index holds an answer, by fitted coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from biorag.answering.abstention.features import FEATURES, evidence_features
from biorag.errors import MismatchError
from biorag.retrieval.retriever import Ranking
from biorag.types import EncoderIdentity, SentenceEncoder
from biorag.utils.files import write_json
from biorag.utils.parsing import parsed, read_regular

FILE = "abstention.json"  # beside an index's manifest
PACKAGED = ("starter.json", "minilm.json")
NEXT_STEP = "run 'biorag tune abstention' again, or delete the file"


Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
PerFeature = Annotated[tuple[FiniteFloat, ...], Field(min_length=len(FEATURES), max_length=len(FEATURES))]


@dataclass(frozen=True, slots=True)
class AbstentionCoefficients:
    """A logistic regression over `FEATURES`, its calibration, and the data of both.

    The features are scores of an index, so the coefficients belong to its `encoder` and `similarity`; `snippets` is its
    size, `data` the question sets, `command` the one that fitted them. `mean`, `scale`, `weights` are (features,);
    `log_odds` and `probabilities` are the knots of the calibration, linear in between and level outside. A question is
    answered from `threshold` on.
    """

    encoder: EncoderIdentity
    similarity: str
    snippets: int
    data: tuple[str, ...]
    questions: int
    command: str
    threshold: Share
    features: tuple[str, ...]
    mean: PerFeature
    scale: PerFeature
    weights: PerFeature
    intercept: FiniteFloat
    log_odds: Annotated[tuple[FiniteFloat, ...], Field(min_length=1)]
    probabilities: tuple[Share, ...]
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.features != FEATURES:
            raise ValueError("its features are those of another version of biorag")
        if not all(self.scale):
            raise ValueError("a scale of it is 0")
        if list(self.log_odds) != sorted(self.log_odds) or len(self.log_odds) != len(self.probabilities):
            raise ValueError("the knots of its calibration do not rise, or not each has one probability")

    def scores(self, rows: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-odds before calibration, (questions,), of features (questions, features)."""
        standard = (np.asarray(rows, dtype=float) - self.mean) / self.scale
        log_odds: NDArray[np.float64] = standard @ np.array(self.weights) + self.intercept
        return log_odds

    def probability_of(self, rows: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the calibrated probabilities, (questions,), of features (questions, features)."""
        return np.interp(self.scores(rows), self.log_odds, self.probabilities)

    def fit(self, encoder: EncoderIdentity, similarity: str) -> bool:
        """Return whether these are the coefficients of an index of this encoder and similarity."""
        return (self.encoder.sha256, self.similarity) == (encoder.sha256, similarity)

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        write_json(path, asdict(self))


def read_coefficients(path: Path) -> AbstentionCoefficients:
    """Read coefficients from a JSON file; raise `MismatchError` if the file is damaged or of another version."""
    try:
        coefficients: AbstentionCoefficients = parsed(AbstentionCoefficients, read_regular(path), extra="ignore")
    except ValueError as error:
        raise MismatchError(f"{path} holds no coefficients that this version reads ({error}): {NEXT_STEP}") from None
    return coefficients


@cache
def packaged_coefficients() -> tuple[AbstentionCoefficients, ...]:
    """Return the packaged coefficients, those of the starter encoder and of the untrained one."""
    folder = files("biorag.answering.abstention")
    contents = (folder.joinpath(name).read_bytes() for name in PACKAGED)
    return tuple(parsed(AbstentionCoefficients, content, extra="ignore") for content in contents)


def coefficients_of(folder: Path, encoder: EncoderIdentity, similarity: str) -> AbstentionCoefficients | None:
    """Return the coefficients in an index's folder, of 'biorag tune abstention', else packaged ones; None if none fit.

    Raises `MismatchError` if its own are of another encoder.
    """
    path = folder / FILE
    if path.is_file():
        own = read_coefficients(path)
        if not own.fit(encoder, similarity):
            raise MismatchError(
                f"{path} was fitted for encoder {own.encoder.id!r} ({own.encoder.sha256[:12]}, {own.similarity}), and "
                f"the index has {encoder.id!r} ({encoder.sha256[:12]}, {similarity}): {NEXT_STEP}"
            )
        return own
    return next((packaged for packaged in packaged_coefficients() if packaged.fit(encoder, similarity)), None)


class EvidenceEstimator:
    """Estimates the probability that the index holds an answer, from a ranking of hybrid retrieval."""

    def __init__(
        self, coefficients: AbstentionCoefficients, encoder: SentenceEncoder, threshold: float | None = None
    ) -> None:
        self._coefficients = coefficients
        self._encoder = encoder
        self.threshold = coefficients.threshold if threshold is None else threshold

    def probability(self, ranking: Ranking) -> float | None:
        """Return the probability; 0 without a hit, None if retrieval was not hybrid."""
        if ranking.sides is None:
            return None
        if not ranking.hits:
            return 0.0
        return float(self._coefficients.probability_of([evidence_features(ranking, self._encoder)])[0])
