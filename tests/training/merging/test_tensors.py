"""Tensors of every floating-point type, read as float32 and written back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from biorag.errors import MissingError
from biorag.models.formats.tensors import TensorFile, decoded, encoded

pytestmark = pytest.mark.models

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@pytest.mark.parametrize("dtype", TYPES)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_numbers_are_rounded_as_torch_does(dtype, values):
    numbers = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        raw = encoded(numbers, dtype)
    wanted = torch.from_numpy(numbers).to(TYPES[dtype])
    assert raw == wanted.view(torch.uint8).numpy().tobytes()
    assert decoded(raw, dtype).tolist() == wanted.float().tolist()


def test_a_bfloat16_nan_stays_one():
    bits = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(decoded(encoded(bits, "BF16"), "BF16")).all()


def test_a_file_is_written_with_other_values(tmp_path):
    tensors = {
        "a": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "b": torch.tensor([1.5], dtype=torch.float16),
        "ids": torch.arange(4),
        "empty": torch.zeros(0, 3),
    }
    save_file(tensors, tmp_path / "old.safetensors", metadata={"format": "pt"})
    old = TensorFile(tmp_path / "old.safetensors")
    assert {name: tensor.shape for name, tensor in old.tensors.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }
    for name, change in (("same", 0), ("more", 2)):
        with (tmp_path / name).open("wb") as stream:
            old.write_with(lambda tensor, change=change: old.floats(tensor) + np.float32(change), stream)
    assert (tmp_path / "same").read_bytes() == (tmp_path / "old.safetensors").read_bytes()
    found = load_file(tmp_path / "more")
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        name: each.dtype for name, each in tensors.items()
    }
    assert found["a"].tolist() == [[2, 3, 4], [5, 6, 7]]
    assert (found["b"].tolist(), found["ids"].tolist()) == ([3.5], [0, 1, 2, 3])


def test_a_torn_file_is_refused(tmp_path):
    save_file({"a": torch.ones(3)}, tmp_path / "x.safetensors")
    raw = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(raw[:-1])
    with pytest.raises(MissingError, match="safetensors"):
        TensorFile(tmp_path / "x.safetensors")
