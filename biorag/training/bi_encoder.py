"""How a base becomes the bi-encoder that is trained: pooling, prompts, LoRA; decoders too, causal or not.

A decoder gets EOS after every text, whose vector is the text's, after BMRetriever (Xu et al. 2024, arXiv:2404.18443);
without the causal mask after Synthesize-Train-Merge. All of it is kept in the saved directory: EOS in tokenizer.json,
the pooling in 1_Pooling, `is_causal` in config.json.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import AutoModel, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from biorag.errors import MissingError, UsageError, unknown_name
from biorag.models.finding import ModelFiles, first_line
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import input_modules, load_model
from biorag.models.pairing import append_eos, of_modules, with_pooling, with_projection
from biorag.settings.settings import Settings
from biorag.training.instructions import Instructions, read_instructions
from biorag.utils.versions import require

CAUSAL, BIDIRECTIONAL = "causal", "bidirectional"
ATTENTIONS = (CAUSAL, BIDIRECTIONAL)
MAX_TOKENS = 512
LAST_TOKEN = "lasttoken"


@dataclass(frozen=True, slots=True)
class EncoderForm:
    """How a base becomes the bi-encoder that is trained; None keeps the base's own.

    A decoder that is not a bi-encoder yet gets BMRetriever's instructions. With `lora` its linear layers learn through
    LoRA. `pooling` is a name of `POOLINGS`, `projection` the dimension of a linear layer after it. The trained model
    reads the first `window` tokens of a text.
    """

    attention: str | None = None
    instructions: Instructions | None = None
    lora: bool = False
    pooling: str | None = None
    projection: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.lora and self.projection:
            raise UsageError(
                "--lora trains and keeps LoRA's matrices alone, so that --projection would stay random: leave "
                "one of them out"
            )

    def identity(self) -> dict[str, Any]:
        """Return the choices that are set, for the run's identity."""
        choices = {name: getattr(self, name) for name in ("attention", "lora", "pooling", "projection", "window")}
        if self.instructions:
            choices |= {"instructions": self.instructions.prompts(), "random_prompts": self.instructions.drawn}
        return {name: value for name, value in choices.items() if value}

    def apply(self, files: ModelFiles, similarity: str, seed: int) -> SentenceTransformer:
        """Load the base in float32, in this form; for dot products without the layer that makes vectors unit length."""
        if is_late_interaction(files):
            raise MissingError(
                f"base {files.id!r} is a late-interaction checkpoint: name a bi-encoder or a transformer"
            )
        model = load_model(SentenceTransformer, files, "fp32")
        if not all(hasattr(module, "auto_model") for module in input_modules(model)):
            raise MissingError(f"base {files.id!r} does not read its texts with a transformer: name one that does")
        bare = not (files.path / MODULE_LIST).is_file()
        instructions = self.instructions
        if is_decoder(model):
            model = as_bi_encoder(model, bare, self.attention)
            instructions = instructions or (read_instructions("bmretriever") if bare else None)
        elif self.attention:
            raise UsageError(f"--attention is for decoders, and base {files.id!r} is not one: leave it out")
        if self.pooling:
            _check_sees(model, self.pooling)
            model = with_pooling(model, self.pooling)
        if self.projection:
            model = with_projection(model, self.projection, seed)
        if similarity == "dot":
            model = of_modules(model, [module for module in model if not isinstance(module, Normalize)])
        if instructions:
            model.prompts = {**model.prompts, **instructions.prompts()}
        model.similarity_fn_name = similarity
        return model


def _check_sees(model: SentenceTransformer, pooling: str) -> None:
    """Refuse the vector of a first token that has seen no other."""
    causal = any(getattr(module.auto_model.config, "is_causal", True) for module in input_modules(model))
    if pooling == "cls" and is_decoder(model) and causal:
        raise UsageError(
            "--pooling cls takes the first token's vector, which under a causal mask knows no other token: give "
            "--pooling last, or --attention bidirectional"
        )


class LoraLayers:
    """LoRA matrices on linear layers of a model's frozen backbone (Hu et al. 2021, arXiv:2106.09685), by peft.

    Raises `MissingError` if peft is not installed.
    """

    def __init__(self, backbone: Any, settings: Settings) -> None:
        require("decoders")
        from peft import LoraConfig, get_peft_model

        matrices = LoraConfig(
            r=settings.training.lora_rank,
            lora_alpha=settings.training.lora_alpha,
            target_modules="all-linear",
            task_type="FEATURE_EXTRACTION",
        )
        torch.manual_seed(settings.seed)  # the matrices are drawn at random
        if settings.training.gradient_checkpointing:
            backbone.enable_input_require_grads()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses a name that transformers deprecates
            self._adapted = get_peft_model(backbone, matrices)  # replaces the layers in place

    def save(self, folder: Path, base: str) -> None:
        """Write the adapter, as peft loads it onto the base of that name."""
        self._adapted.peft_config["default"].base_model_name_or_path = base
        self._adapted.save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)

    def load(self, folder: Path) -> None:
        """Load the weights of a saved adapter."""
        from peft import set_peft_model_state_dict
        from peft.utils import load_peft_weights

        set_peft_model_state_dict(self._adapted, load_peft_weights(str(folder), device="cpu"))

    def trainer(self, kind: type[Any], base: str) -> type[Any]:
        """Return a kind of trainer whose checkpoints hold the adapter of a base alone."""
        adapter = self

        class LoRATrainer(kind):  # type: ignore[misc]
            def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
                adapter.save(Path(output_dir or self.args.output_dir), base)

            def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
                adapter.load(Path(checkpoint_path))

            def _load_best_model(self) -> None:
                adapter.load(Path(self.state.best_model_checkpoint))

        return LoRATrainer

    def merge(self) -> None:
        """Add the product of the matrices to the backbone's weights: plain layers again."""
        self._adapted.merge_and_unload()


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
    require("decoders")
    from transformers import GgufConfig

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
    append_eos(model.tokenizer)
    pooling = Pooling(model[0].get_embedding_dimension(), LAST_TOKEN)
    bi_encoder = SentenceTransformer(modules=[model[0], pooling], device=str(model.device))
    bi_encoder.max_seq_length = min(MAX_TOKENS, model.max_seq_length or MAX_TOKENS)
    return bi_encoder


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
