"""Texts through a sentence-transformers model: batches of about equal work, on a CPU one thread a core.

On a CPU passages are not padded: they stand end to end in one row, of which linear layers compute every token and
attention each text. sentence-transformers reads such rows, made for flash attention on GPUs, by `cu_seq_lens_q`, the
offsets of the texts. Weights are laid out as oneDNN reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar, cast

import numpy as np
import torch
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import nn
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.activations import GELUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from biorag.errors import MissingError
from biorag.models.batches import CPU_CHARACTERS, FETCH, Task, Text, balanced, by_length, in_batches, size
from biorag.models.formats.directory import PASSAGE_PROMPTS
from biorag.types import Vectors

Features = Mapping[str, Any]
T = TypeVar("T")

UNPADDED_CHARACTERS = 8_000  # the products of many tokens at once are faster: the weights are read once
GPU_CHARACTERS = 400_000  # of a batch, padding counted
SHORT = 2_000  # a question: a second thread saves it less than waiting for that thread may cost
TOKENIZING = Lock()  # a fast tokenizer serves one thread at a time

ATTENTION = "sdpa_unpadded"
ARCHITECTURES = ("bert", "modernbert")  # whose tokens are compared within their text alone, by position_ids
MODULES = (Transformer, Pooling, Dense, Normalize, MultiVectorMask)
LARGEST_PACKED = 2**29  # bytes of weights that are kept in a second layout
ROWS = 64
OF_TOKENS = ("input_ids", "token_type_ids")


def prompt_of(model: Any, task: Task | None) -> str | None:
    """Return the prompt of a text of this task, or of a pair for None, by the library's rule."""
    names = {"query": ("query",), "document": PASSAGE_PROMPTS, None: ()}[task]
    named = next((name for name in names if name in model.prompts), model.default_prompt_name)
    return model.prompts.get(named) if named else None


def run(model: Any, texts: Sequence[Text], task: Task | None, rows: Callable[[Features], Sequence[T]]) -> list[T]:
    """Return the result of `rows` for each text, in the order of the texts.

    On a CPU batches run in parallel, each on one thread: a small model spends much of its time between matrix products,
    where a second thread of the same batch is idle. Passages are not padded there, if the architecture allows it.

    `rows` takes the model's features for a batch, tensors of shape (batch, …), and returns one result per text. `task`
    is None for pairs.
    """
    if not texts:
        return []
    cpu = model.device.type == "cpu"
    workers = torch.get_num_threads() if cpu else 1
    without_padding = task == "document" and reads_unpadded(model)

    def work(batch: Sequence[int]) -> Sequence[T]:
        features = _features(model, [texts[index] for index in batch], task)
        with torch.inference_mode():
            features = unpadded(features) if without_padding else features
            return rows(_finite(model(features, task=task)))[: len(batch)]

    lengths = [size(text) for text in texts]
    if without_padding:
        batches = balanced(lengths, UNPADDED_CHARACTERS, workers)
    else:
        batches = by_length(lengths, CPU_CHARACTERS if cpu else GPU_CHARACTERS, workers)
    model.eval()
    if workers == 1 or (len(batches) == 1 and sum(lengths) > SHORT):
        return in_batches(batches, work, 1)
    results = in_batches(batches, work, workers, initializer=torch.set_num_threads, initargs=(1,))
    torch.set_num_threads(workers)  # threads started later take over the last number set, in whatever thread
    return results


def _features(model: Any, texts: Sequence[Text], task: Task | None) -> dict[str, Any]:
    """Return the model's inputs for a batch, on its device."""
    with TOKENIZING:
        features = model.preprocess(list(texts), prompt=prompt_of(model, task), task=task)
    return {
        name: value.to(model.device) if isinstance(value, torch.Tensor) else value for name, value in features.items()
    }


def _finite(features: Features) -> Features:
    """Refuse vectors and scores that are not finite: they would be ranked at random, and stored."""
    for name in ("sentence_embedding", "scores"):
        if name in features and not bool(torch.isfinite(features[name]).all()):
            raise MissingError(
                f"the model gives numbers that are not finite ({name}): its weights are damaged, so {FETCH}"
            )
    return features


