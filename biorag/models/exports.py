"""Encoders and readers exported to ONNX, kept under the home: the folder of each, and its record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from biorag.errors import BadInputError
from biorag.models.batches import Task
from biorag.models.finding import ModelFiles, hash_of_file
from biorag.types import Dimension, Sha256
from biorag.utils.files import sha256_of, sha256_of_json
from biorag.utils.parsing import parsed, read_regular
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

FORMAT = 1  # of a record, and of the graph's inputs and outputs
RECORD, GRAPH, TOKENIZER = "export.json", "model.onnx", "tokenizer.json"
RUNTIME = "onnxruntime"
PRECISIONS = ("auto", "fp32")  # of the precision setting, under which questions are encoded by an export
LARGEST_DIFFERENCE = 1e-3  # to torch's vectors, of unit length, or probabilities
SETTINGS = "config_sentence_transformers.json"
# Of a ColBERT checkpoint: its prompts and lengths. A bi-encoder's query prompt may change, and is read each time.
COLBERT_SETTINGS = (SETTINGS, "artifact.metadata")
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnx", "onnxruntime")

TokenCount: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]  # also a token's id

Role = Literal["bi-encoder", "colbert", "reader"]
Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """ColBERT's query expansion: `token` fills the positions up to `length`, attended to or not."""

    length: TokenCount
    token: TokenCount
    attend: bool


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The tokenization of texts of one task."""

    prompt: str
    max_length: TokenCount | None  # tokens, special ones among them, after which a text is cut; None for none
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
    dimension: Dimension  # of the model's vectors, or of its token vectors where it has no others; a reader's labels
    query: TextFormat
    document: TextFormat
    padding: Padding
    truncation: Side
    pools_prompt: bool  # whether the tokens of a prompt count in a text's vector
    special: tuple[TokenCount, ...]  # the ids of special tokens, among them those that end a prompt encoded alone

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
    settings = COLBERT_SETTINGS if role == "colbert" else ()
    paths = [model.path / name for name in settings]
    identity = {
        "role": role,
        "weights": model.sha256,
        "configuration": model.configuration(),
        "settings": {path.name: sha256_of(path) for path in paths if path.is_file()},
    }
    return exports / sha256_of_json(identity)[:32]


def is_settled(folder: Path, record: ExportRecord | None) -> bool:
    """Return whether an export is whole, or failed with the versions of packages that are installed."""
    if record is None:
        return False
    return is_intact(folder, record.files) if record.files else record.versions == installed_versions(PACKAGES)


def read_record(folder: Path) -> ExportRecord | None:
    """Return the record of an export; None where there is none that this version reads."""
    try:
        record: ExportRecord = parsed(ExportRecord, read_regular(folder / RECORD), extra="ignore")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, BadInputError) as error:
        logger.debug("the export in %s is not used: %s", folder, error)
        return None
    return record if record.format == FORMAT else None


def is_intact(folder: Path, files: ExportedFiles) -> bool:
    """Return whether an export's files have the hashes of its record."""
    try:
        return (hash_of_file(folder / TOKENIZER), hash_of_file(folder / GRAPH)) == (files.tokenizer, files.graph)
    except OSError:
        return False


def query_prompt(model: ModelFiles) -> str:
    """Return the query prompt of a bi-encoder's folder."""
    prompts = model.settings(SETTINGS).get("prompts")
    prompt = prompts.get("query") if isinstance(prompts, dict) else None
    return prompt if isinstance(prompt, str) else ""
