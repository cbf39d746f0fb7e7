"""Encoders and readers exported to ONNX, run by ONNX Runtime and `tokenizers` so that a question does not import torch.

`exporting` writes them: an encoder's under the home, in a folder named by a hash; the packaged reader's here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from tokenizers import Tokenizer

from biorag.errors import BadInputError, MissingError
from biorag.models.batches import CPU_CHARACTERS, FETCH, Task, Text, by_length, in_batches, size
from biorag.models.finding import ModelFiles, first_line, hash_of_file
from biorag.models.formats.directory import check_folder
from biorag.models.labels import label_columns, read_trust, trust_of
from biorag.models.text_encoder import TextEncoder
from biorag.models.token_projection import unit
from biorag.models.tokens import read_tokenizer
from biorag.types import LABELS, Dimension, Encoded, Reader, Reading, Sha256, TokenEncoder, Trust, Vectors
from biorag.utils.cores import usable_cores
from biorag.utils.files import sha256_of, sha256_of_json
from biorag.utils.parsing import parsed, read_regular
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

FORMAT = 1  # of a record, and of the graph's inputs and outputs
RECORD, GRAPH, TOKENIZER = "export.json", "model.onnx", "tokenizer.json"
RUNTIME = "onnxruntime"
PRECISIONS = ("auto", "fp32")  # of the precision setting, under which questions are encoded by an export
SETTINGS = "config_sentence_transformers.json"
# Of a ColBERT checkpoint: its prompts and lengths. A bi-encoder's query prompt may change, and is read each time.
COLBERT_SETTINGS = (SETTINGS, "artifact.metadata")
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnx", "onnxruntime")
MANY = 200  # passages, from which torch in bfloat16 gains more than it takes to load
# The outputs of a graph: of each token, and of the text; a reader's are the probabilities of its labels.
TOKENS, VECTOR = "token_embeddings", "sentence_embedding"
PACKAGED_READER = Path(__file__).with_name("reader")

TokenCount: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]  # also a token's id
Role = Literal["bi-encoder", "colbert", "reader"]
Side = Literal["left", "right"]
Matrix: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """ColBERT's query expansion: `token` fills the positions up to `length`, attended to or not."""

    length: TokenCount
    token: TokenCount
    attend: bool


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The prompt before texts of one task, and the tokens, special ones among them, after which a text is cut."""

    prompt: str
    max_length: TokenCount | None
    expansion: QueryExpansion | None = None
    unscored: tuple[TokenCount, ...] = ()  # tokens whose vectors are left out, by their ids


@dataclass(frozen=True, slots=True)
class Padding:
    """The padding of the shorter texts of a batch."""

    side: Side
    token: TokenCount
    token_type: TokenCount


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    """An exported model, and the tokenization of its texts."""

    difference: float  # the largest to torch's vectors, of unit length, or probabilities, over a sample of texts
    graph: Sha256
    tokenizer: Sha256
    dimension: Dimension  # of the vectors, or of ColBERT's tokens; or the number of a reader's probabilities
    query: TextFormat
    document: TextFormat
    padding: Padding
    truncation: Side
    pools_prompt: Literal[True] = True  # earlier versions exported models that leave prompts out, too

    def format_of(self, task: Task) -> TextFormat:
        """Return the tokenization of texts of a task."""
        return self.query if task == "query" else self.document


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """An attempt to export a model by these versions of packages: its files, or the reason of the failure."""

    versions: Mapping[str, str]
    files: ExportedFiles | None = None
    reason: str = ""
    format: int = FORMAT


def export_folder(exports: Path, model: ModelFiles, role: Role) -> Path:
    """Return the folder of a model's export, named by the hash of everything that determines its vectors."""
    paths = [model.path / name for name in (COLBERT_SETTINGS if role == "colbert" else ())]
    settings = {path.name: sha256_of(path) for path in paths if path.is_file()}
    identity = {"role": role, "weights": model.sha256, "configuration": model.configuration(), "settings": settings}
    return exports / sha256_of_json(identity)[:32]


def is_settled(folder: Path) -> bool:
    """Return whether an export is whole, or failed with the versions of packages that are installed."""
    record = _read_record(folder)
    if record is None or record.files:
        return _intact_files(folder) is not None
    return record.versions == installed_versions(PACKAGES)


def _read_record(folder: Path) -> ExportRecord | None:
    """Return the record of an export; None where there is none that this version reads."""
    try:
        record: ExportRecord = parsed(ExportRecord, read_regular(folder / RECORD), extra="ignore")
    except (OSError, ValueError, BadInputError) as error:
        logger.debug("the export in %s is not used: %s", folder, error)
        return None
    return record if record.format == FORMAT else None


