"""What an index is, and how it is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, field_serializer, field_validator

from biorag.registries import EMBEDDED, STORES
from biorag.settings.section import Effect, Flag, Section

TokenStorage = Literal["compact", "full", "none"]
TOKEN_STORAGE: tuple[str, ...] = get_args(TokenStorage)
COMPACT_DIMENSION = 128  # of compact token vectors, if the model's have more
_BOOLEAN = TypeAdapter(bool)
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
DEFAULT = "default"


class IndexSettings(Section):
    """The index, its encoder, and what is fixed when it is made."""

    name: Annotated[str, Flag("--name", "-n"), Effect.NAMES] = Field(
        default=DEFAULT,
        pattern=NAME,
        description="Name of the index; none: the only one, else 'default'; of the packaged corpus 'demo'.",
    )
    encoder: Annotated[str | None, Flag("--encoder"), Effect.NAMES] = Field(
        default=None,
        description="Bi-encoder: 'starter', a directory, or a Hugging Face id; none: the index's own, for a new index "
        "'starter'.",
    )
    revision: Annotated[str | None, Flag("--revision"), Effect.NAMES] = Field(
        default=None, description="Revision of a Hugging Face encoder."
    )
    similarity: Annotated[Literal["cosine", "dot"] | None, Flag("--similarity")] = Field(
        default=None,
        description="cosine or dot; none: the index's own, for a new index the one that the encoder was trained for.",
    )
    quantize: Annotated[bool, Flag("--quantize", shows_default=False)] = Field(
        default=False, description="Search int8 copies of the dense vectors, rescore exactly."
    )
    store: Annotated[str | None, Flag("--store", choices=STORES), Effect.NONE] = Field(
        default=None, description=f"{STORES.listed()}; none: the index's own, of a new one {EMBEDDED}."
    )
    store_tokens: Annotated[TokenStorage | None, Flag("--store-tokens")] = Field(
        default=None,
        description="Token vectors of the reranker that a new index keeps, so that reranking encodes only the query: "
        f"compact ({COMPACT_DIMENSION} numbers of 4 bits a token), full (16 bits) or none; none given: compact, on a "
        "server none.",
    )
    token_pooling: Annotated[int, Flag("--token-pooling")] = Field(
        default=1, ge=1, le=32, description="Merge this many stored token vectors into one, by similarity."
    )
    shards: Annotated[int | None, Flag("--shards"), Effect.NONE] = Field(
        default=None,
        ge=1,
        le=1024,
        description="Shards of a new collection on a Qdrant server; none: as many as the server has nodes.",
    )
    replicas: Annotated[int | None, Flag("--replicas"), Effect.NONE] = Field(
        default=None,
        ge=1,
        le=64,
        description="Copies of each shard, on as many nodes of a Qdrant cluster; none: the server's own number.",
    )
    on_disk: Annotated[bool, Flag("--on-disk", shows_default=False), Effect.NONE] = Field(
        default=False,
        description="Keep vectors, BM25 and payload of a new collection on a Qdrant server on disk; int8 copies "
        "(--quantize) and graph stay in memory.",
    )
    write_consistency: Annotated[int | None, Effect.NONE] = Field(
        default=None,
        ge=1,
        le=64,
        description="Replicas that acknowledge each write to a new collection; none: a majority of --replicas.",
    )
    batch_size: Annotated[int, Flag("--batch-size", shows_default=False), Effect.NONE] = Field(
        default=1024, ge=1, le=65_536, description="Snippets written and made durable at once."
    )
    block_tokens: Annotated[int, Flag("--block-tokens")] = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Split longer snippets into blocks of this many tokens; 0: as the index, no blocks in a new one.",
    )
    block_overlap: Annotated[int | None, Flag("--block-overlap")] = Field(
        default=None, ge=0, le=100_000, description="Tokens that two blocks share; none: a fifth."
    )
    bm25_terms: Annotated[Literal["words", "pieces", "bigrams"] | None, Flag("--bm25-terms")] = Field(
        default=None,
        description="What BM25 counts: words (stems, no stop words), pieces (the encoder's word pieces) or bigrams "
        "(and their pairs); none: the index's own, for a new index words.",
    )
    bm25_k: float = Field(default=0.9, ge=0, le=1000, description="BM25 term-frequency saturation of a new index.")
    bm25_b: float = Field(default=0.4, ge=0, le=1, description="BM25 length normalisation of a new index.")

    @field_validator("store_tokens", mode="before")
    @classmethod
    def _was_boolean(cls, value: Any) -> Any:
        """Read what earlier versions took: true, or false where it was not asked for, spelled as a variable may."""
        try:
            return "compact" if _BOOLEAN.validate_python(value) else None
        except ValidationError:
            return value

    @field_serializer("store_tokens", when_used="json")
    def _as_earlier(self, value: str | None) -> str | bool:
        """Write what earlier versions wrote, where reports and identities of runs are compared."""
        return value or False

    def public(self) -> dict[str, Any]:
        """Return what `Section.public` does; the terms of BM25 only where they are named, as the manifest has them."""
        values = super().public()
        if self.bm25_terms is None:
            del values["bm25_terms"]
        return values

    @field_validator("store")
    @classmethod
    def _is_registered(cls, value: str | None) -> str | None:
        if value is not None and value not in STORES:
            raise ValueError(f"use {STORES.names()}")
        return value
