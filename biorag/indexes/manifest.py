"""The manifest: what an index was made with, and from what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from biorag.errors import MismatchError
from biorag.registries import STORES
from biorag.types import EncoderIdentity

FORMAT = 1
SIMILARITIES = ("cosine", "dot")
WIDEST = 65_536  # dimensions that Qdrant takes
_KINDS: dict[Any, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}
Record = TypeVar("Record")
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Bm25Parameters:
    """BM25 as Qdrant computes it: tokenizer, stop words and stemmer of `language`, IDF by the engine.

    `avg_len` is the mean snippet length in BM25 tokens, measured when the index was created.
    """

    k: float
    b: float
    avg_len: float
    language: str = "english"


@dataclass(frozen=True, slots=True)
class TokenParameters:
    """The token vectors that an index keeps for reranking: whose they are, and how many are pooled into one.

    `reranker` is "encoder" for the index's own bi-encoder, else a ColBERT checkpoint; `sha256` that of its weights.
    """

    reranker: str
    revision: str
    sha256: str
    dimension: int
    pooling: int


@dataclass(frozen=True, slots=True)
class BlockParameters:
    """How long documents are split: tokens of the encoder in a block, and how many of them two blocks share."""

    tokens: int
    overlap: int


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One corpus file that went in: as it lay on disk, and how many snippets, deletions and rejects it gave."""

    name: str
    sha256: str
    bytes: int
    snippets: int
    deletions: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that determines what an index answers.

    `sources` stand in the order in which they went in: PubMed's later files change its earlier ones.
    `complete` is False from the first write of a run to its end: what a killed run leaves behind.
    `seconds` adds up the indexing runs. `checksums` is the SHA-256 of `checksums.json`, by which damage to the
    shard's files is noticed; None while a run is under way, and for an index on a server.
    """

    name: str
    encoder: EncoderIdentity
    similarity: str
    quantized: bool
    bm25: Bm25Parameters
    store: Mapping[str, str]
    created: str
    updated: str
    sources: tuple[SourceRecord, ...] = ()
    snippets: int = 0
    seconds: float = 0.0
    complete: bool = False
    versions: Mapping[str, str] | None = None
    tokens: TokenParameters | None = None
    blocks: BlockParameters | None = None
    checksums: str | None = None
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON values."""
        return asdict(self)

    def fingerprint(self) -> dict[str, Any]:
        """Return what determines search results, for reports: encoder, settings, and the sources' hashes."""
        return {
            "name": self.name,
            "encoder": asdict(self.encoder),
            "similarity": self.similarity,
            "quantized": self.quantized,
            "bm25": asdict(self.bm25),
            "tokens": asdict(self.tokens) if self.tokens else None,
            "blocks": asdict(self.blocks) if self.blocks else None,
            "snippets": self.snippets,
            "sources": sorted(source.sha256 for source in self.sources),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], source: str) -> Manifest:
        """Return the manifest of JSON values read from `source`.

        Raises
        ------
        MismatchError
            If it is of another format version, or damaged.
        """
        if values.get("format") != FORMAT:
            raise MismatchError(
                f"{source} is of format {values.get('format')!r}, this biorag reads {FORMAT}: index the corpus again"
            )
        try:
            parts = {
                "encoder": _record(EncoderIdentity, values["encoder"]),
                "bm25": _record(Bm25Parameters, values["bm25"]),
                "tokens": _record(TokenParameters, values["tokens"]) if values.get("tokens") else None,
                "blocks": _record(BlockParameters, values["blocks"]) if values.get("blocks") else None,
                "sources": tuple(_record(SourceRecord, record) for record in values["sources"]),
            }
            store = values["store"]
            if STORES[store["kind"]].server and not store["url"]:
                raise KeyError("store")
            if values["similarity"] not in SIMILARITIES:
                raise KeyError("similarity")
            return _record(cls, {**values, **parts})
        except (KeyError, TypeError) as error:
            raise MismatchError(f"{source} is damaged ({error}): index the corpus again") from None


def _record(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """Return a record of JSON values; `TypeError` if one is of another type, or a dimension that no engine takes."""
    record = kind(**values)
    for field in fields(record):  # type: ignore[arg-type]
        value, expected = getattr(record, field.name), _KINDS.get(field.type)
        fits = expected is None or (isinstance(value, expected) and isinstance(value, bool) == (field.type == "bool"))
        if not fits or (field.name == "dimension" and not 0 < value <= WIDEST):
            raise TypeError(f"{field.name} is {value!r}")
    return record


def read_manifest(path: Path) -> Manifest:
    """Read a manifest file.

    Raises
    ------
    MismatchError
        If it cannot be read as a manifest of this version.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise MismatchError(f"{path} is damaged ({error}): index the corpus again") from None
    if not isinstance(values, dict):
        raise MismatchError(f"{path} is damaged (not a JSON object): index the corpus again")
    return Manifest.from_json(values, str(path))
