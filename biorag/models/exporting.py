"""Exporting models to ONNX: traced, compared with torch's own results, and kept beside a record of both."""

from __future__ import annotations

import logging
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
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
from biorag.models.exported import (
    GRAPH,
    PACKAGES,
    RECORD,
    TOKENIZER,
    TOKENS,
    VECTOR,
    ExportedFiles,
    ExportedModel,
    ExportRecord,
    Padding,
    QueryExpansion,
    Role,
    Row,
    TextFormat,
    export_folder,
    query_prompt,
)
from biorag.models.finding import ModelFiles, first_line
from biorag.models.inference import MODULES, pools_prompt, prompt_of, token_vectors
from biorag.models.loading import load_model
from biorag.models.token_projection import unit
from biorag.types import LABELS
from biorag.utils.files import make_folder, sha256_of, write_json
from biorag.utils.locks import DirectoryLock
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

UNFINISHED = "unfinished"  # the folder of an export in progress
LARGEST_GRAPH = 2**31 - 2**26  # bytes of weights: a protocol buffer holds 2 GiB
LARGEST_DIFFERENCE = 1e-3  # to torch's vectors, of unit length, or probabilities
OPSET = 17
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LONGEST_CHECKED = 1024  # tokens
STRETCHED = ("dynamic", "longrope")  # rotary positions that depend on a text's length
# Batches of one text and of several, short and long, with padding, special signs and without a word.
SENTENCE = "Isoniazid depletes pyridoxine (vitamin B6), and neuropathy follows in 2–10 % of patients. "
SAMPLE = (
    ("Which vitamin is given with isoniazid?",),
    ("fever", SENTENCE, ""),
    (SENTENCE * 4, "β-blockers, 5 mg?", "naïve T细胞 [MASK] 🩺", SENTENCE * 2, "?"),
    (SENTENCE * 9,),
)


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
    scratch = folder / UNFINISHED
    with DirectoryLock(folder, exclusive=True, what="export"):
        pipeline = _load(files, role)
        shutil.rmtree(scratch, ignore_errors=True)  # of a killed process
        scratch.mkdir()
        versions = installed_versions(PACKAGES)
        try:
            record = ExportRecord(versions, _export(pipeline, files, scratch, int8))
            for name in (TOKENIZER, GRAPH):
                (scratch / name).replace(folder / name)
        except Exception as error:  # the tracer and the modules that it calls raise many kinds
            logger.debug("the export of %s fails", files.id, exc_info=True)
            record = ExportRecord(versions, reason=first_line(error)[:2000])
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        write_json(folder / RECORD, asdict(record))
    return record


