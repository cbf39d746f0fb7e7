"""Fitting when an answer is withheld, on questions searched with their gold snippets in the index and without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from biorag.answering.abstention.estimator import FILE, AbstentionCoefficients
from biorag.answering.abstention.features import FEATURES, evidence_features
from biorag.benchmarks.answers.abstention import answered_share, auroc, measured, risk_panel, threshold_at
from biorag.corpus.datasets import Dataset, read_queries
from biorag.engine import OpenIndex
from biorag.errors import BadInputError, MissingError
from biorag.retrieval.batches import in_batches
from biorag.retrieval.filters import exclude_documents
from biorag.training.rows import is_held_out
from biorag.types import OnProgress, Progress, Question, SentenceEncoder, Snippet, Where, block_id
from biorag.utils.files import write_json
from biorag.utils.network import command_line
from biorag.utils.plots import PlotPanel, write_plot

ANSWERED = 0.9  # share of the answerable questions above the threshold
FOLDS = 5
C = 0.3  # inverse strength of the ridge penalty


class AbstentionExample(NamedTuple):
    """A question searched once: whether the index held its gold snippets then, and the features of its hits."""

    id: str
    text: str
    set: str
    answerable: bool
    features: Sequence[float]


@dataclass(frozen=True, slots=True)
class AbstentionData:
    """Questions with gold snippets, and sets of questions that the index cannot answer, by name."""

    datasets: Sequence[Dataset]
    outside: Mapping[str, Sequence[Question]]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sets."""
        return (*(data.name for data in self.datasets), *self.outside)

    @property
    def searches(self) -> int:
        """The number of questions to search for, each with its gold snippets in the index and out of it."""
        return 2 * sum(len(data.questions) for data in self.datasets) + sum(map(len, self.outside.values()))


def read_outside(paths: Iterable[Path]) -> dict[str, list[Question]]:
    """Read files of questions that the index cannot answer, in the form of `queries.jsonl`.

    Raises MissingError if a file is not there; BadInputError if a line is not a question, or two files have one name.
    """
    sets: dict[str, list[Question]] = {}
    for path in paths:
        if not path.is_file():
            raise MissingError(f"{path} is not there: --outside takes a JSONL file of questions with _id and text")
        if path.stem in sets:
            raise BadInputError(
                f"two files of questions are named {path.stem}: rename one, since results are listed by name"
            )
        sets[path.stem] = list(read_queries(path))
    return sets


def examples(data: AbstentionData, opened: OpenIndex, on_progress: OnProgress) -> Iterator[AbstentionExample]:
    """Search for every question; for those of the data sets once with their gold documents and once without.

    Questions without a gold snippet in the index are left out.
    """
    encoder = opened.load_encoder()
    for dataset in data.datasets:
        gold = {question.id: gold_snippets(dataset, question, opened) for question in dataset.questions}
        asked = [question for question in dataset.questions if gold[question.id]]
        excluded = {id: exclude_documents(snippets) for id, snippets in gold.items()}
        for answerable, wheres in ((True, {}), (False, excluded)):
            yield from _searched(opened, encoder, asked, wheres, dataset.name, answerable, on_progress)
        on_progress(2 * (len(dataset.questions) - len(asked)))
    for name, questions in data.outside.items():
        yield from _searched(opened, encoder, questions, {}, name, False, on_progress)


def gold_snippets(dataset: Dataset, question: Question, opened: OpenIndex) -> list[Snippet]:
    """Return a question's relevant snippets in the index, of a document in blocks its first block."""
    ids = sorted(dataset.qrels[question.id])
    return list(opened.index.fetch([*ids, *(block_id(id, 0) for id in ids)]).values())


def _searched(
    opened: OpenIndex,
    encoder: SentenceEncoder,
    questions: Sequence[Question],
    wheres: Mapping[str, Where],
    name: str,
    answerable: bool,
    on_progress: OnProgress,
) -> Iterator[AbstentionExample]:
    def search(batch: Sequence[Question]) -> list[list[float]]:
        texts = [question.text for question in batch]
        rankings = opened.retriever.search_all(texts, wheres=[wheres.get(question.id, ()) for question in batch])
        return [evidence_features(ranking, encoder) for ranking in rankings]

    for question, features in in_batches(search, questions, on_progress=on_progress):
        yield AbstentionExample(question.id, question.text, name, answerable, features)


def split(
    rows: Iterable[AbstentionExample], reported_share: float, seed: int
) -> tuple[list[AbstentionExample], list[AbstentionExample]]:
    """Split into examples to fit on and to report on; by question, as training holds questions out.

    Raises BadInputError if a part lacks answerable or unanswerable questions.
    """
    fitted: list[AbstentionExample] = []
    reported: list[AbstentionExample] = []
    for row in rows:
        (reported if is_held_out(row.text, reported_share, seed) else fitted).append(row)
    for name, part in (("to fit on", fitted), ("to report on", reported)):
        if len({row.answerable for row in part}) < 2 or len({row.text for row in part}) < FOLDS:
            raise BadInputError(f"there are too few questions {name}: give more, or another --report-share")
    return fitted, reported


