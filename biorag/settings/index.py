"""Settings of an index and of its making."""

from __future__ import annotations

from typing import Literal

from biorag.registries import EMBEDDED, STORES
from biorag.settings.section import Effect, Section, option, setting

TokenStorage = Literal["compact", "full", "none"]
COMPACT_DIMENSION = 128  # of compact token vectors, if the model's have more
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
DEFAULT = "default"


class IndexSettings(Section):
    """The index, its encoder, and choices that are fixed when it is made."""

    name: str = option(
        DEFAULT,
        "Index to use. Default: the only one, or 'default'.",
        short="-n",
        pattern=NAME,
        effect=Effect.NAMES,
    )
    encoder: str | None = option(
        None,
        "Bi-encoder: 'starter', 'minilm' (the starter untrained), a directory, or a Hugging Face id. Default: the "
        "index's own, for a new one 'starter'.",
        effect=Effect.NAMES,
    )
    revision: str | None = setting(None, "Revision of a Hugging Face encoder.", effect=Effect.NAMES)
    similarity: Literal["cosine", "dot"] | None = option(
        None, "cosine or dot. Default: the index's own, for a new one the encoder's training objective."
    )
    quantize: bool = option(False, "Search int8 copies of the dense vectors, rescore exactly.")
    store: str | None = setting(
        None,
        f"{STORES.listed()}. Default: the index's own, for a new one {EMBEDDED}.",
        choices=STORES,
        effect=Effect.NONE,
    )
    store_tokens: TokenStorage | None = option(
        None,
        "Token vectors that a new index keeps, so that reranking encodes only the query: compact "
        f"({COMPACT_DIMENSION} numbers of 4 bits a token), full (16 bits) or none. Default: compact.",
    )
    token_pooling: int = option(1, "Merge this many stored token vectors into one, by similarity.", bounds=(1, 32))
    shards: int | None = option(
        None,
        "Shards of a new collection on a Qdrant server. Default: 1, since each counts BM25's terms on its own.",
        bounds=(1, 1024),
        effect=Effect.NONE,
    )
    replicas: int | None = option(
        None,
        "Copies of each shard, on as many nodes of a Qdrant cluster. Default: the server's own number.",
        bounds=(1, 64),
        effect=Effect.NONE,
    )
    on_disk: bool = option(
        False,
        "Keep vectors, BM25 and payload of a new collection on a Qdrant server on disk; int8 copies (--quantize) and "
        "graph stay in memory.",
        effect=Effect.NONE,
    )
    batch_size: int = option(1024, "Snippets written and made durable at once.", bounds=(1, 65_536), effect=Effect.NONE)
    block_tokens: int = option(
        0,
        "Split snippets into blocks of at most N tokens. 0 keeps the index's own; a new index is not split.",
        bounds=(0, 100_000),
    )
    block_overlap: int | None = option(None, "Tokens that two blocks share. Default: a fifth.", bounds=(0, 100_000))
    bm25_terms: Literal["words", "bioclean", "pieces", "bigrams"] | None = option(
        None,
        "What BM25 counts: words (stems, no stop words), bioclean (BioASQ's words: lower case, no punctuation), pieces "
        "(the encoder's word pieces) or bigrams (and their pairs). Default: the index's own, for a new one words.",
    )
    bm25_k: float = setting(0.9, "BM25 term-frequency saturation of a new index.", bounds=(0, 1000))
    bm25_b: float = setting(0.4, "BM25 length normalisation of a new index.", bounds=(0, 1))
