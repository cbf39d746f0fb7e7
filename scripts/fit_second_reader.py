"""Make the packaged second reader: matrices by which the starter's Llama reads records line by line.

    python -m scripts.fit_second_reader DATA biorag/models/second_reader

Rows are a question or claim, a record's title and its sentences with what is known of each.

- Which sentence answers: of the questions that were written for the reader (`question_sets/*/learnt.jsonl.gz`), each
  with its record; of BioASQ 1 to 6 with a gold record; and of `OTHERS` of the former with another record that BM25
  finds, of which no sentence answers.
- Which sentence supports or contradicts: claims of people and written ones with their records, some of them also with
  another record, and inference pairs, whose premise is one line.

The loss is the cross-entropy of each judged sentence, and half of that of the answering ones among all of their record.
Batches are of about 3,200 tokens and like length; `--seconds` sets the time, by which the learning rate falls along a
cosine. `--kept` is a file of the weights, from which a later run may `--start`.
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

from biorag.answering.extract import candidates, window_of
from biorag.answering.readers.records import HEAD, QUESTION, TITLE, line
from biorag.corpus.claims import read_claims
from biorag.models.finding import GGUF_ADAPTER, STARTER_GENERATOR, ModelFiles, hash_of_file
from biorag.models.loading import load_language_model
from biorag.training.bi_encoder import write_base
from biorag.training.generator import write_adapter
from biorag.training.reading import LONGEST, UNSUPPORTED, read_rows
from biorag.types import LABELS
from scripts.answer_rows import DECIDED, LEARNT, Rows, asked_about, found_for, hit_of, nearest, read, told_of

OTHERS = 6000  # questions that come with another record
OTHER_CLAIMS = 1200  # claims that do
PAIRS = {  # of the files in DATA/nli/train, so many
    "mnli_train_sample": 14000,
    "mnli_mismatched_dev": 2500,
    "wanli_sample": 5000,
    "snli_train_sample": 2000,
    "cad_snli": 1500,
    "fever_gold_sample": 3000,
    "fever_retrieved": 3000,
    "conjnli_adversarial": 1500,
    "disco_snli": 700,
    "help": 500,
    "scitail_dev": 1300,
    "syntactic_augmentation": 500,
    "fm2_dev": 600,
    "scientsbank": 700,
}
TRIALS = 3000  # claims of Evidence Inference, each with one sentence
ASIDE = 0.3  # weight of a sentence that stands beside one that decides a claim
ALPHA = 32
FROZEN = 8  # layers from the bottom without matrices
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CROPPED = (320, 224)  # tokens of a row of a question, of a claim
BATCH = 3200  # tokens
WEIGHTS = {"each": 1.0, "among": 0.5, "claims": 1.0}  # of the parts of the loss
MULTIPLES = (16, 64)  # tokens that batches of short rows and of others are padded to a multiple of
SHORT = 112
HELD_OUT = 300  # questions and claims
UNKNOWN, UNSUPPORTING, NEITHER = -1, 3, LABELS.index("neither")


class Row(NamedTuple):
    """A question or claim and a record's sentences.

    The labels of a question's are 1 if one answers, 0 if not; of a claim's the place in `LABELS`, or `UNSUPPORTING` for
    either of the last two. They are `UNKNOWN` where it is not known.
    """

    question: str
    title: str
    sentences: Sequence[str]
    labels: Sequence[int]
    claims: bool = False


class Encoded(NamedTuple):
    """The tokens of a row, the places where its lines end, and their labels."""

    tokens: list[int]
    ends: list[int]
    labels: Sequence[int]
    claims: bool


def rows_of(data: Path, rng: random.Random, questions: int | None = None) -> list[Row]:
    """Return all rows, in an order drawn at random."""
    docs, learnt = asked_about(data), read(LEARNT)
    rows = [_written(one["question"], one["answers"], one["doubtful"], docs[one["doc"]]) for one in learnt]
    decided = (one for one in read(DECIDED) if one["form"] == "question")
    rows += [_written(one["text"], one["deciding"], one["doubtful"], docs[one["doc"]]) for one in decided]
    drawn = rng.sample(learnt, OTHERS)
    found = nearest([one["question"] for one in drawn], docs, 6)
    for one, ids in zip(drawn, found, strict=True):
        doc = docs[rng.choice([id for id in ids if id != one["doc"]][:4])]
        texts = [row.text for row in candidates([hit_of(1, doc)])]
        rows.append(Row(one["question"], doc["title"] or "", texts, [0] * len(texts)))
    rows += _of_bioasq(data, rng)
    rows = rng.sample(rows, min(questions or len(rows), len(rows)))
    rows += _of_claims(data, docs, rng)
    rows += _of_pairs(data, rng)
    rows = [row for row in rows if row.sentences and set(row.labels) != {UNKNOWN}]
    rng.shuffle(rows)
    return rows


def _written(question: str, right: Any, doubtful: Any, doc: Mapping[str, Any]) -> Row:
    rows, answers, others = told_of(right, doubtful, doc)
    labels = [1 if n in answers else 0 if n in others else -1 for n in range(len(rows))]
    return Row(question, doc["title"] or "", [row.text for row in rows], labels)


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


def _of_claims(data: Path, docs: Mapping[str, dict[str, Any]], rng: random.Random) -> Iterator[Row]:
    """Yield claims with their records: those of people, and those that were written for the reader."""
    files = [data / f"claims/train/{name}.jsonl.gz" for name in ("scifact", "check_covid", "citation_integrity")]
    files += sorted((data / "nli/train").glob("claims_*.jsonl.gz"))
    claims = [claim for file in files for claim in read_claims(file)]
    claims += rng.sample(list(read_claims(data / "claims/train/evidence_inference.jsonl.gz")), TRIALS)
    for one in claims:
        if one.label and one.sentences and (one.rationale or one.label == LABELS[NEITHER]):
            labels = [LABELS.index(one.label) if n in one.rationale else NEITHER for n in range(len(one.sentences))]
            yield Row(one.claim, one.title, one.sentences, labels, True)
    decided = read(DECIDED)
    for one in decided:
        doc, label = docs[one["doc"]], LABELS.index(one["label"])
        rows, answers, others = told_of(one["deciding"], one["doubtful"], doc)
        labels = [label if n in answers else NEITHER if n in others else UNKNOWN for n in range(len(rows))]
        yield Row(one["text"], doc["title"] or "", [row.text for row in rows], labels, True)
    drawn = rng.sample(decided, OTHER_CLAIMS)
    for one, ids in zip(drawn, nearest([one["text"] for one in drawn], docs, 8), strict=True):
        doc = docs[rng.choice([id for id in ids if id != one["doc"]][1:6])]
        texts = [row.text for row in candidates([hit_of(1, doc)])]
        yield Row(one["text"], doc["title"] or "", texts, [NEITHER] * len(texts), True)


def _of_pairs(data: Path, rng: random.Random) -> Iterator[Row]:
    """Yield inference pairs, the premise as one line without a title."""
    labels = {label: place for place, label in enumerate((*LABELS, UNSUPPORTED))}
    for name, most in PAIRS.items():
        pairs = [pair for pair in read_rows(data / f"nli/train/{name}.jsonl.gz", rng) if len(pair.window) <= LONGEST]
        for pair in rng.sample(pairs, min(most, len(pairs))):
            yield Row(pair.query, "", [pair.window], [labels[pair.target]], True)


class Encoder:
    """Turns rows into tokens, of long records a part with an answer."""

    def __init__(self, tokenizer: Any, rng: random.Random) -> None:
        self._tokenizer, self._rng = tokenizer, rng

    def encoded(self, row: Row) -> Encoded:
        """Return the tokens of a row."""
        asked, end = f"{'Claim' if row.claims else 'Question'}: {row.question}", self._ids("\n")
        title = self._ids(f"Title: {row.title.strip('[] ')}")[:TITLE] + end if row.title else []
        tokens = [*self._ids(asked)[:QUESTION], *end, *title, *self._ids("Evidence:\n")]
        lines = [line(self._ids, text) for text in row.sentences]
        wanted = [label not in (UNKNOWN, NEITHER) if row.claims else label == 1 for label in row.labels]
        first, last = self._part(list(map(len, lines)), wanted, CROPPED[row.claims] - len(tokens))
        ends = []
        for one in lines[first : last + 1]:
            tokens += one
            ends.append(len(tokens) - 1)
        return Encoded(tokens, ends, row.labels[first : last + 1], row.claims)

    def _part(self, lengths: Sequence[int], wanted: Sequence[bool], room: int) -> tuple[int, int]:
        """Return the first and the last sentence of a part that fits, around one that is wanted if there is any."""
        if sum(lengths) <= room:
            return 0, len(lengths) - 1
        right = [index for index, want in enumerate(wanted) if want]
        first = last = self._rng.choice(right or range(len(wanted)))
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
    longest = max(len(one.tokens) for one in batch)
    multiple = MULTIPLES[longest > SHORT]  # oneDNN compiles its products for each new shape
    return -(-longest // multiple) * multiple


class Scorer(nn.Module):
    """A causal language model with a linear head on the last hidden states: that a sentence answers, and `LABELS`.

    It begins with the vectors of words.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.base = model.model
        words = model.lm_head.weight.detach()
        yes, no, maybe = (tokenizer(word, add_special_tokens=False).input_ids[0] for word in (" yes", " no", " maybe"))
        self.head = nn.Linear(words.shape[1], 1 + len(LABELS))
        with torch.no_grad():
            self.head.weight.copy_(torch.stack([words[yes] - words[no], words[yes], words[no], words[maybe]]))
            self.head.bias.zero_()

    def forward(self, batch: Sequence[Encoded]) -> torch.Tensor:
        """Return the head's outputs (sentences, 4) of a batch, one row's after the other's."""
        ids = torch.zeros((len(batch), padded(batch)), dtype=torch.long)
        ends = torch.zeros(ids.shape, dtype=torch.bool)
        for row, one in enumerate(batch):
            ids[row, : len(one.tokens)] = torch.tensor(one.tokens)
            ends[row, one.ends] = True
        # Padding stands on the right, where a causal model does not look from what is before.
        states = self.base(input_ids=ids, use_cache=False).last_hidden_state
        said: torch.Tensor = self.head(states[ends])
        return said.float()