def fit(rows: Sequence[AbstentionExample]) -> dict[str, Any]:
    """Fit a logistic regression, and its calibration on log-odds predicted across folds of questions.

    Returns the numbers of `AbstentionCoefficients`, by their names.
    """
    features, answerable = _arrays(rows)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=5000))
    questions = np.unique([row.text for row in rows], return_inverse=True)[1]
    predicted = cross_val_predict(
        model, features, answerable, groups=questions, cv=GroupKFold(FOLDS), method="decision_function"
    )
    model.fit(features, answerable)
    scaler, regression = model[0], model[1]
    knots, probabilities = centred_isotonic(predicted, answerable)
    return {
        "mean": tuple(scaler.mean_.tolist()),
        "scale": tuple(scaler.scale_.tolist()),
        "weights": tuple(regression.coef_[0].tolist()),
        "intercept": float(regression.intercept_[0]),
        "log_odds": tuple(knots.tolist()),
        "probabilities": tuple(probabilities.tolist()),
    }


def centred_isotonic(
    scores: NDArray[np.float64], outcomes: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the knots of an isotonic regression, (knots,) each, in the middle of each level stretch.

    Linear in between, the probability rises strictly, so that no two scores become one.

    Oron and Flournoy (2017), Centered isotonic regression: point and interval estimation for dose-response studies.
    """
    levels = IsotonicRegression(out_of_bounds="clip").fit_transform(scores, outcomes.astype(float))
    probabilities = np.unique(levels)
    return np.array([scores[levels == level].mean() for level in probabilities]), probabilities


def coefficients(
    rows: Sequence[AbstentionExample], opened: OpenIndex, names: tuple[str, ...]
) -> AbstentionCoefficients:
    """Return fitted coefficients, and the threshold that answers `ANSWERED` of the answerable questions."""
    fitted = AbstentionCoefficients(
        encoder=opened.manifest.encoder,
        similarity=opened.manifest.similarity,
        snippets=opened.index.count(),
        data=names,
        questions=len({row.text for row in rows}),
        command=" ".join(command_line()),
        threshold=0.0,
        features=FEATURES,
        **fit(rows),
    )
    features, answerable = _arrays(rows)
    return replace(fitted, threshold=threshold_at(fitted.probability_of(features)[answerable], ANSWERED))


def tune_abstention(
    data: AbstentionData, opened: OpenIndex, reported_share: float, out: Path, write: bool, progress: Progress
) -> dict[str, Any]:
    """Fit coefficients, write them with a report and curves into `out`, and beside the index if `write`."""
    seed = opened.settings.seed
    with progress("Questions", data.searches) as advance:
        fitted_on, reported = split(examples(data, opened, advance), reported_share, seed)
    fitted = coefficients(fitted_on, opened, data.names)
    beside = opened.folder / FILE if write else None
    for path in filter(None, (out / FILE, beside)):
        fitted.save(path)
    document = {
        **report(fitted, reported, seed),
        "config": opened.settings.public(),
        "command": fitted.command,
        "written": str(beside) if beside else None,
    }
    write_curves(out / "curves.png", fitted, reported)
    write_json(out / "report.json", document)
    return document


def report(fitted: AbstentionCoefficients, rows: Sequence[AbstentionExample], seed: int) -> dict[str, Any]:
    """Return the measures on questions that were not fitted on, by data set and of the sets from outside."""
    features, answerable = _arrays(rows)
    probabilities = fitted.probability_of(features)
    sets = np.array([row.set for row in rows])
    questions = np.array([row.text for row in rows])
    judged = sorted(set(sets[answerable]))
    of_datasets = np.isin(sets, judged)
    areas = {name: auroc(features[of_datasets, n], answerable[of_datasets]) for n, name in enumerate(FEATURES)}
    parts = {"all": of_datasets, **{name: sets == name for name in judged}}
    groups = {
        **{f"{name}, gold in": (sets == name) & answerable for name in judged},
        **{f"{name}, gold out": (sets == name) & ~answerable for name in judged},
        **{name: sets == name for name in sorted(set(sets) - set(judged))},
    }
    return {
        "questions": {name: len(np.unique(questions[sets == name])) for name in sorted(set(sets))},
        "threshold": fitted.threshold,
        "answered": {name: answered_share(probabilities[group], fitted.threshold) for name, group in groups.items()},
        "measures": {
            name: measured(probabilities[part], answerable[part], questions[part], seed) for name, part in parts.items()
        },
        "single_features": dict(sorted(areas.items(), key=lambda item: -abs(item[1] - 0.5))),
    }


def _arrays(rows: Sequence[AbstentionExample]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return np.array([row.features for row in rows], dtype=float), np.array([row.answerable for row in rows])


def write_curves(path: Path, fitted: AbstentionCoefficients, rows: Sequence[AbstentionExample]) -> None:
    """Draw the risk-coverage curve of the data sets' questions, and the calibration of the probabilities."""
    judged = {row.set for row in rows if row.answerable}
    features, answerable = _arrays([row for row in rows if row.set in judged])
    probabilities = fitted.probability_of(features)
    bins = np.array_split(np.argsort(probabilities), 10)
    observed = [(float(probabilities[part].mean()), float(answerable[part].mean())) for part in bins if len(part)]
    calibration = PlotPanel(
        "Calibration",
        "estimated probability",
        "share answerable",
        {"tenths of the questions": observed, "perfect": [(0.0, 0.0), (1.0, 1.0)]},
    )
    write_plot(path, [risk_panel(probabilities, answerable), calibration])
