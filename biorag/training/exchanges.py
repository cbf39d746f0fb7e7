"""What a generator learns from: prompts of the product, and the replies that are right beside their evidence.

A claim or a yes/no question stands beside a window (`answering/readers/generators.py`), an open question beside
documents (`prompts/open.txt`), a follow-up beside the question and the answer before it (`answering/followups.py`), so
that what is learnt is what is asked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from biorag.answering.followups import rewriting_prompt
from biorag.answering.readers.generators import WORDS, reading_prompt, reading_template
from biorag.corpus.sentences import sentences
from biorag.errors import BadInputError
from biorag.prompts.template import Template, load_template
from biorag.settings.settings import Settings
from biorag.training.contamination import ContaminationPolicy
from biorag.training.data import Split
from biorag.training.reading import NearMisses, divided, read_rows
from biorag.training.rows import normalised, read_records
from biorag.types import LABELS, Prompt, Question, Snippet

DOCUMENTS = 3  # of a question that is answered, at most
ROOM = 1600  # characters of the documents of a question, if more than one
REWRITTEN = ("question", "previous", "answer", "standalone")  # keys of a follow-up
LETTERS = "ABCD"  # of options
CHOSEN = 0.5  # share of the factoids that are asked with options
UNANSWERED = 0.2  # share of the questions beside documents of others alone
UNKNOWN = "The documents do not answer the question."
LONGEST_ANSWER = 400  # characters
GROUNDED = 0.6  # share of an answer's pairs of words that its documents have, from which it is one by them


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
    """Yield claims and yes/no questions beside windows, and the word that is right; follow-ups and what they mean."""
    if file.is_file() and "standalone" in next((record for _, record in read_records(file)), {}):
        yield from _follow_ups(file)
        return
    template = reading_template()
    for row in read_rows(file, rng):
        if row.target in LABELS:
            prompt = reading_prompt(template, row.window, row.query)
            word = WORDS[LABELS.index(row.target)]
            yield Exchange(row.query, prompt.system, prompt.user, word, row.source, row.document)


def _follow_ups(file: Path) -> Iterator[Exchange]:
    """Yield follow-ups beside the question and the answer before them, and the question that they mean."""
    for location, row in read_records(file):
        if missing := [key for key in REWRITTEN if not isinstance(row.get(key), str)]:
            raise BadInputError(f"{location}: it has no text {missing[0]!r}, which a follow-up needs")
        user = rewriting_prompt(row["question"], row["previous"], row["answer"]).user
        meant, document = row["standalone"], normalised(row["previous"])
        yield Exchange(meant, "", user, meant, file.name.partition(".")[0], document)


def _answered(file: Path, rng: random.Random) -> Iterator[Exchange]:
    """Yield questions beside documents, right ones and near misses mixed, with JSON that answers by the right.

    A yes/no question is asked as benchmarks ask it, with options; so is a factoid, half the time, beside other answers.
    """
    records = [record for _, record in read_records(file)]
    if not records or "passages" not in records[0]:
        return
    records = [record for record in records if record["passages"] and not record.get("boilerplate")]
    records = [record for record in records if record.get("ideal_answer") or record.get("exact_answer") in WORDS]
    decisions = [word for word in WORDS if any(record.get("exact_answer") == word for record in records)]
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
            options = rng.sample([name for name in factoids if name != gold], min(len(LETTERS), len(factoids)) - 1)
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
        letter = next(key for key, option in letters.items() if option == gold)
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
    right = [passage["text"] for passage in record["passages"][:DOCUMENTS]]
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
    rows = [row for document in documents for row in sentences(document)]
    return max(rows, key=lambda row: len(asked & set(normalised(row).split())))[:LONGEST_ANSWER]


def _pairs(text: str) -> set[tuple[str, str]]:
    words = normalised(text).split()
    return set(pairwise(words))
