"""Encoders merged as folders: whole experts, LoRA adapters, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from biorag.errors import BadInputError, BioragError, MissingError, ServiceError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.training.merging.arithmetic import Recipe
from biorag.training.merging.encoder import open_experts
from tests.training.merging.merging_experts import adapter, applied, changed

pytestmark = pytest.mark.models

TEXTS = ["aspirin for fever", "heparin, warfarin", "liver"]
HALF = Recipe("linear", (0.5, 0.5), 0.5, 1.0)


@pytest.fixture
def experts(tmp_path, tiny_encoder):
    """Two encoders trained from the tiny one, as it were."""
    return [changed(tiny_encoder, tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]


def merge(folders, base, recipe, out):
    files = [find_encoder(str(folder)) for folder in folders]
    experts = open_experts(files, find_encoder(str(base)) if base else None)
    experts.write(out, recipe, lambda _: None)
    return out


def vectors(folder):
    return BiEncoder(find_encoder(str(folder)), precision="fp32").encode_snippets(TEXTS)


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_the_merged_encoder_holds_the_mean_and_encodes_as_the_mean_in_memory(tmp_path, experts):
    merged = merge(experts, None, Recipe("linear", (1.0, 3.0), 0.5, 1.0), tmp_path / "out")
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
def test_one_expert_of_weight_1_is_written_byte_by_byte(tmp_path, experts, tiny_encoder, with_base):
    (experts[0] / "training.json").write_text("{}")
    (experts[0] / "README.md").write_text("trained on")
    merged = merge(experts[:1], tiny_encoder if with_base else None, Recipe("linear", (1.0,), 0.5, 1.0), tmp_path / "o")
    found = {path.relative_to(merged): path.read_bytes() for path in merged.rglob("*") if path.is_file()}
    wanted = {path.relative_to(experts[0]): path.read_bytes() for path in experts[0].rglob("*") if path.is_file()}
    assert {str(name) for name in wanted.keys() - found.keys()} == {"training.json", "README.md"}
    assert found == {name: raw for name, raw in wanted.items() if name in found}


@pytest.mark.parametrize("stabilised", [False, True])
@pytest.mark.parametrize("recipe", [HALF, Recipe("linear", (0.3, 0.9), 0.5, 1.0), Recipe("ties", (0.4, 0.6), 0.5, 1.0)])
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
    merged = merge(trained, trained[0], Recipe("linear", (0.0, 1.0), 0.5, 1.0), tmp_path / "out")
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
    merged = merge([tmp_path / "lora"], tiny_encoder, Recipe("linear", (1.0,), 0.5, 1.0), tmp_path / "out")
    for name, tensor in weights(merged).items():
        np.testing.assert_allclose(tensor, wanted[name].numpy(), atol=1e-5)


def edit(path, change):
    values = json.loads(path.read_bytes())
    path.write_text(json.dumps(change(values) or values))


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", lambda v: v.update(hidden_act="relu"), 'architecture (hidden_act: "gelu" and "relu")'),
        ("config.json", lambda v: v.update(is_causal=False), "architecture (is_causal"),
        ("modules.json", lambda v: v[:1], "modules"),
        ("1_Pooling/config.json", lambda v: v.update(pooling_mode="cls"), 'pooling (pooling_mode: "mean" and "cls")'),
        ("tokenizer.json", lambda v: v.update(normalizer=None), "tokenizer"),
        ("config_sentence_transformers.json", lambda v: v.update(prompts={"query": "Q: "}), "prompts"),
        ("config_sentence_transformers.json", lambda v: v.update(similarity_fn_name="dot"), "similarity_fn_name"),
    ],
)
def test_what_differs_is_named(tmp_path, experts, file, change, named):
    edit(experts[1] / file, change)
    with pytest.raises(BadInputError) as error:
        merge(experts, None, HALF, tmp_path / "out")
    assert "cannot be merged: they differ in" in str(error.value)
    assert named in str(error.value)
    assert not (tmp_path / "out").exists()


def test_other_versions_write_the_same_in_other_words(tmp_path, experts):
    edit(experts[1] / "config.json", lambda v: v.update(transformers_version="4.8.2", dtype="bf16", new_default=1))
    edit(experts[1] / "tokenizer.json", lambda v: v.update(truncation=None, padding=None))
    width = json.loads((experts[1] / "1_Pooling" / "config.json").read_bytes())["embedding_dimension"]
    old = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (experts[1] / "1_Pooling" / "config.json").write_text(json.dumps(old))
    edit(experts[1] / "modules.json", lambda v: [{**m, "type": f"x.y.{m['type'].split('.')[-1]}"} for m in v])
    edit(experts[0] / "config_sentence_transformers.json", lambda v: v.update(prompts={"query": ""}))
    from biorag.training.merging.compatibility import check_compatible

    check_compatible([[each] for each in experts], None)


def test_another_base_is_refused_by_tensor_vocabulary_or_architecture(tmp_path, tiny_encoder, tiny_modernbert, experts):
    for base, named in ((tiny_modernbert, "architecture"), (tmp_path / "base", "embeddings.word_embeddings.weight")):
        if not base.exists():
            changed(tiny_encoder, base, 5)
            tensors = weights(base)
            tensors["embeddings.word_embeddings.weight"] = tensors["embeddings.word_embeddings.weight"][:-1].copy()
            save_file(tensors, base / "model.safetensors")
        with pytest.raises(BadInputError, match=named):
            merge(experts, base, HALF, tmp_path / "out")
    edit(tmp_path / "base" / "tokenizer.json", lambda v: v["model"]["vocab"].update(word=4))
    with pytest.raises(BadInputError, match="vocabulary"):
        merge(experts, tmp_path / "base", HALF, tmp_path / "out")


def test_whole_numbers_may_be_missing(tmp_path, experts):
    """Old checkpoints store the positions."""
    tensors = weights(experts[0])
    save_file({**tensors, "embeddings.position_ids": np.arange(8)}, experts[0] / "model.safetensors")
    found = weights(merge(experts, None, HALF, tmp_path / "out"))
    assert found["embeddings.position_ids"].tolist() == list(range(8))


@pytest.mark.parametrize(
    ("change", "kind", "named"),
    [
        ({"peft_type": "IA3"}, BadInputError, "'IA3'"),
        ({"use_dora": True}, BadInputError, "use_dora"),
        ({"alpha_pattern": {"x": 2}}, BadInputError, "alpha_pattern"),
        ({"lora_alpha": None}, BadInputError, "lora_alpha"),
    ],
)
def test_adapters_of_other_kinds_are_refused(tmp_path, tiny_encoder, change, kind, named):
    folder, _ = adapter(tiny_encoder, tmp_path / "lora", 1)
    edit(folder / "adapter_config.json", lambda values: values.update(change))
    with pytest.raises(kind, match=named):
        merge([folder], tiny_encoder, HALF, tmp_path / "out")


def test_adapters_need_their_own_base(tmp_path, tiny_encoder, tiny_modernbert):
    folder, _ = adapter(tiny_encoder, tmp_path / "lora", 1)
    with pytest.raises(UsageError, match="--base"):
        merge([folder], None, HALF, tmp_path / "out")
    with pytest.raises(BadInputError, match="which the base does not have"):
        merge([folder], tiny_modernbert, HALF, tmp_path / "out")
    with pytest.raises(MissingError, match="is an adapter"):
        merge([folder], folder, HALF, tmp_path / "out")
    factors = load_file(folder / "adapter_model.safetensors")
    save_file({**factors, "base_model.model.x": np.ones(2)}, folder / "adapter_model.safetensors")
    with pytest.raises(BadInputError, match=r"base_model.model.x, which is not a factor"):
        merge([folder], tiny_encoder, HALF, tmp_path / "out")
    (folder / "adapter_config.json").write_text("[")
    with pytest.raises(BioragError, match=r"adapter_config\.json"):
        merge([folder], tiny_encoder, HALF, tmp_path / "out")


@pytest.mark.parametrize("file", ["tokenizer.json", "config_sentence_transformers.json"])
def test_settings_of_odd_shapes_are_no_tracebacks(tmp_path, experts, file):
    for text in ("[1]", "3", '{"prompts": 3, "model": []}', "{"):
        (experts[1] / file).write_text(text)
        with pytest.raises(BioragError):
            merge(experts, None, HALF, tmp_path / "out")


def test_a_full_disk_is_said_before_anything_is_written(tmp_path, experts, monkeypatch):
    monkeypatch.setattr("biorag.utils.files.RESERVE", 1 << 60)
    with pytest.raises(ServiceError, match="full"):
        merge(experts, None, HALF, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
