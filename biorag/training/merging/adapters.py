"""LoRA adapters as `peft` saves them: their changes to the weights of a base."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from biorag.errors import BadInputError
from biorag.models.formats.tensors import TensorFile
from biorag.types import Vectors
from biorag.utils.parsing import parsed, read_regular

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
A, B = ".lora_A.weight", ".lora_B.weight"
# Settings that change the formula below: an adapter with one is refused.
OTHER_FORMULAS = ("use_dora", "alpha_pattern", "modules_to_save", "use_qalora", "layer_replication", "lora_bias")


@dataclass(frozen=True, slots=True)
class Adapter:
    """Factors A, (rank, inputs), and B, (outputs, rank), of the adapted weights, by the weights' names.

    References
    ----------
    Hu et al. (2022), LoRA; Kalajdzievski (2023), rsLoRA, for its scaling by the root of the rank.
    """

    file: TensorFile
    factors: Mapping[str, str]
    alpha: float
    rank_stabilised: bool
    transposed: bool

    def change(self, weight: str) -> Vectors | None:
        """Return α/r · B A, or α/√r · B A, of the base's shape; None for a weight that is not adapted."""
        if (module := self.factors.get(weight)) is None:
            return None
        a, b = self.file.floats(module + A), self.file.floats(module + B)
        scaling = self.alpha / (math.sqrt(len(a)) if self.rank_stabilised else len(a))
        change: Vectors = np.float32(scaling) * (b @ a)
        return change.T if self.transposed else change


def read_adapter(folder: Path, weights: Iterable[str]) -> Adapter:
    """Read the adapter of a folder; `weights` are the names of its base's tensors.

    Raises
    ------
    BadInputError
        If it is not plain LoRA, or adapts what the base does not have.
    """
    settings = _settings(folder / SETTINGS)
    if settings.get("peft_type") != "LORA":
        raise BadInputError(f"{folder} is an adapter of kind {settings.get('peft_type')!r}: only LORA can be merged")
    if changed := [name for name in OTHER_FORMULAS if settings.get(name)]:
        raise BadInputError(f"{folder / SETTINGS} sets {changed[0]}: merge the adapter into its base with peft first")
    file = TensorFile(folder / WEIGHTS)
    modules = {name.removesuffix(A) for name in file.tensors if name.endswith(A)}
    if others := file.tensors.keys() - {module + factor for module in modules for factor in (A, B)}:
        raise BadInputError(
            f"{file.path} holds {min(others)}, which is not a factor of LoRA: merge it into its base with peft"
        )
    names = list(weights)
    factors = {_weight(module, names, file.path): module for module in sorted(modules)}
    alpha, stabilised = settings.get("lora_alpha"), bool(settings.get("use_rslora"))
    if not isinstance(alpha, int | float):
        raise BadInputError(f"{folder / SETTINGS} has no lora_alpha")
    return Adapter(file, factors, float(alpha), stabilised, bool(settings.get("fan_in_fan_out")))


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        settings: Mapping[str, Any] = parsed(dict[str, Any], read_regular(path))
    except (OSError, ValueError):
        raise BadInputError(f"{path} is missing or not a JSON object: an adapter has it beside {WEIGHTS}") from None
    return settings


def _weight(module: str, weights: Iterable[str], path: Path) -> str:
    """Return the base's weight that a module adapts; either name may have a class's prefix, such as `model.`."""
    name = module.removeprefix(PREFIX) + ".weight"
    matches = [weight for weight in weights if weight == name] or [
        weight for weight in weights if weight.endswith(f".{name}") or name.endswith(f".{weight}")
    ]
    if len(matches) != 1:
        raise BadInputError(f"{path} adapts {module}, which the base does not have: give the adapter's own --base")
    return matches[0]
