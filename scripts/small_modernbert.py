"""Writes a small ModernBERT with random weights and the starter's vocabulary, to be trained from scratch.

    python -m scripts.small_modernbert DATA/small-modernbert

The recipe `modernbert-colbert` takes it as `--backbone small-modernbert`.
"""

from __future__ import annotations

import sys

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import ModernBertConfig, ModernBertModel

from biorag.models.finding import find_encoder

SEED = 0
LAYERS, HEADS, HIDDEN, INTERMEDIATE = 6, 4, 256, 512
TOKENS = 512


def main(folder: str) -> None:
    """Write the model."""
    torch.manual_seed(SEED)
    tokenizer = SentenceTransformer(str(find_encoder("starter").path), device="cpu").tokenizer
    first, last, padding = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=TOKENS,
        pad_token_id=padding,
        cls_token_id=first,
        sep_token_id=last,
        bos_token_id=first,
        eos_token_id=last,
    )
    ModernBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    words = Transformer(folder, max_seq_length=TOKENS)
    SentenceTransformer(modules=[words, Pooling(HIDDEN)], device="cpu").save(folder)


if __name__ == "__main__":
    main(sys.argv[1])
