"""Training the first stage: a bi-encoder, whose base is an encoder or a decoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from biorag.errors import BadInputError, UsageError
from biorag.models.finding import ADAPTER, ModelFiles
from biorag.models.inference import drop_padding, prompt_of
from biorag.models.loading import input_modules
from biorag.settings.section import ONCE
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import EncoderForm, LoraLayers, write_base
from biorag.training.data import IN_BATCH, Split, TrainingSet, check_negatives, columns, mixed, usable
from biorag.training.estimating import TrainingBatch, batch_of_rows
from biorag.training.evaluators import METRIC, TRIPLETS, Validation, retrieval_validation, triplet_validation
from biorag.training.instructions import Instructions, form_of
from biorag.training.loop import NoModelCard, TrainerJob, Training, batch_size, prompts_of
from biorag.training.losses import SIMILARITIES, MaskedLoss, MaskedSimilarity, TokenLoss, mean_maxsim
from biorag.training.run_directory import TrainingRun, is_first_process, process_count, wait_for_processes
from biorag.training.sampling import RandomPrompts, SharedBatchSampler, rows_of_batch
from biorag.types import TrainingRow

logger = logging.getLogger(__name__)

# A cosine, between −1 and 1, is sharpened by sentence-transformers' default; a dot product is not, as in BMRetriever.
SCALES = {"cosine": 20.0, "dot": 1.0}


class RetrieverTrainer(NoModelCard, SentenceTransformerTrainer):  # type: ignore[misc]
    """Trains a bi-encoder."""


class RetrieverTraining(Training):
    """A bi-encoder, saved as a sentence-transformers directory.

    The base is a sentence-transformers directory, a bare transformer (which gets mean pooling, a decoder its last
    token's vector), or a GGUF file. `negatives` are "in-batch" (the other rows' passages and a row's own mined
    negatives), or the kind of the mined negatives, which are then the only ones.
    """

    kind = "retriever"
    shares_batches = True

    def __init__(
        self,
        files: ModelFiles,
        split: Split,
        settings: Settings,
        negatives: str = IN_BATCH,
        form: EncoderForm | None = None,
    ) -> None:
        check_negatives(negatives, settings.training)
        if settings.training.token_loss and (settings.training.mini_batch_size or process_count() > 1):
            raise UsageError(
                "--token-loss takes a batch whole, in one process: leave out --mini-batch-size and torchrun"
            )
        self.negatives, self.form = negatives, form or EncoderForm()
        self.similarity = settings.index.similarity or "cosine"
        self.usable = _usable(split, negatives, settings.training.hard_negatives)
        choices = {"negatives": negatives, "similarity": self.similarity, **self.form.identity()}
        super().__init__(files, split, settings, self.usable.training, **choices)
        self.passes = [len(rows) for rows in self.usable.passes()]

    def batch(self) -> TrainingBatch:
        """Return a batch of the rows that are drawn."""
        rows = [row for rows in self.usable.passes() for row in rows]
        return batch_of_rows(self.kind, rows, self.settings.training, lora=self.form.lora)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Return the job of a model in the form, for rows, sets with batches of their own, or sets that share them."""
        model = self.form.apply(self._base(folder, facts), self.similarity, self.settings.seed)
        if self.settings.training.token_loss:
            drop_padding(model)
            for module in model.modules():  # attention without padding has no dropout
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
        adapter = LoraLayers(model[0].auto_model, self.settings) if self.form.lora else None
        longest = {module: module.max_seq_length for module in input_modules(model)}
        for module, length in longest.items():
            module.max_seq_length = min(self.settings.training.max_tokens, length or self.settings.training.max_tokens)

        def save(out: Path) -> dict[str, Any]:
            for module, length in longest.items():
                module.max_seq_length = self.form.window or length  # training cuts passages; searching need not
            if adapter:
                adapter.save(out / ADAPTER, self.files.id)
                adapter.merge()
            model.save(str(out), create_model_card=False)
            return {}

        return TrainerJob(
            trainer=adapter.trainer(RetrieverTrainer, self.files.id) if adapter else RetrieverTrainer,
            arguments=SentenceTransformerTrainingArguments,
            model=model,
            loss=self._loss(model),
            metric=self._metric,
            save=save,
            evaluator=self._validation(model),
            **self._data(model),
        )

    def _base(self, folder: TrainingRun, facts: Mapping[str, Any]) -> ModelFiles:
        """Return the base as a directory; a GGUF file's weights are first written into the run's folder."""
        if self.files.path.is_dir():
            return self.files
        folder.begin(facts)
        if is_first_process():
            write_base(self.files, folder.base)
        wait_for_processes()
        return write_base(self.files, folder.base)

    def _data(self, model: SentenceTransformer) -> dict[str, Any]:
        """Return a job's columns, arguments and collator; by the numbers of sets that have batches of their own."""
        texts: dict[str, Any]
        prompts: dict[str, Any]
        if self.usable.sets and not self.usable.shares:
            sets = enumerate(self.usable.sets)
            made = {str(n): self._texts(model, listed.training, listed.instructions) for n, listed in sets}
            texts, prompts = ({n: pair[side] for n, pair in made.items()} for side in range(2))
        else:
            texts, prompts = self._texts(model, self.rows, None)
        return {
            "columns": texts,
            "extra_arguments": {"prompts": prompts, **self._sampler()},
            "collator": self._random_prompts(model),
        }

    def _texts(
        self, model: SentenceTransformer, rows: Sequence[TrainingRow], of_set: Instructions | None
    ) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """Return the columns of rows, and the prompt before each; a row's own instruction is part of its query."""
        texts, instructions = columns(rows, self.settings.training.hard_negatives), self._instructions(model, of_set)
        prompts = prompts_of(model, texts, instructions)
        if before := instructions.before(rows):
            _require_included(model, "rows have an instruction of their own")
            texts["query"] = [prompt + query for prompt, query in zip(before, texts["query"], strict=True)]
            prompts.pop("query", None)
        return texts, prompts

    def _instructions(self, model: SentenceTransformer, of_set: Instructions | None) -> Instructions:
        """Return the instructions of a set, or else of the run, or else those that the model has."""
        if chosen := of_set or self.form.instructions:
            return chosen
        query = prompt_of(model, "query") or ""
        if (form := form_of(query)) is None and any(row.instruction for row in self.rows):
            logger.warning(
                "rows have instructions of their own, for which the base's query prompt has no place, so they are left "
                "out: give --instruct bmretriever, or a template",
                extra=ONCE,
            )
        return Instructions(query, prompt_of(model, "document") or "", form=form)

    def _sampler(self) -> dict[str, Any]:
        """Return the argument for sets that share batches."""
        shares, sizes = self.usable.shares, {listed.name: len(listed.training) for listed in self.usable.sets}
        if not shares:
            return {}
        rows_of_batch(shares, sizes, batch_size(self.settings.training))  # refuses a set that fits into no batch
        return {"batch_sampler": partial(SharedBatchSampler, shares=shares, sizes=sizes, rows=sum(self.passes))}

    def _validation(self, model: SentenceTransformer) -> Validation | None:
        """Return the mean over the sets, each searched with its own instructions, or its rows'."""
        sets = self.usable.sets or [TrainingSet("", self.usable.training, self.usable.validation)]
        seed, similarity = self.settings.seed, self.similarity
        evaluators: list[BaseEvaluator | None] = []
        for listed in sets:
            told = self._instructions(model, listed.instructions)
            evaluator = retrieval_validation(listed.validation, listed.training, similarity, seed, told)
            if self._metric == TRIPLETS and evaluator:
                evaluator = SequentialEvaluator(
                    [evaluator, triplet_validation(listed.validation, similarity, seed, told)]
                )
            evaluators.append(evaluator)
        return Validation.of(self.settings.retrieval.precision, evaluators, self._metric)

    @property
    def _metric(self) -> str:
        """What chooses the checkpoint."""
        return TRIPLETS if self.settings.training.stop_by == "triplets" else METRIC

    def _random_prompts(self, model: SentenceTransformer) -> partial[RandomPrompts] | None:
        """Return the collator that draws prompts, if there are any to draw from.

        A model whose pooling leaves prompts out is refused: drawn prompts would count in its vectors.
        """
        drawn = self.form.instructions.drawn if self.form.instructions else ()
        if not drawn:
            return None
        _require_included(model, "--random-prompts")
        return partial(RandomPrompts, prompts=drawn, seed=self.settings.seed)

    def _loss(self, model: SentenceTransformer) -> Any:
        settings = self.settings.training
        scale = 1 / settings.temperature if settings.temperature else SCALES[self.similarity]
        candidates = MaskedSimilarity.of(settings, self.negatives, SIMILARITIES[self.similarity])
        if weight := settings.token_loss:
            tokens = MaskedSimilarity.of(settings, self.negatives, mean_maxsim)
            return TokenLoss(model, scale, candidates, tokens, weight)
        gather = {"gather_across_devices": candidates.gather}
        if size := settings.mini_batch_size:
            loss = CachedMultipleNegativesRankingLoss(model, scale, candidates, size, **gather)
        else:
            loss = MultipleNegativesRankingLoss(model, scale, candidates, **gather)
        return MaskedLoss(loss, candidates)


def _require_included(model: SentenceTransformer, what: str) -> None:
    """Refuse a model whose pooling leaves prompts out: those that stand in a query would count in its vector."""
    if any(isinstance(module, Pooling) and not module.include_prompt for module in model.modules()):
        raise UsageError(f"{what} need a base whose pooling includes prompts: take another --base, or leave them out")


def _usable(split: Split, negatives: str, count: int) -> Split:
    """Return a split with the training rows that can be trained on, of each set."""
    if not split.sets:
        return replace(split, training=usable(split.training, negatives, count))
    sets = []
    for mixed_set in split.sets:
        try:
            sets.append(replace(mixed_set, training=usable(mixed_set.training, negatives, count)))
        except BadInputError as error:
            raise BadInputError(f"set {mixed_set.name!r}: {error}") from None
    return mixed(sets)
