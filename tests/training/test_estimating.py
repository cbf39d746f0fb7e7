"""What training is said to take: against the tensors of real steps, weights one by one, and the papers' sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModel

from biorag.errors import ServiceError
from biorag.lab.recipes.recipe import packaged
from biorag.models.finding import find_base
from biorag.models.resources import architecture_shape, model_shape
from biorag.settings.settings import Settings
from biorag.training.estimating import (
    TrainingBatch,
    TrainingDevice,
    batch_of_rows,
    batch_of_texts,
    epochs_of,
    estimate,
    operations_of_token,
)
from biorag.types import TrainingRow
from scripts.measure import training as measured

pytestmark = pytest.mark.models

ROWS = [TrainingRow("a" * 11, "b" * 400, ("c" * 30, "d" * 3)), TrainingRow("a" * 23, "b", ("c" * 7,))]
CPU = TrainingDevice("cpu", 2**40, bf16=False)
H200 = TrainingDevice("cuda", 139 * 2**30, bf16=True)
GIB = 2**30
QUICKEST = "reranker"  # which is always tested: without bf16 a kind of training takes up to half a minute


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == QUICKEST else [pytest.mark.long]) for kind in measured.KINDS]
)
def test_an_estimate_is_near_the_peak_of_real_steps(kind, tmp_path, monkeypatch):
    """Two steps of each kind of training; the peak is of the bytes of all tensors, which no other process changes."""
    monkeypatch.setattr(measured, "PASSAGE", 24)
    monkeypatch.setattr(measured, "STEPS", 2)  # AdamW's moments are there from the second one on
    base = measured.write_model(tmp_path / "base", measured.KINDS[kind][1], num_layers=2, num_hidden_layers=2)
    with measured.counted_steps() as counts:
        training = measured.training_of(kind, base)
        estimated = training.estimate().peak
        training.run(tmp_path / "out", {}, lambda _: None)
    assert 1 / 1.35 < estimated / counts["tensors"] < 1.35


def test_every_weight_is_counted_and_what_is_too_large_is_refused(tiny_decoder):
    settings = Settings.of(train_max_tokens=8, precision="fp32").training
    backbone = AutoModel.from_pretrained(tiny_decoder)
    weights = sum(weight.numel() for weight in backbone.parameters())
    linear = [layer for layer in backbone.modules() if isinstance(layer, torch.nn.Linear)]
    matrices = sum(16 * (layer.in_features + layer.out_features) for layer in linear)
    shape, batch = model_shape(find_base(str(tiny_decoder))), batch_of_rows("retriever", ROWS, settings)
    full, lora = (estimate(shape, replace(batch, lora=asked), settings, CPU) for asked in (False, True))
    assert (full.parameters, full.trained, full.bytes) == (weights, weights, 16 * weights)
    assert (lora.parameters, lora.trained, lora.bytes) == (weights, matrices, 4 * weights + 16 * matrices)
    operations = operations_of_token(shape, "retriever", settings, lora=False)
    assert operations == 6 * sum(layer.weight.numel() for layer in linear)
    both = Settings.of(train_gradient_checkpointing=True, train_mini_batch_size=4).training
    assert operations_of_token(shape, "retriever", both, lora=True) == operations * (4 + 2 + 2) / 6
    for estimated, free, advice in (
        (full, int(full.peak / 1.25) - 9, "take --mini-batch-size, --gradient-checkpointing, a smaller --batch-size"),
        (full, full.bytes // 2, "take --lora, or a smaller base"),
        (lora, lora.bytes // 2, "take a smaller base"),
    ):
        with pytest.raises(ServiceError, match=f"^training tiny .* GiB are free: {advice}"):
            estimated.admit("tiny", free)
    full.admit("tiny", int(full.peak / 1.25) + 9)


def test_the_longest_batch_of_rows():
    """Tokens are 1 + characters / 4, cut."""
    settings = Settings.of(train_max_tokens=50, train_hard_negatives=3, train_batch_size=4).training
    batch = batch_of_rows("retriever", ROWS, settings)
    assert batch == TrainingBatch("retriever", 6, 50, 3)
    assert batch.texts(settings) == [(4, 6), (12, 50)]
    assert batch.texts(Settings.of(train_batch_size=4, train_mini_batch_size=2).training) == [(2, 50)]
    assert batch_of_rows("reranker", ROWS, settings, 32) == TrainingBatch("reranker", 32, 50, 3)
    assert batch_of_rows("question-generator", ROWS, settings).texts(settings) == [(4, 6), (4, 50)]
    assert batch_of_texts([row.query + row.positive for row in ROWS[1:]], settings).passage == 7
    assert batch_of_rows("retriever", [], settings).texts(settings) == [(4, 0), (4, 0)]


def test_a_number_of_steps_decides_the_epochs():
    settings = Settings.of(train_batch_size=256, train_epochs=2)
    epochs = [epochs_of(settings.replace(train_max_steps=steps).training, 1280) for steps in (None, 10, 5)]
    assert epochs == [2, 2, 1]


@pytest.mark.parametrize(
    ("model", "parameters", "kind", "batch", "lora", "peaks"),
    [
        ("Qwen/Qwen3-0.6B-Base", 596_049_920, "retriever", 256, True, (955.0, 72.8)),
        ("google/gemma-2b", 2_506_172_416, "retriever", 128, True, (684.4, 67.1)),
        ("microsoft/Phi-4-mini-instruct", 3_836_021_760, "retriever", 64, True, (511.1, 65.1)),
        ("answerdotai/ModernBERT-base", 149_014_272, "retriever", 32, False, (158.7, 28.9)),
        ("answerdotai/ModernBERT-base", 149_014_272, "reranker", 32, False, (165.9, 22.7)),
    ],
)
def test_published_sizes_in_the_papers_batches(model, parameters, kind, batch, lora, peaks):
    """Synthesize-Train-Merge's batches, and ModernBERT + ColBERT's of 32 negatives.

    Peaks by a count of each tensor of each architecture, in GiB; mini-batches fit one H200.
    """
    shape = architecture_shape(packaged()[model].config)
    assert shape.parameters == parameters
    texts = TrainingBatch(kind, 512, 512, 2, lora) if lora else TrainingBatch(kind, 64, 256, 33)
    changes = ({}, {"train_gradient_checkpointing": True}, {"train_mini_batch_size": 8})
    whole, checkpointed, cached = (
        estimate(shape, texts, Settings.of(train_batch_size=batch, **change).training, H200).peak / GIB
        for change in changes
    )
    assert (whole, checkpointed) == pytest.approx(peaks, rel=0.35)
    assert cached < 80