def losses(said: torch.Tensor, batch: Sequence[Encoded]) -> dict[str, torch.Tensor]:
    """Return the cross-entropy of a batch's judged sentences.

    That each answers, that those which answer do among those of their record, and what each does to a claim.
    """
    parts = defaultdict[str, list[torch.Tensor]](list)
    for of_row, one in zip(said.split([len(one.labels) for one in batch]), batch, strict=True):
        label = torch.tensor(one.labels)
        of_row, label = of_row[label != UNKNOWN], label[label != UNKNOWN]
        if one.claims:
            shares = of_row[:, 1:].log_softmax(1)
            shares = torch.cat([shares, shares[:, 1:].logsumexp(1, keepdim=True)], 1)
            beside = (label == NEITHER) & bool((label != NEITHER).any())
            parts["claims"].append(-shares[range(len(label)), label] * torch.where(beside, ASIDE, 1.0))
            continue
        parts["each"].append(
            nn.functional.binary_cross_entropy_with_logits(of_row[:, 0], label.float(), reduction="none")
        )
        if (label == 1).any() and (label == 0).any():
            parts["among"].append(-of_row[:, 0].log_softmax(0)[label == 1].logsumexp(0, keepdim=True))
    return {name: torch.cat(values).mean() for name, values in parts.items()}


