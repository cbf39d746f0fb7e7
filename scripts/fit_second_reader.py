"""Make the packaged second reader: matrices by which the starter's Llama tells which sentences of a record answer.

    python -m scripts.fit_second_reader DATA biorag/models/second_reader

Rows are a question, a record's title and its sentences with what is known of each: of the questions that were written
for the reader (`question_sets/*/learnt.jsonl.gz`, some in the words of users, too, `voices.jsonl.gz`), each with its
record; of BioASQ 1 to 6 with a gold record; and of a third of the former with another record that BM25 finds and that
lacks a telling word of the question, of which no sentence answers. Most are as they are met: of a record the sentences
that have most of the question's words and an answer, without the title as a passage may be. The loss is the
cross-entropy of each judged sentence, and that of the answering ones among all of their record. Batches are of about
3,200 tokens and like length; `--seconds` sets the time by which the learning rate falls along a cosine. `--kept` is a
file of weights, from which a later run may `--start`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from biorag.answering.certainty import TELLING, missing_words
from biorag.answering.extract import candidates, window_of
from biorag.answering.readers.records import HEAD, line, opening
from biorag.models.finding import GGUF_ADAPTER, STARTER_GENERATOR, ModelFiles, hash_of_file
from biorag.models.loading import load_language_model
from biorag.training.bi_encoder import write_base
from biorag.training.generator import write_adapter
from scripts.answer_rows import DECIDED, LEARNT, VOICES, Rows, asked_about, covered, found_for, nearest, read, told_of

OTHERS = 0.35  # share of the written questions that come with another record, too
WHOLE = 0.3  # share of the rows that have the whole record
UNTITLED = 0.35  # share of the others that lack its title
MET = (2, 3, 4, 5, 6)  # sentences that they have of it, each as likely
ALPHA = 32
FROZEN = 8  # layers from the bottom without matrices
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CROPPED = 320  # tokens of a row
BATCH = 3200  # tokens
MULTIPLE = 64  # tokens that batches are padded to a multiple of: oneDNN compiles its products for each new shape
HELD_OUT = 150  # questions


class Row(NamedTuple):
    """A question and a record's sentences: 1 if one answers, 0 if not, −1 where it is not known."""

    question: str
    title: str
    sentences: Sequence[str]
    labels: Sequence[int]


class Encoded(NamedTuple):
    """The tokens of a row, the places where its lines end, and their labels."""

    tokens: list[int]
    ends: list[int]
    labels: Sequence[int]


def rows_of(data: Path, rng: random.Random, share: float) -> list[Row]:
    """Return the rows in an order drawn at random: those in the words of users, and a share of the others."""
    docs = asked_about(data)
    written = [(one["question"], one["answers"], one["doubtful"], one["doc"]) for one in read(LEARNT)]
    decided = (one for one in read(DECIDED) if one["form"] == "question")
    written += [(one["text"], one["deciding"], one["doubtful"], one["doc"]) for one in decided]
    rows = [_written(question, right, doubtful, docs[id]) for question, right, doubtful, id in written]
    written = rng.sample(written, int(share * len(written)))
    written += [(one["question"], one["answers"], one["doubtful"], one["doc"]) for one in read(VOICES)]
    drawn = rng.sample(written, int(OTHERS * len(written)))
    found = nearest([question for question, *_ in drawn], docs, 6)
    for (question, *_, own), ids in zip(drawn, found, strict=True):
        others = [docs[id] for id in ids if id != own]
        rows += [_written(question, (), (), doc) for doc in others if _lacks(question, doc)][:1]
    of_bioasq = list(_of_bioasq(data, rng))
    rows += rng.sample(of_bioasq, int(share * len(of_bioasq)))
    rows = [row if rng.random() < WHOLE else as_met(row, rng) for row in rows if row.sentences]
    rng.shuffle(rows)
    return rows


def _written(question: str, right: Any, doubtful: Any, doc: Mapping[str, Any]) -> Row:
    rows, answers, others = told_of(right, doubtful, doc)
    labels = [1 if n in answers else 0 if n in others else -1 for n in range(len(rows))]
    return Row(question, doc["title"] or "", [row.text for row in rows], labels)


def _lacks(question: str, doc: Mapping[str, Any]) -> bool:
    """Return whether a record lacks a telling word of a question."""
    return max(missing_words(question, [f"{doc['title']} {doc['content']}"]).values(), default=0.0) >= TELLING


