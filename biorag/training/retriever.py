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
from biorag.registries import NEGATIVES
from biorag.settings.settings import Settings
from biorag.training import distributed
from biorag.training.asymmetric import tower_of, with_towers, without_unit_length
from biorag.training.data import IN_BATCH, Split, TrainingSet, check_negatives, columns, described, mixed, usable
from biorag.training.decoder import as_bi_encoder, is_decoder, write_base
from biorag.training.evaluators import METRIC, SetsValidation, retrieval_validation
from biorag.training.instructions import Instructions, read_instructions
from biorag.training.loop import Job, NoModelCard, folder_of, prompts_of, require_batch, run
from biorag.training.lora import Adapter
from biorag.training.losses import OWN_SCORES, SIMILARITIES, OwnNegativesLoss
from biorag.training.run_directory import TrainingRun
from biorag.training.sampling import RandomPrompts, WeightedBatchSampler
from biorag.types import OnProgress

# The paper's: a cosine lies between −1 and 1 and is sharpened, a dot product is taken as it is.
SCALES = {"cosine": 20.0, "dot": 1.0}


@dataclass(frozen=True, slots=True)
class Form:
    """How a base becomes the bi-encoder that is trained; what is None stays as the base has it.

    A decoder that is none yet gets BMRetriever's instructions. With `lora` its linear layers learn through LoRA.
    `asymmetric` trains two copies of it, one for queries and one for passages.
    """

    attention: str | None = None
    instructions: Instructions | None = None
    lora: bool = False
    asymmetric: bool = False

    def identity(self) -> dict[str, Any]:
        """Return what was chosen, for the run's identity."""
        said = self.instructions.prompts() if self.instructions else None
        drawn = self.instructions.drawn if self.instructions else ()
        chosen = {
            "attention": self.attention,
            "instructions": said,
            "random_prompts": drawn,
            "lora": self.lora,
            "asymmetric": self.asymmetric,
        }
        return {name: value for name, value in chosen.items() if value}


class _Trainer(NoModelCard, SentenceTransformerTrainer):  # type: ignore[misc]
    pass


