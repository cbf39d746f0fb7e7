"""Exported encoders and readers, run by ONNX Runtime and `tokenizers`, so that a question does not import torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from biorag.errors import MissingError
from biorag.models.batches import CPU_CHARACTERS, FETCH, Task, Text, by_length, size
from biorag.models.exports import (
    GRAPH,
    PRECISIONS,
    RECORD,
    RUNTIME,
    TOKENIZER,
    ExportedFiles,
    QueryExpansion,
    Role,
    export_folder,
    is_intact,
    query_prompt,
    read_record,
)
from biorag.models.finding import ModelFiles, first_line
from biorag.models.formats.directory import check_folder
from biorag.models.labels import read_trust
from biorag.models.text_encoder import TextEncoder
from biorag.models.token_projection import unit
from biorag.types import LABELS, Encoded, Reader, Reading, TokenEncoder, Trust, Vectors
from biorag.utils.cores import usable_cores
from biorag.utils.panics import panics_raised

logger = logging.getLogger(__name__)

MANY = 200  # passages, from which torch in bfloat16 gains more than it takes to load
# The outputs of a graph: of each token, and of the text; a reader's are the probabilities of its labels.
TOKENS, VECTOR = "token_embeddings", "sentence_embedding"
PACKAGED_READER = Path(__file__).with_name("reader")

Matrix = NDArray[np.int64]


class Row(NamedTuple):
    """The vectors of a text, or the probabilities of a pair."""

    vector: Vectors  # (dimension,), empty if the model has none
    tokens: Vectors  # (tokens, dim)


class TokenizedBatch(NamedTuple):
    """A graph's inputs, each (texts, tokens)."""

    inputs: Mapping[str, Matrix]
    scored: NDArray[np.bool_]  # which tokens' vectors count


class ExportedModel:
    """A graph and its tokenizer. Each batch runs on one thread, so that threads never wait for one another."""

    def __init__(self, folder: Path, files: ExportedFiles) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors
        self.files = files
        self._session = InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]
        self._tokenizer = cache(lambda max_length: _tokenizer(folder / TOKENIZER, files, max_length))

    def run(self, texts: Sequence[Text], task: Task, prompt: str, with_tokens: bool) -> list[Row]:
        """Return the row of each text or pair, in their order; small batches run side by side.

        Raises `MissingError` if its numbers are not finite.
        """
        rows: list[Any] = [None] * len(texts)

        def work(batch: Sequence[int]) -> None:
            made = self.run_batch([texts[index] for index in batch], task, prompt, with_tokens)
            for index, row in zip(batch, made, strict=True):
                rows[index] = row

        workers = usable_cores()
        batches = by_length([size(text) for text in texts], CPU_CHARACTERS, workers)
        if len(batches) == 1:
            work(batches[0])
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, batches))
        return rows

    def run_batch(self, texts: Sequence[Text], task: Task, prompt: str, with_tokens: bool) -> list[Row]:
        """Return the rows of a few texts, which are padded to the longest."""
        batch = self.tokenized(texts, task, prompt)
        wanted = [name for name in self._outputs if name == VECTOR or with_tokens]
        inputs = {name: batch.inputs[name] for name in self._inputs}
        outputs = dict(zip(wanted, self._session.run(wanted, inputs), strict=True))
        empty = np.empty((len(texts), 0), np.float32)
        tokens = outputs.get(TOKENS, empty)
        rows = [
            Row(vector, vectors[mask] if with_tokens else vectors)
            for vector, vectors, mask in zip(outputs.get(VECTOR, empty), tokens, batch.scored, strict=True)
        ]
        if not all(np.isfinite(row.vector).all() and np.isfinite(row.tokens).all() for row in rows):
            raise MissingError(f"the model gives numbers that are not finite: its weights are damaged, so {FETCH}")
        return rows

    def tokenized(self, texts: Sequence[Text], task: Task, prompt: str) -> TokenizedBatch:
        """Return the graph's inputs for texts."""
        form = self.files.format_of(task)
        prompted = [prompt + text if isinstance(text, str) else text for text in texts]
        encodings = self._tokenizer(form.max_length).encode_batch(prompted)
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        types = np.array([encoding.type_ids for encoding in encodings], np.int64)
        scored = mask.astype(bool)
        if form.expansion:
            ids, mask, types, scored = expanded(ids, mask, types, form.expansion)
        pooled = mask
        if prompt and not self.files.pools_prompt:
            starts = mask.argmax(axis=1)[:, None] + self._prompt_length(prompt)
            pooled = mask * (np.arange(mask.shape[1]) >= starts)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "pooling_mask": pooled}
        return TokenizedBatch(inputs, scored & ~np.isin(ids, form.unscored))

    def _prompt_length(self, prompt: str) -> int:
        """Return the number of a prompt's tokens, a special one at its end not counted."""
        ids = self._tokenizer(None).encode(prompt).ids
        return len(ids) - (ids[-1] in self.files.special)


