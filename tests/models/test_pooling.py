"""Pooling and projection against transformers' own forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from biorag.errors import MismatchError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.models.loading import load_model
from biorag.models.pairing import POOLINGS, with_pooling, with_projection
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import EncoderForm
from biorag.training.data import Split
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.training.trainers import train_retriever

pytestmark = pytest.mark.models

TEXTS = ["liver", "aspirin heals the fever, and pain.", "gene heart"]
ROWS = [TrainingRow(f"{a} {b}?", f"{a} heals {b}.") for a in WORDS for b in WORDS if a < b]
QUIET = lambda _: None  # noqa: E731


def pooled(folder, pooling):
    """Return the vectors of the texts, each encoded alone."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in TEXTS:
        with torch.inference_mode():
            tokens = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        vectors.append({"cls": tokens[0], "mean": tokens.mean(0), "last": tokens[-1]}[pooling].float().numpy())
    return np.array(vectors)


@pytest.mark.parametrize("base", ["tiny_encoder", "tiny_modernbert"])
def test_each_pooling_is_the_one_of_a_loop_over_texts(base, request, tmp_path):
    from sentence_transformers import SentenceTransformer

    files = find_encoder(str(request.getfixturevalue(base)))
    for pooling in POOLINGS:
        with_pooling(load_model(SentenceTransformer, files, "fp32"), pooling).save(str(tmp_path / pooling))
        encoder = BiEncoder(find_encoder(str(tmp_path / pooling)), "dot", "fp32")
        np.testing.assert_allclose(encoder.encode_snippets(TEXTS), pooled(files.path, pooling), atol=1e-4)


def test_a_projection_of_cls_is_trained_and_trained_further(tiny_modernbert, tmp_path):
    settings = Settings.of(
        precision="fp32", similarity="dot", train_batch_size=8, train_max_tokens=32, train_max_steps=2
    )
    form, split = EncoderForm(pooling="cls", projection=8), Split(ROWS[:16], [])
    arguments = (split, settings, tmp_path / "m", {}, QUIET)
    train_retriever(find_encoder(str(tiny_modernbert)), *arguments, form=form)
    dense = load_file(tmp_path / "m" / "2_Dense" / "model.safetensors")
    expected = pooled(tmp_path / "m", "cls") @ dense["linear.weight"].numpy().T + dense["linear.bias"].numpy()
    vectors = BiEncoder(find_encoder(str(tmp_path / "m")), "dot", "fp32").encode_snippets(TEXTS)
    assert vectors.shape == (3, 8)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    with pytest.raises(MismatchError, match="projection"):
        train_retriever(find_encoder(str(tiny_modernbert)), *arguments, form=EncoderForm(pooling="cls", projection=9))
    train_retriever(find_encoder(str(tmp_path / "m")), split, settings, tmp_path / "again", {}, QUIET)
    again = load_file(tmp_path / "again" / "2_Dense" / "model.safetensors")
    assert 0 < (again["linear.weight"] - dense["linear.weight"]).abs().max() < 1e-3


def test_a_second_projection_and_towers_are_refused(tiny_encoder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    model = load_model(SentenceTransformer, find_encoder(str(tiny_encoder)), "fp32")
    with pytest.raises(UsageError, match="has a projection"):
        with_projection(with_projection(model, 4, 0), 4, 0)
    for change in (lambda towers: with_pooling(towers, "cls"), lambda towers: with_projection(towers, 4, 0)):
        with pytest.raises(UsageError, match="two towers"):
            change(SentenceTransformer(modules=[Router.for_query_document(list(model), list(model))]))
