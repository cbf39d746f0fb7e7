"""Exporting models to ONNX: traced, compared with torch's own results, and kept beside a record of both."""

from __future__ import annotations

import logging
import math
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from biorag.models.batches import Task, Text
from biorag.models.colbert import read_long_queries
from biorag.models.cross_encoder import load_reader_model, probabilities
from biorag.models.exported import TOKENS, VECTOR, ExportedModel, Row
from biorag.models.exports import (
    GRAPH,
    LARGEST_DIFFERENCE,
    PACKAGES,
    RECORD,
    TOKENIZER,
    ExportedFiles,
    ExportRecord,
    Padding,
    QueryExpansion,
    Role,
    TextFormat,
    export_folder,
    query_prompt,
)
from biorag.models.finding import ModelFiles, first_line
from biorag.models.inference import prompt_of, token_vectors
from biorag.models.loading import has_towers, load_model
from biorag.models.token_projection import unit
from biorag.types import LABELS, Vectors
from biorag.utils.files import make_folder, sha256_of, write_json
from biorag.utils.locks import DirectoryLock
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

UNFINISHED = "unfinished"  # the folder of an export in progress
LARGEST_GRAPH = 2**31 - 2**26  # bytes of weights: a protocol buffer holds 2 GiB
OPSET = 17
INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # and then "pooling_mask"
LONGEST_CHECKED = 1024  # tokens
FIXED_POSITIONS = ("default", "linear", "llama3", "yarn", "proportional")  # rotary ones, the same at any length
# Batches of one text and of several, short and long, with padding, special signs and without a word.
SENTENCE = "Isoniazid depletes pyridoxine (vitamin B6), and neuropathy follows in 2–10 % of patients. "
SAMPLE = (
    ("Which vitamin is given with isoniazid?",),
    ("fever", SENTENCE, ""),
    (SENTENCE * 4, "β-blockers, 5 mg?", "naïve T细胞 [MASK] 🩺", SENTENCE * 2, "?"),
    (SENTENCE * 9,),
)
Columns = tuple[int, ...] | None  # of a reader's labels among its outputs, see `label_columns`; None of an encoder


class NotExportableError(Exception):
    """A model that cannot be exported, and why."""


def export_model(files: ModelFiles, role: Role, exports: Path) -> ExportRecord:
    """Export a model into the folder of exports, and return the record of it.

    Raises `MissingError` if the model does not load; `ServiceError` if another process is exporting it; `OSError` if
    the folder cannot be written.
    """
    return write_export(files, role, export_folder(exports, files, role))


def write_export(files: ModelFiles, role: Role, folder: Path, int8: bool = False) -> ExportRecord:
    """Export a model into a folder of its own; see `export_model`.

    With `int8` the weights are stored in 8 bits, and activations are rounded to 8 bits as they come (ONNX Runtime's
    dynamic quantization): a quarter of the size. The record says how much the results differ, at whatever difference.
    """
    make_folder(folder)
    with DirectoryLock(folder, exclusive=True, what="export"):
        record = _exported(files, role, folder, int8)
        write_json(folder / RECORD, asdict(record))
    return record


def _exported(files: ModelFiles, role: Role, folder: Path, int8: bool) -> ExportRecord:
    """Write an export, and move it into its folder once the graph's results are torch's."""
    versions = installed_versions(PACKAGES)
    columns: Columns = None
    if role == "reader":
        model, columns = load_reader_model(files, "fp32", load_model)
    else:
        model = load_model(MultiVectorEncoder if role == "colbert" else SentenceTransformer, files, "fp32")
    model = model.to("cpu").eval()
    if role == "colbert":
        read_long_queries(model)
    scratch = folder / UNFINISHED
    shutil.rmtree(scratch, ignore_errors=True)  # of a killed process
    scratch.mkdir()
    try:
        exported = _checked(files, model, columns, scratch, int8)
    except NotExportableError as error:
        return ExportRecord(versions, reason=str(error))
    except Exception as error:  # the tracer and the modules that it calls raise many kinds
        logger.debug("the export of %s fails", files.id, exc_info=True)
        return ExportRecord(versions, reason=first_line(error)[:2000])
    else:
        for name in (TOKENIZER, GRAPH):
            (scratch / name).replace(folder / name)
        return ExportRecord(versions, exported)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked(files: ModelFiles, model: Any, columns: Columns, folder: Path, int8: bool) -> ExportedFiles:
    """Write graph and tokenizer, and compare both with the model; NotExportableError if that cannot be done."""
    _check_kind(model)
    if isinstance(model, SentenceTransformer) and query_prompt(files) != (prompt_of(model, "query") or ""):
        raise NotExportableError("its prompt for questions is not the one of its configuration")
    if columns is not None and prompt_of(model, None):
        raise NotExportableError("it reads pairs after a prompt")
    model.tokenizer.backend_tokenizer.save(str(folder / TOKENIZER))
    features = _features(
        model, _inputs(["fever and pain", "fever"], columns), None if columns is not None else "document"
    )
    names = [name for name in INPUTS if name in features]
    pipeline = _Pipeline(model, names, columns).eval()  # its mode is given to the model again after the export
    outputs = (
        [VECTOR] if columns is not None else [TOKENS] if isinstance(model, MultiVectorEncoder) else [TOKENS, VECTOR]
    )
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of values that the tracer takes as constant: the results are compared
        tensors = [*(features[name] for name in names), features["attention_mask"]]
        _trace(pipeline, tensors, [*names, "pooling_mask"], outputs, folder / GRAPH)
    exported = _compared(model, columns, folder, LARGEST_DIFFERENCE)
    if int8:
        _round_weights(folder / GRAPH)
        exported = _compared(model, columns, folder, math.inf)
    return exported