def right_of(scorer: Scorer, batches: Sequence[Sequence[Encoded]]) -> dict[str, list[int]]:
    """Return how many questions' likeliest sentence answers, of how many with one; and the same of claims' sides."""
    told: dict[str, list[int]] = {"questions": [0, 0], "claims": [0, 0]}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for batch in batches:
            parts = scorer(batch).split([len(one.labels) for one in batch])
            for said, one in zip(parts, batch, strict=True):
                if one.claims:
                    known = [label for label in one.labels if label != NEITHER] or [NEITHER]
                    sides = said[:, 1:].softmax(1)[:, :NEITHER].amax(0)
                    side = NEITHER if sides.max() < 0.5 else int(sides.argmax())
                    right = side == known[0] or (known[0] == UNSUPPORTING and side)
                    told["claims"] = [told["claims"][0] + bool(right), told["claims"][1] + 1]
                elif 1 in one.labels:
                    right = one.labels[int(said[:, 0].argmax())] == 1
                    told["questions"] = [told["questions"][0] + right, told["questions"][1] + 1]
    return told


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=5400)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--bases", type=Path, default=Path("models/bases"))
    parser.add_argument("--questions", type=int, help="take so many rows of questions, by default all")
    parser.add_argument("--start", type=Path, help="weights of an earlier run")
    parser.add_argument("--kept", type=Path, help="where to keep the weights")
    asked = parser.parse_args()
    torch.manual_seed(0)
    rng, path = random.Random(11), STARTER_GENERATOR.path()
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
    rows, encoder = rows_of(asked.data, rng, asked.questions), Encoder(tokenizer, rng)
    held_out = {row.question for row in rows[:HELD_OUT]}
    batches = encoder.batches([row for row in rows if row.question not in held_out])
    tested = encoder.batches(rows[:HELD_OUT])
    optimizer = torch.optim.AdamW(learnt, lr=asked.learning_rate, weight_decay=0.0, betas=(0.9, 0.98))
    started, seen = time.monotonic(), defaultdict[str, list[float]](list)
    for step, batch in enumerate(batches):
        done = (time.monotonic() - started) / asked.seconds
        if done >= 1:
            break
        for group in optimizer.param_groups:
            falling = 0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2
            group["lr"] = asked.learning_rate * min(1.0, (step + 1) / 20) * falling
        with torch.autocast("cpu", torch.bfloat16):
            said = scorer(batch)
        told = losses(said, batch)
        optimizer.zero_grad()
        torch.stack([value * WEIGHTS[name] for name, value in told.items()]).sum().backward()
        nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        for name, value in told.items():
            seen[name].append(value.item())
        if step % 50 == 49:
            means = " ".join(f"{name} {sum(values) / len(values):.3f}" for name, values in sorted(seen.items()))
            sys.stdout.write(f"{step + 1} of {len(batches)}, {time.monotonic() - started:.0f} s: {means}\n")
            sys.stdout.flush()
            seen.clear()
            keep(scorer, asked.kept)
    keep(scorer, asked.kept)
    save(model, scorer, asked.out)
    sys.stdout.write(f"held-out rows that it tells rightly: {right_of(scorer, tested)}\n")


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
        "weights": [[round(value, 5) for value in row] for row in scorer.head.weight.tolist()],
        "bias": [round(value, 5) for value in scorer.head.bias.tolist()],
    }
    (out / HEAD).write_text(json.dumps(head) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
