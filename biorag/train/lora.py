"""LoRA: small matrices beside frozen linear layers (Hu et al. 2021, arXiv:2106.09685), by peft."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from biorag.config import Config
from biorag.errors import MissingError


class Adapter:
    """LoRA matrices on all linear layers of a model's backbone, which is frozen; rank and α as configured.

    Raises
    ------
    MissingError
        If peft is not installed.
    """

    def __init__(self, model: SentenceTransformer, config: Config) -> None:
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise MissingError("--lora needs peft: run pip install 'biorag[decoders]'") from None
        settings = LoraConfig(
            r=config.train_lora_rank,
            lora_alpha=config.train_lora_alpha,
            target_modules="all-linear",
            task_type="FEATURE_EXTRACTION",
        )
        backbone = model[0].auto_model
        torch.manual_seed(config.seed)  # of the matrices drawn at random
        if config.train_gradient_checkpointing:
            backbone.enable_input_require_grads()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that goes out of use
            self._peft: Any = get_peft_model(backbone, settings)  # its layers take their places in the backbone

    def save(self, folder: Path, base: str) -> None:
        """Write the adapter, as peft loads it onto the base of that name."""
        self._peft.peft_config["default"].base_model_name_or_path = base
        self._peft.save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)

    def load(self, folder: Path) -> None:
        """Take over the weights of a saved adapter."""
        from peft import set_peft_model_state_dict
        from peft.utils import load_peft_weights

        set_peft_model_state_dict(self._peft, load_peft_weights(str(folder), device="cpu"))

    def merge(self) -> None:
        """Add the product of the matrices to the backbone's weights: plain layers again."""
        self._peft.merge_and_unload()
