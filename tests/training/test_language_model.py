"""Pre-training a BERT with its own vocabulary: both losses, masking, what it learns, exact resume, and its use."""

from __future__ import annotations

import json
import math
import random

import pytest
import torch
from sentence_transformers import SentenceTransformer

from biorag.corpus.sources import Source
from biorag.errors import BadInputError, UsageError
from biorag.settings.settings import Settings
from biorag.training import language_model
from biorag.training.data import Split
from biorag.training.language_model import (
    Architecture,
    LanguageModelTraining,
    SegmentMasking,
    SegmentPair,
    following_loss,
    following_segments,
    learn_vocabulary,
    read_segments,
    restoring_loss,
    shortened,
)
from biorag.types import Snippet
from tests.cli import done, failed, invoke
from tests.conftest import WORDS, write_medrag

pytestmark = pytest.mark.models

SMALL = Architecture(word_pieces=120, hidden=32, layers=1, heads=2)
FAST = {"train_batch_size": 8, "train_max_tokens": 48, "train_evaluations": 2, "precision": "fp32"}


def text(number: int) -> str:
    """Two sentences about one word, of twelve each."""
    draw, word = random.Random(number), WORDS[number % len(WORDS)]
    return f"{word.capitalize()} is {draw.choice(WORDS)}. The {word} heals {draw.choice(WORDS)}."


TEXTS = [text(number) for number in range(64)]
PAIRS = [SegmentPair(*(f"{part}." for part in text.rstrip(".").split(". "))) for text in TEXTS]


def train(out, settings, rows=PAIRS, on_progress=lambda steps: None):
    return LanguageModelTraining(SMALL, Split(rows, rows[:16]), settings).run(out, {}, on_progress)


def test_segments_are_both_parts_of_a_text_and_cut_as_berts_are():
    drawn = {following_segments("One two. Three four. Five.", random.Random(seed)) for seed in range(20)}
    assert drawn == {SegmentPair("One two.", "Three four. Five."), SegmentPair("One two. Three four.", "Five.")}
    assert following_segments("One sentence alone.", random.Random(0)) is None
    for lengths in ((3, 4), (9, 2), (2, 9), (9, 9), (6, 5)):
        first, second = (list(range(length)) for length in lengths)
        slow = [list(first), list(second)]
        while len(slow[0]) + len(slow[1]) > 8:  # BERT's truncate_seq_pair
            max(slow, key=len).pop()
        assert list(map(list, shortened(first, second, 8))) == slow


def test_a_corpus_gives_a_pair_of_each_text(tmp_path):
    snippets = [Snippet(f"s{n}", "A title.", text) for n, text in enumerate(TEXTS)] + [Snippet("one", "", "Alone.")]
    path = write_medrag(tmp_path / "corpus.jsonl", snippets)
    split, counts = read_segments([Source("corpus", path)], 0.25, seed=0)
    assert counts == {"rows": 64, "single": 1}
    joined = sorted(f"{row.first} {row.second}" for row in (*split.training, *split.validation))
    assert joined == sorted(snippet.contents for snippet in snippets[:-1])
    assert 4 <= len(split.validation) <= 28
    with pytest.raises(BadInputError, match="two sentences"):
        read_segments([Source("one", write_medrag(tmp_path / "one.jsonl", snippets[-1:]))], 0, seed=0)


def test_losses_against_slow_ones():
    draw = torch.Generator().manual_seed(1)
    vectors, logits = torch.randn(6, 4, generator=draw), torch.randn(5, 7, generator=draw)
    first, second = vectors[:3].tolist(), vectors[3:].tolist()
    scores = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in second] for one in first]
    expected = -sum(row[i] - math.log(sum(map(math.exp, row))) for i, row in enumerate(scores)) / 3
    assert following_loss(vectors).item() == pytest.approx(expected, rel=1e-5)
    tokens = torch.tensor([0, 6, 2, 2, 1])
    shares = [
        math.exp(row[token]) / sum(map(math.exp, row)) for row, token in zip(logits.tolist(), tokens, strict=True)
    ]
    assert restoring_loss(logits, tokens).item() == pytest.approx(-sum(map(math.log, shares)) / 5, rel=1e-5)
    assert restoring_loss(logits[:0], tokens[:0]).item() == 0


