"""Fit how sure it is that hits hold an answer, on questions searched with their gold documents and without them.

    python -m scripts.fit_certainty INDEX:FOLDER[:MOST[:FILE]] ... --out biorag/answering/certainty.json

FOLDER is in BEIR layout, of which MOST questions are drawn, and INDEX holds its snippets, with whatever encoder. FILE
has questions that the index does not answer. A fifth of the questions is left out of the fit and reported on. The
thresholds: "answer" from the probability that `WRONG` of the unanswerable questions of files reach, "may" from `MAY`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from biorag.answering.certainty import FEATURES, KNOWN, certainty_features
from biorag.corpus.datasets import load_dataset, read_queries
from biorag.engine import OpenIndex, open_index
from biorag.retrieval.filters import exclude_documents
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings
from biorag.training.rows import is_held_out
from biorag.types import block_id

WRONG = 0.05  # share of unanswerable questions that are given an answer
MAY = 0.1  # probability below which nothing comes near: chosen on the development sets; see docs/certainty.md
REPORTED = 0.2
MOST = 400  # questions of a folder
C = 0.3  # inverse strength of the ridge penalty


class Example(NamedTuple):
    """A question searched once: whether the index held its gold documents then, and the features of its hits."""

    text: str
    set: str
    answerable: bool
    written: bool  # whether the question was written as it is, and not made unanswerable
    features: dict[str, list[float]]  # by what is known, one of `KNOWN`


def say(*parts: object) -> None:
    """Write a line."""
    sys.stdout.write(" ".join(map(str, parts)) + "\n")
    sys.stdout.flush()


def examples(settings: Settings, folder: Path, negatives: list[str], most: int) -> Iterator[Example]:
    """Yield the questions of a folder with and without their gold documents, and the negatives."""
    data = load_dataset(folder)
    name = f"{settings.index.name} {folder.name}"
    asked = random.Random(1).sample(list(data.questions), min(most, len(data.questions)))
    with open_index(settings) as opened:
        for question in asked:
            ids = sorted(data.qrels[question.id])
            gold = list(opened.index.fetch([*ids, *(block_id(id, 0) for id in ids)]).values())
            for answerable, where in ((True, ()), (False, exclude_documents(gold))) if gold else ():
                searched = example(opened, question.text, name, answerable, where)
                yield searched._replace(written=answerable)
        for text in negatives:
            yield example(opened, text, f"{settings.index.name} negatives", False, ())


def example(opened: OpenIndex, text: str, name: str, answerable: bool, where: Any) -> Example:
    """Search for a question, and return its features with the matches and without."""
    hits = opened.retriever.search_all([text], wheres=[where])[0].hits
    scored = opened.extractor(None).scored(text, hits)
    unmatched = scored._replace(matches=scored.matches[:0], least=scored.least[:0])
    features = {KNOWN[bool(len(each.matches))]: certainty_features(text, hits, each) for each in (scored, unmatched)}
    return Example(text, name, answerable, True, features)


def fitted(rows: list[Example], kind: str, described: dict[str, Any]) -> dict[str, Any]:
    """Return a model of the features `kind`, with its thresholds and measures."""
    table, answerable = np.array([row.features[kind] for row in rows]), np.array([row.answerable for row in rows])
    held = np.array([is_held_out(row.text, REPORTED, 1) for row in rows])
    scaler = StandardScaler().fit(table[~held])
    scale = np.where(scaler.scale_ > 0, scaler.scale_, 1.0)
    weights = np.array(
        [1 / sum(row.set == other.set and row.answerable == other.answerable for other in rows) for row in rows]
    )
    model = LogisticRegression(C=C, max_iter=5000)
    model.fit((table[~held] - scaler.mean_) / scale, answerable[~held], sample_weight=weights[~held] / weights.mean())
    chances = model.predict_proba((table - scaler.mean_) / scale)[:, 1]
    written = np.array([row.written for row in rows])
    answer = float(np.quantile(chances[~held & ~answerable & written], 1 - WRONG))
    sets = {}
    for name in sorted({row.set for row in rows}):
        part = held & np.array([row.set == name for row in rows])
        sets[name] = {
            "answerable": shares(chances[part & answerable], answer),
            "unanswerable": shares(chances[part & ~answerable], answer),
        }
    auroc = float(roc_auc_score(answerable[held], chances[held]))
    return {
        "features": FEATURES,
        "mean": np.round(scaler.mean_, 5).tolist(),
        "scale": np.round(scale, 5).tolist(),
        "weights": np.round(model.coef_[0], 5).tolist(),
        "intercept": round(float(model.intercept_[0]), 5),
        "may": MAY,
        "answer": round(answer, 4),
        "fitted": {**described, "auroc": round(auroc, 4), "held_out": sets},
    }


def shares(chances: Any, answer: float) -> dict[str, Any]:
    """Return how many there are, and the share of them that is answered."""
    return {"n": len(chances)} | ({"answer": round(float((chances >= answer).mean()), 3)} if len(chances) else {})


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="INDEX:FOLDER[:MOST[:FILE]]")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows: list[Example] = []
    for named in asked.sets:
        index, folder, *more = named.split(":")
        own = [question.text for file in more[1:] for question in read_queries(Path(file))]
        rows += examples(load_settings({"name": index}), Path(folder), own, int(more[0]) if more else MOST)
        say(named, len(rows))
    described = {"sets": [Path(named).name for named in asked.sets], "questions": len({row.text for row in rows})}
    document = {known: fitted(rows, known, described) for known in KNOWN.values()}
    asked.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    say(json.dumps({kind: model["fitted"] for kind, model in document.items()}, indent=1))


if __name__ == "__main__":
    main()