def _tokenizer(path: Path, files: ExportedFiles, max_length: int | None) -> Tokenizer:
    try:
        with panics_raised():
            tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no other kind
        raise MissingError(f"{path} is not a tokenizer ({first_line(error)}), so {FETCH}") from None
    tokenizer.no_truncation()
    if max_length is not None:
        tokenizer.enable_truncation(max_length, direction=files.truncation)
    padding = files.padding
    tokenizer.enable_padding(direction=padding.side, pad_id=padding.token, pad_type_id=padding.token_type)
    return tokenizer


def expanded(
    ids: Matrix, mask: Matrix, types: Matrix, expansion: QueryExpansion
) -> tuple[Matrix, Matrix, Matrix, NDArray[np.bool_]]:
    """Return ids, mask and types of queries with ColBERT's expansion, and which tokens' vectors count.

    All are (queries, tokens). Padding beyond the expansion's length stays padding.
    """
    missing = max(0, expansion.length - ids.shape[1])
    ids, mask, types = (np.pad(values, ((0, 0), (0, missing))) for values in (ids, mask, types))
    filled = (mask == 0) & (np.arange(ids.shape[1]) < expansion.length)
    scored = (mask == 1) | filled
    if expansion.attend:
        mask = np.where(filled, 1, mask)
    return np.where(filled, expansion.token, ids), mask, types, scored