def token_vectors(features: Features) -> list[Vectors]:
    """Return each text's token vectors, (tokens, dim) float32, without padding and masked tokens."""
    tokens = features["token_embeddings"].float()
    if "cu_seq_lens_q" in features:
        vectors = np.split(tokens[0].numpy(force=True), features["cu_seq_lens_q"][1:-1].tolist())
    else:
        masks = features["attention_mask"].bool()
        vectors = [text[mask].numpy(force=True) for text, mask in zip(tokens, masks, strict=True)]
    if not all(np.isfinite(text).all() for text in vectors):  # masked tokens may be anything
        raise MissingError(f"the model's token vectors are not finite: its weights are damaged, so {FETCH}")
    return vectors


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention of each text, (1, tokens, heads, dim); without offsets that of a padded batch.

    `query`, `key`, `value`: (1, heads, tokens, dim); `attention_mask`: (1, 1, tokens, tokens) where attention is local,
    else None; `cu_seq_lens_q`: the offsets of the texts, (texts + 1,).
    """
    if cu_seq_lens_q is None:
        padded: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return padded
    ends = cu_seq_lens_q.tolist()
    sizes = [end - start for start, end in pairwise(ends)]
    # Split, not sliced: the gradient of a slice is as large as the whole row.
    parts = (torch.split_with_sizes(part, sizes, dim=2) for part in (query, key, value))
    outputs = []
    for (start, end), *text in zip(pairwise(ends), *parts, strict=True):
        mask = None if attention_mask is None else attention_mask[..., start:end, start:end]
        outputs.append(sdpa_attention_forward(module, *text, mask, **options)[0])
    return torch.cat(outputs, dim=1), None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def drop_padding(model: Any) -> None:
    """Prepare a sentence-transformers model on a CPU for batches without padding, if its architecture allows them."""
    known = all(isinstance(module, MODULES) for module in model)
    if known and model.device.type == "cpu" and isinstance(model[0], Transformer) and _is_encoder(model[0]):
        model[0].auto_model.set_attn_implementation(ATTENTION)


def reads_unpadded(model: Any) -> bool:
    """Return whether a model is prepared for batches without padding, and pools its prompt with the passage."""
    backbone = getattr(model[0], "auto_model", None)
    return backbone is not None and backbone.config._attn_implementation == ATTENTION and pools_prompt(model)


def pools_prompt(model: Any) -> bool:
    """Return whether the tokens of a prompt count in a text's vector."""
    return all(getattr(module, "include_prompt", True) for module in model)


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

    A filler text brings the row to a multiple of `ROWS`: oneDNN compiles a matrix product for each new number of rows,
    which takes longer than computing it.
    """
    mask = features["attention_mask"].bool()
    lengths = mask.sum(1)
    filling = -int(lengths.sum()) % ROWS
    values = {name: features[name] for name in OF_TOKENS if name in features} | {"position_ids": mask.cumsum(1) - 1}
    row = {name: pad(value[mask], (0, filling))[None] for name, value in values.items()}
    ends = torch.cat([lengths, lengths.new_tensor([filling])] if filling else [lengths]).cumsum(0)
    rest = {name: value for name, value in features.items() if name not in (*OF_TOKENS, "attention_mask")}
    return {**rest, **row, "cu_seq_lens_q": pad(ends, (1, 0))}


class PrepackedLinear(nn.Module):
    """A linear layer with the activation after it; in inference mode it reads a packed copy of its weights."""

    def __init__(self, linear: nn.Linear, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._activation = activation
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return `inputs @ weight.T + bias`, activated; inputs of shape (…, in), outputs (…, out)."""
        if torch.is_inference_mode_enabled():
            name, variant = ("gelu", "none") if self._activation else ("none", "")
            fused: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self.bias, name, [], variant)
            return fused
        outputs = nn.functional.linear(inputs, self.weight, self.bias)
        return cast(torch.Tensor, self._activation(outputs)) if self._activation else outputs


def prepack(model: nn.Module) -> None:
    """Replace the linear layers of a model used for inference alone, where oneDNN computes them."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    if not _supported(layers) or sum(layer.weight.nbytes for layer in layers) > LARGEST_PACKED:
        return
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PrepackedLinear(child, _fused(parent, name)))


def _supported(layers: list[nn.Linear]) -> bool:
    if not (torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    types = (torch.float32, torch.bfloat16) if bf16 else (torch.float32,)
    return all(layer.weight.device.type == "cpu" and layer.weight.dtype in types for layer in layers)


def _fused(parent: nn.Module, name: str) -> nn.Module | None:
    """Take the activation out of BERT's intermediate layer and return it: oneDNN applies it to the product."""
    activation = getattr(parent, "intermediate_act_fn", None)
    if name != "dense" or not (isinstance(activation, nn.Module) and isinstance(activation, GELUActivation)):
        return None
    parent.intermediate_act_fn = nn.Identity()
    return activation
