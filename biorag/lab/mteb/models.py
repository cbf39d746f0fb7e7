"""biorag's bi-encoder as a model that mteb evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from mteb.models import ModelMeta
from mteb.types import PromptType

from biorag.engine import encoder_files, load_encoder
from biorag.models.text_encoder import TextEncoder
from biorag.settings.settings import Settings
from biorag.training.instructions import dataset_key, parted
from biorag.types import OnProgress, Snippet, Vectors
from biorag.utils.files import sha256_of_json
from biorag.utils.progress import batched
from biorag.utils.versions import installed_versions

ENCODED = 1024  # texts encoded at once: the encoder makes its own batches of them, by length
Batch = Mapping[str, Any]


def model_meta(name: str, identity: Mapping[str, Any]) -> ModelMeta:
    """Return the model's name (of a directory the last part), and as revision the hash of its identity."""
    shown = name if name.count("/") == 1 and not name.startswith((".", "/", "~")) else f"biorag/{name.split('/')[-1]}"
    revision = sha256_of_json(identity)[:16]
    return ModelMeta.create_empty({"name": shown, "revision": revision})


class EncoderModel:
    """A bi-encoder as mteb's `EncoderProtocol`: mteb searches exactly, by the product of the vectors.

    Documents are encoded as biorag indexes them: title and text joined by MedRAG's rule (`Snippet.contents`). Texts
    that are neither query nor document, such as those of sentence similarity, are encoded as queries.

    `instructions` (`dataset_key` of a task's name -> instruction) take the place of the one in the encoder's own query
    prompt; a task without one keeps that prompt.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        meta: ModelMeta,
        on_progress: OnProgress,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self.mteb_model_meta = meta
        self._encoder = encoder
        self._advance = on_progress
        self._instructions = instructions or {}
        self._own_prompt = encoder.query_prompt

    def instruction(self, task: str) -> str | None:
        """Return the instruction of a task, if it has one."""
        return self._instructions.get(dataset_key(task))

    def encode(
        self, inputs: Iterable[Batch], *, task_metadata: Any, prompt_type: PromptType | None = None, **_: Any
    ) -> Vectors:
        """Encode the texts of a data loader, shape (texts, dimension)."""
        instruction = self.instruction(task_metadata.name)
        form = parted(self._own_prompt)[1]
        self._encoder.query_prompt = self._own_prompt if instruction is None else form.prompt(instruction)
        as_documents = prompt_type == PromptType.document
        encode = self._encoder.encode_snippets if as_documents else self._encoder.encode_queries
        parts: list[Vectors] = []
        for texts in batched(chain.from_iterable(_texts(batch, as_documents) for batch in inputs), ENCODED):
            parts.append(encode(texts))
            self._advance(len(texts))
        return np.concatenate(parts)

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return every product of two sets of vectors, shape (first, second)."""
        products: Vectors = np.asarray(embeddings1) @ np.asarray(embeddings2).T
        return products

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return the product of each pair of vectors, shape (pairs,)."""
        products: Vectors = (np.asarray(embeddings1) * np.asarray(embeddings2)).sum(axis=1)
        return products


def _texts(batch: Batch, as_documents: bool) -> list[str]:
    """Return a batch's texts; mteb gives title and body of documents, and both joined by its own rule."""
    if not as_documents or "title" not in batch:
        return list(batch["text"])
    rows = zip(batch["title"], batch["body"], strict=True)
    return [Snippet("", (title or "").strip(), body.strip()).contents for title, body in rows]


def model_of(
    settings: Settings, on_progress: OnProgress, instructions: Mapping[str, str] | None
) -> tuple[EncoderModel, dict[str, Any]]:
    """Return the model to evaluate, and its identity: everything that determines results."""
    files = encoder_files(settings, None)
    similarity = settings.index.similarity or files.similarity() or "cosine"
    encoder = load_encoder(files, similarity, settings.retrieval.precision, settings.exports)
    identity: dict[str, Any] = {
        "encoder": {"id": files.id, "sha256": files.sha256},
        "similarity": similarity,
        "precision": settings.retrieval.precision,
        "versions": installed_versions(),
        "query_prompt": encoder.query_prompt,
    }
    if instructions:
        identity["instructions"] = dict(instructions)
    return EncoderModel(encoder, model_meta(files.id, identity), on_progress, instructions), identity
