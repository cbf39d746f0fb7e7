"""Encoders with a tower for queries and one for passages, as sentence-transformers' Router saves them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from biorag.errors import MissingError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training.data import Split
from biorag.types import TrainingRow
from tests.training.trainers import train_cross_encoder, train_reranker, train_retriever

pytestmark = pytest.mark.models

TEXTS = ["aspirin", "fever and pain in the liver", "gene " * 99, "Warfarin thins; heparin, at once.", ""]
TOWERS = ("query", "document")
SPLIT = Split([TrainingRow("fever?", "aspirin", ("warfarin",))], [])


@pytest.fixture(scope="module")
def towers(tiny_encoder, tmp_path_factory):
    """Two copies of an encoder, the weights of one of them moved."""
    folder = tmp_path_factory.mktemp("models") / "towers"
    query, document = (SentenceTransformer(str(tiny_encoder), device="cpu") for _ in TOWERS)
    with torch.no_grad():
        query[0].auto_model.get_input_embeddings().weight.add_(torch.randn(1, 32))
    router = Router.for_query_document(list(query), list(document))
    SentenceTransformer(modules=[router], device="cpu").save(str(folder))
    return folder


def test_each_side_is_encoded_by_its_tower_as_sentence_transformers_does(towers):
    encoder, library = (
        BiEncoder(find_encoder(str(towers)), "cosine", "fp32"),
        SentenceTransformer(str(towers), device="cpu"),
    )
    sides = (encoder.encode_queries, library.encode_query), (encoder.encode_snippets, library.encode_document)
    for ours, theirs in sides:
        np.testing.assert_allclose(ours(TEXTS), theirs(TEXTS, normalize_embeddings=True), atol=1e-5)
    assert np.abs(encoder.encode_queries(TEXTS) - encoder.encode_snippets(TEXTS)).max() > 1e-3


def test_each_towers_weights_count_for_the_hash(towers, tmp_path):
    folder = shutil.copytree(towers, tmp_path / "m")
    known = find_encoder(str(towers)).sha256
    assert find_encoder(str(folder)).sha256 == known
    for tower in TOWERS:
        weights = folder / f"{tower}_0_Transformer" / "model.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert find_encoder(str(folder)).sha256 != known
        weights.write_bytes(content)


def test_one_tower_is_named_as_the_base_of_a_training(towers, tmp_path):
    for train in (train_retriever, train_reranker, train_cross_encoder):
        arguments = find_encoder(str(towers)), SPLIT, Settings.of(), tmp_path / "m", {}, lambda _: None
        with pytest.raises(MissingError, match="two towers: name one of them, such as"):
            train(*arguments, *(["bm25"] if train is train_cross_encoder else []))
