"""Training a question generator: a sequence-to-sequence model that writes the question of a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from biorag.errors import BadInputError, UsageError
from biorag.generators.seq2seq import LONGEST_INPUT
from biorag.models.finding import ModelFiles
from biorag.models.loading import load_seq2seq
from biorag.settings.settings import Settings
from biorag.training import distributed
from biorag.training.data import Split
from biorag.training.loop import Job, folder_of, run
from biorag.types import OnProgress, TrainingRow

LONGEST_QUESTION = 64  # tokens
METRIC = "log_likelihood"


class _Trainer(Seq2SeqTrainer):  # type: ignore[misc]
    """Reports the log-likelihood of the held-out questions, of which larger is better."""

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **options: Any) -> Any:
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **options)
        output.metrics[f"{metric_key_prefix}_{METRIC}"] = -output.metrics[f"{metric_key_prefix}_loss"]
        return output


def train_question_generator(
    files: ModelFiles,
    split: Split,
    settings: Settings,
    out: Path,
    facts: Mapping[str, Any],
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Train a question generator into `out`, a transformers directory, and return its manifest.

    The loss is the cross-entropy of the question's tokens given the passage, by teacher forcing. Source: the BioASQ 8
    hybrid system (section 2.2), which trains an encoder-decoder on the questions and answers of community sites, and
    then gives it PubMed abstracts; that is the method of Ma et al. (2021). Of the settings the paper names none.

    Parameters
    ----------
    files : the base, a sequence-to-sequence model
    split : rows of questions and passages that answer them; the best checkpoint is chosen by the mean log-likelihood
        of the held-out questions' tokens. Negatives are not used
    settings : precision, seed and the `train_` settings; `max_tokens` is a passage's, at most 512, which
        `generate queries` reads
    facts : kept in the manifest

    Raises
    ------
    MissingError
        If the base is not a sequence-to-sequence model.
    BadInputError
        If no row is left to train on.
    UsageError
        In one of several processes.
    As `loop.run` does.
    """
    if distributed.count() > 1:
        raise UsageError(
            "train question-generator trains in one process: start it without torchrun or accelerate launch"
        )
    if not split.training:
        raise BadInputError("no row is left to train on: give more rows, or lower --validation")
    facts = {**facts, "base": files.id, "rows": len(split.training)}
    folder = folder_of(out, "question-generator", files, split, settings)
    if done := folder.finished():
        return done
    with folder.locked():
        model, tokenizer = load_seq2seq(files, "fp32")
        longest = min(settings.training.max_tokens, LONGEST_INPUT)
        job = Job(
            trainer=_Trainer,
            arguments=Seq2SeqTrainingArguments,
            model=model,
            loss=None,
            columns=_columns(split.training, tokenizer, longest),
            evaluator=_columns(split.validation, tokenizer, longest) if split.validation else None,
            metric=METRIC,
            plain=True,
            collator=lambda _: DataCollatorForSeq2Seq(tokenizer, model=model),
        )
        figures = run(job, folder, settings, facts, on_progress)
        model.save_pretrained(str(out))
        tokenizer.save_pretrained(str(out))
        return folder.finish(figures)


def _columns(rows: Sequence[TrainingRow], tokenizer: Any, longest: int) -> dict[str, list[list[int]]]:
    """Return token ids of the passages, as `Seq2SeqGenerator` reads them, and of the questions, the labels."""
    passages = tokenizer([row.positive for row in rows], truncation=True, max_length=longest)
    questions = tokenizer(text_target=[row.query for row in rows], truncation=True, max_length=LONGEST_QUESTION)
    return {**{name: passages[name] for name in ("input_ids", "attention_mask")}, "labels": questions["input_ids"]}
