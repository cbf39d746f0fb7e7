"""Training the first stage: a bi-encoder, siamese or of two towers; encoder or decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Pooling

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.models.finding import ADAPTER, ModelFiles
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import has_towers, input_modules, load_model
from biorag.models.pooling import with_pooling, with_projection
from biorag.registries import NEGATIVES
from biorag.settings.settings import Settings
from biorag.training import distributed
from biorag.training.asymmetric import tower_of, with_towers, without_unit_length
from biorag.training.data import IN_BATCH, Split, TrainingSet, check_negatives, columns, described, mixed, usable
from biorag.training.decoder import as_bi_encoder, is_decoder, write_base
from biorag.training.evaluators import METRIC, SetsValidation, retrieval_validation
from biorag.training.instructions import Instructions, read_instructions
from biorag.training.loop import Job, NoModelCard, batch_size, folder_of, prompts_of, require_batch, run
from biorag.training.lora import LoraLayers
from biorag.training.losses import OWN_SCORES, SIMILARITIES, Candidates, CandidatesLoss, OwnNegativesLoss
from biorag.training.run_directory import TrainingRun
from biorag.training.sampling import RandomPrompts, SharedBatchSampler, WeightedBatchSampler, rows_of_batch
from biorag.types import OnProgress

# A cosine, between −1 and 1, is sharpened by sentence-transformers' default; a dot product is not, as in BMRetriever.
SCALES = {"cosine": 20.0, "dot": 1.0}


@dataclass(frozen=True, slots=True)
class EncoderForm:
    """How a base becomes the bi-encoder that is trained; None keeps what the base has.

    A decoder that is not a bi-encoder yet gets BMRetriever's instructions. With `lora` its linear layers learn through
    LoRA. `asymmetric` trains two copies of it, one for queries and one for passages. `pooling` is a name of `POOLINGS`,
    `projection` the dimension of a linear layer after it.
    """

    attention: str | None = None
    instructions: Instructions | None = None
    lora: bool = False
    asymmetric: bool = False
    pooling: str | None = None
    projection: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return the choices that are set, for the run's identity."""
        choices = {
            "attention": self.attention,
            "instructions": self.instructions.prompts() if self.instructions else None,
            "random_prompts": self.instructions.drawn if self.instructions else (),
            "lora": self.lora,
            "asymmetric": self.asymmetric,
            "pooling": self.pooling,
            "projection": self.projection,
        }
        return {name: value for name, value in choices.items() if value}


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


def train_retriever(
    files: ModelFiles,
    split: Split,
    settings: Settings,
    out: Path,
    facts: Mapping[str, Any],
    on_progress: OnProgress,
    negatives: str = IN_BATCH,
    form: EncoderForm | None = None,
) -> dict[str, Any]:
    """Train a bi-encoder into `out`, a sentence-transformers directory, and return its manifest.

    Parameters
    ----------
    files : the base, a sentence-transformers directory, a bare transformer (which gets mean pooling, a decoder
        its last token's vector), or a GGUF file
    split : training rows, and rows of held-out questions to choose the best checkpoint by; or those of a mixture
    settings : similarity, precision, seed and the `train_` settings
    facts : kept in the manifest
    negatives : "in-batch" (the other rows' passages and a row's own mined negatives), or the kind of the mined
        negatives, which are then the only ones
    form : attention, instructions, LoRA and towers

    Raises
    ------
    MissingError
        If the base does not load, or a package is not installed.
    UsageError
        If the form asks for what the base does not have.
    BadInputError
        If no row can be used.
    MismatchError
        If `out` holds something else.
    ServiceError
        If memory runs out.
    """
    similarity = settings.index.similarity or "cosine"
    check_negatives(negatives, settings.training)
    if form and form.lora and form.projection:
        raise UsageError(
            "--lora trains and keeps LoRA's matrices alone, so that --projection would stay random: leave "
            "one of them out"
        )
    usable_split = _usable(split, negatives, settings)
    facts = {**facts, "base": files.id, **described(split.training, usable_split.training)}
    form = form or EncoderForm()
    choices = {"negatives": negatives, "similarity": similarity, **form.identity()}
    folder = folder_of(out, "retriever", files, split, settings, **choices)
    if done := folder.finished():
        return done
    with folder.locked():
        model = _model(_base(files, folder, facts), similarity, form, settings.seed)
        adapter = LoraLayers(model, settings) if form.lora else None
        longest = {module: module.max_seq_length for module in input_modules(model)}
        for module, length in longest.items():
            module.max_seq_length = min(settings.training.max_tokens, length or settings.training.max_tokens)
        job = Job(
            trainer=_lora_trainer(adapter, files.id) if adapter else _Trainer,
            arguments=SentenceTransformerTrainingArguments,
            model=model,
            metric=METRIC,
            **(_of_shares if split.shares else _of_sets if split.sets else _of_rows)(
                model, usable_split, similarity, negatives, settings, form.instructions
            ),
        )
        figures = run(job, folder, settings, facts, on_progress)
        for module, length in longest.items():
            module.max_seq_length = length  # training cuts passages for speed; searching need not
        if distributed.is_first():
            if adapter:
                adapter.save(out / ADAPTER, files.id)
                adapter.merge()
            model.save(str(out), create_model_card=False)
        return folder.finish(figures)


