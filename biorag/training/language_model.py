"""Pre-training a BERT with a vocabulary of its own: it restores masked tokens, and tells which segment follows."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sentences import sentence_starts
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, UsageError
from biorag.models.resources import ModelShape, architecture_shape
from biorag.settings.settings import Settings
from biorag.training.data import Split
from biorag.training.estimating import MASKED, TrainingBatch
from biorag.training.loop import LIKELIHOOD, ReportsLikelihood, TrainerJob, Training
from biorag.training.rows import is_held_out
from biorag.training.run_directory import TrainingRun

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WINDOW = 512  # tokens that a BERT has positions for, at least
WIDER = 4  # times the width of a token's vector is that of the layer between
HELD_OUT = "held_out"  # a column of texts that are masked alike in all epochs
LETTERS = 1000  # that have word pieces, the most frequent
IGNORED = -100  # of tokens that are read and not restored


@dataclass(frozen=True, slots=True)
class Architecture:
    """The sizes of a BERT, and the word pieces of its vocabulary, at most.

    Raises `UsageError` if its heads do not share its width equally.
    """

    word_pieces: int
    hidden: int
    layers: int
    heads: int

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise UsageError(f"--heads {self.heads} cannot share --hidden {self.hidden} equally: give a divisor of it")

    def configuration(self, longest: int, vocabulary: int | None = None) -> dict[str, Any]:
        """Return the settings of its config.json."""
        return {
            "model_type": "bert",
            "vocab_size": vocabulary or self.word_pieces,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": WIDER * self.hidden,
            "max_position_embeddings": max(WINDOW, longest),
        }


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """Two parts of a text, of which the second follows the first."""

    first: str
    second: str


def read_segments(sources: Sequence[Source], fraction: float, seed: int) -> tuple[Split[SegmentPair], dict[str, int]]:
    """Return a pair of each snippet of a corpus, a `fraction` of them held out, and counts of rows and dropped texts.

    A text of a single sentence has no second segment and is dropped. Raises `BadInputError` if no text is left.
    """
    rows: tuple[list[SegmentPair], list[SegmentPair]] = ([], [])
    dropped = 0
    for snippet in (snippet for source in sources for snippet in read_snippets(source, refuse)):
        if pair := following_segments(snippet.contents, Random(json.dumps([seed, snippet.id]))):
            rows[is_held_out(snippet.contents, fraction, seed)].append(pair)
        else:
            dropped += 1
    if not rows[0]:
        raise BadInputError(f"no text of two sentences or more is left to train on, of {dropped}: give a larger corpus")
    return Split(*rows), {"rows": sum(map(len, rows)), "single": dropped}


def following_segments(text: str, random: Random) -> SegmentPair | None:
    """Return both parts of a text, cut where a drawn sentence begins; None for a single sentence."""
    starts = [start for start in sentence_starts(text) if text[:start].strip() and text[start:].strip()]
    if not starts:
        return None
    start = random.choice(starts)
    return SegmentPair(text[:start].strip(), text[start:].strip())


def learn_vocabulary(texts: Callable[[], Iterator[str]], size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of at most `size` word pieces, learnt from texts as BERT's uncased ones were.

    Equal texts give equal ones: the library counts words in an order that changes, and breaks ties by the ids that
    letters within words are given then, so they are given before.
    """
    tokenizer = BertWordPieceTokenizer()
    letters: Counter[str] = Counter()
    for text in texts():
        letters.update(tokenizer.normalize(text))
    alphabet = sorted(letter for letter, _ in letters.most_common(LETTERS) if not letter.isspace())
    tokenizer.train_from_iterator(
        texts(),
        vocab_size=size,
        min_frequency=0,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=[*SPECIAL, *(f"##{letter}" for letter in alphabet)],
        show_progress=False,
    )
    learnt = BertWordPieceTokenizer(tokenizer.get_vocab())
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=learnt._tokenizer, **special)


