"""Compatibility: what encoders must have in common for a mean of their weights to be meaningful."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError
from biorag.models.formats.directory import MODULE_LIST, ROUTER, VOCABULARIES
from biorag.utils.parsing import parse_json, read_regular

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
ENCODER = "config_sentence_transformers.json"
# Where weights come from and how they are stored or trained, not what they compute.
PROVENANCE = ("_name_or_path", "architectures", "torch_dtype", "dtype", "use_cache", "gradient_checkpointing")
VERSION = "transformers_version"
TOKENIZING = ("normalizer", "pre_tokenizer", "post_processor", "added_tokens", "model")
POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_DEFAULTS = {"include_prompt": True}

Folders = Sequence[Path]  # of one encoder: the last one that has a file provides it


def check_compatible(experts: Sequence[Folders], base: Folders | None) -> None:
    """Refuse experts that differ in more than their weights.

    A base shares architecture and vocabulary with them; it may lack pooling and prompts.

    Raises
    ------
    BadInputError
        Naming what differs.
    """
    first = experts[0]
    for other in experts[1:]:
        _refuse(first, other, _differences(first, other))
    if base:
        shared = _unlike("architecture", _architecture(first), _architecture(base), common=True)
        _refuse(first, base, [*shared, *_named("vocabulary", _vocabulary(first) == _vocabulary(base))])


def _refuse(first: Folders, other: Folders, differences: Iterable[str]) -> None:
    if difference := next(iter(differences), None):
        raise BadInputError(f"{first[-1]} and {other[-1]} cannot be merged: they differ in {difference}")


def _differences(first: Folders, other: Folders) -> Iterator[str]:
    ours, theirs = _architecture(first), _architecture(other)
    # A setting that another version of the library does not write has that version's default.
    yield from _unlike("architecture", ours, theirs, common=ours.get(VERSION) != theirs.get(VERSION))
    yield from _named("modules", _modules(first) == _modules(other))
    for module in sorted(_module_folders(first) | _module_folders(other)):
        name = module.partition("_")[2].lower() if module[0].isdigit() else module
        yield from _unlike(name or module, _module(first, module), _module(other, module), common=False)
        yield from _named(f"tokenizer of {module}", _tokenizer(first, module) == _tokenizer(other, module))
    yield from _named("tokenizer", _tokenizer(first) == _tokenizer(other))
    yield from _unlike("towers", _towers(first), _towers(other), common=False)
    yield from _unlike("encoder settings", _settings(first), _settings(other), common=False)


def _named(name: str, alike: bool) -> Iterator[str]:
    if not alike:
        yield name


def _unlike(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], common: bool) -> Iterator[str]:
    """Yield the keys whose values differ; only of those that both have, if `common`."""
    keys = {*ours} & {*theirs} if common else {*ours} | {*theirs}
    for key in sorted(keys - {VERSION}):
        if ours.get(key) != theirs.get(key):
            yield f"{name} ({key}: {json.dumps(ours.get(key))} and {json.dumps(theirs.get(key))})"


def _architecture(folders: Folders, name: str = CONFIG) -> dict[str, Any]:
    return {key: value for key, value in _json(folders, name).items() if key not in PROVENANCE}


def _modules(folders: Folders) -> dict[str, str]:
    """Return module folder -> class, which older versions of the library name by another path."""
    modules = _read(folders, MODULE_LIST)
    modules = modules if isinstance(modules, list) else []
    return {module.get("path", ""): module["type"].rpartition(".")[2] for module in modules}


def _module_folders(folders: Folders) -> set[str]:
    """Return the folders of the modules that have settings of their own."""
    return {path.parent.name for folder in folders for path in folder.glob(f"*/{CONFIG}")}


def _towers(folders: Folders) -> dict[str, Any]:
    """Return which modules an asymmetric encoder's towers are made of."""
    router = _json(folders, ROUTER)
    return {key: router.get(key) for key in ("structure", "parameters")}


def _module(folders: Folders, module: str) -> dict[str, Any]:
    """Return a module's settings; pooling as the library writes it since version 6."""
    settings = _architecture(folders, f"{module}/{CONFIG}")
    modes = [name for key, name in POOLING_MODES.items() if settings.pop(key, False)]
    if modes:
        settings["pooling_mode"] = modes[0] if len(modes) == 1 else modes
        settings["embedding_dimension"] = settings.pop("word_embedding_dimension", None)
    return {**POOLING_DEFAULTS, **settings} if "pooling_mode" in settings else settings


def _tokenizer(folders: Folders, module: str = ".") -> Any:
    """Return what makes tokens of a text; truncation and padding are left to each run."""
    settings = _json(folders, f"{module}/{TOKENIZER}")
    return {key: settings.get(key) for key in TOKENIZING} if settings else _hashes(folders, module)


def _vocabulary(folders: Folders) -> Any:
    settings = _json(folders, TOKENIZER)
    return settings["model"].get("vocab") if isinstance(settings.get("model"), dict) else _hashes(folders)


def _hashes(folders: Folders, module: str = ".") -> dict[str, str]:
    paths = {name: _file(folders, f"{module}/{name}") for name in VOCABULARIES}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path}


def _settings(folders: Folders) -> dict[str, Any]:
    """Return prompts, similarity and the other settings of an encoder."""
    settings = {
        key: value for key, value in _json(folders, ENCODER).items() if key not in ("__version__", "model_type")
    }
    prompts = settings.get("prompts")
    settings["prompts"] = (
        {name: prompt for name, prompt in prompts.items() if prompt} if isinstance(prompts, dict) else {}
    )
    return {
        "default_prompt_name": None,
        **settings,
        "similarity_fn_name": settings.get("similarity_fn_name") or "cosine",
    }


def _json(folders: Folders, name: str) -> Mapping[str, Any]:
    document = _read(folders, name)
    return document if isinstance(document, dict) else {}


def _read(folders: Folders, name: str) -> Any:
    path = _file(folders, name)
    try:
        return parse_json(read_regular(path)) if path else None
    except ValueError:
        raise BadInputError(f"{path} is not JSON: the encoder cannot be merged") from None


def _file(folders: Folders, name: str) -> Path | None:
    return next((folder / name for folder in reversed(folders) if (folder / name).is_file()), None)