def _inputs(texts: Sequence[str], columns: Columns) -> Sequence[Text]:
    """Return texts as an encoder reads them, or of a reader each with the next one."""
    return texts if columns is None else list(zip(texts, (*texts[1:], texts[0]), strict=True))


def _compared(model: Any, columns: Columns, folder: Path, most: float) -> ExportedFiles:
    """Return the description of an export, whose results differ from torch's by `most` at most, else `ValueError`."""
    draft = _draft(model, columns, folder)
    difference = largest_difference(model, ExportedModel(folder, draft), columns)
    if not difference <= most:
        raise ValueError(
            f"its {'vectors' if columns is None else 'probabilities'} differ from torch's by {difference:.2g}"
        )
    return replace(draft, difference=difference)


def _round_weights(path: Path) -> None:
    """Store the weights of a graph in 8 bits, a scale for each column."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    rounded = path.with_suffix(".int8")
    quantize_dynamic(str(path), str(rounded), per_channel=True, weight_type=QuantType.QInt8)
    rounded.replace(path)


def _check_kind(model: Any) -> None:
    """Refuse models that a graph and a tokenizer do not describe in full."""
    if has_towers(model):
        raise NotExportableError("queries and passages have towers of their own")
    if not hasattr(model[0], "auto_model"):
        raise NotExportableError(f"it is a {type(model[0]).__name__}, not a transformer")
    if not getattr(model.tokenizer, "is_fast", False):
        raise NotExportableError("it has no fast tokenizer")
    if sum(weights.numel() for weights in model.parameters()) * 4 > LARGEST_GRAPH:
        raise NotExportableError("its weights are more than a graph holds, 2 GiB in float32")
    for module in list(model)[1:]:
        if isinstance(module, MultiVectorMask):
            if module.keep_only_token_ids:
                raise NotExportableError("it scores some tokens alone")
        elif "task" in getattr(module, "forward_kwargs", ()):
            raise NotExportableError(f"its module {type(module).__name__} treats queries and passages differently")
    rope = getattr(model[0].auto_model.config, "rope_parameters", None)
    if any(kind not in FIXED_POSITIONS for kind in _rope_types(rope)):
        raise NotExportableError("its positions depend on a text's length")


def _rope_types(parameters: Any) -> Iterator[str]:
    """Yield the types of rotary positions; kinds of layers may have their own."""
    if isinstance(parameters, Mapping):
        yield from [parameters["rope_type"]] if "rope_type" in parameters else ()
        for value in parameters.values():
            yield from _rope_types(value)


class _Pipeline(torch.nn.Module):
    """A model's modules in a row, but for the one that leaves out tokens; of a reader its probabilities.

    Pooling has a mask of its own, which leaves out the prompt's tokens where they are not pooled.
    """

    def __init__(self, model: Any, names: Sequence[str], columns: Columns) -> None:
        super().__init__()
        self._modules_in_order = torch.nn.ModuleList(
            module for module in model if not isinstance(module, MultiVectorMask)
        )
        self._names, self._columns = names, columns

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return token vectors (texts, tokens, dim) and, where the model pools them, vectors (texts, dimension).

        Of a reader probabilities (pairs, 3 or 4).
        """
        *inputs, pooling_mask = tensors
        transformer, *others = self._modules_in_order
        features = transformer(dict(zip(self._names, inputs, strict=True)))
        features["attention_mask"] = pooling_mask
        for module in others:
            features = module(features)
        if self._columns is not None:
            return (probabilities(features["scores"], self._columns),)
        return tuple(features[name] for name in (TOKENS, VECTOR) if name in features)


