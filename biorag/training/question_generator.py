"""Training a question generator: a sequence-to-sequence model that writes the question of a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EncoderDecoderModel,
    GenerationConfig,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from biorag.errors import BadInputError
from biorag.generators.seq2seq import LONGEST_INPUT
from biorag.models.finding import ModelFiles
from biorag.models.loading import load_model, load_seq2seq
from biorag.settings.settings import Settings
from biorag.training.data import Split
from biorag.training.loop import LIKELIHOOD, ReportsLikelihood, TrainerJob, Training
from biorag.training.run_directory import TrainingRun
from biorag.types import TrainingRow

LONGEST_QUESTION = 64  # tokens


class QuestionTrainer(ReportsLikelihood, Seq2SeqTrainer):  # type: ignore[misc]
    """Trains a sequence-to-sequence model, also one whose sides share weights, of which checkpoints hold copies."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, copied_weights(self.model))


def copied_weights(model: Any) -> dict[str, Any]:
    """Return a model's weights by name, none of which is another's too: the library refuses to write such."""
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def shared_sides(files: ModelFiles, layers: int, seed: int) -> tuple[Any, Any]:
    """Return a sequence-to-sequence model whose two sides are the first layers of an encoder, and its tokenizer.

    Both sides have the same weights; those of attention from the decoder to the encoder are new. So Ma et al. (2021),
    to whom the BioASQ 8 hybrid system refers, make theirs of RoBERTa with three layers; which ones they do not say.

    Raises `BadInputError` if the base is no such encoder, or has fewer layers.
    """
    encoder = load_model(SentenceTransformer, files, "fp32")[0].auto_model
    most = getattr(encoder.config, "num_hidden_layers", 0)
    if layers > most:
        raise BadInputError(f"--layers {layers} is more than {files.id} has, {most}: lower it, or name a larger base")
    settings = {"num_hidden_layers": layers, "is_decoder": True, "add_cross_attention": True, "use_cache": True}
    torch.manual_seed(seed)  # of the new weights
    try:
        decoder = AutoModelForCausalLM.from_config(type(encoder.config)(**{**encoder.config.to_dict(), **settings}))
        encoder.encoder.layer = encoder.encoder.layer[:layers]
        encoder.config.num_hidden_layers = layers
        encoder.pooler = None
        model = EncoderDecoderModel(encoder=encoder, decoder=decoder)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInputError(f"--layers makes a generator of a BERT or RoBERTa, and {files.id} is none") from error
    of_decoder = decoder.base_model
    for name, weight in encoder.named_parameters():
        module, _, last = name.rpartition(".")
        setattr(of_decoder.get_submodule(module), last, weight)
    decoder.tie_weights()
    tokenizer = AutoTokenizer.from_pretrained(str(files.path), local_files_only=True, trust_remote_code=False)
    tokenizer.eos_token = tokenizer.eos_token or tokenizer.sep_token  # which ends a question
    start, end = tokenizer.cls_token_id, tokenizer.eos_token_id
    special = {"decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": tokenizer.pad_token_id}
    for name, value in special.items():
        setattr(model.config, name, value)
    model.config.vocab_size = decoder.config.vocab_size
    model.generation_config = GenerationConfig(**special)
    return model, tokenizer


class QuestionGeneratorTraining(Training):
    """A question generator, saved as a transformers directory; negatives are not used.

    The loss is the cross-entropy of the question's tokens given the passage, by teacher forcing; the best checkpoint is
    chosen by the mean log-likelihood of the held-out questions' tokens. Source: the BioASQ 8 hybrid system (section
    2.2), which trains an encoder-decoder on the questions and answers of community sites, and then gives it PubMed
    abstracts; that is the method of Ma et al. (2021), to whom it refers for the settings.

    `max_tokens` is a passage's, at most 512, which `generate queries` reads. With `layers` the base is an encoder, of
    whose first layers both sides are made (see `shared_sides`).
    """

    kind = "question-generator"

    def __init__(self, files: ModelFiles, split: Split, settings: Settings, layers: int | None = None) -> None:
        if not split.training:
            raise BadInputError("no row is left to train on: give more rows, or lower --validation")
        rows, chosen = [replace(row, negatives=()) for row in split.training], {"layers": layers} if layers else {}
        super().__init__(files, split, settings, rows, **chosen)
        self.facts, self._layers = {"rows": len(self.rows)}, layers

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base, and return its job."""
        if self._layers:
            model, tokenizer = shared_sides(self.files, self._layers, self.settings.seed)
        else:
            model, tokenizer = load_seq2seq(self.files, "fp32")
        longest = min(self.settings.training.max_tokens, LONGEST_INPUT)
        held_out = self.split.validation

        def save(out: Path) -> dict[str, Any]:
            model.save_pretrained(str(out), state_dict=copied_weights(model))
            tokenizer.save_pretrained(str(out))
            return {}

        return TrainerJob(
            trainer=QuestionTrainer,
            arguments=Seq2SeqTrainingArguments,
            model=model,
            loss=None,
            columns=_columns(self.rows, tokenizer, longest),
            evaluator=_columns(held_out, tokenizer, longest) if held_out else None,
            metric=LIKELIHOOD,
            save=save,
            collator=lambda _: DataCollatorForSeq2Seq(tokenizer, model=model),
        )


def _columns(rows: Sequence[TrainingRow], tokenizer: Any, longest: int) -> dict[str, list[list[int]]]:
    """Return token ids of the passages, as `Seq2SeqGenerator` reads them, and of the questions, the labels."""
    passages = tokenizer([row.positive for row in rows], truncation=True, max_length=longest)
    questions = tokenizer(text_target=[row.query for row in rows], truncation=True, max_length=LONGEST_QUESTION)
    return {**{name: passages[name] for name in ("input_ids", "attention_mask")}, "labels": questions["input_ids"]}
