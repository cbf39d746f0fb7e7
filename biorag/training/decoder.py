"""A decoder language model as a bi-encoder: EOS after every text, whose vector is the text's; causal or not.

After BMRetriever (Xu et al. 2024, arXiv:2404.18443); without the causal mask after Synthesize-Train-Merge. All of it
is kept in the saved directory: EOS in tokenizer.json, the pooling in 1_Pooling, `is_causal` in config.json.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from biorag.errors import MissingError, UsageError, unknown_name
from biorag.models.finding import ModelFiles, first_line
from biorag.models.loading import input_modules

CAUSAL, BIDIRECTIONAL = "causal", "bidirectional"
ATTENTIONS = (CAUSAL, BIDIRECTIONAL)
MAX_TOKENS = 512
LAST_TOKEN = "lasttoken"


def write_base(files: ModelFiles, bases: Path, kind: Any = AutoModel) -> ModelFiles:
    """Write a GGUF file's weights (as float32) and tokenizer into a folder of `bases`, once; return it as the base.

    `kind` is the class of transformers that reads it: AutoModel has no head.

    Raises MissingError if the package gguf is not installed, or transformers reads no model of its architecture.
    """
    folder = bases / files.sha256[:12]
    base = ModelFiles(files.id, files.revision, folder, files.sha256)
    if folder.is_dir():
        return base
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    transformers_logging.disable_progress_bar()
    folder_name, source = str(files.path.parent), {"gguf_file": files.path.name, "local_files_only": True}
    try:
        import gguf  # noqa: F401  transformers reads with it
        from transformers import GgufConfig
    except ImportError:
        raise MissingError(f"to read {files.path} run pip install 'biorag[decoders]'") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder_name, **source)
        plain = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True)}
        model = kind.from_pretrained(folder_name, **plain, **source)
    except Exception as error:  # transformers raises many kinds; all say that it does not read this file
        raise MissingError(f"{files.path} cannot be read as a base: {first_line(error)}") from error
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)
    return base


def is_decoder(model: SentenceTransformer) -> bool:
    """Return whether a model's backbone, or a tower's, is of a kind that predicts the next token, not masked ones."""
    return any(map(_predicts_next, input_modules(model)))


def _predicts_next(module: Any) -> bool:
    config = getattr(getattr(module, "auto_model", None), "config", None)
    name = getattr(config, "model_type", None)
    return name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and name not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def as_bi_encoder(model: SentenceTransformer, bare: bool, attention: str | None) -> SentenceTransformer:
    """Return a decoder as a bi-encoder; one that was saved as such (`bare` is False) keeps its pooling and EOS.

    `attention` None leaves the base's own.

    Raises UsageError if the attention is unknown, or the architecture needs the causal mask; MissingError if the
    tokenizer cannot append EOS.
    """
    for module in filter(_predicts_next, input_modules(model)):
        if attention is not None:
            _set_attention(module.auto_model, attention)
        # Otherwise EOS learns nothing where it is also the padding token.
        module.auto_model.get_input_embeddings().padding_idx = None
    if not bare:
        return model
    _append_eos(model)
    pooling = Pooling(model[0].get_embedding_dimension(), LAST_TOKEN)
    bi_encoder = SentenceTransformer(modules=[model[0], pooling], device=str(model.device))
    bi_encoder.max_seq_length = min(MAX_TOKENS, model.max_seq_length or MAX_TOKENS)
    return bi_encoder


def _append_eos(model: SentenceTransformer) -> None:
    """Let the tokenizer append EOS to every text, also a cut one, and pad on the right; leading special tokens stay."""
    tokenizer = model.tokenizer
    if tokenizer.eos_token is None or not tokenizer.is_fast:
        raise MissingError("the base's tokenizer has no end-of-sequence token, or no tokenizer.json to keep it in")
    plain = tokenizer("a", add_special_tokens=False).input_ids
    marked = tokenizer("a").input_ids
    start = next(start for start in range(len(marked)) if marked[start : start + len(plain)] == plain)
    before = tokenizer.convert_ids_to_tokens(marked[:start])
    first, eos = " ".join(before), tokenizer.eos_token
    specials = [(token, tokenizer.convert_tokens_to_ids(token)) for token in {*before, eos}]
    tokenizer.add_bos_token = tokenizer.bos_token in before  # where set, it wins over tokenizer.json
    tokenizer.add_eos_token = True
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {eos}".strip(), pair=f"{first} $A $B:1 {eos}:1".strip(), special_tokens=specials
    )
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = eos


def _set_attention(backbone: Any, attention: str) -> None:
    if attention not in ATTENTIONS:
        raise unknown_name("--attention", attention, ATTENTIONS)
    config = backbone.config
    config.is_causal = attention == CAUSAL
    if _sees_ahead(backbone) == config.is_causal:
        raise UsageError(f"--attention {attention} has no effect on a {config.model_type} model: leave it out")


def _sees_ahead(backbone: Any) -> bool:
    """Return whether a text's first token attends to its last one."""
    tokens = torch.tensor([[1, 2, 3], [1, 2, 4]], device=backbone.device)
    with torch.inference_mode():
        first = backbone.eval()(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state[:, 0]
    return not torch.allclose(first[0], first[1], atol=1e-6)
