"""LoRA matrices as a GGUF adapter, which llama.cpp puts on the quantised model at loading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from biorag.errors import BadInputError, MissingError
from biorag.types import Vectors

FAMILY = ("llama", "mistral")  # architectures that llama.cpp reads as Llama's
ROTATED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}  # whose rows llama.cpp orders otherwise


def adapter_names(model: Any) -> Mapping[str, str]:
    """Return llama.cpp's names of the layers on which peft put matrices; to be asked before they are trained.

    Raises `MissingError` if the package gguf is not installed; `BadInputError` if llama.cpp has no name for a layer, or
    the model is not of the Llama family.
    """
    try:
        import gguf
    except ImportError:
        raise MissingError("to write an adapter for llama.cpp run pip install 'biorag[decoders]'") from None
    if model.config.model_type not in FAMILY:
        raise BadInputError(
            f"a generator is trained from a Llama, and the base is a {model.config.model_type}: name one"
        )
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    layers = [name for name, layer in model.named_modules() if hasattr(layer, "lora_A")]
    names = {layer: known.get_name(f"{layer}.weight", try_suffixes=(".weight",)) for layer in layers}
    if unknown := [layer for layer, name in names.items() if name is None]:
        raise BadInputError(f"llama.cpp has no name for the layer {unknown[0]}: take another base")
    return {layer: str(name) for layer, name in names.items()}


def write_adapter(model: Any, alpha: float, out: Path) -> None:
    """Write the matrices that peft put on a model, in float16; raises as `adapter_names`.

    The rows of queries and keys are stored as llama.cpp rotates them: the halves of a head's dimensions alternate.
    """
    names = adapter_names(model)
    import gguf

    writer = gguf.GGUFWriter(str(out), "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, target in names.items():
        layer = model.get_submodule(name)
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