def _intact_files(folder: Path) -> ExportedFiles | None:
    """Return the description of an export whose files have the hashes of its record."""
    record = _read_record(folder)
    if record is None or record.files is None:
        return None
    try:
        hashes = hash_of_file(folder / TOKENIZER), hash_of_file(folder / GRAPH)
    except OSError:
        return None
    return record.files if hashes == (record.files.tokenizer, record.files.graph) else None


class Row(NamedTuple):
    """The vectors of a text, or the probabilities of a pair."""

    vector: Vectors  # (dimension,), empty if the model has none
    tokens: Vectors  # (tokens, dim)


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
        lengths = {files.query.max_length, files.document.max_length}
        self._tokenizers = {length: _tokenizer(folder / TOKENIZER, files, length) for length in lengths}

    def run(self, texts: Sequence[Text], task: Task, prompt: str, with_tokens: bool) -> list[Row]:
        """Return the row of each text or pair, in their order; small batches run side by side.

        Raises `MissingError` if its numbers are not finite.
        """
        workers = usable_cores()
        batches = by_length([size(text) for text in texts], CPU_CHARACTERS, workers)

        def rows(batch: Sequence[int]) -> list[Row]:
            return self.run_batch([texts[index] for index in batch], task, prompt, with_tokens)

        return in_batches(batches, rows, workers if len(batches) > 1 else 1)

    def run_batch(self, texts: Sequence[Text], task: Task, prompt: str, with_tokens: bool) -> list[Row]:
        """Return the rows of a few texts, which are padded to the longest."""
        form = self.files.format_of(task)
        prompted = [prompt + text if isinstance(text, str) else text for text in texts]
        encodings = self._tokenizers[form.max_length].encode_batch(prompted)
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        types = np.array([encoding.type_ids for encoding in encodings], np.int64)
        scored = mask > 0
        if form.expansion:
            ids, mask, types, scored = expanded(ids, mask, types, form.expansion)
        scored &= ~np.isin(ids, form.unscored)
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": types,
            "pooling_mask": mask,  # of graphs that earlier versions exported
        }
        wanted = [name for name in self._outputs if name == VECTOR or with_tokens]
        values = self._session.run(wanted, {name: inputs[name] for name in self._inputs})
        outputs = dict(zip(wanted, values, strict=True))
        empty = np.empty((len(texts), 0), np.float32)
        rows = [
            Row(vector, tokens[counted] if with_tokens else tokens)
            for vector, tokens, counted in zip(
                outputs.get(VECTOR, empty), outputs.get(TOKENS, empty), scored, strict=True
            )
        ]
        if not all(np.isfinite(row.vector).all() and np.isfinite(row.tokens).all() for row in rows):
            raise MissingError(f"the model gives numbers that are not finite: its weights are damaged, so {FETCH}")
        return rows


def _tokenizer(path: Path, files: ExportedFiles, max_length: int | None) -> Tokenizer:
    tokenizer = read_tokenizer(path)
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
        prompts = {"query": query_prompt(files), "document": model.files.document.prompt}
        super().__init__(files, model.files.dimension, True, prompts)
        self._model = model
        self._normalize = similarity == "cosine"
        self._torch = cache(load_torch)
        self._candidates = 0

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


def query_prompt(model: ModelFiles) -> str:
    """Return the query prompt of a bi-encoder's folder."""
    prompts = model.settings(SETTINGS).get("prompts")
    prompt = prompts.get("query") if isinstance(prompts, dict) else None
    return prompt if isinstance(prompt, str) else ""


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
        return ExportedReader(model, files.id, files.sha256, trust_of(label_columns(files)))
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
    files = _intact_files(folder)
    if files is None:
        raise MissingError(f"the reader in {folder} is damaged: its files are not those of its {RECORD}; {FETCH}")
    if files.dimension not in (len(LABELS), len(LABELS) + 1):
        raise MissingError(f"the model in {folder} is an exported encoder, not a reader: name another")
    try:
        return ExportedReader(ExportedModel(folder, files), name or str(folder), files.graph, read_trust(folder))
    except Exception as error:  # the runtime raises its own
        raise MissingError(f"the reader in {folder} cannot be opened ({first_line(error)}): {FETCH}") from error


def open_export(files: ModelFiles, role: Role, precision: str, exports: Path | None) -> ExportedModel | None:
    """Return a model's export; None where there is none, it is damaged, or the precision asks for torch."""
    if exports is None or not exports.is_dir() or precision not in PRECISIONS or find_spec(RUNTIME) is None:
        return None
    folder = export_folder(exports, files, role)
    exported = _intact_files(folder)
    if exported is None:
        logger.debug("torch encodes the questions for %s: its export is missing, failed or damaged", files.id)
        return None
    try:
        return ExportedModel(folder, exported)
    except Exception as error:  # the runtime raises its own; another version of it may not take the graph
        logger.debug("the export of %s cannot be opened, and torch is used: %s", files.id, error)
        return None
