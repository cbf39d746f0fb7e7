"""Asymmetric encoders: two towers that learn apart, in a directory that loads like any other."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import EncoderForm
from biorag.training.data import Split
from biorag.training.retriever import RetrieverTraining
from biorag.types import TrainingRow
from tests.cli import done, invoke
from tests.conftest import WORDS

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][::6]
MINED = [
    {"query": f"{one} and {other}?", "positive": f"{one} heals the {other}.", "negative": f"{other} hurts."}
    for one, other in COUPLES
]
FAST = ["--precision", "fp32", "--batch-size", "4", "--max-tokens", "16", "--evaluations", "2", "--validation", "0.2"]
FAST += ["--learning-rate", "0.001"]
TEXTS = ["aspirin", "fever and pain in the liver", "gene " * 99, "Warfarin thins; heparin, at once.", ""]
TOWERS = ("query", "document")


def trained(rows, base, out, *arguments) -> dict:
    return done(invoke("train", "retriever", rows, "--base", base, *FAST, "--out", out, "--json", *arguments))


def vectors(folder) -> dict[str, np.ndarray]:
    """Return the vectors of `TEXTS` as queries and as passages, by biorag."""
    encoder = BiEncoder(find_encoder(str(folder)), "cosine", "fp32")
    return {"query": encoder.encode_queries(TEXTS), "document": encoder.encode_snippets(TEXTS)}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "mined.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MINED))
    return path


@pytest.fixture(scope="module")
def towers(rows, tiny_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "towers"
    assert trained(rows, tiny_encoder, out, "--asymmetric")["identity"]["asymmetric"] is True
    return out


def test_towers_learn_apart_and_vectors_are_sentence_transformers_own(towers, tiny_encoder):
    found, base, library = vectors(towers), vectors(tiny_encoder), SentenceTransformer(str(towers), device="cpu")
    for tower, encode in zip(TOWERS, (library.encode_query, library.encode_document), strict=True):
        np.testing.assert_allclose(found[tower], encode(TEXTS, normalize_embeddings=True), atol=1e-5)
        assert np.abs(found[tower] - base[tower]).max() > 1e-3, "training moved the tower"
    assert np.abs(found["query"] - found["document"]).max() > 1e-3, "each has learnt its own"
    assert library.max_seq_length == SentenceTransformer(str(tiny_encoder), device="cpu").max_seq_length > 16


def test_each_towers_weights_count_for_the_hash(towers, tmp_path):
    folder = shutil.copytree(towers, tmp_path / "m")
    known = find_encoder(str(towers)).sha256
    assert find_encoder(str(folder)).sha256 == known
    for tower in TOWERS:
        weights = folder / f"{tower}_0_Transformer" / "model.safetensors"
        held = weights.read_bytes()
        weights.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
        assert find_encoder(str(folder)).sha256 != known
        weights.write_bytes(held)


@pytest.mark.parametrize("options", [["--negatives", "retriever"], ["--mini-batch-size", "2"], ["--similarity", "dot"]])
def test_a_second_stage_goes_on_with_the_towers_whatever_the_loss(rows, towers, tmp_path, options):
    trained(rows, towers, tmp_path / "m", *options)
    for tower in TOWERS:
        ours, theirs = (
            load_file(path / f"{tower}_0_Transformer" / "model.safetensors") for path in (tmp_path / "m", towers)
        )
        assert ours.keys() == theirs.keys()
        assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) > 1e-4
    assert not list((tmp_path / "m").glob("*_0_Transformer/*_0_Transformer")), "no towers within towers"


def test_a_decoders_towers_learn_through_lora(rows, tiny_decoder, tmp_path):
    from peft import PeftModel
    from transformers import AutoModel

    options = ["--asymmetric", "--lora", "--attention", "bidirectional", "--learning-rate", "0.01"]
    trained(rows, tiny_decoder, tmp_path / "m", *options)
    found, library = vectors(tmp_path / "m"), SentenceTransformer(str(tmp_path / "m"), device="cpu")
    for tower, encode in zip(TOWERS, (library.encode_query, library.encode_document), strict=True):
        np.testing.assert_allclose(found[tower], encode(TEXTS, normalize_embeddings=True), atol=1e-5)
        base = AutoModel.from_pretrained(tiny_decoder)
        adapted = PeftModel.from_pretrained(base, str(tmp_path / "m" / "adapter" / tower)).merge_and_unload()
        merged = AutoModel.from_pretrained(tmp_path / "m" / f"{tower}_0_Transformer")
        assert merged.config.is_causal is False
        for name, weight in merged.state_dict().items():
            np.testing.assert_allclose(weight, adapted.state_dict()[name], atol=1e-5)
    known = find_encoder(str(tmp_path / "m")).sha256
    shutil.rmtree(tmp_path / "m" / "adapter")
    assert find_encoder(str(tmp_path / "m")).sha256 == known, "adapters are not loaded and not counted"


def test_the_estimate_counts_both_towers(tiny_encoder, towers):
    settings = Settings.of(train_max_tokens=8)
    rows = Split([TrainingRow("a" * 11, "b" * 400)] * 10, [])
    one, two, held = (
        RetrieverTraining(find_encoder(str(base)), rows, settings, form=EncoderForm(asymmetric=asymmetric)).estimate()
        for base, asymmetric in ((tiny_encoder, False), (tiny_encoder, True), (towers, True))
    )
    assert (two.parameters, two.bytes) == (2 * one.parameters, 2 * one.bytes) == (held.parameters, held.bytes)
    assert one.batch_bytes == two.batch_bytes == held.batch_bytes, "a text goes through one"


@pytest.mark.parametrize("kind", ["reranker", "cross-encoder"])
def test_what_takes_one_tower_says_so(rows, towers, tmp_path, kind):
    result = invoke("train", kind, rows, "--base", towers, *FAST, "--out", tmp_path / "m")
    assert result.exit_code == 4
    assert "has two towers: name one of them, such as" in result.stderr
    assert str(towers / "document_0_Transformer") in result.stderr
