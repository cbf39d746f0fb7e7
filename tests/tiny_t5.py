"""A tiny T5 of random weights with a tokenizer of whole words."""

from __future__ import annotations

from pathlib import Path

WORDS = ("does", "what", "how", "aspirin", "warfarin", "fever", "liver", "lower", "treat", "cause", "pain", "?")


def write_tiny_t5(folder: Path) -> Path:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    names = ("<pad>", "</s>", "<unk>", *WORDS)
    words = Tokenizer(WordLevel({name: place for place, name in enumerate(names)}, unk_token="<unk>"))
    words.pre_tokenizer = BertPreTokenizer()
    words.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=64
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    T5ForConditionalGeneration(T5Config(vocab_size=len(names), **sizes, **ids)).save_pretrained(folder)
    return folder
