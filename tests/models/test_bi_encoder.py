"""The bi-encoder and its batches against sentence-transformers itself."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from biorag.errors import MissingError
from biorag.models import inference
from biorag.models.batches import MANY, SHARES, balanced, by_length
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import ModelFiles, find_encoder
from biorag.models.inference import PrepackedLinear, prompt_of, reads_unpadded, unpadded

pytestmark = pytest.mark.models

# Up to 100 tokens, more than a ModernBERT's local window; one text is longer than the models read.
TEXTS = [" ".join(["fever", "aspirin", "lowers"][number % 3] for _ in range(number)) for number in range(1, 100, 3)]
TEXTS += ["aspirin lowers fever " * 5, "", "gene " * 300, "β-blocker, 5 mg?"]
BATCHES = (st.lists(st.integers(0, 500), max_size=60), st.integers(1, 2000), st.integers(1, 8))


@given(*BATCHES)
def test_batches_by_length_hold_every_text_once_longest_first_within_the_budget(lengths, budget, workers):
    batches = by_length(lengths, budget, workers)
    indices = [index for batch in batches for index in batch]
    assert sorted(indices) == list(range(len(lengths)))
    assert [lengths[index] for index in indices] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget or lengths[batch[0]] == 0


@given(*BATCHES)
def test_balanced_batches_hold_every_text_once_and_differ_by_one_text_at_most(lengths, budget, workers):
    batches = balanced(lengths, budget, workers)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches) and (len(batches) % workers == 0 or len(batches) % SHARES == 0 or len(batches) == len(lengths))
    totals = [sum(max(1, lengths[index]) for index in batch) for batch in batches]
    for batch, total in zip(batches, totals, strict=True):
        assert total - max(1, lengths[batch[-1]]) <= min(totals)
        assert len(batch) == 1 or total <= budget + 2 * max(lengths) + len(lengths)


@given(st.lists(st.integers(1, 500), min_size=20, max_size=80), st.integers(2, 8))
def test_many_batches_are_the_same_for_any_few_workers(lengths, workers):
    budget = sum(lengths) // MANY
    assert balanced(lengths, budget, workers) == balanced(lengths, budget, 1)


def library_of(folder):
    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("base", ["tiny_encoder", "tiny_modernbert"])
@pytest.mark.parametrize(("threads", "characters"), [(1, 50), (2, 700), (3, 100_000)])
def test_vectors_and_tokens_are_the_librarys_in_any_batches(request, monkeypatch, base, threads, characters):
    folder = request.getfixturevalue(base)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for name in ("UNPADDED_CHARACTERS", "CPU_CHARACTERS"):
        monkeypatch.setattr(inference, name, characters)
    encoder, library = BiEncoder(find_encoder(str(folder)), "dot", "fp32"), library_of(folder)
    expected, expected_tokens = library.encode(TEXTS), library.encode(TEXTS, output_value="token_embeddings")
    assert reads_unpadded(encoder.model)
    encoded = encoder.encode_snippets_with_tokens(TEXTS)
    assert encoded.vectors.dtype == np.float32
    np.testing.assert_allclose(encoded.vectors, expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), expected, atol=1e-5)
    for tokens, theirs in zip(encoded.tokens, expected_tokens, strict=True):
        unit = torch.nn.functional.normalize(theirs, dim=-1).numpy(force=True)
        np.testing.assert_allclose(tokens, unit, atol=1e-5)


def test_cosine_gives_unit_vectors_and_many_rows_do_not_change_them(tiny_encoder):
    encoder = BiEncoder(find_encoder(str(tiny_encoder)), "cosine", "fp32")
    alone = np.stack([library_of(tiny_encoder).encode(text, normalize_embeddings=True) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode_snippets(TEXTS), alone, atol=1e-5)


def test_a_row_is_filled_by_a_text_of_its_own():
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    row = unpadded({"input_ids": torch.tensor([[5, 6, 7], [8, 9, 9]]), "attention_mask": mask, "other": 1})
    assert row["input_ids"].tolist() == [[5, 6, 7, 8] + [0] * 60]
    assert row["position_ids"].tolist() == [[0, 1, 2, 0] + [0] * 60]
    assert row["cu_seq_lens_q"].tolist() == [0, 3, 4, 64]
    assert row["other"] == 1 and "attention_mask" not in row
    whole = unpadded({"input_ids": torch.ones(2, 32), "attention_mask": torch.ones(2, 32)})
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
    assert set(model.state_dict()) == set(library_of(tiny_encoder).state_dict())


@pytest.mark.parametrize(
    ("prompts", "default", "query", "document"),
    [
        ({"query": "q: ", "document": "d: ", "passage": "p: "}, None, "q: ", "d: "),
        ({"other": "o: "}, "other", "o: ", "o: "),
        ({}, None, None, None),
    ],
)
@pytest.mark.parametrize("pooled", [True, False])
def test_prompts_are_found_and_pooled_as_by_the_library(
    tiny_encoder, tmp_path, prompts, default, query, document, pooled
):
    library = library_of(tiny_encoder)
    library[1].include_prompt = pooled
    library.save(str(tmp_path))
    encoder = BiEncoder(find_encoder(str(tmp_path)), "dot", "fp32")
    for model in (library, encoder.model):
        model.prompts, model.default_prompt_name = prompts, default
    assert reads_unpadded(encoder.model) is pooled
    assert (prompt_of(encoder.model, "query"), prompt_of(encoder.model, "document")) == (query, document)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS[-4:]), library.encode_query(TEXTS[-4:]), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_snippets(TEXTS[-4:]), library.encode_document(TEXTS[-4:]), atol=1e-5)


@pytest.mark.parametrize(("removed", "named"), [([], "model.safetensors"), (["*token*", "vocab*"], "'broken-model'")])
def test_a_broken_directory_is_refused_in_one_sentence(tiny_encoder, tmp_path, removed, named):
    folder = shutil.copytree(tiny_encoder, tmp_path / "broken")
    for path in [path for pattern in removed for path in folder.glob(pattern)]:
        path.unlink()
    if not removed:
        (folder / "model.safetensors").write_bytes(b"no weights at all")
    with pytest.raises(MissingError, match=named) as caught:
        BiEncoder(ModelFiles("broken-model", "", folder, ""), "cosine", "fp32")
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


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
    model = shutil.copytree(tiny_encoder, tmp_path / "model")
    settings = json.loads((model / file).read_text(encoding="utf-8"))
    (model / file).write_text(json.dumps({**settings, key: value}), encoding="utf-8")
    with pytest.raises(MissingError, match="model"):
        BiEncoder(find_encoder(str(model)), "cosine", "fp32")