class ExportedEncoder(TextEncoder):
    """An exported bi-encoder, in float32; more than `MANY` passages of a call, or candidates in all, go to torch.

    Questions never do, so that their vectors do not depend on what else a command does.
    """

    def __init__(
        self, files: ModelFiles, model: ExportedModel, similarity: str, load_torch: Callable[[], TextEncoder]
    ) -> None:
        super().__init__(files, model.files.dimension, has_tokens=True)
        self._model = model
        self._normalize = similarity == "cosine"
        self._torch = cache(load_torch)
        self._prompts: dict[Task, str] = {"query": query_prompt(files), "document": model.files.document.prompt}
        self._candidates = 0

    def _prompt(self, task: Task) -> str:
        return self._prompts[task]

    def _set_query_prompt(self, prompt: str) -> None:
        self._prompts["query"] = prompt

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of passages, as the candidates of a question are."""
        self._candidates += len(texts)
        return self._kept(texts, self._torch() if self._candidates > MANY else self)

    def encode(self, texts: Sequence[str], task: Task, with_tokens: bool) -> Encoded:
        """Encode texts, keeping nothing; without `with_tokens` the token vectors are empty."""
        if task == "document" and len(texts) > MANY:
            return self._torch().encode(texts, task, with_tokens)
        rows = self._model.run(texts, task, self._prompts[task], with_tokens)
        vectors = np.stack([row.vector for row in rows]) if rows else np.empty((0, self.identity.dimension), np.float32)
        tokens = [unit(row.tokens) if with_tokens else row.tokens.reshape(0, 0) for row in rows]
        return Encoded(unit(vectors) if self._normalize else vectors, tokens)


class ExportedColBERT:
    """The token vectors of an exported ColBERT checkpoint; see `ExportedEncoder`."""

    def __init__(self, model: ExportedModel, load_torch: Callable[[], TokenEncoder]) -> None:
        self._model = model
        self._torch = cache(load_torch)
        self._candidates = 0

    def query_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of queries, with those of their expansion."""
        return self._tokens(texts, "query")

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of passages, without those that the checkpoint masks."""
        self._candidates += len(texts)
        return self._torch().snippet_tokens(texts) if self._candidates > MANY else self._tokens(texts, "document")

    def _tokens(self, texts: Sequence[str], task: Task) -> list[Vectors]:
        return [row.tokens for row in self._model.run(texts, task, self._model.files.format_of(task).prompt, True)]


DEFAULT = Trust()


class ExportedReader:
    """An exported reader, in float32 or in int8; `trust` says from where its words count."""

    reads_whole, spent = False, ""

    def __init__(self, model: ExportedModel, name: str, sha256: str, trust: Trust = DEFAULT) -> None:
        self._model = model
        self.name, self.sha256, self.trust = name, sha256, trust
        self.reads_questions = self.tells_answers = model.files.dimension > len(LABELS)

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        """Return probabilities (windows, 3), by `LABELS`, and, of a fourth output, that each answers."""
        rows = self._model.run([(window, query) for window in windows], "document", "", with_tokens=False)
        table = np.array([row.vector for row in rows], np.float32).reshape(-1, self._model.files.dimension)
        return Reading(table[:, : len(LABELS)], table[:, -1] if self.reads_questions else None)


def load_bi_encoder(files: ModelFiles, similarity: str, precision: str, exports: Path | None) -> TextEncoder:
    """Return a bi-encoder: its export in the folder `exports`, else by torch, which takes a few seconds to load."""

    def load_torch() -> TextEncoder:
        from biorag.models.bi_encoder import BiEncoder

        return BiEncoder(files, similarity, precision)

    model = open_export(files, "bi-encoder", precision, exports)
    return ExportedEncoder(files, model, similarity, load_torch) if model else load_torch()


def load_colbert(files: ModelFiles, precision: str, exports: Path | None) -> TokenEncoder:
    """Return the token vectors of a ColBERT checkpoint; see `load_bi_encoder`."""

    def load_torch() -> TokenEncoder:
        from biorag.models.colbert import ColBERT

        return ColBERT(files, precision)

    model = open_export(files, "colbert", precision, exports)
    return ExportedColBERT(model, load_torch) if model else load_torch()


def load_reader(files: ModelFiles, precision: str, exports: Path | None) -> Reader:
    """Return a reader: its export in the folder `exports`, else by torch."""
    model = open_export(files, "reader", precision, exports)
    if model:
        return ExportedReader(model, files.id, files.sha256)
    from biorag.models.cross_encoder import CrossEncoderReader

    return CrossEncoderReader(files, precision)


def holds_export(folder: Path) -> bool:
    """Return whether a folder has an exported model instead of weights."""
    return (folder / RECORD).exists()


def open_reader(folder: Path, name: str = "") -> ExportedReader:
    """Return the reader of a folder of its own that `write_export` made, with the trust that its `TRUST` gives it.

    Raises `MissingError` if a file is missing or damaged; or if it is no reader.
    """
    check_folder(folder)
    record = read_record(folder)
    if record is None or record.files is None or not is_intact(folder, record.files):
        raise MissingError(f"the reader in {folder} is damaged: its files are not those of its {RECORD}; {FETCH}")
    if record.files.dimension not in (len(LABELS), len(LABELS) + 1):
        raise MissingError(f"the model in {folder} is an exported encoder, not a reader: name another")
    try:
        model = ExportedModel(folder, record.files)
        return ExportedReader(model, name or str(folder), record.files.graph, read_trust(folder))
    except Exception as error:  # the runtime raises its own
        raise MissingError(f"the reader in {folder} cannot be opened ({first_line(error)}): {FETCH}") from error


def open_export(files: ModelFiles, role: Role, precision: str, exports: Path | None) -> ExportedModel | None:
    """Return a model's export; None where there is none, it is damaged, or the precision asks for torch."""
    if exports is None or not exports.is_dir() or precision not in PRECISIONS or find_spec(RUNTIME) is None:
        return None
    folder = export_folder(exports, files, role)
    record = read_record(folder)
    if record is None or record.files is None or not is_intact(folder, record.files):
        logger.debug("torch encodes the questions for %s: its export is missing, failed or damaged", files.id)
        return None
    try:
        return ExportedModel(folder, record.files)
    except Exception as error:  # the runtime raises its own; another version of it may not take the graph
        logger.debug("the export of %s cannot be opened, and torch is used: %s", files.id, error)
        return None