class LanguageModelTraining(Training):
    """A BERT of new weights, saved as a transformers directory, from which a retriever's training can start.

    The loss is the sum of two (BioASQ 8 hybrid system, section 5.1): BERT's, the cross-entropy of masked tokens, 15 %
    drawn uniformly; and, in place of BERT's next-sentence prediction, the softmax cross-entropy of a first segment's
    own second one among those of the batch, by the inner products of the [CLS] vectors, as the dual encoder's (2.1).
    The paper does not say how segments are read for that; here each is read alone, both at most `max_tokens` together.
    The best checkpoint is that of the least loss on held-out texts.
    """

    kind = "language-model"

    def __init__(self, architecture: Architecture, split: Split[SegmentPair], settings: Settings) -> None:
        self._hold(split, settings, split.training, **asdict(architecture))
        self.architecture, self.facts = architecture, {"rows": len(self.rows)}

    @property
    def origin(self) -> str:
        """What training starts from."""
        return "new weights"

    def described(self) -> str:
        """Return it in words."""
        sizes = self.architecture
        return f"new weights, a BERT of {sizes.layers} layers of width {sizes.hidden}"

    def origin_identity(self) -> dict[str, Any]:
        """Return none: the sizes are among the choices, and the seed among the settings."""
        return {}

    def batch(self) -> TrainingBatch:
        """Return a batch of texts, of which a share is restored."""
        longest = self.settings.training.max_tokens
        return TrainingBatch(self.kind, 0, longest)

    def shape(self) -> ModelShape:
        """Return the shape of the BERT."""
        return architecture_shape(self.architecture.configuration(self.settings.training.max_tokens))

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Learn the vocabulary, unless a checkpoint was trained with one, and return the job."""
        tokenizer, longest = self._tokenizer(folder, facts), self.settings.training.max_tokens
        held_out = _columns(self.split.validation, tokenizer, longest)
        torch.manual_seed(self.settings.seed)
        model = BertForMaskedLM(BertConfig(**self.architecture.configuration(longest, len(tokenizer))))

        def save(out: Path) -> dict[str, Any]:
            model.save_pretrained(str(out))
            tokenizer.save_pretrained(str(out))
            return {"vocabulary": len(tokenizer)}

        return TrainerJob(
            trainer=LanguageModelTrainer,
            arguments=TrainingArguments,
            model=model,
            loss=None,
            columns=_columns(self.rows, tokenizer, longest),
            evaluator={**held_out, HELD_OUT: [True] * len(self.split.validation)} if self.split.validation else None,
            metric=LIKELIHOOD,
            save=save,
            extra_arguments={"remove_unused_columns": False},
            collator=lambda trainer: SegmentMasking(trainer, tokenizer, self.settings.seed),
        )

    def _tokenizer(self, folder: TrainingRun, facts: Mapping[str, Any]) -> PreTrainedTokenizerFast:
        if folder.last_checkpoint():
            return PreTrainedTokenizerFast.from_pretrained(str(folder.base))
        folder.begin(facts)
        shutil.rmtree(folder.base, ignore_errors=True)
        tokenizer = learn_vocabulary(
            lambda: (f"{row.first} {row.second}" for row in self.rows), self.architecture.word_pieces
        )
        tokenizer.save_pretrained(str(folder.base))
        return tokenizer


def _columns(rows: Sequence[SegmentPair], tokenizer: Any, longest: int) -> dict[str, list[Any]]:
    """Return both segments' token ids, each between [CLS] and [SEP], together at most `longest`."""
    columns: dict[str, list[Any]] = {"first": [], "second": []}
    start, end = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    for row in rows:
        first, second = (tokenizer(text, add_special_tokens=False).input_ids for text in (row.first, row.second))
        for name, cut in zip(columns, shortened(first, second, longest - 4), strict=True):
            columns[name].append(np.array([*start, *cut, *end], np.int32))
    return columns


def shortened(first: Sequence[int], second: Sequence[int], most: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the beginnings of two segments, together at most `most` tokens; the longer one loses more, as BERT's."""
    half = most // 2
    return first[: max(half, most - len(second))], second[: max(half, most - len(first))]


class SegmentMasking:
    """A trainer's collator: the first segments of a batch and then the second ones, masked as BERT does.

    What is masked depends on the seed, the epoch and the batch alone, so that a resumed run repeats it.
    """

    def __init__(self, trainer: Any, tokenizer: Any, seed: int) -> None:
        self._trainer, self._tokenizer, self._seed = trainer, tokenizer, seed
        self._masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED)
        self._special = torch.tensor(tokenizer.convert_tokens_to_ids(list(SPECIAL)))

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the batch of tensors, (2 · rows, tokens)."""
        texts = [torch.as_tensor(row[name]).long() for name in ("first", "second") for row in rows]
        ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=self._tokenizer.pad_token_id)
        attended = (ids != self._tokenizer.pad_token_id).long()
        epoch = 0 if HELD_OUT in rows[0] else int(self._trainer.state.epoch or 0)
        key = hashlib.blake2b(f"{self._seed} {epoch}".encode() + ids.numpy().tobytes(), digest_size=7).digest()
        self._masking.generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
        masked, labels = self._masking.torch_mask_tokens(ids, special_tokens_mask=torch.isin(ids, self._special))
        return {"input_ids": masked, "attention_mask": attended, "labels": labels}


class LanguageModelTrainer(ReportsLikelihood, Trainer):  # type: ignore[misc]
    """Trains on masked tokens and on which segment follows."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the sum of both losses; logits of the vocabulary are made of masked tokens alone."""
        hidden = model.bert(inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
        drawn = inputs["labels"] != IGNORED
        loss = restoring_loss(model.cls(hidden[drawn]).float(), inputs["labels"][drawn]) + following_loss(hidden[:, 0])
        return (loss, {"logits": torch.zeros(1)}) if return_outputs else loss


def restoring_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of masked tokens, 0 of none; logits (tokens, vocabulary)."""
    return torch.nn.functional.cross_entropy(logits, tokens, reduction="sum") / max(1, len(tokens))


def following_loss(vectors: torch.Tensor) -> torch.Tensor:
    """Return `−1/n Σ_i log softmax_j(⟨a_i, b_j⟩)[i]` of vectors a of first segments and b of second ones, (2n, dim)."""
    first, second = vectors.float().chunk(2)
    return torch.nn.functional.cross_entropy(first @ second.T, torch.arange(len(first), device=first.device))
