"""Make a reader to ship of a trained one: what computes it, and from which probabilities its words count.

    python -m scripts.fit_reader MODEL... --data ../shared/data --out biorag/models/reader

MODEL is a folder of `biorag train reader`, of which an int8 export is made (the commands of the packaged one stand in
docs/readers.md), of several one of their weights' mean; or of `biorag train generator`, whose adapter is copied. The
thresholds are the lowest from which on at least `PRECISION` of the verdicts are right on development claims and
questions, by the lower end of Wilson's interval; above 1, which is never, where there are none. "No" weighs so much
that most yes/no questions are answered right. Half of the claims and questions choose; the report has the other half.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file
from sklearn.metrics import f1_score

from biorag.answering.guards.verdicts import pooled
from biorag.answering.readers.generators import open_likelihood_reader
from biorag.answering.readers.windows import EvidenceWindows
from biorag.benchmarks.significance import wilson
from biorag.corpus.claims import read_claims
from biorag.engine import load_encoder
from biorag.lab.merging.weights import recipe_of
from biorag.models.exported import open_reader
from biorag.models.exporting import write_export
from biorag.models.finding import GGUF_ADAPTER, find_encoder
from biorag.models.labels import TRUST
from biorag.settings.sources import load_settings
from biorag.training.reading import read_rows
from biorag.training.rows import is_held_out
from biorag.types import LABELS, Reader

PRECISION = 0.95
LEAST = 30  # verdicts from which a threshold is believed
NEVER = 2.0
WEIGHTS = "model.safetensors"
WINDOW = 1024  # tokens of a language model's context
ANSWERS = 0.2  # beside HIT and late interaction, chosen with them: docs/experiments/answers.md
FALSE = 0.03  # share of other claims called supported, at which the recall of support is told
SETS = ("scifact", "check_covid", "citation_integrity", "healthver_no_training")
PAIRS = ("mnli_matched_dev", "snli_test", "scitail_test")


class Called(NamedTuple):
    """A claim or question: its label, the probability of the side that is asked for, and whether it chooses."""

    label: str
    probability: tuple[float, ...]
    chooses: bool


def say(*parts: object) -> None:
    """Write a line."""
    sys.stdout.write(" ".join(map(str, parts)) + "\n")
    sys.stdout.flush()


def mean_of(models: Sequence[Path], out: Path) -> Path:
    """Write a reader whose weights are the mean of several trained from one base, and return its folder."""
    shutil.copytree(models[0], out, dirs_exist_ok=True)
    weights, recipe = [load_file(model / WEIGHTS) for model in models], recipe_of("linear", len(models), None, 1, 1)
    mean = {name: recipe.merged([each[name] for each in weights], None) for name in weights[0]}
    save_file(mean, out / WEIGHTS, {"format": "pt"})
    return out


def made(model: Path, out: Path) -> Reader:
    """Write what computes a reader into a folder, and open it."""
    shutil.rmtree(out, ignore_errors=True)
    if (model / GGUF_ADAPTER).is_file():
        out.mkdir(parents=True)
        for name in (GGUF_ADAPTER, "training.json", "README.md"):
            shutil.copyfile(model / name, out / name)
        return open_likelihood_reader(str(out), load_settings({"context_window": WINDOW, "cache": False}))
    record = write_export(find_encoder(str(model)), "reader", out, int8=True)
    say("export:", record.reason or f"differs by {record.files.difference:.4f}" if record.files else record.reason)
    for lock in out.glob("*lock*"):
        lock.unlink()
    return open_reader(out)


def claims(reader: Reader, path: Path, windows: EvidenceWindows, most: int) -> list[Called]:
    """Return what the reader says of labelled claims by their own texts."""
    rows = [row for row in read_claims(path) if row.label and row.text]
    called = []
    for row in random.Random(1).sample(rows, min(most, len(rows))):
        assert row.text is not None and row.label is not None, "chosen so"
        read = windows.read(row.claim, row.text)
        probability = pooled(reader.read(row.claim, read).stances)[0] if read else (0.0, 0.0, 1.0)
        called.append(Called(row.label, probability, is_held_out(row.claim, 0.5, 1)))
    return called


def pairs(reader: Reader, path: Path, most: int) -> list[Called]:
    """Return what the reader says of inference pairs."""
    rows = [row for row in read_rows(path, random.Random(1)) if row.target in LABELS]
    drawn = random.Random(1).sample(rows, min(most, len(rows)))
    return [
        Called(row.target, tuple(map(float, reader.read(row.query, [row.window]).stances[0])), False) for row in drawn
    ]


def macro_f1(called: Sequence[Called]) -> float:
    """Return the mean of the labels' F1."""
    labels = [one.label for one in called]
    said = [LABELS[int(np.argmax(one.probability))] for one in called]
    return float(f1_score(labels, said, labels=sorted(set(labels)), average="macro"))


def support_recall(called: Sequence[Called]) -> float:
    """Return the share of supported claims above the threshold that `FALSE` of the others reach."""
    others = sorted((one.probability[0] for one in called if one.label != "supports"), reverse=True)
    threshold = others[int(FALSE * len(others))]
    mine = [one.probability[0] > threshold for one in called if one.label == "supports"]
    return sum(mine) / max(1, len(mine))


