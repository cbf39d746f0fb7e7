"""How a base becomes the bi-encoder that is trained: pooling, prompts, LoRA."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from biorag.errors import MissingError, UsageError
from biorag.models.finding import ModelFiles
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import input_modules, load_model
from biorag.models.pairing import with_pooling, with_projection
from biorag.settings.settings import Settings
from biorag.training.decoder import as_bi_encoder, is_decoder
from biorag.training.instructions import Instructions, read_instructions


@dataclass(frozen=True, slots=True)
class EncoderForm:
    """How a base becomes the bi-encoder that is trained; None keeps the base's own.

    A decoder that is not a bi-encoder yet gets BMRetriever's instructions. With `lora` its linear layers learn through
    LoRA. `pooling` is a name of `POOLINGS`, `projection` the dimension of a linear layer after it.
    """

    attention: str | None = None
    instructions: Instructions | None = None
    lora: bool = False
    pooling: str | None = None
    projection: int | None = None

    def __post_init__(self) -> None:
        if self.lora and self.projection:
            raise UsageError(
                "--lora trains and keeps LoRA's matrices alone, so that --projection would stay random: leave "
                "one of them out"
            )

    def identity(self) -> dict[str, Any]:
        """Return the choices that are set, for the run's identity."""
        choices = {name: getattr(self, name) for name in ("attention", "lora", "pooling", "projection")}
        if self.instructions:
            choices |= {"instructions": self.instructions.prompts(), "random_prompts": self.instructions.drawn}
        return {name: value for name, value in choices.items() if value}

    def apply(self, files: ModelFiles, similarity: str, seed: int) -> SentenceTransformer:
        """Load the base in float32, in this form; for dot products without the layer that makes vectors unit length."""
        require_single_tower(files)
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
            model = without_unit_length(model)
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


def without_unit_length(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model without a layer that makes vectors unit length."""
    modules = [module for module in model if not isinstance(module, Normalize)]
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=dict(model.prompts))


def require_single_tower(files: ModelFiles) -> None:
    """Refuse a base with two towers where one transformer reads queries and passages.

    Raises MissingError naming a tower to take.
    """
    if files.has_towers:
        raise MissingError(f"base {files.id!r} has two towers: name one of them, such as {files.reads_passages()}")


class LoraLayers:
    """LoRA matrices on linear layers of a model's frozen backbone (Hu et al. 2021, arXiv:2106.09685), by peft.

    Raises `MissingError` if peft is not installed.
    """

    def __init__(self, backbone: Any, settings: Settings) -> None:
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise MissingError("LoRA needs peft: run pip install 'biorag[decoders]'") from None
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
