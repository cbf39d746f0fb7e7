"""The bi-encoder against sentence-transformers itself."""

import json
import shutil

import numpy as np
import pytest

from biorag.errors import MissingError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import ModelFiles, find_encoder

pytestmark = pytest.mark.models

TEXTS = [
    "aspirin lowers fever",
    "warfarin and heparin thin the blood",
    "",
    "the liver",
    "gene " * 300,  # longer than the model's window
    "β-blocker, 5 mg?",
]


@pytest.fixture(scope="module")
def reference(tiny_encoder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(tiny_encoder), device="cpu")


@pytest.fixture(scope="module")
def files(tiny_encoder) -> ModelFiles:
    return find_encoder(str(tiny_encoder))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_fp32_vectors_are_those_of_sentence_transformers(files, reference, similarity):
    encoder = BiEncoder(files, similarity, "fp32")
    expected = np.stack([reference.encode(text, normalize_embeddings=similarity == "cosine") for text in TEXTS])
    for vectors in (encoder.encode_snippets(TEXTS), encoder.encode_queries(TEXTS)):
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS), 32)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize("damage", ["garbage", "no tokenizer"])
def test_a_broken_directory_is_refused_in_one_sentence(tiny_encoder, tmp_path, damage):
    folder = tmp_path / "broken"
    shutil.copytree(tiny_encoder, folder)
    weights = folder / "model.safetensors"
    if damage == "garbage":
        weights.write_bytes(b"no weights at all")
    else:
        for path in folder.glob("*token*"):
            path.unlink()
        (folder / "vocab.txt").unlink(missing_ok=True)
    with pytest.raises(MissingError) as caught:
        BiEncoder(ModelFiles("broken-model", "", folder, ""), "cosine", "fp32")
    assert caught.value.exit_code == 4
    named = "model.safetensors" if damage == "garbage" else "'broken-model'"
    assert named in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("1_Pooling/config.json", "embedding_dimension", -1),
        ("sentence_bert_config.json", "method", True),
        ("sentence_bert_config.json", "module_output_name", "long"),
        ("config_sentence_transformers.json", "prompts", {"query": "", "document": {"a": [1]}}),
    ],
)
def test_settings_that_are_read_only_in_encoding_are_refused_in_loading(tmp_path, tiny_encoder, file, key, value):
    """Found by 150 seeded changes of a model's JSON, of which 22 ended in an internal error."""
    model = tmp_path / "model"
    shutil.copytree(tiny_encoder, model)
    settings = json.loads((model / file).read_text(encoding="utf-8"))
    (model / file).write_text(json.dumps({**settings, key: value}), encoding="utf-8")
    with pytest.raises(MissingError, match="model"):
        BiEncoder(find_encoder(str(model)), "cosine", "fp32")
