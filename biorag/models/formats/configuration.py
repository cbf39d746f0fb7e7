"""Hashes of the parts of a model besides its weights that determine a passage's vector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MissingError
from biorag.utils.files import sha256_of, sha256_of_json
from biorag.utils.parsing import parse_json, read_regular

PASSAGE_PROMPTS = ("document", "passage", "corpus")  # the names that encode_document looks for, in its order
TOKENIZER, POOLING, PROMPTS, LENGTH, SETTINGS = "tokenizer", "pooling", "prompts", "maximum length", "settings"
READING, MAX_TOKENS = "sentence_bert_config.json", "max_seq_length"
_VOCABULARY = re.compile(
    r"tokenizer\.json|(vocab|added_tokens|special_tokens_map)\.json|vocab\.txt|merges\.txt|.*\.model"
)
_MODULES = ("modules.json", "router_config.json")
_LENGTHS = (MAX_TOKENS, "model_max_length", "query_length", "document_length")
# Versions, origins, and settings of loading and training, which do not change vectors.
_NOTES = (
    *("transformers_version", "__version__", "_name_or_path", "name_or_path", "dtype", "torch_dtype", "use_cache"),
    *("architectures", "tokenizer_class", "processor_class", "_attn_implementation", "truncation_side", "backend"),
)


def configuration_of(folder: Path, left_out: str, max_tokens: int | None = None) -> dict[str, str]:
    """Return the SHA-256 of each part of a model's folder that determines the vectors of passages, by its name.

    A prompt for queries is not among them: it may be tuned for an existing index. Notes of libraries do not count, nor
    does the order of JSON's keys. `left_out` names a folder in the model's that is not loaded; `max_tokens` stands in
    the place of the maximum length of `READING`.

    Raises `MissingError` if a file cannot be read.
    """
    parts: dict[str, dict[str, Any]] = {TOKENIZER: {}, POOLING: {}, PROMPTS: {}, LENGTH: {}, SETTINGS: {}}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or folder / left_out in path.parents:
            continue
        if _VOCABULARY.fullmatch(path.name):
            parts[TOKENIZER][name] = sha256_of(path)
        elif path.name in _MODULES:
            parts[POOLING][name] = _values(path)
        elif path.name == "config_sentence_transformers.json":
            parts[PROMPTS][name] = _passage_prompt(_object(path))
        elif path.name == "tokenizer_config.json" or (path.name.startswith("sentence_") and path.suffix == ".json"):
            values = _object(path)
            if path.name == READING and max_tokens:
                values = {**values, MAX_TOKENS: max_tokens}
            part = TOKENIZER if path.name == "tokenizer_config.json" else SETTINGS
            parts[part][name] = {key: values[key] for key in values if key not in (*_NOTES, *_LENGTHS)}
            parts[LENGTH][name] = {key: values[key] for key in values if key in _LENGTHS}
        elif path.name == "config.json":
            values = _object(path)
            part = SETTINGS if "model_type" in values else POOLING
            parts[part][name] = {key: values[key] for key in values if key not in _NOTES}
    return {part: sha256_of_json(values) for part, values in parts.items()}


def _passage_prompt(settings: Mapping[str, Any]) -> Any:
    """Return the prompt of passages."""
    prompts = settings.get("prompts")
    if not isinstance(prompts, dict):
        return None
    named = next((name for name in PASSAGE_PROMPTS if name in prompts), settings.get("default_prompt_name"))
    return prompts.get(named) or None if isinstance(named, str) else None


def _object(path: Path) -> Mapping[str, Any]:
    values = _values(path)
    return values if isinstance(values, dict) else {}


def _values(path: Path) -> Any:
    try:
        return parse_json(read_regular(path))
    except (ValueError, BadInputError) as error:
        raise MissingError(f"{path} cannot be read ({error}): the model is not loaded") from None
