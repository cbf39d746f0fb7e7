"""Training a generator: a LoRA adapter of a causal language model, which learns to read evidence and to answer by it.

The prompts are the product's own, so that what is learnt is what is asked: a claim or a yes/no question beside a window
(`answering/readers/generators.py`), and an open question beside documents (`prompts/open.txt`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from biorag.answering.readers.generators import WORDS, reading_prompt, reading_template
from biorag.corpus.sentences import sentences
from biorag.errors import BadInputError
from biorag.models.finding import GGUF_ADAPTER, ModelFiles
from biorag.models.loading import load_language_model
from biorag.prompts.template import Template, load_template
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import LoraLayers
from biorag.training.contamination import ContaminationPolicy
from biorag.training.data import Split
from biorag.training.decoder import write_base
from biorag.training.estimating import TrainingBatch, batch_of_texts
from biorag.training.loop import LIKELIHOOD, ReportsLikelihood, TrainerJob, Training, require_one_process
from biorag.training.lora_gguf import adapter_names, write_adapter
from biorag.training.reading import NearMisses, divided, read_rows
from biorag.training.rows import normalised, read_records
from biorag.training.run_directory import TrainingRun
from biorag.training.sampling import SimilarLengthRows
from biorag.types import LABELS, Prompt, Question, Snippet

MULTIPLE = 32  # tokens that batches are padded to a multiple of: oneDNN compiles its products for each new shape
DOCUMENTS = 3  # of a question that is answered, at most
ROOM = 1600  # characters of the documents of a question, if more than one
LETTERS = "ABCD"  # of options
CHOSEN = 0.5  # share of the factoids that are asked with options
UNANSWERED = 0.2  # share of the questions beside documents of others alone
UNKNOWN = "The documents do not answer the question."
LONGEST_ANSWER = 400  # characters
GROUNDED = 0.6  # share of an answer's pairs of words that its documents have, from which it is one by them
CAUSAL = "ForCausalLM"
IGNORED = -100  # of tokens that are read and not learnt


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and the reply to learn; `query` is what the guard compares, rows of one `document` stay together."""

    query: str
    system: str
    user: str
    reply: str
    source: str
    document: str

    @property
    def target(self) -> str:
        """The word of its reply, or that it is an answer."""
        return self.reply if self.reply in WORDS else "answer"

    @property
    def text(self) -> str:
        """All of it, to estimate its length by."""
        return f"{self.system} {self.user} {self.reply}"


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Reads files, of the shapes that a reader learns from, as exchanges: at most `limit` of each file."""

    contamination: ContaminationPolicy
    settings: Settings
    limit: int | None = None
    answers: int = 0  # of each file of questions with answers

    def read(self, files: Sequence[Path]) -> tuple[Split[Exchange], dict[str, Any]]:
        """Return the exchanges to train on and those held out, and the facts of the manifest.

        Raises `MissingError` if a file is not there; `BadInputError` naming file and line, or if no row is left.
        """
        rows = [row for number, file in enumerate(files) for row in self._drawn(file, number)]
        return divided(rows, self.contamination, self.settings, "generator")

    def _drawn(self, file: Path, number: int) -> list[Exchange]:
        rng = random.Random(f"{self.settings.seed} {number} {file.name}")
        read = list(dict.fromkeys(_read(file, rng)))
        read = rng.sample(read, min(len(read), self.limit or len(read)))
        answered = list(_answered(file, rng)) if self.answers else []
        return read + rng.sample(answered, min(len(answered), self.answers))


def _read(file: Path, rng: random.Random) -> Iterator[Exchange]:
    """Yield claims and yes/no questions beside windows, and the word that is right."""
    template = reading_template()
    for row in read_rows(file, rng):
        if row.target in LABELS:
            prompt = reading_prompt(template, row.window, row.query)
            word = WORDS[LABELS.index(row.target)]
            yield Exchange(row.query, prompt.system, prompt.user, word, row.source, row.document)


def _answered(file: Path, rng: random.Random) -> Iterator[Exchange]:
    """Yield questions beside documents, right ones and near misses mixed, with JSON that answers by the right.

    A yes/no question is asked as benchmarks ask it, with options; so is a factoid, half the time, beside other answers.
    """
    records = [record for _, record in read_records(file)]
    if not records or "passages" not in records[0]:
        return
    records = [one for one in records if one["passages"] and not one.get("boilerplate")]
    records = [one for one in records if one.get("ideal_answer") or one.get("exact_answer") in WORDS]
    decisions = [word for word in WORDS if any(one.get("exact_answer") == word for one in records)]
    factoids = sorted({*map(_factoid, records)} - {""})
    misses, name = NearMisses(records), file.name.partition(".")[0]
    templates = {kind: load_template(kind) for kind in ("open", "choice")}
    for number, record in enumerate(records):
        asked = Asked(record["question"], *_documents(number, record, misses, rng), templates)
        answer = _answer(record, asked.right) if asked.right else UNKNOWN
        thought = (_ideal(record) if asked.right else "") or answer
        gold = _factoid(record)
        if record.get("exact_answer") in WORDS:
            prompt, reply = asked.chosen(thought, decisions, record["exact_answer"])
        elif gold and rng.random() < CHOSEN:
            options = rng.sample([one for one in factoids if one != gold], min(len(LETTERS), len(factoids)) - 1)
            prompt, reply = asked.chosen(thought, rng.sample([*options, gold], len(options) + 1), gold)
        else:
            prompt, reply = asked.open(answer)
        text = json.dumps(reply, ensure_ascii=False)
        yield Exchange(record["question"], prompt.system, prompt.user, text, name, normalised(record["question"]))


@dataclass(frozen=True, slots=True)
class Asked:
    """A question beside documents, of which those `right` answer it."""

    question: str
    right: Sequence[str]
    documents: Sequence[str]
    templates: Mapping[str, Template]

    def open(self, answer: str) -> tuple[Prompt, dict[str, Any]]:
        """Return the prompt that asks for sentences, and the reply."""
        cited = sorted(self.documents.index(text) + 1 for text in self.right)
        return self._prompt("open", {}), {"answer": answer, "citations": cited or [1]}

    def chosen(self, thought: str, options: Sequence[str], gold: str) -> tuple[Prompt, dict[str, Any]]:
        """Return the prompt that asks for one of the options, and the reply."""
        letters = dict(zip(LETTERS, options, strict=False))
        letter = next(one for one, option in letters.items() if option == gold)
        relevant = "YES" if self.right else "NOT"
        reply = {"step_by_step_thinking": thought, "relevant_context": relevant, "answer_choice": letter}
        return self._prompt("choice", letters), reply

    def _prompt(self, template: str, options: Mapping[str, str]) -> Prompt:
        snippets = [Snippet(str(number), "", text) for number, text in enumerate(self.documents)]
        return self.templates[template].render(Question("", self.question, options), snippets)


def _documents(
    number: int, record: Mapping[str, Any], misses: NearMisses, rng: random.Random
) -> tuple[list[str], list[str]]:
    """Return the documents that answer a question, none for some, and these among near misses in any order."""
    right = [one["text"] for one in record["passages"][:DOCUMENTS]]
    right = [] if rng.random() < UNANSWERED else rng.sample(right, rng.randint(1, len(right)))
    wrong = [text for text in misses.of(number, DOCUMENTS - len(right), rng) if text not in right]
    texts = right + wrong
    while len(texts) > 1 and sum(map(len, texts)) > ROOM:
        texts.pop()
    right = [text for text in right if text in texts]
    rng.shuffle(texts)
    return right, texts


def _factoid(record: Mapping[str, Any]) -> str:
    """Return the first name of a factoid's answer."""
    answer = record.get("exact_answer") if record.get("type") == "factoid" else None
    while isinstance(answer, list):
        answer = answer[0] if answer else None
    return str(answer or "")


