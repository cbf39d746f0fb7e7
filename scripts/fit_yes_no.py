"""Fit the coefficients of biorag/answering/yes_no.toml, by scikit-learn: scripts/fit_yes_no.py ../shared/data.

None of the questions is in MIRAGE: conclusions of PubMedQA's development abstracts with their decisions; claims that
people labelled by their abstracts (SciFact, Check-COVID, Citation-Integrity); questions made of Evidence Inference's
prompts; the ideal answers of BioASQ's factoid and summary questions, as they are and with a word turned into its
opposite, by the snippets of their experts.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from biorag.answering import yes_no
from biorag.answering.extract import candidates, features
from biorag.corpus.sentences import sentences
from biorag.types import Hit, Snippet

WEIGHTS = {"conclusions": 1.0, "claims": 0.5, "inference": 0.3, "statements": 0.7}  # of an example of each source
NO = 2.0  # how much more an example of "no" weighs
QUESTIONS = tuple(f"Does {{}} {verb} {{}} compared with {{}}?" for verb in ("affect", "increase", "reduce"))
SHARE = 0.45  # of Evidence Inference's prompts
DIGITS = 0.2  # characters of a text that may be digits: tables are left out
OPPOSITES = """
increase decrease, increases decreases, increased decreased, higher lower, high low, activates inhibits, activator
inhibitor, agonist antagonist, upregulated downregulated, dominant recessive, autosomal x-linked, before after,
maternal paternal, hereditary sporadic, positive negative, positively negatively, benign malignant, acute chronic,
resistance sensitivity, resistant sensitive, promotes inhibits, stimulates suppresses, activation inhibition,
upregulation downregulation, induces inhibits, effective ineffective, safe unsafe, beneficial harmful, common rare,
women men, female male, gain loss, oral intravenous, better worse, superior inferior, reduces increases, reduced
increased, reduce increase, viral bacterial, improves worsens, nuclear cytoplasmic, intracellular extracellular,
methylated unmethylated, active inactive, early late, homozygous heterozygous, upstream downstream, enhances
reduces, prevents causes, hypermethylation hypomethylation
"""


class Example(NamedTuple):
    """A question or statement, the texts that answer it, and the number of its answer in `yes_no.POLAR`."""

    question: str
    texts: Sequence[str]
    answer: int
    source: str


def _lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def conclusions(data: Path) -> Iterator[Example]:
    """Yield the questions of PubMedQA with the conclusions of their abstracts."""
    for line in _lines(data / "pubmedqa/answers.jsonl.gz"):
        answer = yes_no.POLAR.index(line["final_decision"])
        yield Example(line["question"], [line["long_answer"]], answer, "conclusions")


def claims(data: Path) -> Iterator[Example]:
    """Yield the claims that an abstract supports or contradicts."""
    answers = {"supports": yes_no.YES, "contradicts": yes_no.NO}
    for name in ("scifact", "check_covid", "citation_integrity"):
        for line in _lines(data / f"claims/train/{name}.jsonl.gz"):
            if line["label"] in answers:
                yield Example(
                    line["claim"], [" ".join(map(str.strip, line["sentences"]))], answers[line["label"]], "claims"
                )


def inference(data: Path, draw: random.Random) -> Iterator[Example]:
    """Yield questions made of prompts of Evidence Inference, with the sentences that annotators chose."""
    for line in _lines(data / "claims/train/evidence_inference.jsonl.gz"):
        text, kind = " ".join(line["evidence"].split()), draw.randrange(len(QUESTIONS))
        if sum(map(str.isdigit, text)) > DIGITS * len(text) or draw.random() > SHARE:
            continue
        found = next(n for n, word in enumerate(("no ", "increas", "decreas")) if word in line["direction"])
        answer = yes_no.YES if (kind == 0 and found) or kind == found != 0 else yes_no.NO
        question = QUESTIONS[kind].format(line["intervention"], line["outcome"], line["comparator"])
        yield Example(question, [text], answer, "inference")


def statements(data: Path, draw: random.Random) -> Iterator[Example]:
    """Yield first sentences of ideal answers, and with one word turned into its opposite."""
    words = [pair.split() for pair in OPPOSITES.replace("\n", " ").split(",")]
    opposite = {**{b: a for a, b in reversed(words)}, **{a: b for a, b in reversed(words)}}
    snippets = {line["id"]: line["contents"] for line in _lines(data / "pubmed/snippets.jsonl.gz")}
    judged: dict[str, list[str]] = {}
    for row in csv.DictReader((data / "bioasq/qrels/test.tsv").open(encoding="utf-8"), delimiter="\t"):
        judged.setdefault(row["query-id"], []).append(snippets[row["corpus-id"]])
    for line in _lines(data / "bioasq/answers.jsonl.gz"):
        said = (sentences(line["ideal_answer"][0]) or [""])[0].split()
        if line["type"] == "yesno" or re.search(r"\b(?:no|not|without|lack)\b", " ".join(said)):
            continue
        places = [n for n, word in enumerate(said) if word.lower().strip(".,;") in opposite]
        if places:
            place = draw.choice(places)
            turned = [*said[:place], opposite[said[place].lower().strip(".,;")], *said[place + 1 :]]
            yield Example(" ".join(turned), judged[line["_id"]][:10], yes_no.NO, "statements")
        if places or draw.random() < 0.2:
            yield Example(" ".join(said), judged[line["_id"]][:10], yes_no.YES, "statements")


def found(example: Example) -> list[Hit]:
    """Return the texts of an example as hits."""
    return [Hit(n, Snippet("", "", text), 1.0) for n, text in enumerate(example.texts, 1)]


def feature_means(examples: Sequence[Example]) -> np.ndarray:
    """Return the features of each example, (examples, features)."""
    means = []
    for example in examples:
        hits = found(example)
        rows = candidates(hits)
        _, matrix, weights = yes_no.weighted_features(example.question, rows, features(example.question, hits, rows))
        means.append(weights @ matrix)
    return np.array(means)


def main() -> None:
    """Print the table `[model]` of yes_no.toml."""
    data, draw = Path(sys.argv[1]), random.Random(0)
    examples = [*conclusions(data), *claims(data), *inference(data, draw), *statements(data, draw)]
    examples = [example for example in examples if candidates(found(example))]
    values, answers = feature_means(examples), np.array([example.answer for example in examples])
    weights = np.array([WEIGHTS[each.source] * (NO if each.answer == yes_no.NO else 1) for each in examples])
    scaler = StandardScaler().fit(values)
    model = LogisticRegression(C=0.03, max_iter=3000).fit(scaler.transform(values), answers, sample_weight=weights)
    coefficients = model.coef_ / scaler.scale_
    intercepts = model.intercept_ - coefficients @ scaler.mean_
    lines = ["[model]", f"intercepts = {intercepts.round(3).tolist()}"]
    lines += ["", "[model.coefficients]  # of yes, no, maybe"]
    pairs = zip(yes_no.FEATURES, coefficients.T.round(3).tolist(), strict=True)
    sys.stdout.write("\n".join([*lines, *(f"{name} = {column}" for name, column in pairs)]) + "\n")


if __name__ == "__main__":
    main()
