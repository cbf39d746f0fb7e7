"""Saved rerankers compared with colbert-ai, the reference implementation, which must reproduce their scores."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sentence_transformers import MultiVectorEncoder

from biorag.models.colbert_ai import ColbertAI
from biorag.models.finding import ModelFiles
from biorag.models.loading import load_model

logger = logging.getLogger(__name__)


def largest_difference(folder: Path, query: str, texts: Sequence[str]) -> float | None:
    """Return how far colbert-ai's mean MaxSim with a checkpoint is from sentence-transformers'.

    None without colbert-ai, or if it fails: a checkpoint is worth keeping either way.
    """
    if find_spec("colbert") is None:
        return None
    files = ModelFiles(str(folder), "", folder, "")
    model = load_model(MultiVectorEncoder, files, "fp32")
    tokens = model.encode_query([query])
    ours = model.similarity(tokens, model.encode_document(list(texts)))[0].cpu().numpy() / len(tokens[0])
    try:
        return float(np.abs(ours - ColbertAI(files).mean_maxsim(query, texts)).max())
    except Exception as error:  # whatever colbert-ai raises, the training is complete
        logger.warning("colbert-ai could not score %s: %s", folder, error)
        return None
