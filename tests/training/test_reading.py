"""What a reader learns from and how: rows of each shape by hand, losses against loops, batches, one training."""

import json
import math
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from biorag.errors import BadInputError, MissingError
from biorag.models.cross_encoder import CrossEncoderReader
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training.contamination import ContaminationError, ContaminationPolicy
from biorag.training.reading import LONGEST, TARGETS, ReaderRows, counts_of, read_rows
from biorag.types import LABELS
from tests.cli import done, failed, invoke
from tests.training.trainers import READING_ROWS

TEXTS = ["Zinc is a metal.", "Zinc shortens colds.", "Colds end a day sooner.", "Mice drank zinc.", "It was safe."]
CLAIM = {"id": "c", "claim": "Zinc shortens the common cold", "sentences": TEXTS, "label": "supports"}
ZINC, ASPIRIN = "Zinc shortens colds.", "Aspirin does nothing to colds."
QUESTIONS = [
    {"question": "Does zinc shorten colds?", "exact_answer": "yes", "passages": [{"text": ZINC}]},
    {"question": "Do colds need aspirin?", "exact_answer": "no", "passages": [{"text": ASPIRIN}]},
    {"question": "Which metal?", "exact_answer": [["Zinc", "Zn"]], "passages": [{"text": "Iron. Tin. Lead. Zn!"}]},
    {"question": "What is honey?", "passages": [{"text": "Honey is a food of bees. It is sweet. It keeps."}]},
    {"question": "Who sells this?", "boilerplate": True, "passages": [{"text": "Prices are in euros."}]},
]


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(tmp_path, *rows, seed=0):
    read = read_rows(written(tmp_path / "some.v1.jsonl", *rows), random.Random(seed))
    return [(row.query, row.window, row.target) for row in read]


def test_inference_pairs_and_judged_sentences_are_rows_as_they_are(tmp_path):
    pair = {"premise": "Zinc helps.", "hypothesis": "It helps.", "label": "not_supports"}
    assert rows_of(tmp_path, pair) == [("It helps.", "Zinc helps.", "not_supports")]
    (row,) = read_rows(tmp_path / "some.v1.jsonl", random.Random(0))
    assert (row.source, row.document) == ("some", "zinc helps")
    judged = [{"question": "Zinc?", "sentence": "Zinc is a metal.", "label": label} for label in (1, 0)]
    assert rows_of(tmp_path, *judged) == [("Zinc?", TEXTS[0], "answers"), ("Zinc?", TEXTS[0], "beside")]


def test_a_claim_stands_beside_what_decides_it_and_what_a_reader_reads(tmp_path):
    whole, sides = " ".join(TEXTS), [set(), set()]
    for seed in range(9):
        for _, window, target in rows_of(tmp_path, CLAIM | {"rationale": [1, 2, 4]}, seed=seed):
            sides[target == "neither"].add(window)
    longer = {" ".join(TEXTS[1:3]), " ".join(TEXTS[:3]), " ".join(TEXTS[3:])}
    assert sides == [{*longer, TEXTS[4], whole, *TEXTS[1:3]}, {TEXTS[0]}], "what is read alone decides, too"
    beside = {window for _, window, target in rows_of(tmp_path, CLAIM | {"rationale": [4]}) if target == "neither"}
    assert beside == set(TEXTS[:3]), "the three nearest, none of which decides"
    assert {row[1:] for row in rows_of(tmp_path, CLAIM)} == {(whole, "supports")}, "which decides is not marked"
    undecided = rows_of(tmp_path, CLAIM | {"label": "neither"})
    assert {row[1:] for row in undecided} == {(text, "neither") for text in (*TEXTS[:3], whole)}


