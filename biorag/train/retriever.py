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

from biorag.config import Config
from biorag.errors import MissingError
from biorag.loading import load_model
from biorag.models import ModelFiles
from biorag.reranker import is_late_interaction
from biorag.train.data import IN_BATCH, Split, check_negatives, columns, described, usable
from biorag.train.evaluators import METRIC, retrieval_validation
from biorag.train.loop import Job, NoModelCard, folder_of, run
from biorag.train.losses import OWN_SCORES, SIMILARITIES, OwnNegativesLoss
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
    check_negatives(negatives, config)
    rows = usable(split.training, negatives, config.train_hard_negatives)
    facts = {**facts, "base": files.id, **described(split.training, rows)}
    folder = folder_of(out, "retriever", files, split, config, negatives=negatives, similarity=similarity)
    if done := folder.finished():
        return done
    with folder.locked():
        model = _model(files, similarity)
        longest = model.max_seq_length
        model.max_seq_length = min(config.train_max_tokens, longest or config.train_max_tokens)
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
        model.max_seq_length = longest  # training cuts passages for speed; searching need not
        model.save(str(out), create_model_card=False)
        return folder.finish(figures)


def _model(files: ModelFiles, similarity: str) -> SentenceTransformer:
    """Load the base in float32; for dot products without the layer that makes all vectors unit length."""
    if is_late_interaction(files):
        raise MissingError(f"base {files.id!r} is a late-interaction checkpoint: name a bi-encoder or a transformer")
    model = load_model(SentenceTransformer, files, "fp32")
    if similarity == "dot":
        kept = [module for module in model if not isinstance(module, Normalize)]
        prompts = dict(model.prompts)
        model = SentenceTransformer(modules=kept, device=str(model.device), prompts=prompts)
    model.similarity_fn_name = similarity
    return model


def _loss(model: SentenceTransformer, similarity: str, negatives: str, config: Config) -> Any:
    scale = SCALES[similarity]
    if negatives != IN_BATCH:
        return OwnNegativesLoss(model, OWN_SCORES[similarity], scale)
    compared = SIMILARITIES[similarity]
    if config.train_mini_batch_size:
        return CachedMultipleNegativesRankingLoss(model, scale, compared, config.train_mini_batch_size)
    return MultipleNegativesRankingLoss(model, scale, compared)