def test_masking_spares_special_tokens_and_repeats_itself():
    tokenizer = learn_vocabulary(lambda: iter(TEXTS), 120)
    assert learn_vocabulary(lambda: iter(TEXTS), 120).get_vocab() == tokenizer.get_vocab()
    assert len(tokenizer) <= 120 and tokenizer.tokenize("The heparin") == ["the", "heparin"]
    assert tokenizer("the").input_ids == tokenizer.convert_tokens_to_ids(["[CLS]", "the", "[SEP]"])

    class State:
        epoch = 0.0

    trainer = type("Trainer", (), {"state": State})
    mask = SegmentMasking(trainer, tokenizer, seed=3)
    word, other = (tokenizer.convert_tokens_to_ids(name) for name in ("heparin", "the"))
    rows = [{"first": [2] + [word] * (200 + n) + [3], "second": [2] + [other] * 100 + [3]} for n in range(20)]
    batch = mask(rows)
    ids, attended, labels = batch["input_ids"], batch["attention_mask"], batch["labels"]
    assert ids.shape == (40, 221) and attended.sum(1).tolist() == [202 + n for n in range(20)] + [102] * 20
    drawn = labels != -100
    assert set(labels[:20][drawn[:20]].tolist()) == {word} and set(labels[20:][drawn[20:]].tolist()) == {other}
    of_words = attended.sum().item() - 2 * 40
    assert drawn.sum().item() / of_words == pytest.approx(0.15, abs=0.02)
    masked = (ids[drawn] == tokenizer.mask_token_id).float().mean().item()
    assert masked == pytest.approx(0.8, abs=0.05)
    assert torch.equal(ids[~drawn & (attended == 1)], torch.where(ids == 2, 2, ids)[~drawn & (attended == 1)])
    assert torch.equal(mask(rows)["labels"], labels), "the same batch is masked in the same way"
    State.epoch = 1.2
    assert not torch.equal(mask(rows)["labels"], labels), "another epoch is not"


def test_it_learns_and_a_killed_run_resumes_exactly(tmp_path, monkeypatch):
    settings = Settings.of(train_epochs=6, train_learning_rate=0.003, **FAST)
    whole = train(tmp_path / "whole", settings)
    assert (whole["rows"], whole["steps"], whole["best"]["metric"]) == (64, 48, "log_likelihood")
    curve = (tmp_path / "whole" / "curves.csv").read_text().splitlines()
    likelihoods = [
        float(row.split(",")[curve[0].split(",").index("eval_log_likelihood")] or "nan") for row in curve[1:]
    ]
    measured = [value for value in likelihoods if not math.isnan(value)]
    assert measured[-1] > measured[0] + 1

    class KilledError(Exception):
        pass

    seen = []

    def kill(steps):
        seen.append(steps)
        if sum(seen) == 30:
            raise KilledError

    with pytest.raises(KilledError):
        train(tmp_path / "killed", settings, on_progress=kill)
    monkeypatch.setattr(language_model, "learn_vocabulary", lambda *_: pytest.fail("it is kept"))
    resumed = train(tmp_path / "killed", settings)
    assert resumed["resumed_from_step"] == 24 and resumed["vocabulary"] == whole["vocabulary"]
    assert [resumed[name] for name in ("final_loss", "best", "steps")] == [
        whole[name] for name in ("final_loss", "best", "steps")
    ]


def test_a_retriever_starts_from_it(tmp_path, snippets):
    corpus = write_medrag(tmp_path / "corpus.jsonl", [Snippet(f"s{n}", "", text) for n, text in enumerate(TEXTS)])
    out, rows = tmp_path / "bert", tmp_path / "rows.jsonl"
    sizes = ("--vocabulary", 150, "--hidden", 32, "--layers", 1, "--heads", 2, "--max-tokens", 32)
    command = ("train", "language-model", corpus, *sizes, "--max-steps", 2, "--batch-size", 4, "--out", out)
    made = done(invoke(*command, "--json"))
    assert made["identity"]["kind"] == "language-model" and made["identity"]["hidden"] == 32
    assert done(invoke(*command, "--json")) == made, "a finished run is read"
    rows.write_text("".join(json.dumps({"query": text.split(".")[0], "positive": text}) + "\n" for text in TEXTS[:8]))
    of_retriever = ("train", "retriever", rows, "--base", out, "--pooling", "cls", "--projection", 16, "--window", 20)
    trained = done(invoke(*of_retriever, "--max-steps", 1, "--batch-size", 4, "--out", tmp_path / "r", "--json"))
    assert trained["base"] == str(out)
    assert SentenceTransformer(str(tmp_path / "r"), device="cpu").max_seq_length == 20
    assert done(invoke("index", corpus, "--encoder", tmp_path / "r", "--json"))["snippets"] == 64
    failed(invoke(*command[:-2], "--heads", 3, "--out", tmp_path / "x"), 2, "--heads 3", "divisor")
    with pytest.raises(UsageError, match="divisor"):
        Architecture(100, 32, 1, 3)
