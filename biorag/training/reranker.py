"""Training the second stage: late interaction (ColBERT) on the first stage's mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import (
    MultiVectorEncoder,
    MultiVectorEncoderTrainer,
    MultiVectorEncoderTrainingArguments,
)
from sentence_transformers.multi_vector_encoder.losses import (
    CachedMultiVectorMultipleNegativesRankingLoss,
    MultiVectorDistillKLDivLoss,
    MultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.multi_vector_encoder.scoring import colbert_kd_scores, colbert_scores

from biorag.models.colbert import read_long_queries
from biorag.models.finding import ModelFiles
from biorag.models.loading import load_model
from biorag.registries import NEGATIVES
from biorag.settings.settings import Settings
from biorag.training import distributed
from biorag.training.asymmetric import require_single_tower
from biorag.training.colbert import Lengths, save_model, write_base
from biorag.training.data import IN_BATCH, Split, check_negatives, columns, described, usable
from biorag.training.evaluators import METRIC, reranking_validation
from biorag.training.loop import Job, NoModelCard, folder_of, run
from biorag.training.losses import Candidates, CandidatesLoss, OwnNegativesLoss, maxsim_scores
from biorag.training.parity import largest_difference
from biorag.types import OnProgress

PASSAGE_TOKENS = 256  # a trained reranker reads at least these; training may cut passages shorter for speed
SAMPLE = 16  # passages on which a saved checkpoint is compared with colbert-ai
TEMPERATURE = 1.0  # MaxSim sums over the query's tokens, so its scores are spread widely enough


class _Trainer(NoModelCard, MultiVectorEncoderTrainer):  # type: ignore[misc]
    pass


def train_reranker(
    files: ModelFiles,
    split: Split,
    settings: Settings,
    out: Path,
    facts: Mapping[str, Any],
    on_progress: OnProgress,
    negatives: str = IN_BATCH,
    distill: bool = False,
) -> dict[str, Any]:
    """Train a late-interaction reranker into `out`, a ColBERT checkpoint, and return its manifest.

    Parameters
    ----------
    files : the base: a BERT, MiniLM or ModernBERT, a bi-encoder, or a ColBERT checkpoint
    split : training rows, and rows of held-out questions with mined negatives to choose the best checkpoint by
    settings : precision, seed and the `train_` settings
    facts : kept in the manifest
    negatives : "in-batch" (the other rows' passages and a row's own mined negatives), or the kind of the mined
        negatives, which are then the only ones
    distill : learn the distribution of the rows' teacher scores instead

    Raises
    ------
    As `train_retriever` does; also BadInputError if rows lack the scores to distill from.
    """
    check_negatives(negatives, settings.training, distill)
    require_single_tower(files)
    rows = usable(split.training, negatives, settings.training.hard_negatives)
    facts = {**facts, "base": files.id, **described(split.training, rows)}
    folder = folder_of(out, "reranker", files, split, settings, negatives=negatives, distill=distill)
    if done := folder.finished():
        return done
    with folder.locked():
        texts = columns(rows, settings.training.hard_negatives, distill)
        lengths = Lengths(settings.training.query_tokens, max(settings.training.max_tokens, PASSAGE_TOKENS))
        folder.begin(facts)
        if distributed.is_first():
            write_base(files, folder.base, lengths, texts["positive"], settings.seed)
        distributed.wait()
        model = load_model(MultiVectorEncoder, ModelFiles(files.id, "", folder.base, files.sha256), "fp32")
        read_long_queries(model)
        job = Job(
            trainer=_Trainer,
            arguments=MultiVectorEncoderTrainingArguments,
            model=model,
            loss=_loss(model, negatives, distill, settings),
            columns=texts,
            evaluator=reranking_validation(split.validation, settings.retrieval.precision, settings.seed),
            metric=METRIC,
            arguments_of_stage={"max_length": {"document": settings.training.max_tokens}},
        )
        figures = run(job, folder, settings, facts, on_progress)
        if distributed.is_first():
            save_model(out, model, lengths)
            figures["difference_from_colbert_ai"] = largest_difference(out, rows[0].query, texts["positive"][:SAMPLE])
        return folder.finish(figures)


def _loss(model: MultiVectorEncoder, negatives: str, distill: bool, settings: Settings) -> Any:
    mini_batch, gather = settings.training.mini_batch_size, distributed.count() > 1
    temperature = settings.training.temperature or TEMPERATURE
    if distill:
        own = Candidates(colbert_kd_scores, own_only=True)
        return CandidatesLoss(
            MultiVectorDistillKLDivLoss(model, similarity_fct=own, temperature=temperature, mini_batch_size=mini_batch),
            own,
        )
    if not NEGATIVES[negatives].in_batch:
        return OwnNegativesLoss(model, maxsim_scores, 1 / temperature)
    positives_only = settings.training.in_batch == "positives"
    candidates = Candidates(colbert_scores, by_row=True, positives_only=positives_only, gather=gather)
    scoring = {"scale": 1 / temperature, "similarity_fct": candidates, "gather_across_devices": gather}
    if mini_batch:
        cached = CachedMultiVectorMultipleNegativesRankingLoss(model, mini_batch_size=mini_batch, **scoring)
        return CandidatesLoss(cached, candidates)
    # Passages are encoded as many at a time as queries, the long ones apart: less padding.
    size = settings.training.batch_size
    return CandidatesLoss(MultiVectorMultipleNegativesRankingLoss(model, mini_batch_size=size, **scoring), candidates)