def _usable(split: Split, negatives: str, settings: Settings) -> Split:
    """Return a split with the training rows that can be trained on, of each set."""
    count = settings.training.hard_negatives
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


def _of_rows(
    model: SentenceTransformer,
    split: Split,
    similarity: str,
    negatives: str,
    settings: Settings,
    instructions: Instructions | None,
) -> dict[str, Any]:
    """Return a job's loss, columns, prompts and evaluator."""
    texts = columns(split.training, settings.training.hard_negatives)
    return {
        "loss": _loss(model, similarity, negatives, settings),
        "columns": texts,
        "evaluator": retrieval_validation(
            split.validation, split.training, similarity, settings.retrieval.precision, settings.seed
        ),
        "arguments_of_stage": {
            "prompts": prompts_of(model, texts, instructions),
            "router_mapping": tower_of(model, texts),
        },
        "collator": _random_prompts(model, {"": instructions}, settings),
    }


def _of_sets(
    model: SentenceTransformer,
    split: Split,
    similarity: str,
    negatives: str,
    settings: Settings,
    instructions: Instructions | None,
) -> dict[str, Any]:
    """Return a job's losses, columns and prompts by the numbers of a mixture's sets, and an evaluator of all.

    A set without instructions uses the model's.
    """
    for part in split.sets:
        with _naming(part):
            require_batch([len(rows) for rows in part.passes(settings.seed)], settings.training)
    sets = {str(number): part for number, part in enumerate(split.sets)}
    instructions_by_set = {number: part.instructions or instructions for number, part in sets.items()}
    texts = {number: columns(part.training, settings.training.hard_negatives) for number, part in sets.items()}
    return {
        "loss": {
            number: _loss(model, similarity, negatives, settings, part.temperature) for number, part in sets.items()
        },
        "columns": texts,
        "evaluator": _validation_of_sets(split, similarity, settings),
        "arguments_of_stage": {
            "prompts": {number: prompts_of(model, texts[number], instructions_by_set[number]) for number in sets},
            "router_mapping": {number: tower_of(model, texts[number]) for number in sets},
            "batch_sampler": partial(WeightedBatchSampler, weights={number: sets[number].weight for number in sets}),
        },
        "passes": [len(rows) for rows in split.passes(settings.seed)],
        "collator": _random_prompts(model, instructions_by_set, settings),
    }


def _of_shares(
    model: SentenceTransformer,
    split: Split,
    similarity: str,
    negatives: str,
    settings: Settings,
    instructions: Instructions | None,
) -> dict[str, Any]:
    """Return a job's loss, columns and prompts of sets that share batches, and an evaluator of all."""
    sizes = {part.name: len(part.training) for part in split.sets}
    rows_of_batch(split.shares, sizes, batch_size(settings.training))  # refuses what fits into no batch
    of_rows = _of_rows(model, split, similarity, negatives, settings, instructions)
    [drawn] = split.passes(settings.seed)
    sampler = partial(SharedBatchSampler, shares=split.shares, sizes=sizes, rows=len(drawn))
    return {
        **of_rows,
        "evaluator": _validation_of_sets(split, similarity, settings),
        "arguments_of_stage": {**of_rows["arguments_of_stage"], "batch_sampler": sampler},
        "drawn": len(drawn),
    }


