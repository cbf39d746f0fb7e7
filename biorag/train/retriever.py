"""Training the first stage: a siamese bi-encoder, one encoder for queries and passages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import cos_sim, dot_score

from biorag.config import Config
from biorag.errors import MissingError, UsageError, unknown_name
from biorag.loading import load_model
from biorag.models import ModelFiles
from biorag.reranker import is_late_interaction
from biorag.train.data import IN_BATCH, Split, columns, described, usable
from biorag.train.evaluators import METRIC, retrieval_validation
from biorag.train.folder import RunFolder
from biorag.train.loop import Job, NoModelCard, require_rows, run
from biorag.train.losses import OwnNegativesLoss, cosine_scores, dot_scores
from biorag.types import OnProgress

# The paper's: a cosine lies between −1 and 1 and is sharpened, a dot product is taken as it is.
SCALES = {"cosine": 20.0, "dot": 1.0}


class _Trainer(NoModelCard, SentenceTransformerTrainer):  # type: ignore[misc]
    pass


def train_retriever(
    files: ModelFiles,
    split: Split,
    config: Config,
    out: Path,
    facts: Mapping[str, Any],
    on_progress: OnProgress,
    negatives: str = IN_BATCH,
) -> dict[str, Any]:
    """Train a bi-encoder into `out`, a sentence-transformers directory, and return its manifest.

    Parameters
    ----------
    files : the base, a sentence-transformers directory or a bare transformer (which gets mean pooling)
    split : training rows, and rows of held-out questions to choose the best checkpoint by
    config : similarity, precision, seed and the `train_` settings
    facts : kept in the manifest
    negatives : "in-batch" (the other rows' passages and a row's own mined negatives), or the kind of the mined
        negatives, which are then the only ones

    Raises
    ------
    MissingError
        If the base does not load, or a package is not installed.
    BadInputError
        If no row can be used.
    MismatchError
        If `out` holds something else.
    ServiceError
        If memory runs out.
    """
    similarity = config.similarity or "cosine"
    if similarity not in SCALES:
        raise unknown_name("--similarity", similarity, SCALES)
    rows = usable(split.training, negatives, config.train_hard_negatives)
    require_rows(rows, "to train the retriever on")
    identity = {
        "kind": "retriever",
        "base_sha256": files.sha256,
        "negatives": negatives,
        "similarity": similarity,
        "settings": config.training(),
        "data": split.fingerprint(),
    }
    facts = {**facts, "base": files.id, **described(split.training, rows)}
    folder = RunFolder(out, identity)
    if done := folder.finished():
        return done
    model = _model(files, similarity, config)
    job = Job(
        trainer=_Trainer,
        arguments=SentenceTransformerTrainingArguments,
        model=model,
        loss=_loss(model, similarity, negatives, config),
        columns=columns(rows, config.train_hard_negatives),
        evaluator=retrieval_validation(split.validation, rows, similarity, config.precision, config.seed),
        metric=METRIC,
    )
    figures = run(job, folder, config, facts, on_progress)
    model.save(str(out), create_model_card=False)
    return folder.finish(figures)


def _model(files: ModelFiles, similarity: str, config: Config) -> SentenceTransformer:
    """Load the base in float32; for dot products without the layer that makes all vectors unit length."""
    if is_late_interaction(files):
        raise MissingError(f"base {files.id!r} is a late-interaction checkpoint: name a bi-encoder or a transformer")
    model = load_model(SentenceTransformer, files, "fp32")
    if similarity == "dot":
        kept = [module for module in model if not isinstance(module, Normalize)]
        prompts = dict(model.prompts)
        model = SentenceTransformer(modules=kept, device=str(model.device), prompts=prompts)
    model.similarity_fn_name = similarity
    model.max_seq_length = min(config.train_max_tokens, model.max_seq_length or config.train_max_tokens)
    return model


def _loss(model: SentenceTransformer, similarity: str, negatives: str, config: Config) -> Any:
    scale = SCALES[similarity]
    if negatives != IN_BATCH:
        if config.train_mini_batch_size:
            raise UsageError("--mini-batch-size caches the gradients of in-batch negatives: leave it out here")
        return OwnNegativesLoss(model, cosine_scores if similarity == "cosine" else dot_scores, scale)
    compared = cos_sim if similarity == "cosine" else dot_score
    if config.train_mini_batch_size:
        return CachedMultipleNegativesRankingLoss(model, scale, compared, config.train_mini_batch_size)
    return MultipleNegativesRankingLoss(model, scale, compared)