def threshold(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Return the lowest threshold from which at least `PRECISION` are right by the lower end of Wilson's interval."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    hits = np.cumsum(np.asarray(right)[order])
    best = NEVER
    for place in range(LEAST - 1, len(order)):
        if wilson(int(hits[place]), place + 1, 1.64)[0] >= PRECISION:
            best = float(scores[order[place]])
    return best


def weighted(probability: Sequence[float], no: float) -> tuple[float, ...]:
    """Return the probabilities of yes, no and neither with another weight of "no"."""
    values = np.asarray(probability) * (1, no, 1)
    return tuple(map(float, values / values.sum()))


def weight_of_no(called: Sequence[Called]) -> float:
    """Return the weight of "no" with which most of these questions are answered right; of equals the middle one."""

    def right(no: float) -> int:
        said = [LABELS[int(no * one.probability[1] > one.probability[0])] for one in called]
        return sum(label == one.label for label, one in zip(said, called, strict=True))

    grid = np.round(np.exp(np.arange(-1.0, 2.01, 0.1)), 2)
    best = max(map(right, grid))
    return float(np.median([no for no in grid if right(no) == best]))


def polar(reader: Reader, data: Path, most: int) -> list[Called]:
    """Return what the reader says of BioASQ's development yes/no questions, by the first snippets of an index."""
    from biorag.answering.extract import Extractor
    from biorag.answering.polar import polar_evidence
    from biorag.benchmarks.golden import load_answers
    from biorag.engine import open_index

    called = []
    with open_index(load_settings({"name": "pubmed"})) as opened:
        extractor = Extractor(opened.load_encoder(), lambda: reader)
        asked = [one for one in load_answers(data / "bioasq").questions if one.expert.decision in ("yes", "no")]
        for question in random.Random(1).sample(asked, min(most, len(asked))):
            hits = opened.retriever.search_all([question.text])[0].hits
            said = polar_evidence(question.text, extractor.scored(question.text, hits), reader, reader)
            if said:
                label = "supports" if question.expert.decision == "yes" else "contradicts"
                chooses = is_held_out(question.text, 0.5, 1)
                called.append(Called(label, tuple(map(float, said.probability)), chooses))
    return called


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=600, help="Claims of a set, and pairs.")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        model = asked.model[0] if len(asked.model) == 1 else mean_of(asked.model, Path(folder))
        reader = made(model, asked.out)
    encoder = load_encoder(find_encoder("starter"), "cosine", "auto")
    windows = EvidenceWindows(lambda: encoder)
    measured: dict[str, Any] = {}
    all_claims: list[Called] = []
    for name in SETS:
        called = claims(reader, asked.data / f"claims/dev/{name}.jsonl.gz", windows, asked.most)
        all_claims += called
        scores = {"macro_f1": macro_f1(called), "support_recall": support_recall(called)}
        measured[name] = {"n": len(called), **{key: round(value, 3) for key, value in scores.items()}}
        say(name, measured[name])
    for name in PAIRS:
        called = pairs(reader, asked.data / f"nli/measure/{name}.jsonl.gz", asked.most)
        accuracy = np.mean([LABELS[int(np.argmax(one.probability))] == one.label for one in called])
        measured[name] = {"n": len(called), "accuracy": round(float(accuracy), 3)}
        say(name, measured[name])
    trust, report = {}, {}
    for place, side in enumerate(("supports", "contradicts")):
        choosing = [one for one in all_claims if one.chooses and int(np.argmax(one.probability)) == place]
        trust[side] = threshold([one.probability[place] for one in choosing], [one.label == side for one in choosing])
        given = [one for one in all_claims if not one.chooses and one.probability[place] >= trust[side]]
        report[side] = {"n": len(given), "right": sum(one.label == side for one in given)}
    questions = polar(reader, asked.data, asked.most)
    trust["answers"] = ANSWERS
    trust["no"] = weight_of_no([one for one in questions if one.chooses])
    questions = [one._replace(probability=weighted(one.probability, trust["no"])) for one in questions]
    sides = [(max(one.probability[:2]), LABELS[int(one.probability[1] > one.probability[0])]) for one in questions]
    judged = [(score, side == one.label, one.chooses) for (score, side), one in zip(sides, questions, strict=True)]
    chooses = [(score, ok) for score, ok, chooses in judged if chooses]
    trust["polar"] = threshold([score for score, _ in chooses], [ok for _, ok in chooses])
    given_questions = [ok for score, ok, chooses in judged if not chooses and score >= trust["polar"]]
    report["polar"] = {"n": len(given_questions), "right": sum(given_questions), "of": len(questions) // 2}
    for half in (True, False):
        right = [ok for _, ok, chooses in judged if chooses is half]
        measured[f"yes_no_{'chosen_by' if half else 'held_out'}"] = {
            "n": len(right),
            "accuracy": round(np.mean(right), 3),
        }
    say("yes or no", measured["yes_no_held_out"], trust["no"], Counter(one.label for one in questions))
    verdicts = [report[side] for side in ("supports", "contradicts") if report[side]["n"]]
    total = sum(one["n"] for one in verdicts)
    precision = round(sum(one["right"] for one in verdicts) / total, 3) if total else None
    document = {"trust": {**trust, "precision": precision}, "held_out": report, "measured": measured}
    (asked.out / TRUST).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    say(json.dumps(document["trust"]), json.dumps(report))


if __name__ == "__main__":
    main()
