"""Batches without padding: texts stand end to end in one row, so linear layers compute no padding.

Attention runs text by text. sentence-transformers' modules read such rows, made for flash attention on GPUs, by
`cu_seq_lens_q`, the offsets of the texts.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import torch
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "sdpa_unpadded"
ARCHITECTURES = ("bert", "modernbert")  # whose tokens are compared within their text alone, by position_ids
MODULES = (Transformer, Pooling, Dense, Normalize, MultiVectorMask)
LANES = 16  # float32 numbers in the widest vector register
LONGEST = 8192  # tokens of a text whose keys are aligned
ROWS = 64
OF_TOKENS = ("input_ids", "token_type_ids")


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return each text's attention, (1, tokens, heads, dim); without offsets that of a padded batch.

    Parameters
    ----------
    query, key, value : (1, heads, tokens, dim)
    attention_mask : (1, 1, tokens, tokens) where attention is local, else None
    cu_seq_lens_q : (texts + 1,), the offsets of the texts
    """
    if cu_seq_lens_q is None:
        padded: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return padded
    offsets = cu_seq_lens_q.tolist()
    outputs = []
    for start, end in pairwise(offsets):
        keys = slice(start, _aligned(start, end, offsets[-1]))
        mask = _own_keys(end - start, keys.stop - start, query.dtype)
        if attention_mask is not None:
            near = attention_mask[..., start:end, keys]
            mask = near if mask is None else mask.where(near, -torch.inf)
        texts = query[:, :, start:end], key[:, :, keys], value[:, :, keys]
        outputs.append(sdpa_attention_forward(module, *texts, mask, **options)[0])
    return torch.cat(outputs, dim=1), None


def _aligned(start: int, end: int, last: int) -> int:
    """Return where the keys of a text end: at a whole number of vector registers, in the next text if need be.

    What does not fill a register is computed number by number, which takes twice as long at 94 tokens.
    """
    aligned = start + -(-(end - start) // LANES) * LANES
    return aligned if aligned <= last and end - start <= LONGEST else end


def _own_keys(own: int, keys: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Return what hides keys of the next text, beyond a text's own, when added to the logits: (1, 1, 1, keys)."""
    return None if own == keys else _edge(dtype)[..., LONGEST - own : LONGEST - own + keys]


@cache
def _edge(dtype: torch.dtype) -> torch.Tensor:
    edge = torch.zeros(1, 1, 1, LONGEST + LANES, dtype=dtype)
    edge[..., LONGEST:] = -torch.inf
    return edge


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def drop_padding(model: Any) -> None:
    """Let a sentence-transformers model on a CPU read batches without padding, if its modules and architecture can."""
    known = all(isinstance(module, MODULES) for module in model)
    if known and model.device.type == "cpu" and isinstance(model[0], Transformer) and _is_encoder(model[0]):
        model[0].auto_model.set_attn_implementation(ATTENTION)


def reads_unpadded(model: Any) -> bool:
    """Return whether a model was prepared to read batches without padding, and its prompt is part of the passage."""
    backbone = getattr(model[0], "auto_model", None)
    prepared = backbone is not None and backbone.config._attn_implementation == ATTENTION
    return prepared and all(getattr(module, "include_prompt", True) for module in model)


def _is_encoder(module: Transformer) -> bool:
    config = module.auto_model.config
    return (
        module.transformer_task == "feature-extraction"
        and config.model_type in ARCHITECTURES
        and config._attn_implementation == "sdpa"
        and not getattr(config, "is_decoder", False)
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
    )


def unpadded(features: dict[str, Any]) -> dict[str, Any]:
    """Return the features of a batch, tensors of shape (texts, tokens), as those of one row, (1, tokens).

    The row is filled up to a multiple of `ROWS` by a last text that is nobody's: oneDNN compiles each matrix product
    anew for each number of rows, which takes longer than to compute it.
    """
    mask = features["attention_mask"].bool()
    lengths = mask.sum(1)
    filling = -int(lengths.sum()) % ROWS
    values = {name: features[name] for name in OF_TOKENS if name in features} | {"position_ids": mask.cumsum(1) - 1}
    row = {name: pad(value[mask], (0, filling))[None] for name, value in values.items()}
    ends = torch.cat([lengths, lengths.new_tensor([filling])] if filling else [lengths]).cumsum(0)
    rest = {name: value for name, value in features.items() if name not in (*OF_TOKENS, "attention_mask")}
    return {**rest, **row, "cu_seq_lens_q": pad(ends, (1, 0))}
