"""What encoders must have in common for a mean of their weights to mean anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError
from biorag.models.formats.directory import MODULE_LIST, ROUTER, VOCABULARIES

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
ENCODER = "config_sentence_transformers.json"
# Where weights come from and how they are stored or trained, not what is computed with them.
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

Folders = Sequence[Path]  # of one encoder: a file is that of the last one that has it


def check_alike(experts: Sequence[Folders], base: Folders | None) -> None:
    """Refuse experts that differ in more than their weights.

    A base shares architecture and vocabulary with them; it may be without pooling and prompts.

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
    if found := next(iter(differences), None):
        raise BadInputError(f"{first[-1]} and {other[-1]} cannot be merged: they differ in {found}")


def _differences(first: Folders, other: Folders) -> Iterator[str]:
    ours, theirs = _architecture(first), _architecture(other)
    # Of another version of the library, a setting that is not there has that version's default.
    yield from _unlike("architecture", ours, theirs, common=ours.get(VERSION) != theirs.get(VERSION))
    yield from _named("modules", _modules(first) == _modules(other))
    for place in sorted(_places(first) | _places(other)):
        name = place.partition("_")[2].lower() if place[0].isdigit() else place
        yield from _unlike(name or place, _module(first, place), _module(other, place), common=False)
        yield from _named(f"tokenizer of {place}", _tokenizer(first, place) == _tokenizer(other, place))
    yield from _named("tokenizer", _tokenizer(first) == _tokenizer(other))
    yield from _unlike("towers", _towers(first), _towers(other), common=False)
    yield from _unlike("encoder settings", _settings(first), _settings(other), common=False)


def _named(name: str, alike: bool) -> Iterator[str]:
    if not alike:
        yield name


def _unlike(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], common: bool) -> Iterator[str]:
    """Yield the keys whose values differ; of those that both have, if only `common` ones count."""
    keys = {*ours} & {*theirs} if common else {*ours} | {*theirs}
    for key in sorted(keys - {VERSION}):
        if ours.get(key) != theirs.get(key):
            yield f"{name} ({key}: {json.dumps(ours.get(key))} and {json.dumps(theirs.get(key))})"


def _architecture(folders: Folders, name: str = CONFIG) -> dict[str, Any]:
    return {key: value for key, value in _json(folders, name).items() if key not in PROVENANCE}


def _modules(folders: Folders) -> dict[str, str]:
    """Return module folder -> class, which older versions of the library name by another path."""
    listed = _read(folders, MODULE_LIST)
    listed = listed if isinstance(listed, list) else []
    return {each.get("path", ""): each["type"].rpartition(".")[2] for each in listed}


def _places(folders: Folders) -> set[str]:
    """Return the folders of the modules that have settings of their own."""
    return {path.parent.name for folder in folders for path in folder.glob(f"*/{CONFIG}")}


def _towers(folders: Folders) -> dict[str, Any]:
    """Return which modules an asymmetric encoder's towers are made of."""
    found = _json(folders, ROUTER)
    return {key: found.get(key) for key in ("structure", "parameters")}


def _module(folders: Folders, place: str) -> dict[str, Any]:
    """Return a module's settings; pooling as the library writes it since version 6."""
    found = _architecture(folders, f"{place}/{CONFIG}")
    modes = [name for key, name in POOLING_MODES.items() if found.pop(key, False)]
    if modes:
        found["pooling_mode"] = modes[0] if len(modes) == 1 else modes
        found["embedding_dimension"] = found.pop("word_embedding_dimension", None)
    return {**POOLING_DEFAULTS, **found} if "pooling_mode" in found else found


def _tokenizer(folders: Folders, place: str = ".") -> Any:
    """Return what makes tokens of a text; how long texts are cut and padded is left to each run."""
    found = _json(folders, f"{place}/{TOKENIZER}")
    return {key: found.get(key) for key in TOKENIZING} if found else _hashes(folders, place)


def _vocabulary(folders: Folders) -> Any:
    found = _json(folders, TOKENIZER)
    return found["model"].get("vocab") if isinstance(found.get("model"), dict) else _hashes(folders)


def _hashes(folders: Folders, place: str = ".") -> dict[str, str]:
    found = {name: _file(folders, f"{place}/{name}") for name in VOCABULARIES}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items() if path}


def _settings(folders: Folders) -> dict[str, Any]:
    """Return prompts, similarity and whatever else an encoder says of itself."""
    found = {key: value for key, value in _json(folders, ENCODER).items() if key not in ("__version__", "model_type")}
    prompts = found.get("prompts")
    found["prompts"] = {name: each for name, each in prompts.items() if each} if isinstance(prompts, dict) else {}
    return {"default_prompt_name": None, **found, "similarity_fn_name": found.get("similarity_fn_name") or "cosine"}


def _json(folders: Folders, name: str) -> Mapping[str, Any]:
    found = _read(folders, name)
    return found if isinstance(found, dict) else {}


def _read(folders: Folders, name: str) -> Any:
    path = _file(folders, name)
    try:
        return json.loads(path.read_bytes()) if path else None
    except (ValueError, RecursionError):
        raise BadInputError(f"{path} is not JSON: the encoder cannot be merged") from None


def _file(folders: Folders, name: str) -> Path | None:
    return next((folder / name for folder in reversed(folders) if (folder / name).is_file()), None)