class _Pipeline(torch.nn.Module):
    """A model's modules, but for ColBERT's mask, from the tensors of `INPUTS` to vectors or to probabilities.

    `columns` of a reader's outputs are its labels', see `label_columns`; None of an encoder.
    """

    def __init__(self, model: Any, columns: tuple[int, ...] | None) -> None:
        super().__init__()
        self.model, self.columns = model, columns
        names = self.features(["fever"], None if self.reads_pairs else "document")
        self.inputs = [name for name in INPUTS if name in names]
        self.outputs = [TOKENS, VECTOR]
        if self.reads_pairs:
            self.outputs = [VECTOR]
        elif isinstance(model, MultiVectorEncoder):
            self.outputs = [TOKENS]

    @property
    def reads_pairs(self) -> bool:
        """Whether the model is a reader."""
        return self.columns is not None

    def features(self, texts: Sequence[str], task: Task | None) -> dict[str, Any]:
        """Return the model's own tokenization of texts as it reads them."""
        return dict(self.model.preprocess(self.texts(texts), prompt=prompt_of(self.model, task), task=task))

    def texts(self, texts: Sequence[str]) -> list[Text]:
        """Return texts as the model reads them: a reader each with the next one."""
        return list(zip(texts, (*texts[1:], texts[0]), strict=True)) if self.reads_pairs else list(texts)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return token vectors (texts, tokens, dim), vectors (texts, dim), or both; of a reader its probabilities."""
        features = dict(zip(self.inputs, tensors, strict=True))
        for module in self.model:
            if not isinstance(module, MultiVectorMask):
                features = module(features)
        if self.columns is not None:
            return (probabilities(features["scores"], self.columns),)
        return tuple(features[name] for name in self.outputs)

    def rows(self, texts: Sequence[str], task: Task) -> list[Row]:
        """Return what torch makes of texts."""
        named = None if self.reads_pairs else task
        features = self.model(self.features(texts, named), task=named)
        if self.columns is not None:
            features[VECTOR] = probabilities(features["scores"], self.columns)
        empty = np.empty((len(texts), 0), np.float32)
        vectors = features[VECTOR].numpy() if VECTOR in self.outputs else empty
        tokens = token_vectors(features) if TOKENS in self.outputs else empty
        return [Row(*row) for row in zip(vectors, tokens, strict=True)]


def _load(files: ModelFiles, role: Role) -> _Pipeline:
    if role == "reader":
        model, columns = load_reader_model(files, "fp32", load_model)
        return _Pipeline(model.to("cpu"), columns).eval()
    model = load_model(MultiVectorEncoder if role == "colbert" else SentenceTransformer, files, "fp32")
    if role == "colbert":
        read_long_queries(model)
    return _Pipeline(model.to("cpu"), None).eval()


@torch.inference_mode()
def _export(pipeline: _Pipeline, files: ModelFiles, folder: Path, int8: bool) -> ExportedFiles:
    """Write graph and tokenizer, and return their description once their results are torch's."""
    _check_exportable(pipeline, files)
    pipeline.model.tokenizer.backend_tokenizer.save(str(folder / TOKENIZER))
    features = pipeline.features(["fever and pain", "fever"], None if pipeline.reads_pairs else "document")
    axes = {name: {0: "texts", 1: "tokens"} for name in [*pipeline.inputs, TOKENS]} | {VECTOR: {0: "texts"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that the tracer takes as constant: the results are compared
        torch.onnx.export(
            pipeline,
            tuple(features[name] for name in pipeline.inputs),
            str(folder / GRAPH),
            input_names=pipeline.inputs,
            output_names=pipeline.outputs,
            dynamic_axes={name: axes[name] for name in (*pipeline.inputs, *pipeline.outputs)},
            opset_version=OPSET,
            dynamo=False,
        )
    exported = _compared(pipeline, folder, LARGEST_DIFFERENCE)
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        graph = str(folder / GRAPH)
        quantize_dynamic(graph, graph, per_channel=True, weight_type=QuantType.QInt8)
        exported = _compared(pipeline, folder, math.inf)
    return exported


def _check_exportable(pipeline: _Pipeline, files: ModelFiles) -> None:
    """Raise `NotExportableError` for a model that a graph and a tokenizer do not describe in full."""
    model = pipeline.model
    if not all(isinstance(module, MODULES) for module in model):
        raise NotExportableError("it is more than a transformer with pooling, dense layers and normalisation")
    if any(getattr(module, "keep_only_token_ids", None) for module in model):
        raise NotExportableError("it scores some tokens alone")
    if sum(weights.numel() for weights in model.parameters()) * 4 > LARGEST_GRAPH:
        raise NotExportableError("its weights are more than a graph holds, 2 GiB in float32")
    if not pools_prompt(model):
        raise NotExportableError("its pooling leaves the prompt out")
    rotary = str(getattr(model[0].auto_model.config, "rope_parameters", None))
    if any(kind in rotary for kind in STRETCHED):
        raise NotExportableError("its positions depend on a text's length")
    if pipeline.reads_pairs and prompt_of(model, None):
        raise NotExportableError("it reads pairs after a prompt")
    if isinstance(model, SentenceTransformer) and query_prompt(files) != (prompt_of(model, "query") or ""):
        raise NotExportableError("its prompt for questions is not the one of its configuration")


def _compared(pipeline: _Pipeline, folder: Path, most: float) -> ExportedFiles:
    """Return the description of an export, whose results differ from torch's by `most` at most, else `ValueError`."""
    tokenizer, columns = pipeline.model.tokenizer, pipeline.columns
    files = ExportedFiles(
        difference=0.0,
        graph=sha256_of(folder / GRAPH),
        tokenizer=sha256_of(folder / TOKENIZER),
        dimension=pipeline.model.get_embedding_dimension() if columns is None else max(len(LABELS), len(columns)),
        query=_text_format(pipeline.model, "query"),
        document=_text_format(pipeline.model, "document"),
        padding=Padding(tokenizer.padding_side, tokenizer.pad_token_id or 0, tokenizer.pad_token_type_id),
        truncation=tokenizer.truncation_side,
    )
    difference = largest_difference(pipeline, ExportedModel(folder, files))
    if not difference <= most:
        results = "vectors" if columns is None else "probabilities"
        raise ValueError(f"its {results} differ from torch's by {difference:.2g}")
    return replace(files, difference=difference)


def _text_format(model: Any, task: Task) -> TextFormat:
    """Return how the model's own `preprocess` tokenizes texts."""
    own = model[0].query_length if task == "query" else model[0].document_length
    settings = model[0].query_expansion if task == "query" else None
    expansion = None
    if settings:
        own = max(own, settings["length"]) if own is not None else None
        expansion = QueryExpansion(settings["length"], _expansion_token(model.tokenizer, settings), settings["attend"])
    longest = model.tokenizer.model_max_length if own is None else own
    unscored = {
        int(token)
        for module in model
        if isinstance(module, MultiVectorMask) and task in module.skiplist_tasks and module._skiplist_ids is not None
        for token in module._skiplist_ids
    }
    longest = longest if longest < 2**31 else None
    return TextFormat(prompt_of(model, task) or "", longest, expansion, tuple(sorted(unscored)))


def _expansion_token(tokenizer: Any, settings: Mapping[str, Any]) -> int:
    if settings["token"] is not None:
        return int(tokenizer.convert_tokens_to_ids(settings["token"]))
    return int(tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.eos_token_id)


def largest_difference(pipeline: _Pipeline, exported: ExportedModel) -> float:
    """Return the largest difference of an export to torch: of vectors and token vectors at length 1, or probabilities.

    Over texts of both tasks, tokens included, one of them longer than the model takes, or of 1024 tokens.

    Raises `ValueError` if their shapes differ, as where the model does not make tokens by its tokenizer alone.
    """
    differences = [0.0]
    for task in get_args(Task):
        form = exported.files.format_of(task)
        words = min(form.max_length or LONGEST_CHECKED, LONGEST_CHECKED)
        for texts in (*SAMPLE, (SENTENCE * (words // 16 + 2), "fever")):
            rows = exported.run_batch(pipeline.texts(texts), task, form.prompt, with_tokens=not pipeline.reads_pairs)
            for row, expected in zip(rows, pipeline.rows(texts, task), strict=True):
                for ours, theirs in ((row.vector[None], expected.vector[None]), (row.tokens, expected.tokens)):
                    if ours.shape != theirs.shape:
                        raise ValueError(f"it gives {ours.shape} numbers instead of {theirs.shape}")
                    if not pipeline.reads_pairs:
                        ours, theirs = unit(ours), unit(theirs)
                    differences.append(float(np.abs(ours - theirs).max(initial=0.0)))
    return max(differences)
