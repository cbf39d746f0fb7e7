"""Encoders merged as folders, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from biorag.errors import BadInputError
from biorag.lab.merging.experts import load_experts
from biorag.lab.merging.weights import MergeRecipe
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder

pytestmark = pytest.mark.models

TEXTS = ["aspirin for fever", "heparin, warfarin", "liver"]
HALF = MergeRecipe("linear", (0.5, 0.5), 0.5, 1.0)


def changed(source: Path, target: Path, seed: int, size: float = 0.02) -> Path:
    """Copy an encoder, its weights moved at random."""
    shutil.copytree(source, target)
    random = np.random.default_rng(seed)
    tensors = load_file(target / "model.safetensors")
    moved = {
        name: tensor + random.normal(scale=size, size=tensor.shape).astype(np.float32)
        if tensor.dtype == np.float32
        else tensor
        for name, tensor in tensors.items()
    }
    save_file(moved, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.fixture
def experts(tmp_path, tiny_encoder):
    """Two encoders trained from the tiny one, as it were."""
    return [changed(tiny_encoder, tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]


def merge(folders, base, recipe, out):
    files = [find_encoder(str(folder)) for folder in folders]
    experts = load_experts(files, find_encoder(str(base)) if base else None)
    experts.write(out, recipe, lambda _: None)
    return out


def vectors(folder):
    return BiEncoder(find_encoder(str(folder)), precision="fp32").encode_snippets(TEXTS)


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_the_merged_encoder_holds_the_mean_and_encodes_as_the_mean_in_memory(tmp_path, experts):
    merged = merge(experts, None, MergeRecipe("linear", (1.0, 3.0), 0.5, 1.0), tmp_path / "out")
    one, two, found = weights(experts[0]), weights(experts[1]), weights(merged)
    assert list(found) == list(one)
    for name, tensor in found.items():
        np.testing.assert_allclose(tensor, one[name] / 4 + 3 * two[name] / 4, atol=1e-6)
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(experts[0]), device="cpu")
    model[0].model.load_state_dict(
        {name: torch.from_numpy(one[name] / 4 + 3 * two[name] / 4) for name in one}, strict=False
    )
    np.testing.assert_allclose(vectors(merged), model.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    assert not np.allclose(vectors(merged), vectors(experts[0]), atol=1e-3)


@pytest.mark.parametrize("with_base", [False, True])
def test_one_expert_of_weight_1_keeps_its_weights_and_settings(tmp_path, experts, tiny_encoder, with_base):
    (experts[0] / "training.json").write_text("{}")
    edit(experts[0] / "config_sentence_transformers.json", lambda v: v.update(prompts={"query": "Q: "}))
    base = tiny_encoder if with_base else None
    merged = merge(experts[:1], base, MergeRecipe("linear", (1.0,), 0.5, 1.0), tmp_path / "o")
    wanted = weights(experts[0])
    assert {name: tensor.tobytes() for name, tensor in weights(merged).items()} == {
        name: tensor.tobytes() for name, tensor in wanted.items()
    }
    assert json.loads((merged / "config_sentence_transformers.json").read_bytes())["prompts"]["query"] == "Q: "
    assert (merged / "tokenizer.json").is_file()
    assert not (merged / "training.json").exists()


def test_an_encoder_in_bfloat16_stays_so(tmp_path, experts):
    import torch
    from sentence_transformers import SentenceTransformer

    for folder in experts:
        SentenceTransformer(str(folder), device="cpu").to(torch.bfloat16).save(str(folder))
    merged = merge(experts, None, HALF, tmp_path / "out")
    model = SentenceTransformer(str(merged), device="cpu", model_kwargs={"dtype": "auto"})
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def edit(path, change):
    values = json.loads(path.read_bytes())
    path.write_text(json.dumps(change(values) or values))


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", lambda v: v.update(hidden_act="relu"), "architecture (hidden_act: 'gelu' and 'relu')"),
        ("modules.json", lambda v: v[:1], "modules"),
        ("1_Pooling/config.json", lambda v: v.update(pooling_mode="cls"), "pooling 1 (pooling_mode: 'mean' and 'cls')"),
        ("tokenizer.json", lambda v: swap_words(v), "tokenizer (model"),
        ("config_sentence_transformers.json", lambda v: v.update(prompts={"query": "Q: "}), "prompts (query"),
        ("config_sentence_transformers.json", lambda v: v.update(similarity_fn_name="dot"), "similarity"),
    ],
)
def test_what_differs_is_named(tmp_path, experts, file, change, named):
    edit(experts[1] / file, change)
    with pytest.raises(BadInputError) as error:
        merge(experts, None, HALF, tmp_path / "out")
    assert "cannot be merged: they differ in" in str(error.value)
    assert named in str(error.value)
    assert not (tmp_path / "out").exists()


def test_another_base_is_refused_by_vocabulary_or_architecture(tmp_path, tiny_encoder, tiny_modernbert, experts):
    with pytest.raises(BadInputError, match="architecture"):
        merge(experts, tiny_modernbert, HALF, tmp_path / "out")
    base = changed(tiny_encoder, tmp_path / "base", 5)
    edit(base / "tokenizer.json", swap_words)
    with pytest.raises(BadInputError, match="vocabulary"):
        merge(experts, base, HALF, tmp_path / "out")


def swap_words(tokenizer: dict) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
