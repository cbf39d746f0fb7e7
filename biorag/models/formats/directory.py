"""A model directory before it is loaded: its check (safetensors, plain settings, no code) and its identity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from biorag.errors import BadInputError, MissingError
from biorag.utils.files import sha256_of, sha256_of_json
from biorag.utils.parsing import parse_json, read_regular

LARGEST_SETTINGS = 16 * 2**20
LARGEST_VOCABULARY = 256 * 2**20
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
INDEX = "model.safetensors.index.json"
MODULE_LIST, ROUTER = "modules.json", "router_config.json"  # a model's layers; its towers, where it has two
SETTINGS = re.compile(r"(?:config|(?:adapter|tokenizer|sentence_.*)_config|config_sentence_transformers)\.json")

PICKLES = re.compile(r"(?:.*pytorch_model.*|adapter_model|model)\.bin|.*\.(?:pt|pth|ckpt|pkl|pickle|joblib)", re.I)
# Files that trainers leave beside the weights; model loaders do not open them.
LEFT_BY_TRAINERS = re.compile(r"training_args\.bin|(?:optimizer|scheduler|scaler|rng_state.*)\.(?:pt|pth|bin)")

# The classes that text models are put together from. sentence-transformers imports whatever `type` names.
MODULES = (
    *("Transformer", "Pooling", "WeightedLayerPooling", "HierarchicalTokenPooling", "StaticEmbedding"),
    *("Normalize", "LayerNorm", "Dense", "Dropout", "MultiVectorMask", "Router", "Asym"),
)
_MODULE = re.compile(rf"(?:sentence_transformers|pylate)(?:\.\w+)*\.(?:{'|'.join(MODULES)})")
_ACTIVATION = re.compile(r"torch\.nn\.(?:modules\.)?(?:activation\.|linear\.)?\w+")
# An attention by a name with a slash is code that transformers fetches.
_CODE_SETTINGS = ("attn_implementation", "_attn_implementation", "experts_implementation")

# Sizes in config.json by the names that encoders give them, compared with the weights' largest side.
SIDES = (
    *("hidden_size", "intermediate_size", "vocab_size", "embedding_size", "dim", "d_model"),
    *("hidden_dim", "ffn_dim", "d_ff", "d_kv", "head_dim", "embed_dim", "n_embd", "n_inner", "n_head"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "projection_dim", "word_embedding_dimension", "in_features"),
    *("out_features", "num_attention_heads", "num_key_value_heads", "num_heads", "n_heads"),
)
# Sizes that may be 0.
COUNTS = (
    *("type_vocab_size", "num_labels", "num_experts", "num_local_experts", "n_routed_experts"),
    *("chunk_size_feed_forward", "relative_attention_num_buckets", "moe_intermediate_size"),
)
LAYERS = (
    *("num_hidden_layers", "n_layers", "num_layers", "n_layer", "num_decoder_layers", "encoder_layers"),
    *("decoder_layers", "num_encoder_layers"),
)
LONGEST_TEXT = 2**21  # positions
LENGTHS = ("max_position_embeddings", "max_seq_length", "query_length", "document_length", "n_positions")
# Settings by which a library would read a tokenizer, or a part of the model, elsewhere than in the model's folder.
ELSEWHERE = ("tokenizer_name_or_path", "subfolder", "gguf_file")

PASSAGE_PROMPTS = ("document", "passage", "corpus")  # the names that encode_document looks for, in its order
# Parts of a model besides its weights that determine a passage's vector.
TOKENIZER, POOLING, PROMPTS, LENGTH, OTHERS = "tokenizer", "pooling", "prompts", "maximum length", "settings"
READING, MAX_TOKENS = "sentence_bert_config.json", "max_seq_length"
_VOCABULARY = re.compile(
    r"tokenizer\.json|(vocab|added_tokens|special_tokens_map)\.json|vocab\.txt|merges\.txt|.*\.model"
)
_MODULE_SETTINGS = ("modules.json", "router_config.json")
_LENGTHS = (MAX_TOKENS, "model_max_length", "query_length", "document_length")
# Versions, origins, and settings of loading and training, which do not change vectors.
_NOTES = (
    *("transformers_version", "__version__", "_name_or_path", "name_or_path", "dtype", "torch_dtype", "use_cache"),
    *("architectures", "tokenizer_class", "processor_class", "_attn_implementation", "truncation_side", "backend"),
)


class Tensor(NamedTuple):
    """A tensor's name, shape and type (F32, BF16, I64 …), as its safetensors file names them."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def read_tensors(path: Path) -> list[Tensor]:
    """Return the tensors of a safetensors file; MissingError if its header does not fit the file exactly."""
    from safetensors import SafetensorError, safe_open  # which --help must not import

    try:
        with safe_open(path, framework="numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
            return [Tensor(name, tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()]
    except SafetensorError as error:
        raise MissingError(f"{path} is not a safetensors file that can be loaded: {error}; fetch it again") from None


def check_folder(folder: Path) -> None:
    """Check a model directory before any library reads it.

    Raises `MissingError` naming the file and its fault: a pickled checkpoint without safetensors beside it, a header
    that does not fit its file, code to be imported, settings of impossible size, a pipe or a device, or a tokenizer
    outside the folder.
    """
    paths = sorted(folder.rglob("*"))
    for path in paths:
        check_place(path, folder)
    files = [path for path in paths if path.is_file()]
    for path in files:
        _check_kind(path)
    tensors = [tensor for path in files if path.suffix == ".safetensors" for tensor in read_tensors(path)]
    for path in files:
        if path.name in (MODULE_LIST, ROUTER):
            _check_modules(path)
        elif path.name == INDEX:
            _check_index(path)
        elif SETTINGS.fullmatch(path.name):
            _check_settings(path, tensors)


def check_place(path: Path, folder: Path) -> None:
    """Raise `MissingError` at a pipe, a device, or a link out of the folder; safetensors lie anywhere."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise _refused(path, "is neither a file nor a folder")
    if path.is_symlink() and path.suffix != ".safetensors" and not _is_within(path.resolve(), folder):
        raise _refused(path, "is a link to something outside the model's folder")


def _is_within(target: Path, folder: Path) -> bool:
    """Return whether a file is in a model's folder, or among the blobs if that folder is in the hub's cache."""
    cached = folder.absolute().parent
    homes = [folder.resolve(), *([cached.parent.resolve() / "blobs"] if cached.name == "snapshots" else [])]
    return any(target.is_relative_to(home) for home in homes)


def _check_kind(path: Path) -> None:
    pickled = PICKLES.fullmatch(path.name) and not LEFT_BY_TRAINERS.fullmatch(path.name)
    if pickled and not any(path.parent.glob("*.safetensors")):
        raise _refused(
            path,
            "is a pickled checkpoint, which can run code when loaded, without .safetensors beside it "
            "('biorag models convert MODEL --out DIR' makes them)",
        )
    largest = LARGEST_VOCABULARY if path.name in VOCABULARIES else LARGEST_SETTINGS
    if path.suffix in (".json", ".txt") and path.stat().st_size > largest:
        raise _refused(path, f"is larger than {largest >> 20} MiB")


def _check_modules(path: Path) -> None:
    """Refuse module classes other than sentence-transformers' own, and folders outside the model's."""
    values = _json(path)
    if isinstance(values, dict) and isinstance(values.get("types"), dict):
        values = [{"type": kind} for kind in values["types"].values()]
    if not isinstance(values, list):
        raise _refused(path, "lists no modules")
    for module in values:
        kind = module.get("type") if isinstance(module, dict) else None
        if not isinstance(kind, str) or not _MODULE.fullmatch(kind):
            raise _refused(path, f"names the module class {kind!r}, and no code that a model names is imported")
        folder = module.get("path", "")
        if not isinstance(folder, str) or PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
            raise _refused(path, f"names the folder {folder!r}, which is not in the model's")


def _check_index(path: Path) -> None:
    values = _json(path)
    parts = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(parts, dict) or not all(
        isinstance(part, str) and part.endswith(".safetensors") and Path(part).name == part for part in parts.values()
    ):
        raise _refused(path, "does not list safetensors files of its own folder")


def _check_settings(path: Path, tensors: list[Tensor]) -> None:
    values = _json(path)
    if not isinstance(values, dict):
        raise _refused(path, "is not a JSON object")
    for settings in _objects(values):
        for name in _CODE_SETTINGS:
            if "/" in str(settings.get(name, "")):
                raise _refused(path, f"sets {name} to {settings[name]!r}, which is code to be fetched")
        for name in ELSEWHERE:
            if settings.get(name):
                raise _refused(path, f"sets {name} to {settings[name]!r}, and nothing outside its folder is read")
        activation = settings.get("activation_function")
        if path.parent.name.endswith("Dense") and activation and not _ACTIVATION.fullmatch(str(activation)):
            raise _refused(path, f"names the activation {activation!r}, and no code that a model names is imported")
        _check_sizes(path, settings, tensors)


def _check_sizes(path: Path, settings: Mapping[str, Any], tensors: list[Tensor]) -> None:
    """Refuse sizes that the weights do not support: a library allocates missing weights."""
    if not tensors:
        return
    largest = 2 * max((side for tensor in tensors for side in tensor.shape), default=0)
    bounds = {
        **dict.fromkeys(SIDES, (1, largest)),
        **dict.fromkeys(COUNTS, (0, largest)),
        **dict.fromkeys(LAYERS, (0, len(tensors))),
        **dict.fromkeys(LENGTHS, (0, LONGEST_TEXT)),
        **dict.fromkeys((name for name in settings if name.endswith("token_id")), (-1, largest)),
    }
    for name in bounds.keys() & settings.keys():
        least, most = bounds[name]
        sizes = settings[name] if isinstance(settings[name], list) else [settings[name]]
        for size in sizes:
            if size is not None and (not isinstance(size, int) or not least <= size <= most):
                shown = f"{size:,}" if isinstance(size, int | float) else f"{size!r:.80}"
                raise _refused(path, f"sets {name} to {shown}, which its weights do not support")
    labels = settings.get("id2label")
    if isinstance(labels, dict) and len(labels) > largest:
        raise _refused(path, f"names {len(labels):,} labels, which its weights do not support")


def _objects(values: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every JSON object in a value, itself included."""
    pending = [values]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except ValueError:
        raise _refused(path, "is not JSON") from None


def _refused(path: Path, reason: str) -> MissingError:
    return MissingError(f"{path} {reason}: the model is not loaded")


def configuration_of(folder: Path, left_out: str, max_tokens: int | None = None) -> dict[str, str]:
    """Return the SHA-256 of each part of a model's folder that determines the vectors of passages, by its name.

    A prompt for queries is not among them: it may be tuned for an existing index. Notes of libraries do not count, nor
    does the order of JSON's keys. `left_out` names a folder in the model's that is not loaded; `max_tokens` stands in
    the place of the maximum length of `READING`.

    Raises `MissingError` if a file cannot be read.
    """
    parts: dict[str, dict[str, Any]] = {TOKENIZER: {}, POOLING: {}, PROMPTS: {}, LENGTH: {}, OTHERS: {}}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or folder / left_out in path.parents:
            continue
        if _VOCABULARY.fullmatch(path.name):
            parts[TOKENIZER][name] = sha256_of(path)
        elif path.name in _MODULE_SETTINGS:
            parts[POOLING][name] = _values(path)
        elif path.name == "config_sentence_transformers.json":
            parts[PROMPTS][name] = _passage_prompt(_object(path))
        elif path.name == "tokenizer_config.json" or (path.name.startswith("sentence_") and path.suffix == ".json"):
            values = _object(path)
            if path.name == READING and max_tokens:
                values = {**values, MAX_TOKENS: max_tokens}
            part = TOKENIZER if path.name == "tokenizer_config.json" else OTHERS
            parts[part][name] = {key: values[key] for key in values if key not in (*_NOTES, *_LENGTHS)}
            parts[LENGTH][name] = {key: values[key] for key in values if key in _LENGTHS}
        elif path.name == "config.json":
            values = _object(path)
            part = OTHERS if "model_type" in values else POOLING
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
