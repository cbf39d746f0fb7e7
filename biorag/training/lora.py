"""LoRA: small matrices beside frozen linear layers (Hu et al. 2021, arXiv:2106.09685), by peft."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from biorag.errors import MissingError
from biorag.models.loading import has_towers
from biorag.settings.settings import Settings


class LoraLayers:
    """LoRA matrices on all linear layers of a model's backbone, which is frozen; rank and α as configured.

    Each tower of an asymmetric model has its own, saved in a folder of the tower's name.

    Raises
    ------
    MissingError
        If peft is not installed.
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
