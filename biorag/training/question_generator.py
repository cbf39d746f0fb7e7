"""Training a question generator: a sequence-to-sequence model that writes the question of a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from biorag.errors import BadInputError
from biorag.generators.seq2seq import LONGEST_INPUT
from biorag.models.finding import ModelFiles
from biorag.models.loading import load_seq2seq
from biorag.settings.settings import Settings
from biorag.training.data import Split
from biorag.training.loop import LIKELIHOOD, ReportsLikelihood, TrainerJob, Training
from biorag.training.run_directory import TrainingRun
from biorag.types import TrainingRow

LONGEST_QUESTION = 64  # tokens


class QuestionTrainer(ReportsLikelihood, Seq2SeqTrainer):  # type: ignore[misc]
    """Trains a sequence-to-sequence model."""


class QuestionGeneratorTraining(Training):
    """A question generator, saved as a transformers directory; negatives are not used.

    The loss is the cross-entropy of the question's tokens given the passage, by teacher forcing; the best checkpoint is
    chosen by the mean log-likelihood of the held-out questions' tokens. Source: the BioASQ 8 hybrid system (section
    2.2), which trains an encoder-decoder on the questions and answers of community sites, and then gives it PubMed
    abstracts; that is the method of Ma et al. (2021), to whom it refers for the settings.

    `max_tokens` is a passage's, at most 512, which `generate queries` reads.
    """

    kind = "question-generator"

    def __init__(self, files: ModelFiles, split: Split, settings: Settings) -> None:
        if not split.training:
            raise BadInputError("no row is left to train on: give more rows, or lower --validation")
        super().__init__(files, split, settings, [replace(row, negatives=()) for row in split.training])
        self.facts = {"rows": len(self.rows)}

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base, and return its job."""
        model, tokenizer = load_seq2seq(self.files, "fp32")
        longest = min(self.settings.training.max_tokens, LONGEST_INPUT)
        held_out = self.split.validation

        def save(out: Path) -> dict[str, Any]:
            model.save_pretrained(str(out))
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