def test_passages_answer_their_questions_and_the_nearest_of_others_do_not(tmp_path):
    rows = {row for seed in range(9) for row in rows_of(tmp_path, *QUESTIONS, seed=seed)}
    of = [{row[1:] for row in rows if row[0] == one["question"]} for one in QUESTIONS]
    assert of[0] == {(ZINC, "supports"), (ZINC, "answers"), (ASPIRIN, "beside"), (ASPIRIN, "neither")}
    assert of[1] == {(ASPIRIN, "contradicts"), (ASPIRIN, "answers"), (ZINC, "beside"), (ZINC, "neither")}
    assert of[2] == {("Lead. Zn!", "answers")}, "the window that holds an answer"
    assert of[3:] == [{("Honey is a food of bees. It is sweet.", "answers")}, set()]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"premise": "a", "hypothesis": "b", "label": "maybe"}', "'maybe' is none of supports, contradicts"),
        ('{"premise": "a", "label": "supports"}', "it has no 'hypothesis'"),
        ('{"premise": "a", ', "not JSON"),
        ('["premise"]', "not a JSON object"),
    ],
)
def test_a_bad_row_is_named(tmp_path, line, said):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"premise": "a", "hypothesis": "b", "label": "supports"}\n' + line + "\n")
    with pytest.raises(BadInputError, match=f"rows.jsonl, line 2: .*{said}"):
        list(read_rows(file, random.Random(0)))
    with pytest.raises(MissingError, match=r"none\.jsonl is not there"):
        list(read_rows(tmp_path / "none.jsonl", random.Random(0)))


def pairs(count=40):
    return [
        {"premise": f"Gene {n // 2} is rare.", "hypothesis": f"Gene {n} is seldom seen.", "label": LABELS[n % 3]}
        for n in range(count)
    ]


def prepared(*files, held_out=(), policy=None, **fields):
    settings = Settings.of(train_validation=0.3)
    return ReaderRows(policy or ContaminationPolicy(), settings, **fields).read(files, held_out)


def test_rows_of_a_document_stay_on_one_side(tmp_path):
    split, facts = prepared(written(tmp_path / "people.jsonl", *pairs()))
    sides = [{row.document for row in side} for side in (split.training, split.validation)]
    assert all(sides) and sides[0].isdisjoint(sides[1])
    assert len(split.training) + len(split.validation) == 40
    assert facts == {"data": {"sources": counts_of(split.training)}}
    assert sum(facts["data"]["sources"]["people"].values()) == len(split.training)


def test_a_file_may_be_drawn_from_read_blind_or_held_out(tmp_path):
    file = written(tmp_path / "a.jsonl", *pairs(), {"premise": "x" * LONGEST, "hypothesis": "b", "label": "supports"})
    split, _ = prepared(file)
    assert len(split.training) + len(split.validation) == 40, "a longer one is left out"
    drawn, _ = prepared(file, limit=12)
    assert len(drawn.training) + len(drawn.validation) == 12
    blind, _ = prepared(file, claim_only=True)
    assert {row.window for row in blind.training} == {""}
    held_out = written(tmp_path / "dev.jsonl", *pairs(6))
    split, _ = prepared(file, held_out=[held_out])
    assert [row.query for row in split.validation] == [pair["hypothesis"] for pair in pairs(6)]
    assert {row.query for row in split.training} == {pair["hypothesis"] for pair in pairs()[6:]}
    with pytest.raises(BadInputError, match="no row is left"):
        prepared(held_out, held_out=[held_out])


def test_no_question_of_a_benchmark_is_trained_on(tmp_path):
    file, guard = written(tmp_path / "a.jsonl", *pairs()), tmp_path / "benchmark.jsonl"
    written(guard, {"question": "Gene 7 is seldom seen."})
    with pytest.raises(ContaminationError, match="Gene 7"):
        prepared(file, policy=ContaminationPolicy((guard,)))
    split, facts = prepared(file, policy=ContaminationPolicy((guard,), drop=True))
    queries = {row.query for row in (*split.training, *split.validation)}
    assert {match["query"] for match in facts["guard"]["dropped"]}.isdisjoint(queries)
    assert "Gene 7 is seldom seen." not in queries