def _validation_of_sets(split: Split, similarity: str, settings: Settings) -> SetsValidation | None:
    evaluators = [
        retrieval_validation(
            part.validation, part.training, similarity, settings.retrieval.precision, settings.seed, part.instructions
        )
        for part in split.sets
    ]
    validations = [evaluator for evaluator in evaluators if evaluator]
    return SetsValidation(validations) if validations else None


def _random_prompts(
    model: SentenceTransformer, instructions: Mapping[str, Instructions | None], settings: Settings
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
    return partial(RandomPrompts, prompts=drawn, seed=settings.seed)


def _base(files: ModelFiles, folder: TrainingRun, facts: Mapping[str, Any]) -> ModelFiles:
    """Return the base as a directory; a GGUF file's weights are first written into the run's folder."""
    if files.path.is_dir():
        return files
    folder.begin(facts)
    if distributed.is_first():
        write_base(files, folder.base)
    distributed.wait()
    return write_base(files, folder.base)


def _model(files: ModelFiles, similarity: str, form: EncoderForm, seed: int) -> SentenceTransformer:
    """Load the base in float32, in its form; for dot products without the layer that makes vectors unit length."""
    if is_late_interaction(files):
        raise MissingError(f"base {files.id!r} is a late-interaction checkpoint: name a bi-encoder or a transformer")
    model = load_model(SentenceTransformer, files, "fp32")
    if not all(hasattr(module, "auto_model") for module in input_modules(model)):
        raise MissingError(f"base {files.id!r} does not read its texts with a transformer: name one that does")
    bare = not (files.path / MODULE_LIST).is_file()
    instructions = form.instructions
    if is_decoder(model):
        model = as_bi_encoder(model, bare, form.attention)
        instructions = instructions or (read_instructions("bmretriever") if bare else None)
    elif form.attention:
        raise UsageError(f"--attention is for decoders, and base {files.id!r} is not one: leave it out")
    if form.pooling:
        _check_sees(model, form.pooling)
        model = with_pooling(model, form.pooling)
    if form.projection:
        model = with_projection(model, form.projection, seed)
    if similarity == "dot":
        model = without_unit_length(model)
    if form.asymmetric:
        model = with_towers(model)
    if instructions:
        model.prompts = {**model.prompts, **instructions.prompts()}
    model.similarity_fn_name = similarity
    return model


def _check_sees(model: SentenceTransformer, pooling: str) -> None:
    """Refuse the vector of a first token that has seen no other."""
    causal = any(getattr(module.auto_model.config, "is_causal", True) for module in input_modules(model))
    if pooling == "cls" and is_decoder(model) and causal:
        raise UsageError(
            "--pooling cls takes the first token's vector, which under a causal mask knows no other token: give "
            "--pooling last, or --attention bidirectional"
        )


def _loss(
    model: SentenceTransformer, similarity: str, negatives: str, settings: Settings, temperature: float | None = None
) -> Any:
    """Return the loss of the rows; a set's `temperature` wins over the run's."""
    temperature = temperature or settings.training.temperature
    scale = 1 / temperature if temperature else SCALES[similarity]
    if not NEGATIVES[negatives].in_batch:
        return OwnNegativesLoss(model, OWN_SCORES[similarity], scale)
    gather = distributed.count() > 1
    candidates = Candidates(
        SIMILARITIES[similarity], positives_only=settings.training.in_batch == "positives", gather=gather
    )
    if size := settings.training.mini_batch_size:
        if gather and has_towers(model):
            raise UsageError(
                "--mini-batch-size trains one tower at a time, but processes average both at once: leave it out, "
                "or train --asymmetric in one process"
            )
        loss = CachedMultipleNegativesRankingLoss(model, scale, candidates, size, gather_across_devices=gather)
    else:
        loss = MultipleNegativesRankingLoss(model, scale, candidates, gather_across_devices=gather)
    return CandidatesLoss(loss, candidates)
