"""The bi-encoder: one vector per text, and the token vectors it is made of, by sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from biorag.models.batches import Task
from biorag.models.finding import ModelFiles
from biorag.models.inference import Features, prompt_of, run, token_vectors
from biorag.models.loading import input_modules, load_for_inference
from biorag.models.text_encoder import TextEncoder
from biorag.models.token_projection import unit
from biorag.types import Encoded, Vectors


class BiEncoder(TextEncoder):
    """A sentence-transformers model; `similarity` "cosine" gives unit vectors, "dot" the model's own.

    `precision` "auto" computes in bfloat16 where the hardware does so natively (on CPUs: avx512_bf16 or amx_bf16), else
    in float32. Vectors are float32 either way.

    Raises `MissingError` if the directory is not a model that sentence-transformers loads.
    """

    def __init__(self, files: ModelFiles, similarity: str = "cosine", precision: str = "auto") -> None:
        self.model = load_for_inference(SentenceTransformer, files, precision)
        has_tokens = all(hasattr(module, "auto_model") for module in input_modules(self.model))
        self.model.prompts = {task: prompt_of(self.model, task) or "" for task in get_args(Task)}
        super().__init__(files, int(self.model.get_embedding_dimension()), has_tokens, self.model.prompts)
        self._normalize = similarity == "cosine"

    def encode(self, texts: Sequence[str], task: Task, with_tokens: bool) -> Encoded:
        """Encode texts, keeping nothing; without `with_tokens` the token vectors are empty."""

        def rows(features: Features) -> list[tuple[Vectors, Vectors]]:
            vectors = features["sentence_embedding"].float()
            vectors = torch.nn.functional.normalize(vectors, dim=-1) if self._normalize else vectors
            arrays = vectors.numpy(force=True)
            tokens = map(unit, token_vectors(features)) if with_tokens else [arrays[:0]] * len(arrays)
            return list(zip(arrays, tokens, strict=True))

        encoded = run(self.model, texts, task, rows)
        vectors = [vector for vector, _ in encoded]
        stacked = np.stack(vectors) if vectors else np.empty((0, self.identity.dimension), np.float32)
        return Encoded(stacked, [tokens for _, tokens in encoded])
