"""Experts of one base as state dicts in memory, and the encoder merged from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Expert:
    """An encoder that is merged: its weights by name, in float32, and what else makes its vectors."""

    files: ModelFiles
    state: Mapping[str, Vectors]
    facts: Mapping[str, Any]  # what must be the same in all experts, by what it is called
    vocabulary: Mapping[str, int]  # the numbers of the tokens


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
        _refuse(first, other, _differences(first.facts, other.facts))
    merged_base = _load(base)[0] if base else None
    if merged_base:
        _refuse(first, merged_base, _base_differences(first, merged_base))
    return Experts(tuple(expert for expert, _ in loaded), merged_base, shell, dtype)


def _load(files: ModelFiles) -> tuple[Expert, SentenceTransformer]:
    if (files.path / "artifact.metadata").is_file():
        raise BadInputError(f"{files.path} is a reranker: only encoders can be merged")
    model = load_model(SentenceTransformer, files, "fp32")
    state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()}
    return Expert(files, state, _facts(model, state), input_modules(model)[0].tokenizer.get_vocab()), model


def _facts(model: SentenceTransformer, state: Mapping[str, Vectors]) -> dict[str, Any]:
    towers = model[0].sub_modules if has_towers(model) else {"": [model[0]]}
    facts: dict[str, Any] = {"modules": [type(module).__name__ for module in model]}
    for tower, modules in towers.items():
        config = modules[0].auto_model.config.to_dict().items()
        facts[f"architecture {tower}".strip()] = {key: value for key, value in config if key not in PROVENANCE}
        facts[f"tokenizer {tower}".strip()] = _tokenizing(modules[0].tokenizer)
    others = [module for modules in [*towers.values(), list(model)] for module in modules[1:]]
    facts |= {f"{type(module).__name__.lower()} {n}": module.get_config_dict() for n, module in enumerate(others, 1)}
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    facts["prompts"] = {**prompts, "default": model.default_prompt_name}
    facts["similarity"] = model.similarity_fn_name
    facts["tensors"] = {name: tensor.shape for name, tensor in state.items() if tensor.dtype.kind == "f"}
    return facts


def _tokenizing(tokenizer: Any) -> Any:
    """Return what makes tokens of a text; truncation and padding are left to each run."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    settings = json.loads(fast.to_str()) if fast else tokenizer.get_vocab()
    return {key: value for key, value in settings.items() if key not in ("truncation", "padding")}


def _refuse(first: Expert, other: Expert, differences: Iterator[str]) -> None:
    if difference := next(differences, None):
        raise BadInputError(f"{first.files.id} and {other.files.id} cannot be merged: they differ in {difference}")


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of facts that differ, and of the first value in them."""
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            key = min(str(key) for key in {*one, *other} if one.get(key) != other.get(key))
            yield f"{name} ({key}: {_shown(one.get(key))} and {_shown(other.get(key))})"
        else:
            yield name


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else "other values"


def _base_differences(expert: Expert, base: Expert) -> Iterator[str]:
    for name, ours in expert.facts.items():
        theirs = base.facts.get(name)
        if name.startswith("architecture") and theirs:  # training may set more, such as bidirectional attention
            shared = ours.keys() & theirs.keys()
            yield from _differences(*({name: {key: config[key] for key in shared}} for config in (ours, theirs)))
    if expert.vocabulary != base.vocabulary:
        yield "vocabulary"
    yield from _differences({"tensors": expert.facts["tensors"]}, {"tensors": base.facts["tensors"]})
