"""What training is said to take: against the tensors of real steps, weights one by one, and the papers' sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModel

from biorag.errors import ServiceError
from biorag.models.finding import find_base
from biorag.models.resources import model_shape
from biorag.settings.settings import Settings
from biorag.training.estimating import (
    Machine,
    Pace,
    TrainingWork,
    architecture_shape,
    columns_work,
    epochs_of,
    estimate,
    texts_work,
)
from biorag.types import TrainingRow
from scripts.measure import training as measured

pytestmark = pytest.mark.models

ROWS = [TrainingRow("a" * 11, "b" * 400, ("c" * 30, "d" * 3)), TrainingRow("a" * 23, "b", ("c" * 7,))]
CPU = Machine("cpu", 2**40, 1e9, bf16=False)
H200 = Machine("cuda", 139 * 2**30, 4e14, bf16=True)
GIB = 2**30


# Where a processor has no bf16, a kind of training takes up to half a minute here; the quickest is tested always.
QUICKEST = "reranker"


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == QUICKEST else [pytest.mark.long]) for kind in measured.KINDS]
)
def test_an_estimate_is_within_a_quarter_of_the_peak_of_real_steps(kind, tmp_path, monkeypatch):
    """Two steps of each kind of training; the peak is of the bytes of all tensors, which no other process changes."""
    monkeypatch.setattr(measured, "PASSAGE", 24)
    monkeypatch.setattr(measured, "STEPS", 2)  # AdamW's moments are there from the second one on
    base = measured.write_model(tmp_path / "base", measured.KINDS[kind][1], num_layers=2, num_hidden_layers=2)
    with measured.counted_steps() as counts:
        training = measured.training_of(kind, base)
        estimated = training.estimate().peak
        training.run(tmp_path / "out", {}, lambda _: None)
    assert 1 / 1.25 < estimated / counts["tensors"] < 1.25


def test_every_weight_is_counted(tiny_decoder):
    settings, rows = Settings.of(train_max_tokens=8).training, [TrainingRow("a" * 11, "b" * 400)] * 10
    backbone = AutoModel.from_pretrained(tiny_decoder)
    weights = sum(weight.numel() for weight in backbone.parameters())
    linear = [layer for layer in backbone.modules() if isinstance(layer, torch.nn.Linear)]
    matrices = sum(16 * (layer.in_features + layer.out_features) for layer in linear)
    work, shape = columns_work("retriever", rows, settings), model_shape(find_base(str(tiny_decoder)))
    full, lora = (estimate(shape, replace(work, lora=asked), settings, CPU, 1) for asked in (False, True))
    assert (full.parameters, full.trained, full.bytes) == (weights, weights, 16 * weights)
    assert (lora.parameters, lora.trained, lora.bytes) == (weights, matrices, 4 * weights + 16 * matrices)
    assert full.seconds == 6 * sum(layer.weight.numel() for layer in linear) * 10 * (3 + 8) / 1e9
    both = Settings.of(train_gradient_checkpointing=True, train_mini_batch_size=4).training
    assert estimate(shape, work, both, CPU, 1).seconds == pytest.approx(full.seconds * (6 + 2 + 2) / 6)


def test_the_work_of_rows():
    """Tokens are 1 + characters / 4, cut; 2 negatives of the first row, 1 of the second."""
    settings = Settings.of(train_max_tokens=50, train_hard_negatives=3, train_batch_size=4).training
    tokens = (3 + 6) + (50 + 1) + (8 + 2) + 1
    work = columns_work("retriever", ROWS, settings)
    assert work == TrainingWork("retriever", tokens, 6, (50, 8, 1))
    assert work.passes(settings) == [(4, 6), (12, 50)], "a batch's passages go through the model together"
    padded = columns_work("reranker", ROWS, settings, 32)
    assert padded == TrainingWork("reranker", tokens - 9 + 64, 32, (50, 8, 1))
    assert padded.passes(settings) == [(4, 32), (4, 50), (4, 8), (4, 1)]
    cached = Settings.of(train_batch_size=4, train_mini_batch_size=2).training
    assert work.passes(cached) == padded.passes(cached) == [(2, 50)]
    assert columns_work("question-generator", ROWS, settings).passes(settings) == [(4, 50), (4, 6)]
    read = [row.query + text for row in ROWS for text in (row.positive, *row.negatives)]
    assert texts_work(read, settings, 32) == TrainingWork("cross-encoder", (50 + 11 + 4) + (7 + 8), 0, (50,))
    assert texts_work(read[1:], settings, 8).passes(settings) == [(4, 16)], "11 tokens are padded"
    assert columns_work("retriever", [], settings).passes(settings) == [(4, 0), (4, 0)]


def test_what_is_too_large_is_refused_with_what_would_help(tiny_decoder):
    settings, shape = Settings.of(precision="fp32").training, model_shape(find_base(str(tiny_decoder)))
    work = columns_work("retriever", ROWS, settings)
    full, lora = (estimate(shape, replace(work, lora=asked), settings, CPU, 1) for asked in (False, True))
    for found, free, parts in (
        (full, int(full.peak / 1.25) - 9, "take --mini-batch-size, --gradient-checkpointing, a smaller --batch-size"),
        (full, full.bytes // 2, "take --lora, or a smaller base"),
        (lora, 100_000, "take a smaller base"),
    ):
        assert not found.fits(free)
        with pytest.raises(ServiceError, match=f"^training tiny .* GiB are free: {parts}"):
            found.admit("tiny", free)
    full.admit("tiny", int(full.peak / 1.25) + 9)


def test_a_number_of_steps_decides_the_epochs():
    settings = Settings.of(train_batch_size=256, train_epochs=2)
    assert epochs_of(settings.training, 1280) == 2
    assert epochs_of(settings.replace(train_max_steps=10).training, 1280) == 2, "ten steps of 256 rows"
    assert epochs_of(settings.replace(train_max_steps=5).training, 1280) == 1


GEMMA = {
    **{"model_type": "gemma", "vocab_size": 256_000, "hidden_size": 2048, "num_hidden_layers": 18},
    **{"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16_384},
}
QWEN = {
    **{"model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024, "num_hidden_layers": 28},
    **{"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072},
}
MODERNBERT = {
    **{"model_type": "modernbert", "vocab_size": 50_368, "hidden_size": 768, "num_hidden_layers": 22},
    **{"num_attention_heads": 12, "intermediate_size": 1152},
}


PHI = {
    **{"model_type": "phi3", "vocab_size": 200_064, "hidden_size": 3072, "num_hidden_layers": 32, "pad_token_id": 0},
    **{"num_attention_heads": 24, "num_key_value_heads": 8, "intermediate_size": 8192, "tie_word_embeddings": True},
}
WINDOWS, THREE = (64, *(256,) * 33), (512, 512, 512)


@pytest.mark.parametrize(
    ("configuration", "parameters", "multiplied", "kind", "batch", "lengths", "peaks"),
    [
        (QWEN, 596_049_920, 440_401_920, "retriever", 256, THREE, (955.0, 72.8)),
        (GEMMA, 2_506_172_416, 1_981_808_640, "retriever", 128, THREE, (684.4, 67.1)),
        (PHI, 3_836_021_760, 3_221_225_472, "retriever", 64, THREE, (511.1, 65.1)),
        (MODERNBERT, 149_014_272, 110_297_088, "retriever", 32, WINDOWS, (158.7, 28.9)),
        (MODERNBERT, 149_014_272, 110_297_088, "reranker", 32, WINDOWS, (165.9, 22.7)),
    ],
)
def test_published_sizes_in_the_papers_batches_fit_one_h200(
    configuration, parameters, multiplied, kind, batch, lengths, peaks
):
    """Synthesize-Train-Merge's batches, with LoRA, and ModernBERT + ColBERT's of 32 negatives; docs/memory.md."""
    shape = architecture_shape(configuration)
    assert (shape.parameters, shape.multiplied) == (parameters, multiplied)
    work = TrainingWork(kind, 10**6, lengths[0], lengths[1:], lora=lengths == THREE)
    changes = ({}, {"train_gradient_checkpointing": True}, {"train_mini_batch_size": 8})
    whole, checkpointed, cached = (
        estimate(shape, work, Settings.of(train_batch_size=batch, **each).training, H200, 1).peak for each in changes
    )
    assert (round(whole / GIB, 1), round(checkpointed / GIB, 1)) == peaks
    assert cached < 80 * GIB


def test_the_pace_leaves_out_the_first_step_and_counts_evaluations_apart(monkeypatch):
    """A first evaluation of 7 s, a first step of 9, then steps of 1 s with 0.5 between, and an evaluation of 4."""
    times = iter([0, 7, 16, 16.5, 17.5, 18, 19, 23, 24])
    monkeypatch.setattr("biorag.training.estimating.time.perf_counter", lambda: next(times))
    pace = Pace()
    for evaluated in (True, False, False, True):
        pace.evaluated = evaluated
        pace.step_begins()
        pace.step_ends()
    assert (pace.steps, pace.evaluation) == (4, 4)
    assert pace.seconds(30, 2) == pytest.approx(30 * (1.5 + 1.5 + 1) / 3 + 2 * 4)