def _lora_trainer(adapter: Adapter, base: str) -> type[_Trainer]:
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
    form: Form | None = None,
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
        If the form asks what the base has not.
    BadInputError
        If no row can be used.
    MismatchError
        If `out` holds something else.
    ServiceError
        If memory runs out.
    """
    similarity = settings.index.similarity or "cosine"
    check_negatives(negatives, settings.training)
    used = _usable(split, negatives, settings)
    facts = {**facts, "base": files.id, **described(split.training, used.training)}
    form = form or Form()
    how = {"negatives": negatives, "similarity": similarity, **form.identity()}
    folder = folder_of(out, "retriever", files, split, settings, **how)
    if done := folder.finished():
        return done
    with folder.locked():
        model = _model(_base(files, folder, facts), similarity, form)
        adapter = Adapter(model, settings) if form.lora else None
        longest = {module: module.max_seq_length for module in input_modules(model)}
        for module, length in longest.items():
            module.max_seq_length = min(settings.training.max_tokens, length or settings.training.max_tokens)
        job = Job(
            trainer=_lora_trainer(adapter, files.id) if adapter else _Trainer,
            arguments=SentenceTransformerTrainingArguments,
            model=model,
            metric=METRIC,
            **(_of_sets if split.sets else _of_rows)(model, used, similarity, negatives, settings, form.instructions),
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
    for each in split.sets:
        with _naming(each):
            sets.append(replace(each, training=usable(each.training, negatives, count)))
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
        "loss": _loss(model, similarity, negatives, settings, SCALES[similarity]),
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
    """Return a job's losses, columns and prompts by the places of a mixture's sets, and an evaluator of all.

    A set without instructions has the model's.
    """
    for each in split.sets:
        with _naming(each):
            require_batch([len(rows) for rows in each.passes(settings.seed)], settings.training)
    sets = {str(place): each for place, each in enumerate(split.sets)}
    told = {place: each.instructions or instructions for place, each in sets.items()}
    texts = {place: columns(each.training, settings.training.hard_negatives) for place, each in sets.items()}
    evaluators = [
        retrieval_validation(
            each.validation, each.training, similarity, settings.retrieval.precision, settings.seed, each.instructions
        )
        for each in split.sets
    ]
    held_out = [each for each in evaluators if each]
    return {
        "loss": {
            place: _loss(model, similarity, negatives, settings, _scale(each.temperature, similarity))
            for place, each in sets.items()
        },
        "columns": texts,
        "evaluator": SetsValidation(held_out) if held_out else None,
        "arguments_of_stage": {
            "prompts": {place: prompts_of(model, texts[place], told[place]) for place in sets},
            "router_mapping": {place: tower_of(model, texts[place]) for place in sets},
            "batch_sampler": partial(WeightedBatchSampler, weights={place: sets[place].weight for place in sets}),
        },
        "passes": [len(rows) for rows in split.passes(settings.seed)],
        "collator": _random_prompts(model, told, settings),
    }


def _random_prompts(
    model: SentenceTransformer, instructions: Mapping[str, Instructions | None], settings: Settings
) -> partial[RandomPrompts] | None:
    """Return what makes a collator draw prompts, if there are any to draw from.

    A model whose vectors leave prompts out is refused: these would count in them.
    """
    drawn = {name: each.drawn if each else () for name, each in instructions.items()}
    if not any(drawn.values()):
        return None
    if any(isinstance(module, Pooling) and not module.include_prompt for module in model.modules()):
        raise UsageError("--random-prompts: the base's pooling leaves prompts out: take another base, or none of them")
    return partial(RandomPrompts, prompts=drawn, seed=settings.seed)


def _base(files: ModelFiles, folder: TrainingRun, facts: Mapping[str, Any]) -> ModelFiles:
    """Return the base as a directory; a GGUF file's weights are written into the run's folder for that."""
    if files.path.is_dir():
        return files
    folder.begin(facts)
    if distributed.is_first():
        write_base(files, folder.base)
    distributed.wait()
    return write_base(files, folder.base)


def _model(files: ModelFiles, similarity: str, form: Form) -> SentenceTransformer:
    """Load the base in float32, in its form; for dot products without the layer that makes all vectors unit length."""
    if is_late_interaction(files):
        raise MissingError(f"base {files.id!r} is a late-interaction checkpoint: name a bi-encoder or a transformer")
    model = load_model(SentenceTransformer, files, "fp32")
    if not all(hasattr(module, "auto_model") for module in input_modules(model)):
        raise MissingError(f"base {files.id!r} does not read its texts by a transformer: name one that does")
    bare = not (files.path / MODULE_LIST).is_file()
    instructions = form.instructions
    if is_decoder(model):
        model = as_bi_encoder(model, bare, form.attention)
        instructions = instructions or (read_instructions("bmretriever") if bare else None)
    elif form.attention:
        raise UsageError(f"--attention is for decoders, which base {files.id!r} is not: leave it out")
    if similarity == "dot":
        model = without_unit_length(model)
    if form.asymmetric:
        model = with_towers(model)
    if instructions:
        model.prompts = {**model.prompts, **instructions.prompts()}
    model.similarity_fn_name = similarity
    return model


def _scale(temperature: float | None, similarity: str) -> float:
    return SCALES[similarity] if temperature is None else 1 / temperature


def _loss(model: SentenceTransformer, similarity: str, negatives: str, settings: Settings, scale: float) -> Any:
    if not NEGATIVES[negatives].in_batch:
        return OwnNegativesLoss(model, OWN_SCORES[similarity], scale)
    compared, gathered = SIMILARITIES[similarity], distributed.count() > 1
    if size := settings.training.mini_batch_size:
        if gathered and has_towers(model):
            raise UsageError(
                "--mini-batch-size goes through one tower at a time, and processes average both at once: leave it out, "
                "or train --asymmetric in one process"
            )
        return CachedMultipleNegativesRankingLoss(model, scale, compared, size, gather_across_devices=gathered)
    return MultipleNegativesRankingLoss(model, scale, compared, gather_across_devices=gathered)
