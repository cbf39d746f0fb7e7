"""Training the first stage: a bi-encoder, whose base is an encoder or a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Pooling

from biorag.errors import BadInputError, UsageError
from biorag.models.finding import ADAPTER, ModelFiles
from biorag.models.loading import input_modules
from biorag.registries import NEGATIVES
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import EncoderForm, LoraLayers
from biorag.training.data import IN_BATCH, Split, TrainingSet, check_negatives, columns, mixed, usable
from biorag.training.decoder import write_base
from biorag.training.estimating import TrainingWork, columns_work
from biorag.training.evaluators import METRIC, SetsValidation, retrieval_validation
from biorag.training.instructions import Instructions
from biorag.training.loop import NoModelCard, TrainerJob, Training, batch_size, prompts_of, require_batch
from biorag.training.losses import OWN_SCORES, SIMILARITIES, Candidates, CandidatesLoss, OwnNegativesLoss
from biorag.training.run_directory import TrainingRun, is_first_process, process_count, wait_for_processes
from biorag.training.sampling import RandomPrompts, SharedBatchSampler, WeightedBatchSampler, rows_of_batch

# A cosine, between −1 and 1, is sharpened by sentence-transformers' default; a dot product is not, as in BMRetriever.
SCALES = {"cosine": 20.0, "dot": 1.0}


class _Trainer(NoModelCard, SentenceTransformerTrainer):  # type: ignore[misc]
    pass


def _lora_trainer(adapter: LoraLayers, base: str) -> type[_Trainer]:
    """Return the trainer whose checkpoints hold the adapter alone."""

    class LoRATrainer(_Trainer):
        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            adapter.save(Path(output_dir or self.args.output_dir), base)

        def _load_from_checkpoint(self, checkpoint_path: str) -> None:
            adapter.load(Path(checkpoint_path))

    return LoRATrainer


class RetrieverTraining(Training):
    """A bi-encoder, saved as a sentence-transformers directory.

    Parameters
    ----------
    files : a sentence-transformers directory, a bare transformer (which gets mean pooling, a decoder its last token's
        vector), or a GGUF file
    split : rows of files, or of a mixture's sets
    negatives : "in-batch" (the other rows' passages and a row's own mined negatives), or the kind of the mined
        negatives, which are then the only ones
    form : attention, instructions, pooling, LoRA
    """

    kind = "retriever"

    def __init__(
        self,
        files: ModelFiles,
        split: Split,
        settings: Settings,
        negatives: str = IN_BATCH,
        form: EncoderForm | None = None,
    ) -> None:
        check_negatives(negatives, settings.training)
        self.negatives, self.form = negatives, form or EncoderForm()
        self.similarity = settings.index.similarity or "cosine"
        self.usable = _usable(split, negatives, settings.training.hard_negatives)
        choices = {"negatives": negatives, "similarity": self.similarity, **self.form.identity()}
        super().__init__(files, split, settings, self.usable.training, **choices)
        self.passes = [len(rows) for rows in self.usable.passes(settings.seed)]

    def work(self) -> TrainingWork:
        """Return the columns of the rows that are drawn."""
        rows = [row for rows in self.usable.passes(self.settings.seed) for row in rows][:: process_count()]
        return replace(columns_work(rows, self.settings.training), lora=self.form.lora)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Return the job of a model in the form, for rows, sets with batches of their own, or sets that share them."""
        model = self.form.apply(self._base(folder, facts), self.similarity, self.settings.seed)
        adapter = LoraLayers(model, self.settings) if self.form.lora else None
        longest = {module: module.max_seq_length for module in input_modules(model)}
        for module, length in longest.items():
            module.max_seq_length = min(self.settings.training.max_tokens, length or self.settings.training.max_tokens)

        def save(out: Path) -> dict[str, Any]:
            for module, length in longest.items():
                module.max_seq_length = length  # training cuts passages for speed; searching need not
            if adapter:
                adapter.save(out / ADAPTER, self.files.id)
                adapter.merge()
            model.save(str(out), create_model_card=False)
            return {}

        parts = self._of_shares if self.split.shares else self._of_sets if self.split.sets else self._of_rows
        return TrainerJob(
            trainer=_lora_trainer(adapter, self.files.id) if adapter else _Trainer,
            arguments=SentenceTransformerTrainingArguments,
            model=model,
            metric=METRIC,
            save=save,
            **parts(model),
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

    def _of_rows(self, model: SentenceTransformer) -> dict[str, Any]:
        """Return a job's loss, columns, prompts and evaluator."""
        texts = columns(self.rows, self.settings.training.hard_negatives)
        instructions = self.form.instructions
        return {
            "loss": self._loss(model),
            "columns": texts,
            "evaluator": self._validation(self.usable),
            "extra_arguments": {"prompts": prompts_of(model, texts, instructions)},
            "collator": self._random_prompts(model, {"": instructions}),
        }

    def _of_sets(self, model: SentenceTransformer) -> dict[str, Any]:
        """Return a job's losses, columns and prompts by the numbers of a mixture's sets, and one evaluator.

        A set without instructions uses the model's.
        """
        for part in self.usable.sets:
            with _naming(part):
                require_batch([len(rows) for rows in part.passes(self.settings.seed)], self.settings.training)
        sets = {str(number): part for number, part in enumerate(self.usable.sets)}
        instructions = {number: part.instructions or self.form.instructions for number, part in sets.items()}
        count = self.settings.training.hard_negatives
        texts = {number: columns(part.training, count) for number, part in sets.items()}
        weights = {number: part.weight for number, part in sets.items()}
        return {
            "loss": {number: self._loss(model, part.temperature) for number, part in sets.items()},
            "columns": texts,
            "evaluator": self._validation_of_sets(),
            "extra_arguments": {
                "prompts": {number: prompts_of(model, texts[number], instructions[number]) for number in sets},
                "batch_sampler": partial(WeightedBatchSampler, weights=weights),
            },
            "of_sets": True,
            "collator": self._random_prompts(model, instructions),
        }

    def _of_shares(self, model: SentenceTransformer) -> dict[str, Any]:
        """Return a job's loss, columns and prompts of sets that share batches, and one evaluator."""
        shares, sizes = self.usable.shares, {part.name: len(part.training) for part in self.usable.sets}
        rows_of_batch(shares, sizes, batch_size(self.settings.training))  # refuses a set that fits into no batch
        of_rows = self._of_rows(model)
        sampler = partial(SharedBatchSampler, shares=shares, sizes=sizes, rows=sum(self.passes))
        return {
            **of_rows,
            "evaluator": self._validation_of_sets(),
            "extra_arguments": {**of_rows["extra_arguments"], "batch_sampler": sampler},
        }

    def _validation(self, part: Split | TrainingSet, instructions: Instructions | None = None) -> Any:
        precision, seed = self.settings.retrieval.precision, self.settings.seed
        return retrieval_validation(part.validation, part.training, self.similarity, precision, seed, instructions)

    def _validation_of_sets(self) -> SetsValidation | None:
        evaluators = [self._validation(part, part.instructions) for part in self.usable.sets]
        validations = [evaluator for evaluator in evaluators if evaluator]
        return SetsValidation(validations) if validations else None

    def _random_prompts(
        self, model: SentenceTransformer, instructions: Mapping[str, Instructions | None]
    ) -> partial[RandomPrompts] | None:
        """Return the collator that draws prompts, if there are any to draw from.

        A model whose pooling leaves prompts out is refused: drawn prompts would count in its vectors.
        """
        drawn = {name: instruction.drawn if instruction else () for name, instruction in instructions.items()}
        if not any(drawn.values()):
            return None
        if any(isinstance(module, Pooling) and not module.include_prompt for module in model.modules()):
            raise UsageError(
                "--random-prompts: the base's pooling leaves prompts out: take another base, or no random prompts"
            )
        return partial(RandomPrompts, prompts=drawn, seed=self.settings.seed)

    def _loss(self, model: SentenceTransformer, temperature: float | None = None) -> Any:
        """Return the loss of the rows; a set's `temperature` wins over the run's."""
        settings = self.settings.training
        temperature = temperature or settings.temperature
        scale = 1 / temperature if temperature else SCALES[self.similarity]
        if not NEGATIVES[self.negatives].in_batch:
            return OwnNegativesLoss(model, OWN_SCORES[self.similarity], scale)
        gather, positives_only = process_count() > 1, settings.in_batch == "positives"
        candidates = Candidates(SIMILARITIES[self.similarity], positives_only=positives_only, gather=gather)
        if size := settings.mini_batch_size:
            loss = CachedMultipleNegativesRankingLoss(model, scale, candidates, size, gather_across_devices=gather)
        else:
            loss = MultipleNegativesRankingLoss(model, scale, candidates, gather_across_devices=gather)
        return CandidatesLoss(loss, candidates)


def _usable(split: Split, negatives: str, count: int) -> Split:
    """Return a split with the training rows that can be trained on, of each set."""
    if not split.sets:
        return replace(split, training=usable(split.training, negatives, count))
    sets = []
    for part in split.sets:
        with _naming(part):
            sets.append(replace(part, training=usable(part.training, negatives, count)))
    return mixed(sets)


@contextmanager
def _naming(part: TrainingSet) -> Iterator[None]:
    """Name the set that an error is about."""
    try:
        yield
    except BadInputError as error:
        raise BadInputError(f"set {part.name!r}: {error}") from None
