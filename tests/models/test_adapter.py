"""Adapters: their factors against the whole change, and loaded encoders against sums of weights."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sentence_transformers import CrossEncoder

from biorag.errors import MissingError
from biorag.models.adapter import read_changes, write_adapted
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import TRAINED_STARTER, find_encoder
from biorag.models.loading import load_model
from biorag.models.prompted import prompted
from biorag.utils.files import sha256_of
from scripts.fit_starter import write_adapter

TEXTS = ["aspirin lowers fever", "the liver"]
NAMES = ("encoder.layer.0.attention.self.query.weight", "encoder.layer.1.output.dense.weight")


@pytest.fixture
def changes(tiny_encoder):
    weights, rng = load_file(tiny_encoder / "model.safetensors"), np.random.default_rng(0)
    shapes = {name: weights[name].shape for name in NAMES}
    return {
        name: (rng.normal(size=(rows, 2)) @ rng.normal(size=(2, columns))).astype(np.float32)
        for name, (rows, columns) in shapes.items()
    }


@pytest.fixture
def adapter(changes, tmp_path):
    assert write_adapter(tmp_path / "adapter.safetensors", changes, rank=2) < 1e-12
    return tmp_path / "adapter.safetensors"


def test_the_best_factors_are_kept_and_the_rest_is_counted(tmp_path):
    assert write_adapter(tmp_path / "a", {"w": np.diag([4.0, 2.0, 1.0]).astype(np.float32)}, rank=2) == pytest.approx(
        1 / 21
    )
    ((name, change),) = read_changes(tmp_path / "a")
    assert name == "w"
    np.testing.assert_allclose(change, np.diag([4.0, 2.0, 0.0]), atol=1e-2)


def test_an_encoder_is_loaded_with_its_adapter(tiny_encoder, adapter, changes, tmp_path):
    """As one whose weights on the disk are the sums."""
    summed = shutil.copytree(tiny_encoder, tmp_path / "summed")
    weights = load_file(summed / "model.safetensors")
    save_file({name: weight + changes.get(name, 0) for name, weight in weights.items()}, summed / "model.safetensors")
    files = find_encoder(str(tiny_encoder))
    models = (files, replace(files, adapter=adapter), find_encoder(str(summed)))
    plain, adapted, expected = (BiEncoder(model, precision="fp32").encode_snippets(TEXTS) for model in models)
    np.testing.assert_allclose(adapted, expected, atol=2e-3)  # of float16
    assert np.abs(adapted - plain).max() > 0.05


def test_an_encoder_reads_as_many_tokens_as_its_files_say(tiny_encoder):
    files, text = find_encoder(str(tiny_encoder)), "aspirin lowers fever and the liver"
    whole, cut = (
        BiEncoder(own, precision="fp32").snippet_tokens([text])[0] for own in (files, replace(files, max_tokens=5))
    )
    assert len(cut) == 5 < len(whole)


def test_a_copy_with_prompts_has_the_adapter_in_its_weights(tiny_encoder, adapter, tmp_path):
    files = replace(find_encoder(str(tiny_encoder)), adapter=adapter, sha256="5" * 64, max_tokens=6)
    copy = prompted(files, {"query": "fever: "}, tmp_path / "home")
    loaded = BiEncoder(files, precision="fp32").encode_snippets(TEXTS)
    np.testing.assert_allclose(BiEncoder(copy, precision="fp32").encode_snippets(TEXTS), loaded, atol=1e-6)
    assert (copy.sha256, copy.configuration()) == (files.sha256, files.configuration()), "an index takes it for that"
    weights = load_file(copy.path / "model.safetensors")
    save_file(weights | {NAMES[0]: weights[NAMES[0]] + 1}, copy.path / "model.safetensors")
    assert find_encoder(str(copy.path)).sha256 == sha256_of(copy.path / "model.safetensors")


def test_a_cross_encoder_begins_with_the_adapted_weights(tiny_encoder, adapter, changes):
    files = find_encoder(str(tiny_encoder))
    bases = (files, replace(files, adapter=adapter, max_tokens=5))
    models = [load_model(CrossEncoder, base, "fp32", num_labels=1) for base in bases]
    assert models[0].max_seq_length == models[1].max_seq_length, "the encoder's length is none for pairs"
    before, after = (dict(model[0].auto_model.base_model.named_parameters()) for model in models)
    for name, weight in before.items():
        added = (after[name] - weight).numpy(force=True)
        if name in changes or "pooler" not in name:  # a cross-encoder draws its pooler
            np.testing.assert_allclose(added, changes.get(name, 0), atol=5e-3, err_msg=name)


def test_a_damaged_adapter_is_named(tiny_encoder, tmp_path):
    weights = shutil.copy(tiny_encoder / "model.safetensors", tmp_path / "w")
    for content in (b"", b"not an adapter"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(MissingError, match=r"a is not the adapter of an encoder .*: install biorag again"):
            write_adapted(weights, tmp_path / "a")


@pytest.mark.slow
def test_the_starter_is_small_and_near_the_packaged_weights():
    weights = load_file(find_encoder("minilm").path / "model.safetensors")
    path = TRAINED_STARTER.path()
    assert path.stat().st_size < 12e6
    shares = [np.linalg.norm(change) / np.linalg.norm(weights[name]) for name, change in read_changes(path)]
    assert min(shares) > 0
    assert max(shares) < 0.3
