"""What training is said to take: weights counted one by one, a batch against the tensors that autograd keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from biorag.errors import ServiceError
from biorag.models.finding import find_base
from biorag.models.loading import load_model
from biorag.models.resources import parameters_of
from biorag.settings.settings import Settings
from biorag.training.estimating import Texts, TrainingWork, batch_bytes, columns_work, estimate, texts_work
from biorag.types import TrainingRow

pytestmark = pytest.mark.models

ROWS = [TrainingRow("a" * 11, "b" * 400, ("c" * 30, "d" * 3)), TrainingRow("a" * 23, "b", ("c" * 7,))]


def test_every_weight_is_counted(tiny_decoder, monkeypatch):
    monkeypatch.setattr("biorag.models.resources.operations", lambda *_: 1e9)
    settings, rows = Settings.of(train_max_tokens=8), [TrainingRow("a" * 11, "b" * 400)] * 10
    backbone = AutoModel.from_pretrained(tiny_decoder)
    weights = sum(weight.numel() for weight in backbone.parameters())
    linear = [layer for layer in backbone.modules() if isinstance(layer, torch.nn.Linear)]
    matrices = sum(16 * (layer.in_features + layer.out_features) for layer in linear)
    work, files = columns_work(rows, settings.training), find_base(str(tiny_decoder))
    full, lora = (estimate(files, replace(work, lora=asked), settings, 1) for asked in (False, True))
    assert (full.parameters, full.trained, full.bytes) == (weights, weights, 16 * weights)
    assert (lora.parameters, lora.trained, lora.bytes) == (weights, matrices, 4 * weights + 16 * matrices)
    assert full.seconds == 6 * sum(layer.weight.numel() for layer in linear) * 10 * (3 + 8) / 1e9
    assert full.batch_bytes == batch_bytes(files, parameters_of(files), (Texts(32, 3), Texts(32, 8)), settings)


def test_the_work_of_rows():
    """Tokens are 1 + characters / 4, cut; 2 negatives of the first row, 1 of the second."""
    settings = Settings.of(train_max_tokens=50, train_hard_negatives=3, train_batch_size=4)
    tokens = (3 + 6) + (50 + 1) + (8 + 2) + 1
    batch = (Texts(4, 6), Texts(4, 50), Texts(4, 8), Texts(4, 1))
    assert columns_work(ROWS, settings.training) == TrainingWork(tokens, batch)
    assert columns_work(ROWS, settings.replace(train_hard_negatives=0).training).batch == (Texts(4, 6), Texts(4, 50))
    assert columns_work(ROWS, settings.training, 32) == TrainingWork(
        tokens - 9 + 64, (Texts(4, 32), Texts(4, 50), Texts(4, 8), Texts(4, 1))
    )
    assert columns_work(ROWS, settings.replace(train_mini_batch_size=2).training).batch == (Texts(2, 50),)
    assert columns_work(ROWS, settings.replace(train_mini_batch_size=9).training).batch == (Texts(4, 50),)
    pairs = (50 + 11 + 4) + (7 + 8)
    read = [row.query + text for row in ROWS for text in (row.positive, *row.negatives)]
    assert texts_work(read, settings.training) == TrainingWork(pairs, (Texts(4, 50),))
    assert columns_work([], settings.training).batch == (Texts(4, 0), Texts(4, 0))


def kept(backbone: torch.nn.Module, rows: int, tokens: int) -> int:
    """Return the bytes of the tensors that the backward pass will read, weights apart, each storage once."""
    held = {}
    weights = {weight.untyped_storage().data_ptr() for weight in backbone.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    ids = torch.ones((rows, tokens), dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = backbone.train()(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert out.last_hidden_state.requires_grad
    return sum(size for size, _ in held.values())


@pytest.mark.parametrize(("rows", "tokens"), [(8, 16), (2, 96)])
@pytest.mark.parametrize("base", ["tiny_encoder", "tiny_modernbert", "tiny_decoder"])
def test_a_batch_takes_about_what_is_kept_for_the_backward_pass(base, rows, tokens, request):
    files = find_base(str(request.getfixturevalue(base)))
    backbone = load_model(SentenceTransformer, files, "fp32")[0].auto_model
    told = batch_bytes(files, parameters_of(files), (Texts(rows, tokens),), Settings.of(precision="fp32"))
    assert 1 / 1.6 < told / kept(backbone, rows, tokens) < 1.6


def test_what_is_too_large_is_refused_with_what_would_help(tiny_decoder, monkeypatch):
    files, settings = find_base(str(tiny_decoder)), Settings.of(precision="fp32")
    work = columns_work(ROWS, settings.training)
    found = estimate(files, work, settings, 1)
    for free, lora, parts in (
        (found.bytes + found.batch_bytes - 1, False, "take a smaller --batch-size or --max-tokens, --gradient-chec"),
        (found.bytes - 1, False, "take --lora, or a smaller base"),
        (100_000, True, "take a smaller base"),
    ):
        monkeypatch.setattr("biorag.models.resources.free_bytes", lambda device, free=free: free)
        with pytest.raises(ServiceError, match=f"^training .* GiB are free: {parts}"):
            estimate(files, replace(work, lora=lora), settings, 1)
    monkeypatch.setattr("biorag.models.resources.free_bytes", lambda device: found.bytes + found.batch_bytes)
    assert estimate(files, work, settings, 1).batch_bytes == found.batch_bytes
