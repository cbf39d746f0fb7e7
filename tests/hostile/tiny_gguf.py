"""A GGUF writer, and a Llama of one layer that llama.cpp loads: what crafted files are made from."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

U32, I32, F32, STRING, ARRAY, U64 = 4, 5, 6, 8, 9, 10
FORMATS = {U32: "<I", I32: "<i", F32: "<f", U64: "<Q"}
WIDTH, FORWARD = 32, 64
OUTPUT_NORM = "output_norm.weight"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


class Typed(NamedTuple):
    """A metadata value with its GGUF type; of an array, `kind` is that of its values."""

    kind: int
    value: Any


class Tensor(NamedTuple):
    """A tensor as the header has it; `offset` None for the next free place."""

    shape: tuple[int, ...]
    kind: int = 0
    offset: int | None = None


@dataclass(frozen=True)
class TinyGguf:
    """A file in parts; `tensor_count` is the header's, if it is not the truth; `sharpness` multiplies all logits."""

    metadata: dict[str, Typed]
    tensors: dict[str, Tensor]
    version: int = 3
    tensor_count: int | None = None
    sharpness: float = 1.0

    def keyed(self, **changes: Typed) -> TinyGguf:
        """Return it with some metadata changed; `__` stands for a dot."""
        return replace(self, metadata=self.metadata | {key.replace("__", "."): value for key, value in changes.items()})

    def shaped(self, name: str, tensor: Tensor) -> TinyGguf:
        """Return it with one tensor changed."""
        return replace(self, tensors=self.tensors | {name: tensor})

    def write(self, path: Path) -> Path:
        """Write the file."""
        path.write_bytes(self.bytes())
        return path

    def bytes(self) -> bytes:
        """Return the file's bytes."""
        header = [b"GGUF", struct.pack("<I", self.version)]
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        header.append(struct.pack("<QQ", tensors, len(self.metadata)))
        header += [_text(key) + _value(value) for key, value in self.metadata.items()]
        free, blobs = 0, b""
        for name, tensor in self.tensors.items():
            data = _weights(name, tensor.shape, self.sharpness if name == OUTPUT_NORM else 1.0)
            offset = free if tensor.offset is None else tensor.offset
            sides = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
            header.append(_text(name) + sides + struct.pack("<IQ", tensor.kind, offset))
            blobs += data + b"\0" * (-len(data) % 32)
            free += len(data) + -len(data) % 32
        head = b"".join(header)
        return head + b"\0" * (-len(head) % 32) + blobs


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(typed: Typed) -> bytes:
    kind, value = typed
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, kind, len(value))
        return head + b"".join(_text(v) if kind == STRING else struct.pack(FORMATS[kind], v) for v in value)
    if isinstance(value, bytes):  # as it is
        return struct.pack("<I", kind) + value
    return struct.pack("<I", kind) + (_text(value) if kind == STRING else struct.pack(FORMATS[kind], value))


def _weights(name: str, shape: tuple[int, ...], factor: float) -> bytes:
    generator = np.random.default_rng(len(name))
    scale = 0.0 if "norm" in name else 0.1
    values = generator.standard_normal(shape[::-1]) * scale + (1 if "norm" in name else 0)
    return (values * factor).astype("<f4").tobytes()


def _byte_characters() -> list[str]:
    """Return GPT-2's printable stand-ins for the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte if byte in shown else next(spare)) for byte in range(256)]


def tiny_llama() -> TinyGguf:
    """Return a random Llama of one layer over bytes, with the starter's special tokens."""
    tokens = [*SPECIAL, *_byte_characters()]
    metadata = {
        "general.architecture": Typed(STRING, "llama"),
        "llama.block_count": Typed(U32, 1),
        "llama.context_length": Typed(U32, 2048),
        "llama.embedding_length": Typed(U32, WIDTH),
        "llama.feed_forward_length": Typed(U32, FORWARD),
        "llama.attention.head_count": Typed(U32, 2),
        "llama.attention.head_count_kv": Typed(U32, 2),
        "llama.rope.freq_base": Typed(F32, 10000.0),
        "llama.rope.dimension_count": Typed(U32, WIDTH // 2),
        "llama.attention.layer_norm_rms_epsilon": Typed(F32, 1e-5),
        "llama.vocab_size": Typed(U32, len(tokens)),
        "tokenizer.ggml.model": Typed(STRING, "gpt2"),
        "tokenizer.ggml.pre": Typed(STRING, "smollm"),
        "tokenizer.ggml.tokens": Typed(STRING, tokens),
        "tokenizer.ggml.token_type": Typed(I32, [3] * len(SPECIAL) + [1] * 256),
        "tokenizer.ggml.merges": Typed(STRING, ["a b"]),
        "tokenizer.ggml.bos_token_id": Typed(U32, 1),
        "tokenizer.ggml.eos_token_id": Typed(U32, 2),
    }
    block = {
        "attn_norm": (WIDTH,),
        "ffn_norm": (WIDTH,),
        **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH)),
        **dict.fromkeys(("ffn_gate", "ffn_up"), (WIDTH, FORWARD)),
        "ffn_down": (FORWARD, WIDTH),
    }
    tensors = {"token_embd.weight": Tensor((WIDTH, len(tokens))), OUTPUT_NORM: Tensor((WIDTH,))}
    tensors |= {f"blk.0.{name}.weight": Tensor(shape) for name, shape in block.items()}
    return TinyGguf(metadata, tensors)