def _ideal(record: Mapping[str, Any]) -> str:
    """Return an expert's answer in sentences; nothing if there is none or it is long."""
    ideal = record.get("ideal_answer") or ""
    text = ideal if isinstance(ideal, str) else ideal[0]
    return text if len(text) <= LONGEST_ANSWER else ""


def _answer(record: Mapping[str, Any], documents: Sequence[str]) -> str:
    """Return an expert's answer where the documents have most of its words, or else their nearest sentence."""
    text = _ideal(record)
    pairs = _pairs(text)
    if pairs and len(pairs & _pairs(" ".join(documents))) >= GROUNDED * len(pairs):
        return text
    asked = set(normalised(f"{record['question']} {text}").split())
    rows = [row for one in documents for row in sentences(one)]
    return max(rows, key=lambda row: len(asked & set(normalised(row).split())))[:LONGEST_ANSWER]


def _pairs(text: str) -> set[tuple[str, str]]:
    words = normalised(text).split()
    return set(pairwise(words))


class GeneratorTraining(Training):
    """LoRA matrices on the linear layers of a causal language model, saved for peft and, as `adapter.gguf`, llama.cpp.

    The loss is the mean cross-entropy of the replies' tokens; logits are made for these alone. The best checkpoint is
    that of the largest log-likelihood of the held-out replies. `max_tokens` are those of prompt and reply; longer
    exchanges are left out.
    """

    kind = "generator"

    def __init__(self, files: ModelFiles, split: Split[Exchange], settings: Settings) -> None:
        require_one_process(self.kind)
        kinds = files.settings("config.json").get("architectures") or [] if files.path.is_dir() else [CAUSAL]
        if not any(str(kind).endswith(CAUSAL) for kind in kinds):
            raise BadInputError(f"{files.id} is no language model that writes: name a Llama with --base")
        super().__init__(files, split, settings, split.training)
        self.facts = {"rows": len(self.rows)}

    def batch(self) -> TrainingBatch:
        """Return a batch of exchanges."""
        return batch_of_texts([row.text for row in self.rows], self.settings.training, lora=True)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base, and return its job."""
        causal = AutoModelForCausalLM
        files = write_base(self.files, folder.base, causal) if self.files.path.is_file() else self.files
        model, tokenizer = load_language_model(causal, files, "fp32", "a causal language model")
        if not tokenizer.chat_template:
            raise BadInputError(
                f"{self.files.id} has no chat template, which a generator answers by: name one that has"
            )
        adapter = LoraLayers(model, self.settings)
        adapter_names(model)  # before hours of training
        encode = ExchangeEncoder(tokenizer, self.settings.training.max_tokens)
        held_out = encode.columns(self.split.validation)

        def save(out: Path) -> dict[str, Any]:
            adapter.save(out, self.files.id)
            write_adapter(model, self.settings.training.lora_alpha, out / GGUF_ADAPTER)
            return {"base_file": str(self.files.path)}

        return TrainerJob(
            trainer=adapter.trainer(GeneratorTrainer, self.files.id),
            arguments=TrainingArguments,
            model=model,
            loss=None,
            columns=encode.columns(self.rows),
            evaluator=held_out if held_out["input_ids"] else None,
            metric=LIKELIHOOD,
            save=save,
            extra_arguments={"remove_unused_columns": False},
            plain=True,
            collator=lambda _: encode.batch,
        )


class ExchangeEncoder:
    """Turns exchanges into token ids in the chat format of a tokenizer; the prompt's tokens are read, not learnt."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self._tokenizer, self._most = tokenizer, most

    def columns(self, rows: Sequence[Exchange]) -> dict[str, list[list[int]]]:
        """Return the ids of exchanges that are not too long, and those that are learnt."""
        encoded = [pair for pair in map(self._encoded, rows) if len(pair[0]) <= self._most]
        return {"input_ids": [ids for ids, _ in encoded], "labels": [labels for _, labels in encoded]}

    def _encoded(self, row: Exchange) -> tuple[list[int], list[int]]:
        turns = [{"role": "system", "content": row.system}, {"role": "user", "content": row.user}]
        text = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompt, reply = (self._tokenizer(part, add_special_tokens=False).input_ids for part in (text, row.reply))
        reply.append(self._tokenizer.eos_token_id)
        return prompt + reply, [IGNORED] * len(prompt) + reply

    def batch(self, rows: Sequence[Mapping[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Return a batch, padded on the right to a multiple of `MULTIPLE`."""
        longest = -(-max(len(row["input_ids"]) for row in rows) // MULTIPLE) * MULTIPLE
        pad = self._tokenizer.pad_token_id or 0

        def padded(name: str, value: int) -> torch.Tensor:
            return torch.tensor([list(row[name]) + [value] * (longest - len(row[name])) for row in rows])

        return {
            "input_ids": padded("input_ids", pad),
            "labels": padded("labels", IGNORED),
        }


class GeneratorTrainer(ReportsLikelihood, Trainer):  # type: ignore[misc]
    """Makes logits where a token is learnt."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the mean cross-entropy of the replies' tokens."""
        learnt = inputs["labels"][:, 1:] != IGNORED
        # Padding stands on the right, where a causal model does not look from what is before.
        hidden = model.base_model(input_ids=inputs["input_ids"]).last_hidden_state[:, :-1][learnt]
        logits = model.get_output_embeddings()(hidden).float()
        loss = torch.nn.functional.cross_entropy(logits, inputs["labels"][:, 1:][learnt])
        return (loss, {"logits": torch.zeros(1)}) if return_outputs else loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        lengths = [len(ids) for ids in self.train_dataset["input_ids"]]
        return SimilarLengthRows(lengths, self.args.train_batch_size, self.args.data_seed)
