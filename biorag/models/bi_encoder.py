"""The bi-encoder: one vector per text, and the token vectors it is made of, by sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from biorag.errors import UsageError
from biorag.models.finding import ModelFiles
from biorag.models.inference import Features, Task, prompt_of, run, token_vectors
from biorag.models.loading import input_modules, load_for_inference
from biorag.models.tokens import token_spans
from biorag.types import Encoded, EncoderIdentity, LocatedTokens, Vectors

KEPT_PASSAGES = 128  # of the last call for token vectors: a few dozen candidates of one question, never a whole batch


class BiEncoder:
    """A sentence-transformers model; `similarity` "cosine" gives unit vectors, "dot" the model's own.

    `precision` "auto" computes in bfloat16 where the hardware does so natively (on CPUs: avx512_bf16 or
    amx_bf16), else in float32. Vectors come back as float32 either way. It is a token encoder too: its token
    vectors, of unit length, are what the reranker "encoder" compares. An asymmetric model's queries and passages go
    through towers of their own, their tokens too.

    Raises
    ------
    MissingError
        If the directory is not a model that sentence-transformers loads.
    """

    def __init__(self, files: ModelFiles, similarity: str = "cosine", precision: str = "auto") -> None:
        self.model = load_for_inference(SentenceTransformer, files, precision)
        self.has_tokens = all(hasattr(module, "auto_model") for module in input_modules(self.model))
        self._normalize = similarity == "cosine"
        self._files = files
        self.identity = EncoderIdentity(
            files.id, files.revision, files.sha256, self._dimension(), files.configuration()
        )
        self._last_queries: tuple[list[str], Encoded] = ([], Encoded(np.empty((0, 0), np.float32), []))
        self._last_passages: dict[str, Vectors] = {}

    @property
    def query_prompt(self) -> str:
        """What stands before a question; it may be set, until the model is loaded again."""
        return prompt_of(self.model, "query") or ""

    @query_prompt.setter
    def query_prompt(self, prompt: str) -> None:
        self.model.prompts["query"] = prompt
        self._last_queries = [], self._last_queries[1]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode questions, shape (texts, dimension)."""
        return self._queries(texts).vectors

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, shape (texts, dimension)."""
        return self._encode(texts, "document", with_tokens=False).vectors

    def encode_snippets_with_tokens(self, texts: Sequence[str]) -> Encoded:
        """Encode passages and their tokens in one pass."""
        return self._encode(texts, "document", with_tokens=True)

    def query_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of questions; those of the last questions encoded are kept."""
        self._require_tokens()
        return self._queries(texts).tokens

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of passages."""
        self._require_tokens()
        tokens = self._encode(texts, "document", with_tokens=True).tokens
        self._last_passages = dict(zip(texts, tokens, strict=True)) if len(texts) <= KEPT_PASSAGES else {}
        return tokens

    def located_tokens(self, texts: Sequence[str]) -> list[LocatedTokens]:
        """Return the token vectors of passages, and where each token stands in its passage.

        Those of a passage among the last that a reranker had encoded are not computed again.
        """
        self._require_tokens()
        missing = [text for text in dict.fromkeys(texts) if text not in self._last_passages]
        encoded = self._encode(missing, "document", with_tokens=True).tokens if missing else []
        tokens = {**self._last_passages, **dict(zip(missing, encoded, strict=True))}
        return [LocatedTokens(tokens[text], self._spans(text)) for text in texts]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        prompt = prompt_of(self.model, "document") or ""
        spans = self._token_spans(prompt + text)
        if prompt and not all(getattr(module, "include_prompt", True) for module in self.model):
            spans = spans[sum(end <= len(prompt) for _, end in spans[:-1]) :]  # pooling masks the prompt's tokens
        return [(max(0, start - len(prompt)), max(0, end - len(prompt))) for start, end in spans]

    @cached_property
    def _token_spans(self) -> Callable[[str], list[tuple[int, int]]]:
        return token_spans(self._files)

    def _require_tokens(self) -> None:
        if not self.has_tokens:
            raise UsageError(
                f"encoder {self.identity.id!r} has no token vectors to rerank by: give --no-rerank, or a --reranker"
            )

    def _queries(self, texts: Sequence[str]) -> Encoded:
        last_texts, encoded = self._last_queries
        if list(texts) != last_texts:
            encoded = self._encode(texts, "query", with_tokens=self.has_tokens)
            self._last_queries = list(texts), encoded
        return encoded

    def _encode(self, texts: Sequence[str], task: Task, with_tokens: bool) -> Encoded:
        def rows(features: Features) -> list[tuple[Vectors, Vectors]]:
            vectors = features["sentence_embedding"].float()
            vectors = torch.nn.functional.normalize(vectors, dim=-1) if self._normalize else vectors
            tokens = (
                [_unit(tokens) for tokens in token_vectors(features)]
                if with_tokens
                else [vectors[:0].numpy(force=True)] * len(vectors)
            )
            return list(zip(vectors.numpy(force=True), tokens, strict=True))

        encoded = run(self.model, texts, task, rows)
        vectors = [vector for vector, _ in encoded]
        stacked = np.stack(vectors) if vectors else np.empty((0, self._dimension()), np.float32)
        return Encoded(stacked, [tokens for _, tokens in encoded])

    def _dimension(self) -> int:
        return int(self.model.get_embedding_dimension())


def _unit(tokens: Vectors) -> Vectors:
    unit: Vectors = tokens / np.maximum(np.linalg.norm(tokens, axis=1, keepdims=True), 1e-12)
    return unit