# --- losses, batches and metrics ---


@pytest.mark.models
def test_losses_are_those_of_a_slow_loop():
    import torch

    from biorag.training.cross_encoder import SMOOTHING, reading_losses

    logits = torch.randn(12, 4, generator=torch.Generator().manual_seed(1)) * 3
    targets = torch.tensor([n % len(TARGETS) for n in range(12)])
    expected = []
    for z, number in zip(logits.tolist(), targets.tolist(), strict=True):
        target = TARGETS[number]
        log_p = [value - math.log(sum(math.exp(other) for other in z[:3])) for value in z[:3]]
        yes = 1 / (1 + math.exp(-z[3]))
        if target in LABELS:
            share = [SMOOTHING / 3 + (1 - SMOOTHING) * (label == target) for label in LABELS]
            expected.append(-sum(part * value for part, value in zip(share, log_p, strict=True)))
        elif target == "not_supports":
            expected.append(-math.log(1 - min(math.exp(log_p[0]), 1 - SMOOTHING / 10)))
        else:
            truth = (1 - SMOOTHING if target == "answers" else 0) + SMOOTHING / 2
            expected.append(-truth * math.log(yes) - (1 - truth) * math.log(1 - yes))
    assert reading_losses(logits, targets).tolist() == pytest.approx(expected, rel=1e-4)


def test_windows_of_a_question_are_compared():
    import torch

    from biorag.training.cross_encoder import comparison_losses

    answers = torch.tensor([2.0, 0.5, -1.0, 3.0, 1.0, 0.0])
    targets = torch.tensor(
        [TARGETS.index(name) for name in ("answers", "beside", "answers", "answers", "neither", "beside")]
    )
    questions = ["a", "a", "a", "b", "c", "c"]  # b has no other window, and c none that answers
    of_a = [math.exp(z) for z in (2.0, 0.5, -1.0)]
    assert comparison_losses(answers, targets, questions).tolist() == pytest.approx(
        [-math.log((of_a[0] + of_a[2]) / sum(of_a))]
    )
    assert comparison_losses(answers[3:], targets[3:], questions[3:]).tolist() == []


@pytest.mark.models
def test_batches_have_rows_of_one_length_and_each_row_once_an_epoch():
    from datasets import Dataset

    from biorag.training.cross_encoder import SimilarLengths

    lengths = np.random.default_rng(0).permutation(1000)
    questions = [f"{n:04}" for n in range(900)] + ["0007"] * 100
    assert TARGETS[4] == "answers"
    dataset = Dataset.from_dict({"window": ["x" * n for n in lengths], "query": questions, "label": [4] * 1000})
    sampler = SimilarLengths(dataset, batch_size=8, drop_last=False)
    epochs = []
    for epoch in (0, 0, 1):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    assert epochs[0] == epochs[1] != epochs[2]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(1000))
        assert len(batches) == len(sampler) == 125
        alone = [batch for batch in batches if not {7, *range(900, 1000)} & set(batch)]
        assert np.mean([np.ptp(lengths[batch]) for batch in alone]) < 40, "of 1,000 drawn at random: about 780"
        assert len(batches) - len(alone) <= 20, "the 101 rows of a question are in 13 batches or 20"


class Oracle:
    """A model that knows the pairs of rows, and is right on each but those given."""

    def __init__(self, rows, wrong=()):
        self.rows, self.wrong = {(row.window, row.query): row for row in rows}, wrong

    def predict(self, pairs, **_):
        outputs = []
        for pair in pairs:
            target = self.rows[pair].target
            said = "supports" if self.rows[pair] in self.wrong else target
            outputs.append([float(said == label) for label in LABELS] + [float(target == "answers")])
        return np.array(outputs)