def as_met(row: Row, rng: random.Random) -> Row:
    """Return a row with a few sentences: an answer, if there is one, and those that have most of the question's words.

    A sentence's share of the question's words counts with some chance.
    """
    right = [n for n, label in enumerate(row.labels) if label == 1]
    near = [covered(row.question, text) + 0.5 * rng.random() for text in row.sentences]
    first = {rng.choice(right)} if right else set()
    order = sorted(range(len(near)), key=lambda n: (n not in first, -near[n]))
    kept = sorted(order[: rng.choice(MET)])
    title = "" if rng.random() < UNTITLED else row.title
    return Row(row.question, title, [row.sentences[n] for n in kept], [row.labels[n] for n in kept])


def _of_bioasq(data: Path, rng: random.Random) -> Iterator[Row]:
    """Yield BioASQ's questions with a record that answers, a quarter of them also with one that does not."""
    for one, hits, gold in found_for(data, rng):
        answers, beside, elsewhere = map(set, Rows.judged(one, hits, gold))
        rows, records = candidates(hits), defaultdict[int, list[tuple[str, int]]](list)
        for index, row in enumerate(rows):
            window = window_of(rows, index)
            label = 1 if window in answers else 0 if window in beside or window in elsewhere else -1
            records[row.n].append((row.text, label))
        right = [n for n, told in records.items() if any(label == 1 for _, label in told)]
        wrong = [
            n
            for n, told in records.items()
            if hits[n - 1].snippet.id not in gold and not any(label for _, label in told)
        ]
        if right:
            drawn = [rng.choice(right), *(rng.sample(wrong[:4], 1) if wrong and rng.random() < 0.25 else [])]
            for n in drawn:
                texts, labels = zip(*records[n], strict=True)
                yield Row(one["question"], hits[n - 1].snippet.title, texts, labels)


