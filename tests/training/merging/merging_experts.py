"""Experts of one tiny base, whole and as LoRA adapters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

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
