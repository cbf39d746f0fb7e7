"""Batches without padding and prepacked weights against the library's own encoding."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from biorag.models import acceleration, inference
from biorag.models.acceleration import PrepackedLinear, reads_unpadded
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder

pytestmark = pytest.mark.models

# Up to 100 tokens, more than a ModernBERT's local window.
TEXTS = [
    "gene",
    *(" ".join(["fever", "aspirin", "lowers"][number % 3] for _ in range(number)) for number in range(1, 100, 3)),
]
TEXTS += ["aspirin lowers fever " * 5, "", "fever"]


@pytest.fixture(params=["tiny_encoder", "tiny_modernbert"])
def folder(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("characters", [50, 700, 100_000])
def test_vectors_and_tokens_are_the_librarys(folder, monkeypatch, characters):
    monkeypatch.setattr(inference, "UNPADDED_CHARACTERS", characters)
    encoder = BiEncoder(find_encoder(str(folder)), "dot", "fp32")
    library = SentenceTransformer(str(folder), device="cpu")
    assert reads_unpadded(encoder.model)
    encoded = encoder.encode_snippets_with_tokens(TEXTS)
    np.testing.assert_allclose(encoded.vectors, library.encode(TEXTS), atol=1e-5)
    for tokens, expected in zip(encoded.tokens, library.encode(TEXTS, output_value="token_embeddings"), strict=True):
        unit = torch.nn.functional.normalize(expected, dim=-1).numpy(force=True)
        np.testing.assert_allclose(tokens, unit, atol=1e-5)


def test_a_row_is_filled_by_a_text_of_its_own():
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    row = acceleration.unpadded({"input_ids": torch.tensor([[5, 6, 7], [8, 9, 9]]), "attention_mask": mask, "kept": 1})
    assert row["input_ids"].tolist() == [[5, 6, 7, 8] + [0] * 60]
    assert row["position_ids"].tolist() == [[0, 1, 2, 0] + [0] * 60]
    assert row["cu_seq_lens_q"].tolist() == [0, 3, 4, 64]
    assert row["kept"] == 1 and "attention_mask" not in row
    whole = acceleration.unpadded({"input_ids": torch.ones(2, 32), "attention_mask": torch.ones(2, 32)})
    assert whole["cu_seq_lens_q"].tolist() == [0, 32, 64]


def test_outside_inference_the_weights_themselves_are_read(tiny_encoder):
    """As an export or a gradient does."""
    model = BiEncoder(find_encoder(str(tiny_encoder)), "cosine", "fp32").model
    assert any(isinstance(module, PrepackedLinear) for module in model.modules())
    features = model.preprocess(TEXTS)
    with torch.no_grad():
        plain = model(dict(features))["sentence_embedding"]
    with torch.inference_mode():
        packed = model(dict(features))["sentence_embedding"]
    torch.testing.assert_close(plain, packed, atol=1e-5, rtol=0)
    assert set(model.state_dict()) == set(SentenceTransformer(str(tiny_encoder), device="cpu").state_dict())


def test_a_prompt_that_is_not_pooled_is_masked_in_padded_batches(tiny_encoder, tmp_path):
    library = SentenceTransformer(str(tiny_encoder), device="cpu", prompts={"document": "fever gene: "})
    library[1].include_prompt = False
    library.save(str(tmp_path))
    encoder = BiEncoder(find_encoder(str(tmp_path)), "dot", "fp32")
    assert not reads_unpadded(encoder.model)
    np.testing.assert_allclose(encoder.encode_snippets(TEXTS), library.encode_document(TEXTS), atol=1e-5)