class Encoder:
    """Turns rows into tokens, of long records a part with an answer."""

    def __init__(self, tokenizer: Any, rng: random.Random) -> None:
        self._tokenizer, self._rng = tokenizer, rng

    def encoded(self, row: Row) -> Encoded:
        """Return the tokens of a row."""
        tokens = opening(self._ids, row.question, row.title)
        lines = [line(self._ids, text) for text in row.sentences]
        first, last = self._part(list(map(len, lines)), row.labels, CROPPED - len(tokens))
        ends = []
        for one in lines[first : last + 1]:
            tokens += one
            ends.append(len(tokens) - 1)
        return Encoded(tokens, ends, row.labels[first : last + 1])

    def _part(self, lengths: Sequence[int], labels: Sequence[int], room: int) -> tuple[int, int]:
        """Return the first and the last sentence of a part that fits, around an answer if there is one."""
        if sum(lengths) <= room:
            return 0, len(lengths) - 1
        right = [index for index, label in enumerate(labels) if label == 1]
        first = last = self._rng.choice(right or range(len(labels)))
        room -= lengths[first]
        while fitting := [
            index for index in (first - 1, last + 1) if 0 <= index < len(lengths) and lengths[index] <= room
        ]:
            index = self._rng.choice(fitting)
            room -= lengths[index]
            first, last = min(first, index), max(last, index)
        return first, last

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def batches(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """Return batches of rows of like length, each of at most `BATCH` tokens with padding."""
        encoded, batches = list(map(self.encoded, rows)), []
        for start in range(0, len(encoded), 400):
            part, made = sorted(encoded[start : start + 400], key=lambda one: -len(one.tokens)), [list[Encoded]()]
            for one in part:
                if made[-1] and padded(made[-1]) * (len(made[-1]) + 1) > BATCH:
                    made.append([])
                made[-1].append(one)
            self._rng.shuffle(made)
            batches += made
        return batches


def padded(batch: Sequence[Encoded]) -> int:
    """Return the tokens that each row of a batch is padded to."""
    return -(-max(len(one.tokens) for one in batch) // MULTIPLE) * MULTIPLE


class Scorer(nn.Module):
    """A causal language model with a linear head on the last hidden states; it begins as " yes" against " no"."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.base = model.model
        words = model.lm_head.weight.detach()
        yes, no = (tokenizer(word, add_special_tokens=False).input_ids[0] for word in (" yes", " no"))
        self.head = nn.Linear(words.shape[1], 1)
        with torch.no_grad():
            self.head.weight.copy_((words[yes] - words[no])[None])
            self.head.bias.zero_()

    def forward(self, batch: Sequence[Encoded]) -> torch.Tensor:
        """Return the log-odds of the sentences of a batch, one row's after the other's."""
        ids = torch.zeros((len(batch), padded(batch)), dtype=torch.long)
        ends = torch.zeros(ids.shape, dtype=torch.bool)
        for row, one in enumerate(batch):
            ids[row, : len(one.tokens)] = torch.tensor(one.tokens)
            ends[row, one.ends] = True
        # Padding stands on the right, where a causal model does not look from what is before.
        states = self.base(input_ids=ids, use_cache=False).last_hidden_state
        said: torch.Tensor = self.head(states[ends]).squeeze(-1)
        return said.float()


def losses(said: torch.Tensor, batch: Sequence[Encoded]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cross-entropy of judged sentences, and that of answers among the judged of their record."""
    labels = [torch.tensor(one.labels) for one in batch]
    all_labels, among = torch.cat(labels), []
    judged = all_labels >= 0
    each = nn.functional.binary_cross_entropy_with_logits(said[judged], all_labels[judged].float())
    for of_row, label in zip(said.split([len(one) for one in labels]), labels, strict=True):
        if (label == 1).any() and (label == 0).any():
            shares = of_row[label >= 0].log_softmax(0)
            among.append(-shares[label[label >= 0] == 1].logsumexp(0))
    return each, torch.stack(among).mean() if among else torch.zeros(())


def right_of(scorer: Scorer, batches: Sequence[Sequence[Encoded]]) -> tuple[int, int]:
    """Return how many rows' likeliest sentence answers, and how many have one that does."""
    right = total = 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for batch in batches:
            parts = scorer(batch).split([len(one.labels) for one in batch])
            for said, one in zip(parts, batch, strict=True):
                if 1 in one.labels:
                    total, right = total + 1, right + (one.labels[int(said.argmax())] == 1)
    return right, total


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=5400)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=11, help="of the rows that are drawn")
    parser.add_argument("--share", type=float, default=1.0, help="of the rows that are not in the words of users")
    parser.add_argument("--bases", type=Path, default=Path("models/bases"))
    parser.add_argument("--start", type=Path, help="weights of an earlier run")
    parser.add_argument("--kept", type=Path, help="where to keep the weights")
    asked = parser.parse_args()
    torch.manual_seed(0)
    rng, path = random.Random(asked.seed), STARTER_GENERATOR.path()
    files = write_base(ModelFiles("starter", None, path, hash_of_file(path)), asked.bases, AutoModelForCausalLM)
    model, tokenizer = load_language_model(AutoModelForCausalLM, files, "fp32", "a causal language model")
    scorer, layers = Scorer(model, tokenizer), range(FROZEN, model.config.num_hidden_layers)
    get_peft_model(
        model, LoraConfig(r=16, lora_alpha=ALPHA, target_modules=list(LAYERS), layers_to_transform=list(layers))
    )
    for name, parameter in scorer.named_parameters():
        parameter.requires_grad_("lora_" in name or name.startswith("head"))
    learnt = [parameter for parameter in scorer.parameters() if parameter.requires_grad]
    if asked.start:
        scorer.load_state_dict(torch.load(asked.start), strict=False)
    rows, encoder = rows_of(asked.data, rng, asked.share), Encoder(tokenizer, rng)
    held_out = {row.question for row in rows[:HELD_OUT]}
    batches = encoder.batches([row for row in rows if row.question not in held_out])
    tested = encoder.batches(rows[:HELD_OUT])
    optimizer = torch.optim.AdamW(learnt, lr=asked.learning_rate, weight_decay=0.0, betas=(0.9, 0.98))
    started = time.monotonic()
    for step, batch in enumerate(batches):
        done = (time.monotonic() - started) / asked.seconds
        if done >= 1:
            break
        for group in optimizer.param_groups:
            falling = 0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2
            group["lr"] = asked.learning_rate * min(1.0, (step + 1) / 20) * falling
        with torch.autocast("cpu", torch.bfloat16):
            said = scorer(batch)
        each, among = losses(said, batch)
        optimizer.zero_grad()
        (each + among).backward()
        nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        if step % 50 == 0:
            sys.stdout.write(f"{step} of {len(batches)}: {each.item():.3f} {among.item():.3f}\n")
            keep(scorer, asked.kept)
    keep(scorer, asked.kept)
    save(model, scorer, asked.out)
    sys.stdout.write("held-out rows whose likeliest sentence answers: {} of {}\n".format(*right_of(scorer, tested)))


def keep(scorer: Scorer, out: Path | None) -> None:
    """Write what was learnt, for another run."""
    if out:
        torch.save({name: value for name, value in scorer.named_parameters() if value.requires_grad}, out)


def save(model: Any, scorer: Scorer, out: Path) -> None:
    """Write the matrices as llama.cpp reads them, and the head."""
    out.mkdir(parents=True, exist_ok=True)
    write_adapter(model, ALPHA, out / GGUF_ADAPTER)
    head = {
        "adapter": hash_of_file(out / GGUF_ADAPTER),
        "base": STARTER_GENERATOR.sha256,
        "weights": [round(value, 5) for value in scorer.head.weight[0].tolist()],
        "bias": round(float(scorer.head.bias), 5),
    }
    (out / HEAD).write_text(json.dumps(head) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
