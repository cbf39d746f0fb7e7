"""Adapters: their factors against the whole change, and loaded encoders against sums of weights."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from biorag.errors import MissingError
from biorag.models.adapter import read_changes, write_adapted, write_adapter
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import STARTER_ADAPTER, find_encoder
from biorag.models.prompted import prompted

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


@pytest.fixture
def summed(tiny_encoder, adapter, changes, tmp_path):
    """The encoder with the changes added to its weights, on the disk."""
    folder = shutil.copytree(tiny_encoder, tmp_path / "summed")
    weights = load_file(folder / "model.safetensors")
    save_file({name: weight + changes.get(name, 0) for name, weight in weights.items()}, folder / "model.safetensors")
    return BiEncoder(find_encoder(str(folder)), precision="fp32").encode_snippets(TEXTS)


def test_the_best_factors_are_kept_and_the_rest_is_counted(tmp_path):
    change = np.diag([4.0, 2.0, 1.0]).astype(np.float32)
    assert write_adapter(tmp_path / "a", {"w": change}, rank=2) == pytest.approx(1 / 21)
    ((name, kept),) = read_changes(tmp_path / "a")
    assert name == "w"
    np.testing.assert_allclose(kept, np.diag([4.0, 2.0, 0.0]), atol=1e-2)


def test_an_encoder_is_loaded_with_its_adapter(tiny_encoder, adapter, summed):
    files = find_encoder(str(tiny_encoder))
    plain = BiEncoder(files, precision="fp32").encode_snippets(TEXTS)
    adapted = BiEncoder(replace(files, adapter=adapter), precision="fp32").encode_snippets(TEXTS)
    np.testing.assert_allclose(adapted, summed, atol=2e-3)  # of float16
    assert np.abs(adapted - plain).max() > 0.05


def test_a_copy_with_prompts_has_the_adapter_in_its_weights(tiny_encoder, adapter, tmp_path):
    files = replace(find_encoder(str(tiny_encoder)), adapter=adapter)
    copy = prompted(files, {"query": "fever: "}, tmp_path / "home")
    loaded = BiEncoder(files, precision="fp32").encode_snippets(TEXTS)
    np.testing.assert_allclose(BiEncoder(copy, precision="fp32").encode_snippets(TEXTS), loaded, atol=1e-6)


def test_a_damaged_adapter_is_named(tiny_encoder, tmp_path):
    weights = shutil.copy(tiny_encoder / "model.safetensors", tmp_path / "w")
    for content in (b"", b"not an adapter"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(MissingError, match=r"a is not the adapter of an encoder .*: install biorag again"):
            write_adapted(weights, tmp_path / "a")


@pytest.mark.slow
def test_the_starter_is_small_and_near_the_packaged_weights():
    weights = load_file(find_encoder("minilm").path / "model.safetensors")
    assert STARTER_ADAPTER.stat().st_size < 12e6
    shares = [np.linalg.norm(change) / np.linalg.norm(weights[name]) for name, change in read_changes(STARTER_ADAPTER)]
    assert min(shares) > 0
    assert max(shares) < 0.3
