"""The manifest: models, settings and sources of an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from biorag.errors import MismatchError
from biorag.registries import STORES
from biorag.types import Count, Dimension, EncoderIdentity, Label, Sha256, Vectors
from biorag.utils.files import sha256_of_json
from biorag.utils.parsing import parse_json, read_regular, validated

FORMAT = 1
WORDS: Final = "words"
BIOCLEAN: Final = "bioclean"
BIGRAMS: Final = "bigrams"
FULL: Final = "full"
COMPACT: Final = "compact"
LONGEST_PROJECTION = 32 << 20  # characters
MANIFEST = "manifest.json"
AGAIN = "index the corpus again"


@dataclass(frozen=True, slots=True)
class Bm25Parameters:
    """BM25 as Qdrant computes it: tokenizer, stop words and stemmer of `language`, IDF by the engine.

    `avg_len` is the mean snippet length in BM25 tokens, measured when the index was created. `terms` are words, those
    of BioASQ's bioclean, word pieces of the encoder's tokenizer, or these with bigrams; only the first have a language.
    """

    k: Annotated[float, Field(ge=0, le=1e9)]
    b: Annotated[float, Field(ge=0, le=1)]
    avg_len: Annotated[float, Field(ge=0, le=1e9)]
    language: Label = "english"
    text: Literal["comparable"] = "comparable"
    terms: Literal["words", "bioclean", "pieces", "bigrams"] = WORDS


@dataclass(frozen=True, slots=True)
class TokenParameters:
    """The token vectors that an index keeps for reranking.

    `reranker` is "encoder" for the index's own bi-encoder, else a ColBERT checkpoint with weights of this `sha256`.
    `pooling` tokens are merged into one. `projection`, as `biorag.models.token_projection` writes it, brings the
    model's vectors to `dimension`; empty where they have it.
    """

    reranker: Label
    revision: Label
    sha256: Sha256
    dimension: Dimension
    pooling: Annotated[int, Field(ge=1, le=1_000_000)]
    kept: Literal["full", "compact"] = FULL
    projection: Annotated[str, Field(max_length=LONGEST_PROJECTION)] = ""

    @property
    def matrix(self) -> Vectors | None:
        """The projection, (dim, dimension), None where there is none; raises ValueError where it is damaged."""
        if not self.projection:
            return None
        from biorag.models.token_projection import from_text

        return from_text(self.projection, self.dimension)

    @property
    def bits(self) -> int:
        """Bits of a stored number."""
        return 4 if self.kept == COMPACT else 16

    def fingerprint(self) -> dict[str, Any]:
        """Return its JSON with the SHA-256 of the projection in its place."""
        values = asdict(self)
        return values | ({"projection": sha256_of_json(self.projection)} if self.projection else {})


@dataclass(frozen=True, slots=True)
class BlockParameters:
    """How long documents are split: tokens of the encoder in a block, and how many of them two blocks share."""

    tokens: Annotated[int, Field(ge=1, le=2**31)]
    overlap: Annotated[int, Field(ge=0, le=2**31)]


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One corpus file that went in: as it lay on disk, and how many snippets, deletions and rejects it gave."""

    name: Label
    sha256: Sha256
    bytes: Count
    snippets: Count
    deletions: Count = 0
    rejected: Count = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that determines what an index answers.

    `sources` stand in the order in which they went in: PubMed's later files change its earlier ones.
    `complete` is False from the first write of a run to its end, and after it while documents are torn that an earlier
    run, which was killed, was writing.
    `seconds` adds up the indexing runs. `checksums` is the SHA-256 of `checksums.json`, by which damage to the
    shard's files is noticed; None while a run is under way, and for an index on a server. `vectors` is the hash of
    the published vectors that snippets were given in place of encoding them. `fields` are those that a snippet has had,
    each with the kinds of its values, as `fields.kinds_of` tells them; None where they were not gathered.
    """

    name: Label
    encoder: EncoderIdentity
    similarity: Annotated[str, Field(pattern="^(cosine|dot)$")]
    quantized: bool
    bm25: Bm25Parameters
    store: Mapping[Label, Label]
    created: Label
    updated: Label
    sources: tuple[SourceRecord, ...] = ()
    snippets: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    complete: bool = False
    versions: Mapping[Label, Label] | None = None
    tokens: TokenParameters | None = None
    blocks: BlockParameters | None = None
    checksums: Sha256 | None = None
    vectors: Sha256 | None = None
    fields: Mapping[Label, Label] | None = None
    format: int = FORMAT

    @property
    def identity(self) -> tuple[str, str, str]:
        """What an index has wherever it lies: its name, when it was made, and the hash of its encoder."""
        return self.name, self.created, self.encoder.sha256

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON values."""
        return asdict(self)

    def shown(self) -> dict[str, Any]:
        """Return its JSON values for reading: of a projection its SHA-256."""
        return {**self.to_json(), "tokens": self.tokens.fingerprint() if self.tokens else None}

    def fingerprint(self) -> dict[str, Any]:
        """Return what determines search results, for reports: encoder, settings, and the sources' hashes."""
        return {
            "name": self.name,
            "encoder": asdict(self.encoder),
            "similarity": self.similarity,
            "quantized": self.quantized,
            "bm25": asdict(self.bm25),
            "tokens": self.tokens.fingerprint() if self.tokens else None,
            "blocks": asdict(self.blocks) if self.blocks else None,
            "snippets": self.snippets,
            "sources": sorted(source.sha256 for source in self.sources),
            **({"vectors": self.vectors} if self.vectors else {}),
        }

    @classmethod
    def from_json(cls, values: Any, source: str) -> Manifest:
        """Return the manifest of JSON values read from `source`.

        Raises `MismatchError` if it is of another format version, or damaged.
        """
        if not isinstance(values, dict):
            raise MismatchError(f"{source} is damaged (not a JSON object): {AGAIN}")
        if values.get("format") != FORMAT:
            version = repr(values.get("format"))[:40]
            raise MismatchError(f"{source} is of format {version}, this biorag reads {FORMAT}: {AGAIN}")
        try:
            manifest: Manifest = validated(cls, values)
            if manifest.tokens:
                _ = manifest.tokens.matrix
            kind = STORES.get(manifest.store.get("kind", ""))
            if kind is None or (kind.server and not manifest.store.get("url")):
                raise ValueError(f"store: no kind with what it takes, one of {', '.join(STORES)}")
        except ValueError as error:
            raise MismatchError(f"{source} is damaged ({error}): {AGAIN}") from None
        return manifest


def read_manifest(path: Path) -> Manifest:
    """Read a manifest file.

    Raises `BadInputError` if it is a pipe or a device, or too large for a manifest; `MismatchError` if it cannot be
    read, or not as a manifest of this version.
    """
    try:
        values = parse_json(read_regular(path))
    except OSError as error:
        raise MismatchError(f"{path} cannot be read ({error.strerror}): check its permissions, or {AGAIN}") from None
    except ValueError as error:
        raise MismatchError(f"{path} is damaged ({error}): {AGAIN}") from None
    return Manifest.from_json(values, str(path))
