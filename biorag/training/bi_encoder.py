"""How a base becomes the bi-encoder that is trained: towers, pooling, prompts, LoRA."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize

from biorag.errors import MissingError, UsageError
from biorag.models.finding import ModelFiles
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import has_towers, input_modules, load_model
from biorag.models.pairing import with_pooling, with_projection
from biorag.settings.settings import Settings
from biorag.training.data import LABEL
from biorag.training.decoder import as_bi_encoder, is_decoder
from biorag.training.instructions import Instructions, read_instructions

QUERY, DOCUMENT = "query", "document"  # the names of the towers


@dataclass(frozen=True, slots=True)
class EncoderForm:
    """How a base becomes the bi-encoder that is trained; None keeps the base's own.

    A decoder that is not a bi-encoder yet gets BMRetriever's instructions. With `lora` its linear layers learn through
    LoRA. `asymmetric` trains two copies of it, one for queries and one for passages. `pooling` is a name of `POOLINGS`,
    `projection` the dimension of a linear layer after it.
    """

    attention: str | None = None
    instructions: Instructions | None = None
    lora: bool = False
    asymmetric: bool = False
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
        choices = {
            "attention": self.attention,
            "instructions": self.instructions.prompts() if self.instructions else None,
            "random_prompts": self.instructions.drawn if self.instructions else (),
            "lora": self.lora,
            "asymmetric": self.asymmetric,
            "pooling": self.pooling,
            "projection": self.projection,
        }
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
            model = without_unit_length(model)
        if self.asymmetric:
            model = with_towers(model)
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


def with_towers(model: SentenceTransformer) -> SentenceTransformer:
    """Return an encoder whose two towers are copies of a model; one that has towers is returned as it is."""
    if has_towers(model):
        return model
    passages = list(model)
    return _like(model, [Router.for_query_document(deepcopy(passages), passages)])


def without_unit_length(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model without the layers that make all vectors unit length, those of its towers included."""
    first, *others = _without_normalize(model)
    if has_towers(model):
        towers = {name: _without_normalize(modules) for name, modules in first.sub_modules.items()}
        first = Router(towers, **first.get_config_dict())
    return _like(model, [first, *others])


def tower_of(model: SentenceTransformer, columns: Iterable[str]) -> Mapping[str, str]:
    """Return the tower that reads each column of texts; empty if one transformer reads all texts."""
    if not has_towers(model):
        return {}
    return {name: QUERY if name == "query" else DOCUMENT for name in columns if name != LABEL}


def require_single_tower(files: ModelFiles) -> None:
    """Refuse a base with two towers where one transformer reads queries and passages.

    Raises MissingError naming a tower to take.
    """
    if files.has_towers:
        raise MissingError(f"base {files.id!r} has two towers: name one of them, such as {files.reads_passages()}")


def _without_normalize(modules: Iterable[Any]) -> list[Any]:
    return [module for module in modules if not isinstance(module, Normalize)]


def _like(model: SentenceTransformer, modules: list[Any]) -> SentenceTransformer:
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=dict(model.prompts))


class LoraLayers:
    """LoRA matrices on all linear layers of a model's frozen backbone (Hu et al. 2021, arXiv:2106.09685), by peft.

    Each tower of an asymmetric model has its own, saved in a folder of the tower's name. Raises MissingError if peft is
    not installed.
    """

    def __init__(self, model: SentenceTransformer, settings: Settings) -> None:
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise MissingError("--lora needs peft: run pip install 'biorag[decoders]'") from None
        matrices = LoraConfig(
            r=settings.training.lora_rank,
            lora_alpha=settings.training.lora_alpha,
            target_modules="all-linear",
            task_type="FEATURE_EXTRACTION",
        )
        self._adapted: dict[str, Any] = {}  # by the name of their folder
        for tower, backbone in backbones(model).items():
            torch.manual_seed(settings.seed)  # the matrices are drawn at random
            if settings.training.gradient_checkpointing:
                backbone.enable_input_require_grads()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # peft uses a name that transformers deprecates
                self._adapted[tower] = get_peft_model(backbone, matrices)  # replaces the layers in place

    def save(self, folder: Path, base: str) -> None:
        """Write the adapter, as peft loads it onto the base of that name."""
        for tower, adapted in self._adapted.items():
            adapted.peft_config["default"].base_model_name_or_path = base
            adapted.save_pretrained(str(folder / tower), save_embedding_layers=False)
            (folder / tower / "README.md").unlink(missing_ok=True)

    def load(self, folder: Path) -> None:
        """Load the weights of a saved adapter."""
        from peft import set_peft_model_state_dict
        from peft.utils import load_peft_weights

        for tower, adapted in self._adapted.items():
            set_peft_model_state_dict(adapted, load_peft_weights(str(folder / tower), device="cpu"))

    def merge(self) -> None:
        """Add the product of the matrices to the backbone's weights: plain layers again."""
        for adapted in self._adapted.values():
            adapted.merge_and_unload()


def backbones(model: SentenceTransformer) -> dict[str, Any]:
    """Return the transformers by the names of their towers; "" for the only one."""
    if not has_towers(model):
        return {"": model[0].auto_model}
    return {name: modules[0].auto_model for name, modules in model[0].sub_modules.items()}
