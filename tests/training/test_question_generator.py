"""Training a tiny T5 to write questions: what it learns, exact resume, refusals, and its use by `generate queries`."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.generators.seq2seq import Seq2SeqGenerator
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training.data import Split
from biorag.training.question_generator import QuestionGeneratorTraining, shared_sides
from biorag.types import Sampling, TrainingRow
from tests.cli import done, failed, invoke
from tests.conftest import write_medrag
from tests.tiny_t5 import write_tiny_t5
from tests.training.trainers import train_question_generator

pytestmark = pytest.mark.models

PAIRS = [("aspirin lower fever", "does aspirin treat fever ?"), ("warfarin cause pain", "what does warfarin cause ?")]
ROWS = [TrainingRow(query, passage) for passage, query in PAIRS] * 4
FAST = {"train_batch_size": 4, "train_max_tokens": 16, "train_evaluations": 2, "precision": "fp32"}
SETTINGS = Settings.of(train_epochs=40, train_learning_rate=0.02, **FAST)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return find_encoder(str(write_tiny_t5(tmp_path_factory.mktemp("t5"))))


def train(base, out, settings=SETTINGS, on_progress=lambda steps: None, validation=ROWS[:2]):
    return train_question_generator(base, Split(ROWS, validation), settings, out, {}, on_progress)


def test_it_writes_the_questions_it_was_trained_on(base, tmp_path):
    manifest = train(base, tmp_path / "model")
    assert (manifest["rows"], manifest["steps"]) == (8, 80)
    assert manifest["final_loss"] < 0.5 and manifest["best"]["value"] > -0.1
    assert manifest["best"]["metric"] == "log_likelihood"
    generator = Seq2SeqGenerator(find_encoder(str(tmp_path / "model")), "fp32")
    written = generator.sample([passage for passage, _ in PAIRS], 1, 12, Sampling(0.0, 0))
    assert [drafts[0].text for drafts in written] == [query for _, query in PAIRS]
    assert not any(drafts[0].capped for drafts in written)
    assert train(base, tmp_path / "model") == manifest, "a finished run is read"
    curve = (tmp_path / "model" / "curves.csv").read_text().splitlines()
    assert "eval_log_likelihood" in curve[0] and len(curve) > 4


def test_the_reported_log_likelihood_is_that_of_the_question_s_tokens(base, tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    settings = Settings.of(train_epochs=1, train_learning_rate=1e-9, **FAST)
    manifest = train(base, tmp_path / "model", settings, validation=ROWS[:1])
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(base.path), AutoTokenizer.from_pretrained(base.path)
    passage, question = (tokenizer(text, return_tensors="pt")["input_ids"] for text in PAIRS[0])
    before = torch.cat([torch.tensor([[0]]), question[:, :-1]], dim=1)  # shifted by the start token
    with torch.inference_mode():
        logits = model.eval()(input_ids=passage, decoder_input_ids=before).logits.log_softmax(-1)
    expected = logits[0, range(question.shape[1]), question[0]].mean().item()
    assert manifest["best"]["value"] == pytest.approx(expected, abs=1e-3)


def test_both_sides_of_an_encoder_share_their_first_layers(tiny_encoder, tmp_path):
    """It learns, resumes exactly with weights still shared, and writes by the saved copies what it was trained on."""
    settings = Settings.of(train_epochs=60, train_learning_rate=0.01, **FAST)
    base = find_encoder(str(tiny_encoder))

    def train_shared(out, on_progress=lambda steps: None):
        training = QuestionGeneratorTraining(base, Split(ROWS, ROWS[:2]), settings, layers=1)
        return training.run(tmp_path / out, {}, on_progress)

    done_steps = []

    def kill(steps):
        done_steps.append(steps)
        if sum(done_steps) == 70:
            raise KeyboardInterrupt

    whole = train_shared("whole")
    with pytest.raises(KeyboardInterrupt):
        train_shared("killed", kill)
    resumed = train_shared("killed")
    assert resumed["resumed_from_step"] == 60
    assert [resumed[name] for name in ("final_loss", "best")] == [whole[name] for name in ("final_loss", "best")]
    weights = load_file(tmp_path / "whole" / "model.safetensors")
    shared = [name for name in weights if name.startswith("encoder.")]
    assert shared and {name.split(".")[3] for name in shared if ".layer." in name} == {"0"}
    for name in shared:
        assert torch.equal(weights[name], weights[name.replace("encoder.", "decoder.bert.", 1)]), name
    generator = Seq2SeqGenerator(find_encoder(str(tmp_path / "killed")), "fp32")
    written = generator.sample([passage for passage, _ in PAIRS], 1, 30, Sampling(0.0, 0))
    assert [drafts[0].text.replace("?", " ?") for drafts in written] == [query for _, query in PAIRS]
    with pytest.raises(BadInputError, match="--layers 9"):
        shared_sides(base, 9, 0)


def test_what_cannot_be_trained_is_refused(base, tmp_path, tiny_encoder, monkeypatch):
    with pytest.raises(MissingError, match="sequence-to-sequence"):
        train(find_encoder(str(tiny_encoder)), tmp_path / "a")
    with pytest.raises(BadInputError, match="no row"):
        train_question_generator(base, Split([], []), SETTINGS, tmp_path / "b", {}, lambda _: None)
    monkeypatch.setattr("biorag.training.loop.process_count", lambda: 2)
    with pytest.raises(UsageError, match="torchrun"):
        train(base, tmp_path / "c")


def test_the_command_trains_one_that_generate_queries_uses(base, snippets, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"query": query, "positive": passage}) + "\n" for passage, query in PAIRS))
    out = tmp_path / "model"
    command = ["train", "question-generator", rows, "--base", base.path, "--validation", 0, "--out", out]
    report = done(invoke(*command, "--epochs", 2, "--precision", "fp32", "--json"))
    assert (report["rows"], report["identity"]["kind"], report["best"]["value"]) == (2, "question-generator", None)
    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets[:2])
    written = tmp_path / "queries.jsonl"
    generate = ["generate", "queries", corpus, "--model", f"seq2seq:{out}", "--temperature", 0, "--out", written]
    counts = done(invoke(*generate, "--json"))
    assert (counts["snippets"], counts["generated"]) == (2, 2), counts
    failed(invoke(*command, "--epochs", 3), 5, "train_epochs", "--out")