@pytest.mark.models
def test_macro_f1_and_auroc_of_known_outputs():
    from sklearn.metrics import f1_score

    from biorag.training.evaluators import ReadingEvaluator

    rows = READING_ROWS[:60]
    judged = [row for row in rows if row.target in LABELS]
    wrong = [row for row in judged if row.target != "supports"][:7]
    scores = ReadingEvaluator.of(rows, 0)(Oracle(rows, wrong))
    called = ["supports" if row in wrong else row.target for row in judged]
    f1 = f1_score([row.target for row in judged], called, labels=LABELS, average=None)
    assert scores == pytest.approx(
        {"macro-f1": f1.mean(), **dict(zip(LABELS, f1, strict=True)), "accuracy": 1 - 7 / len(judged), "auroc": 1.0}
    )
    assert ReadingEvaluator.of([row for row in rows if row not in judged], 0) is None


# --- training ---


@pytest.mark.models
def test_a_reader_learns_a_toy_task_and_reads(tmp_path, tiny_encoder, tiny_cross_encoder):
    stances = [row for row in READING_ROWS if row.target in LABELS]
    claims = written(tmp_path / "toy.jsonl", *({"premise": row.window, "hypothesis": row.query, "label": row.target}
                     for row in stances))  # fmt: skip
    asked = written(tmp_path / "asked.jsonl", *({"question": row.query, "sentence": row.window,
                    "label": int(row.target == "answers")} for row in READING_ROWS if row not in stances))  # fmt: skip
    fast = ("--precision", "fp32", "--max-tokens", 32, "--learning-rate", 1e-3, "--epochs", 16, "--evaluations", 2)
    train, out = ("train", "reader", claims, asked), tmp_path / "reader"
    manifest = done(invoke(*train, "--base", tiny_encoder, *fast, "--out", out, "--json", home=tmp_path))
    assert manifest["best"]["metric"] == "macro-f1" and manifest["best"]["value"] > 0.9
    assert set(manifest["data"]["sources"]["toy"]) == set(LABELS)
    assert set(manifest["data"]["sources"]["asked"]) == {"answers", "beside"}
    settings = json.loads((out / "config.json").read_text())
    assert list(settings["id2label"].values()) == [*LABELS, "answers"]
    reader = CrossEncoderReader(find_encoder(str(out)), "fp32")
    reading = reader.read("liver pain", [f"{word} liver gene" for word in ("aspirin", "warfarin", "heparin")])
    assert reading.stances.argmax(axis=1).tolist() == [0, 1, 2]
    answers = reader.read("liver pain", ["gene liver heart", "lung liver heart"]).answers
    assert answers[0] > 0.6 > 0.4 > answers[1]
    again = ("--base", out, "--max-steps", 1, "--out", tmp_path / "again", "--json")
    assert done(invoke(*train, *again, home=tmp_path))["best"]["value"] > 0.9, "the head is kept"
    other = ("--base", tiny_cross_encoder, "--out", tmp_path / "x")
    failed(invoke(*train, *other, home=tmp_path), 3, "another cross-encoder")
    blind = (*train[:3], "--base", tiny_encoder, *fast, "--claim-only", "--out", tmp_path / "blind", "--json")
    assert done(invoke(*blind, home=tmp_path))["best"]["value"] < 0.6, "a claim alone does not tell"


DRAWN = """
import random
import subprocess
import sys
from biorag.training.reading import NearMisses
words = ["iron", "zinc", "copper", "sodium", "lithium", "barium", "cobalt"]
records = [{"question": " ".join(words), "passages": [{"text": "Metals."}]}]
records += [{"question": "x", "passages": [{"text": f"Trial {n} of {word}."}]} for n, word in enumerate(words)]
print([NearMisses(records).of(0, 2, random.Random(n)) for n in range(4)])
"""


def test_near_misses_are_the_same_in_every_process():
    """A run that resumes draws its rows again, under another seed of Python's hashes."""
    drawn = {
        subprocess.run(
            [sys.executable, "-c", DRAWN], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "012"
    }
    assert len(drawn) == 1 and b"Trial" in drawn.pop()
