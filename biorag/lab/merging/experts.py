"""Experts of one base as state dicts in memory, and the encoder merged from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from biorag.errors import BadInputError
from biorag.lab.merging.weights import MergeRecipe
from biorag.models.finding import ModelFiles
from biorag.models.loading import has_towers, input_modules, load_model
from biorag.types import OnProgress, Vectors
from biorag.utils.files import require_room

# Where weights come from and how they are stored or trained, not what they compute.
PROVENANCE = {
    *("_name_or_path", "architectures", "torch_dtype", "dtype", "transformers_version"),
    *("use_cache", "gradient_checkpointing"),
}
OF_BASE = ("architecture", "vocabulary", "tensor")  # facts that a base shares with the experts trained from it
LONGEST_SHOWN = 120  # characters of two values that differ


@dataclass(frozen=True, slots=True)
class Expert:
    """An encoder that is merged: its weights by name, in float32, and what else makes its vectors."""

    files: ModelFiles
    state: Mapping[str, Vectors]
    facts: Mapping[str, Any]  # what must be the same in all experts, by what it is called


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts that can be merged, and the base that they were trained from, if given.

    `shell` is the model that merged weights are written with: the first expert's, or its base's.
    """

    experts: tuple[Expert, ...]
    base: Expert | None
    shell: SentenceTransformer
    dtype: torch.dtype

    @property
    def hashes(self) -> dict[str, Any]:
        """The SHA-256 of all weights that are merged."""
        experts = [expert.files.sha256 for expert in self.experts]
        return {"experts": experts, "base": self.base.files.sha256 if self.base else None}

    @property
    def tensors(self) -> int:
        """The number of tensors of the merged encoder."""
        return len(self.experts[0].state)

    def write(self, folder: Path, recipe: MergeRecipe, on_progress: OnProgress) -> None:
        """Write the merged encoder, in the type of the first expert's weights.

        Raises ServiceError if the disk has no room for it.
        """
        merged = {}
        for name, first in self.experts[0].state.items():
            tensors = [expert.state[name] for expert in self.experts]
            floats = first.dtype.kind == "f"
            merged[name] = recipe.merged(tensors, self.base.state[name] if self.base else None) if floats else first
            on_progress(1)
        folder.mkdir(parents=True, exist_ok=True)
        require_room(folder, sum(tensor.size * self.dtype.itemsize for tensor in merged.values()))
        self.shell.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in merged.items()})
        self.shell.to(self.dtype).save_pretrained(str(folder), create_model_card=False)
        self.shell.float()


def load_experts(experts: Sequence[ModelFiles], base: ModelFiles | None) -> Experts:
    """Load encoders that are to be merged, and refuse those that differ in more than their weights.

    A base shares architecture, vocabulary and tensors with them; it may lack pooling and prompts.

    Raises BadInputError if they cannot be merged, naming what differs; MissingError if an encoder cannot be loaded;
    ServiceError if they do not fit into memory.
    """
    dtype = getattr(torch, str(experts[0].settings("config.json").get("dtype", "float32")), torch.float32)
    loaded = [_load(files) for files in experts]
    first, shell = loaded[0]
    for other, _ in loaded[1:]:
        _check_same(first, other, dict.fromkeys([*first.facts, *other.facts]))
    merged_base = _load(base)[0] if base else None
    if merged_base:
        # Training may set more of the architecture than the base does, such as bidirectional attention.
        shared = [name for name in first.facts if name in merged_base.facts or name.startswith("tensor")]
        _check_same(first, merged_base, [name for name in shared if name.startswith(OF_BASE)])
    return Experts(tuple(expert for expert, _ in loaded), merged_base, shell, dtype)


def _load(files: ModelFiles) -> tuple[Expert, SentenceTransformer]:
    if (files.path / "artifact.metadata").is_file():
        raise BadInputError(f"{files.path} is a reranker: only encoders can be merged")
    model = load_model(SentenceTransformer, files, "fp32")
    state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()}
    return Expert(files, state, _facts(model, state)), model


def _facts(model: SentenceTransformer, state: Mapping[str, Vectors]) -> dict[str, Any]:
    towers = model[0].sub_modules if has_towers(model) else {"": [model[0]]}
    facts: dict[str, Any] = {"modules": [type(module).__name__ for module in model]}
    for tower, modules in towers.items():
        config = modules[0].auto_model.config.to_dict().items()
        facts |= _named(f"architecture {tower}", {key: value for key, value in config if key not in PROVENANCE})
        facts |= _named(f"tokenizer {tower}", _tokenizing(modules[0].tokenizer))
    for number, module in enumerate(
        (module for modules in [*towers.values(), list(model)] for module in modules[1:]), 1
    ):
        facts |= _named(f"{type(module).__name__.lower()} {number}", module.get_config_dict())
    facts |= _named("prompt", {name: prompt for name, prompt in model.prompts.items() if prompt})
    facts |= {"default prompt": model.default_prompt_name, "similarity": model.similarity_fn_name}
    facts["vocabulary"] = input_modules(model)[0].tokenizer.get_vocab()
    return facts | _named("tensor", {name: tensor.shape for name, tensor in state.items() if tensor.dtype.kind == "f"})


def _named(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{what.strip()} {key}": value for key, value in values.items()}


def _tokenizing(tokenizer: Any) -> Mapping[str, Any]:
    """Return what makes tokens of a text; truncation and padding are left to each run."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    settings = json.loads(fast.to_str()) if fast else tokenizer.get_vocab()
    return {key: value for key, value in settings.items() if key not in ("truncation", "padding")}


def _check_same(first: Expert, other: Expert, names: Iterable[str]) -> None:
    """Raise BadInputError naming the first fact in which two encoders differ."""
    for name in names:
        ours, theirs = first.facts.get(name), other.facts.get(name)
        if ours != theirs:
            values = f" ({ours!r} and {theirs!r})" if len(f"{ours!r}{theirs!r}") <= LONGEST_SHOWN else ""
            raise BadInputError(
                f"{first.files.id} and {other.files.id} cannot be merged: they differ in {name}{values}"
            )
