"""Loading models: from safetensors only, in the precision that suits the hardware."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from biorag.errors import MissingError
from biorag.models import resources
from biorag.models.adapter import read_changes
from biorag.models.finding import ModelFiles, first_line
from biorag.models.inference import drop_padding, prepack
from biorag.utils.cores import usable_cores
from biorag.utils.panics import panics_raised

logger = logging.getLogger(__name__)


def load_model(kind: Any, files: ModelFiles, precision: str, **options: Any) -> Any:
    """Load a sentence-transformers model class from local safetensors, never running a model's own code.

    `options` are the class's own.

    Raises `MissingError` if the files are not such a model, read no text, or have two towers that do not match;
    `ServiceError` if it does not fit into memory.
    """
    device, dtype = _admitted(files, precision)
    if not logger.isEnabledFor(logging.DEBUG):
        transformers_logging.set_verbosity_error()  # else it reports a checkpoint's projection as unexpected
    try:
        with panics_raised():
            model = kind(
                str(files.path),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": dtype, "use_safetensors": True},
                **options,
            )
    except Exception as error:  # loaders raise many kinds; to a user they all say that this is not such a model
        raise MissingError(f"model {files.id!r} cannot be loaded from {files.path}: {first_line(error)}") from error
    for module in input_modules(model):
        _check_reads_text(module, files)
    if files.adapter:
        _adapt(model, files.adapter)
    if files.max_tokens and hasattr(model, "encode_query"):  # a cross-encoder reads pairs, as long as they may be
        for module in input_modules(model):
            module.max_seq_length = files.max_tokens
    if has_towers(model):
        _check_encodes(model, files)
    return model


def load_for_inference(kind: Any, files: ModelFiles, precision: str, **options: Any) -> Any:
    """Load a model as `load_model` does, in the fastest form on this device; not to be trained or saved.

    Raises as `load_model`, and `MissingError` if the model does not encode a word as a query and as a passage.
    """
    model = load_model(kind, files, precision, **options)
    if hasattr(model, "encode_query") and not has_towers(model):
        _check_encodes(model, files)
    drop_padding(model)
    prepack(model)
    return model


def _adapt(model: Any, adapter: Path) -> None:
    weights = dict(model[0].auto_model.base_model.named_parameters())  # without a head, if there is one
    with torch.no_grad():
        for name, change in read_changes(adapter):
            weights[name].add_(torch.from_numpy(change).to(weights[name]))


def has_towers(model: Any) -> bool:
    """Return whether queries and passages have modules of their own (the library's Router)."""
    return hasattr(model[0], "sub_modules")


def input_modules(model: Any) -> list[Any]:
    """Return the modules that read texts: the first, or of two towers the first of each."""
    if not has_towers(model):
        return [model[0]]
    return list(dict.fromkeys(modules[0] for modules in model[0].sub_modules.values()))


def _check_reads_text(module: Any, files: ModelFiles) -> None:
    tokenizer, backbone = getattr(module, "tokenizer", None), getattr(module, "auto_model", None)
    if tokenizer is None or (backbone is not None and backbone.main_input_name != "input_ids"):
        raise MissingError(f"model {files.id!r} in {files.path} reads no text: name a text encoder")
    # transformers makes up an empty vocabulary where the tokenizer's files are missing.
    if isinstance(tokenizer, PreTrainedTokenizerBase) and len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise MissingError(f"model {files.id!r} cannot be loaded from {files.path}: it has no tokenizer")


def _check_encodes(model: Any, files: ModelFiles) -> None:
    """Encode a word as a query and as a passage, since many settings are read only then."""
    try:
        with panics_raised():
            encoders = (model.encode_query, model.encode_document)
            sizes = [encode("a", show_progress_bar=False).shape[-1] for encode in encoders]
            named = int(getattr(model, "get_embedding_dimension", lambda: sizes[1])())
    except Exception as error:  # an unknown route, or modules that do not fit: the library raises many kinds
        raise MissingError(
            f"model {files.id!r} in {files.path} does not encode both queries and passages: {first_line(error)}"
        ) from error
    if len(set(sizes)) > 1:
        raise MissingError(
            f"model {files.id!r} in {files.path} encodes queries in {sizes[0]} dimensions and passages in {sizes[1]}: "
            "they cannot be compared"
        )
    if named != sizes[1]:
        raise MissingError(f"model {files.id!r} in {files.path} names {named:,} dimensions and has {sizes[1]}")


def load_seq2seq(files: ModelFiles, precision: str) -> tuple[Any, Any]:
    """Load a sequence-to-sequence model and its tokenizer; see `load_language_model`."""
    return load_language_model(
        AutoModelForSeq2SeqLM, files, precision, "a sequence-to-sequence model such as doc2query-T5"
    )


def load_language_model(kind: Any, files: ModelFiles, precision: str, what: str) -> tuple[Any, Any]:
    """Load a model of a class of transformers and its tokenizer from local safetensors, never running its own code.

    Raises `MissingError` if the files are not `what`; `ServiceError` if it does not fit into memory.
    """
    device, dtype = _admitted(files, precision)
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        with panics_raised():
            tokenizer = AutoTokenizer.from_pretrained(str(files.path), **local)
        model = kind.from_pretrained(str(files.path), dtype=dtype, use_safetensors=True, **local)
    except Exception as error:  # as above
        fault = first_line(error)
        raise MissingError(f"model {files.id!r} cannot be loaded from {files.path} as {what}: {fault}") from error
    # Where the tokenizer's files are missing, transformers makes up a vocabulary of special tokens and a space.
    if len(tokenizer) - len(tokenizer.added_tokens_decoder) <= 1 or tokenizer.eos_token_id is None:
        raise MissingError(f"model {files.id!r} cannot be loaded from {files.path}: it has no tokenizer")
    return model.to(device).eval(), tokenizer


def _admitted(files: ModelFiles, precision: str) -> tuple[str, torch.dtype]:
    """Return the device and type to load a model in, which fits into free memory; log the needs of a large one."""
    device = best_device()
    dtype = _dtype(precision, device)
    if "OMP_NUM_THREADS" not in os.environ:  # torch reads the affinity of cores, and no quota
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
    transformers_logging.disable_progress_bar()

    lighter = "a smaller one" if dtype == torch.bfloat16 else "BIORAG_PRECISION=bf16 for half of that, a smaller one"
    resources.admit(resources.of_checkpoint(files, dtype.itemsize), device, lighter)
    return device, dtype


def best_device() -> str:
    """Return the fastest kind of device there is: cuda, mps or cpu."""
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def uses_bf16(precision: str) -> bool:
    """Return whether the best device computes in bfloat16 under this precision setting."""
    return _dtype(precision, best_device()) == torch.bfloat16


def _dtype(precision: str, device: str) -> torch.dtype:
    if precision == "fp32":
        return torch.float32
    return torch.bfloat16 if precision == "bf16" or _has_bf16(device) else torch.float32


def _has_bf16(device: str) -> bool:
    """Emulated bfloat16 is slower than float32, so only native support counts."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device == "cpu":
        cpuinfo = Path("/proc/cpuinfo")
        flags = cpuinfo.read_text() if cpuinfo.is_file() else ""
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False
