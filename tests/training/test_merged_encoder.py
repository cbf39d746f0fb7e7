"""Encoders merged as folders: whole experts, LoRA adapters, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from biorag.errors import BadInputError, BioragError, MissingError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.training.experts import load_experts
from biorag.training.merging import MergeRecipe

pytestmark = pytest.mark.models

TEXTS = ["aspirin for fever", "heparin, warfarin", "liver"]
HALF = MergeRecipe("linear", (0.5, 0.5), 0.5, 1.0)
ADAPTED = ("encoder.layer.0.attention.self.query", "encoder.layer.1.output.dense")
ALPHA, RANK = 6, 4


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


def adapter(base: Path, target: Path, seed: int, stabilised: bool = False) -> tuple[Path, dict[str, np.ndarray]]:
    """Write a LoRA adapter as peft does; return its folder and the changes that it makes, by loops of its own."""
    target.mkdir()
    random = np.random.default_rng(seed)
    weights = load_file(base / "model.safetensors")
    factors, changes = {}, {}
    for module in ADAPTED:
        outputs, inputs = weights[f"{module}.weight"].shape
        a = random.normal(size=(RANK, inputs)).astype(np.float32)
        b = random.normal(scale=0.1, size=(outputs, RANK)).astype(np.float32)
        factors[f"base_model.model.{module}.lora_A.weight"] = a
        factors[f"base_model.model.{module}.lora_B.weight"] = b
        scaling = ALPHA / (RANK**0.5 if stabilised else RANK)
        changes[f"{module}.weight"] = scaling * sum(np.outer(b[:, rank], a[rank]) for rank in range(RANK))
    save_file(factors, target / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "use_rslora": stabilised, "fan_in_fan_out": False}
    settings |= {"target_modules": list(ADAPTED), "base_model_name_or_path": "elsewhere"}
    (target / "adapter_config.json").write_text(json.dumps(settings))
    return target, changes


def applied(base: Path, target: Path, changes: dict[str, np.ndarray]) -> Path:
    """Copy an encoder with changes added to its weights."""
    shutil.copytree(base, target)
    tensors = load_file(target / "model.safetensors")
    for name, change in changes.items():
        tensors[name] = (tensors[name] + change).astype(np.float32)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
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


@pytest.mark.parametrize("stabilised", [False, True])
@pytest.mark.parametrize(
    "recipe", [HALF, MergeRecipe("linear", (0.3, 0.9), 0.5, 1.0), MergeRecipe("ties", (0.4, 0.6), 0.5, 1.0)]
)
def test_merging_adapters_is_merging_the_merged_models(tmp_path, tiny_encoder, recipe, stabilised):
    made = [adapter(tiny_encoder, tmp_path / f"lora{seed}", seed, stabilised) for seed in (1, 2)]
    whole = [applied(tiny_encoder, tmp_path / f"whole{n}", changes) for n, (_, changes) in enumerate(made)]
    of_adapters = merge([folder for folder, _ in made], tiny_encoder, recipe, tmp_path / "a")
    of_models = merge(whole, tiny_encoder, recipe, tmp_path / "m")
    mixed = merge([made[0][0], whole[1]], tiny_encoder, recipe, tmp_path / "x")
    found, wanted, base = weights(of_adapters), weights(of_models), weights(tiny_encoder)
    for name, tensor in wanted.items():
        np.testing.assert_allclose(found[name], tensor, atol=1e-5)
        np.testing.assert_allclose(weights(mixed)[name], tensor, atol=1e-5)
    assert {name for name in base if not np.allclose(found[name], base[name])} == set(made[0][1])
    np.testing.assert_allclose(vectors(of_adapters), vectors(of_models), atol=1e-5)


def test_an_adapter_that_training_keeps_beside_whole_weights_is_not_added_again(tmp_path, tiny_encoder):
    trained = []
    for seed in (1, 2):
        folder, changes = adapter(tiny_encoder, tmp_path / f"lora{seed}", seed)
        trained.append(applied(tiny_encoder, tmp_path / f"whole{seed}", changes))
        folder.rename(trained[-1] / "adapter")
    merged = merge(trained, trained[0], MergeRecipe("linear", (0.0, 1.0), 0.5, 1.0), tmp_path / "out")
    for name, tensor in weights(trained[1]).items():
        np.testing.assert_allclose(weights(merged)[name], tensor, atol=1e-6)
    assert not (merged / "adapter").exists()
    (trained[0] / "adapter").rename(trained[0] / "other")
    with pytest.raises(BadInputError, match="holds an adapter and whole weights"):
        merge(trained, None, HALF, tmp_path / "refused")


def test_an_adapter_of_peft_is_what_peft_makes_of_it(tmp_path, tiny_encoder):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import torch
    from transformers import AutoModel

    torch.manual_seed(4)
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "dense"], init_lora_weights=False)
    model = peft.get_peft_model(AutoModel.from_pretrained(tiny_encoder), settings)
    model.save_pretrained(tmp_path / "lora")
    wanted = model.merge_and_unload().state_dict()
    merged = merge([tmp_path / "lora"], tiny_encoder, MergeRecipe("linear", (1.0,), 0.5, 1.0), tmp_path / "out")
    for name, tensor in weights(merged).items():
        np.testing.assert_allclose(tensor, wanted[name].numpy(), atol=1e-5)


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


def test_adapters_need_their_own_base(tmp_path, tiny_encoder, tiny_modernbert):
    folder, _ = adapter(tiny_encoder, tmp_path / "lora", 1)
    with pytest.raises(UsageError, match="--base"):
        merge([folder], None, HALF, tmp_path / "out")
    with pytest.raises(BadInputError, match="is not an adapter of"):
        merge([folder], tiny_modernbert, HALF, tmp_path / "out")
    with pytest.raises(MissingError, match="is an adapter"):
        merge([folder], folder, HALF, tmp_path / "out")
    factors = load_file(folder / "adapter_model.safetensors")
    save_file({**factors, "base_model.model.x": np.ones(2)}, folder / "adapter_model.safetensors")
    with pytest.raises(BadInputError, match="is not an adapter of"):
        merge([folder], tiny_encoder, HALF, tmp_path / "out")
    (folder / "adapter_config.json").write_text("[")
    with pytest.raises(BioragError, match=r"adapter_config\.json"):
        merge([folder], tiny_encoder, HALF, tmp_path / "out")
