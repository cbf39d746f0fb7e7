"""Decoders as bi-encoders: EOS, the last token's vector, attention, instructions, LoRA, bases from GGUF."""

from __future__ import annotations

import json
import shutil
import sys
from hashlib import sha256

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, AutoTokenizer

from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_base, find_encoder
from tests.cli import done, invoke
from tests.conftest import WORDS

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][::6]
PAIRS = [{"query": f"{one} and {other}?", "positive": f"{one} heals the {other}."} for one, other in COUPLES]
FAST = ["--precision", "fp32", "--batch-size", "4", "--max-tokens", "64", "--evaluations", "1", "--validation", "0.2"]
FASTER = ["--learning-rate", "0.01"]
TEXTS = ["aspirin", "fever and pain in the liver", "gene " * 700, "Warfarin thins; heparin, at once.", ""]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    return path


def trained(pairs, base, out, *arguments) -> dict:
    return done(invoke("train", "retriever", pairs, "--base", base, *FAST, "--out", out, "--json", *arguments))


@pytest.fixture(scope="module")
def causal(pairs, tiny_decoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "causal"
    trained(pairs, tiny_decoder, out)
    return out


@pytest.fixture(scope="module")
def bidirectional(pairs, tiny_decoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "bidirectional"
    trained(pairs, tiny_decoder, out, "--attention", "bidirectional", "--instruct", "none", "--lora", *FASTER)
    return out


@pytest.fixture(params=["causal", "bidirectional"])
def model(request):
    return request.getfixturevalue(request.param)


def slow_vectors(folder, texts, before: str) -> np.ndarray:
    """Encode by hand, one text at a time: BOS, tokens cut to 512, EOS; the last token's vector at unit length."""
    tokenizer, backbone = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for text in texts:
        tokens = tokenizer(before + text, add_special_tokens=False).input_ids
        with torch.inference_mode():
            states = backbone(input_ids=torch.tensor([[0, *tokens[:510], 1]])).last_hidden_state
        found.append((states[0, -1] / states[0, -1].norm()).numpy())
    return np.stack(found)


QUERY = "Given a biomedical question, retrieve passages that answer it\nQuery: "
PASSAGE = "Represent this passage\npassage: "


def test_vectors_are_those_of_the_last_token_by_hand_in_biorag_and_in_sentence_transformers(model, causal):
    query, passage = (QUERY, PASSAGE) if model == causal else ("", "")
    ours, theirs = BiEncoder(find_encoder(str(model)), "cosine", "fp32"), SentenceTransformer(str(model), device="cpu")
    for found, library, before in (
        (ours.encode_queries(TEXTS), theirs.encode_query(TEXTS, normalize_embeddings=True), query),
        (ours.encode_snippets(TEXTS), theirs.encode_document(TEXTS, normalize_embeddings=True), passage),
    ):
        reference = slow_vectors(model, TEXTS, before)
        np.testing.assert_allclose(found, reference, atol=1e-5)
        np.testing.assert_allclose(library, reference, atol=1e-5)


def test_the_saved_directory_says_it_all_to_other_programs(causal, bidirectional):
    for folder, said in ((causal, None), (bidirectional, False)):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer("fever").input_ids[0] == 0
        assert tokenizer("fever").input_ids[-1] == tokenizer("gene " * 99, truncation=True, max_length=9).input_ids[-1]
        assert tokenizer("fever").input_ids[-1] == tokenizer.eos_token_id == 1
        assert tokenizer.padding_side == "right"
        assert json.loads((folder / "config.json").read_text()).get("is_causal") is said
        loaded = SentenceTransformer(str(folder), device="cpu")
        assert (loaded[1].pooling_mode, loaded.max_seq_length, type(loaded[1])) == ("lasttoken", 512, Pooling)
    assert SentenceTransformer(str(causal)).prompts == {"query": QUERY, "document": PASSAGE}
    assert not any(SentenceTransformer(str(bidirectional)).prompts.values())


def test_a_second_stage_keeps_the_first_ones_form_and_changes_what_is_asked(pairs, bidirectional, tmp_path):
    template = tmp_path / "template.toml"
    template.write_text('query = "{task}: {query}"\npassage = "{passage}"\n')
    trained(pairs, bidirectional, tmp_path / "m", "--instruct", template, "--task", "Find it")
    found = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert {name: text for name, text in found.prompts.items() if text} == {"query": "Find it: "}
    assert found[0].auto_model.config.is_causal is False
    assert found.tokenizer("fever").input_ids.count(1) == 1


def test_adapter_on_the_base_gives_the_vectors_of_the_merged_weights(bidirectional, tiny_decoder):
    from peft import PeftModel

    merged = SentenceTransformer(str(bidirectional), device="cpu")
    vectors = merged.encode(TEXTS)
    base = AutoModel.from_pretrained(tiny_decoder)
    base.config.is_causal = False
    merged[0].model = base
    untrained = merged.encode(TEXTS)
    merged[0].model = PeftModel.from_pretrained(base, str(bidirectional / "adapter"))
    np.testing.assert_allclose(merged.encode(TEXTS), vectors, atol=1e-5)
    assert np.abs(untrained - vectors).max() > 1e-3, "training moved the vectors"
    alone = sha256((bidirectional / "model.safetensors").read_bytes()).hexdigest()
    assert find_encoder(str(bidirectional)).sha256 == alone, "the adapter is not loaded and not counted"
    settings = json.loads((bidirectional / "adapter" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["base_model_name_or_path"]) == (16, 32, str(tiny_decoder))
    assert {name.rpartition(".")[2] for name in settings["target_modules"]} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }


def test_the_training_is_the_same_after_an_interruption(pairs, tiny_decoder, tmp_path, monkeypatch):
    options = ["--lora", *FASTER, "--evaluations", "2"]
    trained(pairs, tiny_decoder, tmp_path / "whole", *options)
    with monkeypatch.context() as cut:
        cut.setattr("biorag.training.bi_encoder.LoraLayers.merge", lambda adapter: sys.exit(130))
        invoke("train", "retriever", pairs, "--base", tiny_decoder, *FAST, *options, "--out", tmp_path / "cut")
    checkpoints = sorted((tmp_path / "cut" / "checkpoints").iterdir())
    assert not (checkpoints[0] / "model.safetensors").exists(), "a checkpoint holds the adapter alone"
    shutil.rmtree(checkpoints[-1])
    resumed = trained(pairs, tiny_decoder, tmp_path / "cut", *options)
    assert resumed["resumed_from_step"] > 0
    whole, cut = (SentenceTransformer(str(tmp_path / name), device="cpu").encode(TEXTS) for name in ("whole", "cut"))
    np.testing.assert_array_equal(whole, cut)


def test_what_cannot_be_is_said(pairs, tiny_encoder, tiny_decoder, tmp_path, monkeypatch):
    template = tmp_path / "template.toml"
    template.write_text('query = "{query} ?"\npassage = "{passage}"\n')
    monkeypatch.setattr("biorag.models.resources.free_bytes", lambda device: 100_000)
    for base, options, code, *parts in (
        (tiny_encoder, ["--attention", "causal"], 2, "--attention is for decoders"),
        (tiny_decoder, ["--attention", "both"], 2, "'both'", "bidirectional, causal"),
        (tiny_decoder, ["--instruct", "absent.toml"], 4, "'absent.toml'", "bmretriever, e5, none"),
        (tiny_decoder, ["--instruct", template], 3, str(template), "must end with {query}"),
        (tiny_decoder, ["--task", "Find it"], 2, "--task", "--instruct"),
        (tmp_path / "absent.gguf", [], 4, "absent.gguf"),
        (tiny_decoder, [], 6, "memory", "--lora"),
    ):
        with monkeypatch.context() as room:
            if code != 6:
                room.setattr("biorag.models.resources.free_bytes", lambda device: 2**40)
            result = invoke("train", "retriever", pairs, "--base", base, *FAST, *options, "--out", tmp_path / "m")
        assert result.exit_code == code, (result.output, result.exception)
        assert [part for part in parts if part not in result.stderr.splitlines()[-1]] == []
        shutil.rmtree(tmp_path / "m", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.long
def test_the_starter_language_model_as_a_base(pairs, tmp_path):
    import llama_cpp

    few = tmp_path / "few.jsonl"
    few.write_text("".join(pairs.read_text().splitlines(keepends=True)[:16]))
    options = ["--lora", "--max-tokens", "32", "--batch-size", "8", "--instruct", "none", "--validation", "0"]
    found = trained(few, "starter-llm", tmp_path / "m", *options)
    assert found["base"] == "SmolLM2-135M-Instruct"
    assert not (tmp_path / "m" / "base").exists()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    path = find_base("starter-llm").path
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in ("Aspirin lowers fever.", "TNF-α at 12.5 mg/kg, p < 0.05", "  two  spaces"):
        ours = tokenizer(text).input_ids
        assert ours == [*theirs.tokenize(text.encode(), add_bos=False), tokenizer.eos_token_id]
    ours = BiEncoder(find_encoder(str(tmp_path / "m")), "cosine", "fp32").encode_queries(TEXTS[:2])
    library = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(TEXTS[:2], normalize_embeddings=True)
    np.testing.assert_allclose(ours, library, atol=1e-5)
    likeness = ours[0] @ ours[1]
    assert 0 < likeness < 0.9999
