"""LoRA matrices as a GGUF adapter, which llama.cpp puts on the quantised model at loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from biorag.errors import BadInputError, MissingError
from biorag.types import Vectors

ROTATED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}  # whose rows llama.cpp orders otherwise


def write_adapter(model: Any, alpha: float, out: Path) -> None:
    """Write the matrices that peft put on a model of the Llama family, in float16.

    The rows of queries and keys are stored as llama.cpp rotates them: the halves of a head's dimensions alternate.
    Raises `MissingError` if the package gguf is not installed; `BadInputError` if llama.cpp has no name for a layer.
    """
    try:
        import gguf
    except ImportError:
        raise MissingError("to write an adapter for llama.cpp run pip install 'biorag[decoders]'") from None
    architecture = str(model.config.model_type)
    known = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in known:
        raise BadInputError(f"llama.cpp has no architecture {architecture!r}: take a base of the Llama family")
    names = gguf.get_tensor_name_map(known[architecture], model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(str(out), architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, layer in model.named_modules():
        if not hasattr(layer, "lora_A"):
            continue
        target = names.get_name(f"{name}.weight", try_suffixes=(".weight",))
        if target is None:
            raise BadInputError(f"llama.cpp has no name for the layer {name}")
        first, second = (
            matrix["default"].weight.detach().float().cpu().numpy() for matrix in (layer.lora_A, layer.lora_B)
        )
        if heads := ROTATED.get(name.rpartition(".")[2]):
            second = _rotated(second, getattr(model.config, heads))
        writer.add_tensor(f"{target}.lora_a", first.astype(np.float16))
        writer.add_tensor(f"{target}.lora_b", second.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _rotated(rows: Vectors, heads: int) -> Vectors:
    """Return rows (heads · dimension, rank), of each head those of the two halves of its dimension in turn."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
