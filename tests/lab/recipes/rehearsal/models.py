"""Tiny models of the architectures that recipes name, of random weights, as a Hugging Face cache holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as algorithms
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from biorag.lab.recipes.recipe import NamedModel

VOCABULARY = 800
COLBERT_DIMENSION = 16
LEAST_WRITTEN = 8  # tokens of a generated question
# Sizes of a tiny model, by the names that configurations give them; of a setting that it does not have, nothing.
WIDTH, INNER, HEADS, LAYERS = 32, 48, 2, 2
SIZES = {
    **dict.fromkeys(("hidden_size", "dim", "d_model"), WIDTH),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff"), INNER),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "num_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_heads", "num_heads"), HEADS),
    "num_key_value_heads": 1,
    **dict.fromkeys(("head_dim", "d_kv"), WIDTH // HEADS),
    **{"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "rotary_dim": WIDTH // HEADS},
    "attention_types": [[["global", "local"], 1]],
}


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """How an architecture's published tokenizers split texts, and the special tokens that they have and add."""

    train: Callable[[Sequence[str], Sequence[str]], Tokenizer]
    special: Mapping[str, str]
    template: str = "$A"


def _word_pieces(texts: Sequence[str], special: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(algorithms.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    unused = ("[unused0]", "[unused1]")  # which ColBERT marks queries and passages with
    _train(tokenizer, texts, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=[*special, *unused]))
    return tokenizer


def _byte_pairs(texts: Sequence[str], special: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(algorithms.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    own = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(special), initial_alphabet=alphabet)
    _train(tokenizer, texts, own)
    return tokenizer


def _sentence_pieces(texts: Sequence[str], special: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(algorithms.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    _train(tokenizer, texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(special)))
    return tokenizer


def _train(tokenizer: Tokenizer, texts: Sequence[str], trainer: Any) -> None:
    trainer.show_progress = False
    tokenizer.train_from_iterator(texts, trainer)


_BERT = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
_ENDOFTEXT = "<|endoftext|>"
_LLAMA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
_GEMMA = {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>"}
_OF_IMAGES = {"boi": "<start_of_image>", "eoi": "<end_of_image>", "image": "<image_soft_token>"}
POOLED = ("cls_token", "mean_tokens", "max_tokens", "weightedmean_tokens", "lasttoken")
TOKENIZERS: Mapping[str, TokenizerKind] = {
    **dict.fromkeys(("bert", "distilbert"), TokenizerKind(_word_pieces, _BERT, "[CLS] $A [SEP]")),
    "modernbert": TokenizerKind(_byte_pairs, _BERT, "[CLS] $A [SEP]"),
    "roberta": TokenizerKind(_byte_pairs, {"pad": "<pad>", **_LLAMA, "cls": "<s>", "sep": "</s>"}, "<s> $A </s>"),
    **dict.fromkeys(("gpt_neo", "gptj"), TokenizerKind(_byte_pairs, dict.fromkeys(("eos", "bos", "pad"), _ENDOFTEXT))),
    "gpt_neox": TokenizerKind(_byte_pairs, dict.fromkeys(("eos", "bos", "unk"), _ENDOFTEXT)),
    "qwen3": TokenizerKind(_byte_pairs, dict.fromkeys(("eos", "pad"), _ENDOFTEXT)),
    "phi3": TokenizerKind(_byte_pairs, dict.fromkeys(("eos", "bos", "pad", "unk"), _ENDOFTEXT)),
    "llama": TokenizerKind(_sentence_pieces, _LLAMA, "<s> $A"),
    "mistral": TokenizerKind(_sentence_pieces, _LLAMA, "<s> $A"),
    "gemma": TokenizerKind(_sentence_pieces, _GEMMA, "<bos> $A"),
    "gemma3": TokenizerKind(_sentence_pieces, {**_GEMMA, **_OF_IMAGES}, "<bos> $A"),
    "t5": TokenizerKind(_sentence_pieces, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, "$A </s>"),
}


def write_model(id: str, model: NamedModel, hub: Path, texts: Sequence[str]) -> None:
    """Write a tiny model into a Hugging Face cache, under the id, once; its tokenizer is trained on `texts`."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    folder = hub / f"models--{id.replace('/', '--')}"
    revision = hashlib.sha1(id.encode(), usedforsecurity=False).hexdigest()
    snapshot = folder / "snapshots" / revision
    if snapshot.is_dir():
        return
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)
    tokenizer = _tokenizer(model.config["model_type"], texts)
    if model.form == "sentence-transformers" and tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    reads_images = "vision_config" in model.config
    (_processor(tokenizer) if reads_images else tokenizer).save_pretrained(snapshot)
    torch.manual_seed(int(revision[:8], 16))
    backbone = _backbone(model, tokenizer)
    if model.form == "colbert":
        _write_colbert(snapshot, backbone)
    else:
        backbone.save_pretrained(snapshot)
    if model.pickled:
        _pickle(snapshot)
    if model.form == "sentence-transformers":
        _write_modules(snapshot, model.pooling)


def _pickle(folder: Path) -> None:
    """Write the weights as PyTorch pickles them, in place of safetensors."""
    from safetensors.torch import load_file

    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()


def _tokenizer(kind: str, texts: Sequence[str]) -> PreTrainedTokenizerFast:
    made = TOKENIZERS[kind]
    special = list(dict.fromkeys(made.special.values()))
    tokenizer = made.train(texts, special)
    if made.template != "$A":
        first, _, last = made.template.partition("$A")
        ids = [(token, tokenizer.token_to_id(token)) for token in made.template.replace("$A", "").split()]
        pair = " ".join(f"{first}$A {last} $B:1 {last.strip()}".split())
        tokenizer.post_processor = processors.TemplateProcessing(single=made.template, pair=pair, special_tokens=ids)
    named = {f"{name}_token": token for name, token in made.special.items() if name not in _OF_IMAGES}
    further = {f"{name}_token": token for name, token in made.special.items() if name in _OF_IMAGES}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, extra_special_tokens=further, **named
    )


def _processor(tokenizer: PreTrainedTokenizerFast) -> Any:
    """Return the processor of a model that reads images too, which is loaded with it."""
    from transformers import Gemma3ImageProcessor, Gemma3Processor

    return Gemma3Processor(image_processor=Gemma3ImageProcessor(), tokenizer=tokenizer)


def _backbone(named: NamedModel, tokenizer: PreTrainedTokenizerFast) -> Any:
    """Return the architecture with tiny sizes, its vocabulary and special tokens those of the tokenizer."""
    ids = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "eos", "bos", "cls", "sep")
    }
    known = {name: value for name, value in ids.items() if value is not None}
    own = {**_tiny(named.config, len(tokenizer)), **known}
    if "cls_token_id" in known:  # as ModernBERT's config.json has them
        own |= {"bos_token_id": known["cls_token_id"], "eos_token_id": known["sep_token_id"]}
    if named.config["model_type"] == "t5":
        own["decoder_start_token_id"] = tokenizer.pad_token_id
    config = AutoConfig.for_model(**own)
    kind = config.model_type
    if kind == "t5":
        model = AutoModelForSeq2SeqLM.from_config(config)
        # Random weights end no text: a cut one would be dropped.
        model.generation_config.update(forced_eos_token_id=tokenizer.eos_token_id, min_new_tokens=LEAST_WRITTEN)
        return model
    writes = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return (AutoModelForCausalLM if writes else AutoModel).from_config(config)


def _tiny(config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    sizes = {**SIZES, "vocab_size": vocabulary}
    return {
        name: _tiny(value, vocabulary) if isinstance(value, Mapping) else sizes.get(name, value)
        for name, value in config.items()
    }


def _write_colbert(folder: Path, bert: Any) -> None:
    """Write Stanford's layout: BERT's weights under `bert.`, the projection, `artifact.metadata`."""
    from safetensors.torch import save_file

    weights = {f"bert.{name}": value.contiguous() for name, value in bert.state_dict().items()}
    weights["linear.weight"] = torch.randn(COLBERT_DIMENSION, WIDTH)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**bert.config.to_dict(), "architectures": ["HF_ColBERT"]}))
    metadata = {
        **{"query_maxlen": 32, "doc_maxlen": 180, "dim": COLBERT_DIMENSION, "similarity": "cosine"},
        **{"mask_punctuation": True, "attend_to_mask_tokens": False},
        **{"query_token_id": "[unused0]", "doc_token_id": "[unused1]"},
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))


def _write_modules(folder: Path, pooling: str) -> None:
    """Write the files that make a transformers folder a sentence-transformers one: a pooling, and normalisation."""
    kinds = {"": "models.Transformer", "1_Pooling": "models.Pooling", "2_Normalize": "models.Normalize"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))
    modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in POOLED}
    for name in list(kinds)[1:]:
        (folder / name).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": WIDTH, **modes}))