def _trace(pipeline: _Pipeline, tensors: list[torch.Tensor], inputs: list[str], outputs: list[str], path: Path) -> None:
    axes = {name: {0: "texts", 1: "tokens"} for name in [*inputs, TOKENS]} | {VECTOR: {0: "texts"}}
    torch.onnx.export(
        pipeline,
        tuple(tensors),
        str(path),
        input_names=inputs,
        output_names=outputs,
        dynamic_axes={name: axes[name] for name in (*inputs, *outputs)},
        opset_version=OPSET,
        dynamo=False,
    )


def _draft(model: Any, columns: Columns, folder: Path) -> ExportedFiles:
    """Describe an export before the comparison."""
    tokenizer = model.tokenizer
    dimension = int(model.get_embedding_dimension()) if columns is None else max(len(LABELS), len(columns))
    return ExportedFiles(
        difference=0.0,
        graph=sha256_of(folder / GRAPH),
        tokenizer=sha256_of(folder / TOKENIZER),
        dimension=dimension,
        query=_text_format(model, "query"),
        document=_text_format(model, "document"),
        padding=Padding(tokenizer.padding_side, tokenizer.pad_token_id or 0, tokenizer.pad_token_type_id),
        truncation=tokenizer.truncation_side,
        pools_prompt=all(getattr(module, "include_prompt", True) for module in model),
        special=tuple(tokenizer.all_special_ids),
    )


def _text_format(model: Any, task: Task) -> TextFormat:
    """Return how the model's own `preprocess` tokenizes texts."""
    transformer = model[0]
    own = transformer.query_length if task == "query" else transformer.document_length
    settings = transformer.query_expansion if task == "query" else None
    expansion = None
    if settings:
        own = max(own, settings["length"]) if own is not None else None
        expansion = QueryExpansion(settings["length"], _expansion_token(model.tokenizer, settings), settings["attend"])
    longest = own if own is not None else model.tokenizer.model_max_length
    unscored = {
        int(token)
        for module in model
        if isinstance(module, MultiVectorMask) and task in module.skiplist_tasks and module._skiplist_ids is not None
        for token in module._skiplist_ids
    }
    return TextFormat(
        prompt_of(model, task) or "", longest if longest < 2**31 else None, expansion, tuple(sorted(unscored))
    )


def _expansion_token(tokenizer: Any, settings: Mapping[str, Any]) -> int:
    if settings["token"] is not None:
        return int(tokenizer.convert_tokens_to_ids(settings["token"]))
    return int(tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.eos_token_id)


def _features(model: Any, texts: Sequence[Text], task: Task | None) -> dict[str, Any]:
    features: dict[str, Any] = model.preprocess(list(texts), prompt=prompt_of(model, task), task=task)
    return features


def largest_difference(model: Any, exported: ExportedModel, columns: Columns) -> float:
    """Return the largest difference of an export to torch: of vectors and token vectors at length 1, or probabilities.

    Over texts of both tasks, tokens included, one of them longer than the model takes, or of 1024 tokens.

    Raises `ValueError` if their shapes differ, as where the model does not make tokens by its tokenizer alone.
    """
    differences = [0.0]
    for task in get_args(Task):
        form = exported.files.format_of(task)
        words = min(form.max_length or LONGEST_CHECKED, LONGEST_CHECKED)
        for texts in (*SAMPLE, (SENTENCE * (words // 16 + 2), "fever")):
            inputs = _inputs(texts, columns)
            ours = exported.run_batch(inputs, task, form.prompt, with_tokens=columns is None)
            for row, theirs in zip(ours, _by_torch(model, inputs, task, columns), strict=True):
                pairs = [(row.vector[None], theirs.vector[None]), (row.tokens, theirs.tokens)]
                differences += [_difference(*(map(unit, pair) if columns is None else pair)) for pair in pairs]
    return max(differences)


def _by_torch(model: Any, texts: Sequence[Text], task: Task, columns: Columns) -> list[Row]:
    with torch.inference_mode():
        if columns is not None:
            features = model(_features(model, texts, None), task=None)
            return [Row(row, np.empty(0, np.float32)) for row in probabilities(features["scores"], columns).numpy()]
        features = model(_features(model, texts, task), task=task)
    vectors = features[VECTOR].numpy() if VECTOR in features else np.empty((len(texts), 0), np.float32)
    return [Row(*row) for row in zip(vectors, token_vectors(features), strict=True)]


def _difference(ours: Vectors, theirs: Vectors) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"it gives {ours.shape} numbers instead of {theirs.shape}")
    return float(np.abs(ours - theirs).max(initial=0.0))
