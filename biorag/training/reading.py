"""What a reader learns from: inference pairs, claims with rationales, questions with evidence, judged sentences.

Each becomes a claim or question, a window of a few sentences, and a target. Four shapes of rows are read, each told by
its keys: `premise, hypothesis, label`; claims (`corpus/claims.py`); `question, sentence, label` (1: the sentence
answers); and `question, passages, exact_answer`, whose passages answer, and whose "yes" or "no" is a stance.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from biorag.answering.readers.windows import EvidenceWindows
from biorag.corpus.claims import ClaimRow, read_claims
from biorag.corpus.sentences import sentences, terms
from biorag.errors import BadInputError, MissingError
from biorag.settings.settings import Settings
from biorag.training.contamination import ContaminationPolicy
from biorag.training.data import Split
from biorag.training.rows import is_held_out, normalised, read_records
from biorag.types import LABELS

# The outputs of a reader: the three labels of a claim, and the log-odds that the window answers a question.
UNSUPPORTED, ANSWERS, BESIDE = "not_supports", "answers", "beside"
TARGETS = (*LABELS, UNSUPPORTED, ANSWERS, BESIDE)
OUTPUTS = (*LABELS, ANSWERS)
LONGEST = 560  # characters of query and window; longer pairs are left out, for a reader reads windows
WINDOW = 3  # sentences
PASSAGES = 3  # of a question
POSTINGS = 60  # passages of a word among which a near miss is looked for
# The keys of each shape but that of claims; the first tells it.
SHAPES: Sequence[Sequence[str]] = (
    ("premise", "hypothesis", "label"),
    ("sentence", "question", "label"),
    ("passages", "question"),
)


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """A claim or question, a window of evidence, and one of `TARGETS`; rows of one `document` stay on one side."""

    query: str
    window: str
    target: str
    source: str
    document: str


@dataclass(frozen=True, slots=True)
class ReaderRows:
    """Reads files as rows: at most `limit` of each file, without evidence if `claim_only`."""

    contamination: ContaminationPolicy
    settings: Settings
    limit: int | None = None
    claim_only: bool = False

    def read(self, files: Sequence[Path], held_out: Sequence[Path] = ()) -> tuple[Split[ReadingRow], dict[str, Any]]:
        """Return the rows to train on and those held out, and the facts of the manifest.

        Raises `MissingError` if a file is not there; `BadInputError` naming file and line, or if no row is left.
        """
        rows = [row for number, file in enumerate(files) for row in self._drawn(file, number)]
        validation = [row for file in held_out for row in self._drawn(file)]
        unseen = {normalised(row.query) for row in validation}
        rows = [row for row in rows if normalised(row.query) not in unseen]
        return divided(rows, self.contamination, self.settings, "reader", validation if held_out else None)

    def _drawn(self, file: Path, number: int = 0) -> list[ReadingRow]:
        """Return the rows of a file; its place draws the windows, so that one named twice has others."""
        rng = random.Random(f"{self.settings.seed} {number} {file.name}")
        rows = [row for row in dict.fromkeys(read_rows(file, rng)) if len(row.query) + len(row.window) <= LONGEST]
        if self.limit and len(rows) > self.limit:
            rows = rng.sample(rows, self.limit)
        return [replace(row, window="") for row in rows] if self.claim_only else rows


def read_rows(file: Path, rng: random.Random) -> Iterator[ReadingRow]:
    """Yield the rows of a JSONL file, gzipped or not, of one of the four shapes.

    Raises `MissingError` if it is not there; `BadInputError` naming file and line if a row has another shape.
    """
    if not file.is_file():
        raise MissingError(f"{file} is not there: give JSONL of inference pairs, claims or judged sentences")
    name = file.name.partition(".")[0]
    records = list(read_records(file))
    keys: Sequence[str] = next((shape for shape in SHAPES if records and shape[0] in records[0][1]), ())
    for location, record in records:
        if missing := [key for key in keys if key not in record]:
            raise BadInputError(f"{location}: it has no {missing[0]!r}, which a row with {keys[0]!r} needs")
    if "premise" in keys:
        yield from (_pair(record, name, location) for location, record in records)
    elif "sentence" in keys:
        yield from (_judged(record, name) for _, record in records)
    elif "passages" in keys:
        yield from of_questions([record for _, record in records], name, rng)
    else:
        yield from of_claims(read_claims(file), name, rng)


def _pair(record: Mapping[str, Any], name: str, location: str) -> ReadingRow:
    if (label := record.get("label")) not in TARGETS:
        raise BadInputError(f"{location}: label {label!r} is none of {', '.join(TARGETS)}")
    premise = record["premise"]
    return ReadingRow(record["hypothesis"], premise, label, name, normalised(premise[:80]))


def _judged(record: Mapping[str, Any], name: str) -> ReadingRow:
    target = ANSWERS if record["label"] else BESIDE
    return ReadingRow(record["question"], record["sentence"], target, name, normalised(record["question"]))


def of_claims(claims: Iterable[ClaimRow], name: str, rng: random.Random) -> Iterator[ReadingRow]:
    """Yield each claim beside the sentences that decide it, and beside what a reader reads of its text.

    Half of the deciding windows have the sentence before them too. A window that is read has the label of the claim if
    it holds a deciding sentence, or if it is all that fits of a text without rationale; others are "neither".
    """
    windows = EvidenceWindows()
    for claim in claims:
        if not claim.label or not claim.sentences or claim.text is None:
            continue
        texts, document = claim.sentences, normalised(claim.document or claim.sentences[0])
        numbered = groupby(enumerate(sorted(claim.rationale)), key=lambda pair: pair[1] - pair[0])
        runs = [[number for _, number in run] for _, run in numbered]
        deciding = set()
        for run in runs:
            start = max(0, run[0] - rng.randrange(2))
            deciding.add(" ".join(texts[start : run[-1] + 1][-WINDOW - 1 :]))
        rows = {(window, claim.label) for window in deciding}
        *alone, fitting = windows.read(claim.claim, claim.text) or ("",)
        for window in alone if runs or claim.label == "neither" else ():
            rows.add((window, claim.label if _holds(window, claim) else "neither"))
        if fitting and fitting not in deciding:
            rows.add((fitting, claim.label if not runs or _holds(fitting, claim) else "neither"))
        for window, label in sorted(rows):
            yield ReadingRow(claim.claim, window, label, name, document)


def _holds(window: str, claim: ClaimRow) -> bool:
    """Tell whether a window has a deciding sentence; one of the window may be cut where the text's is not."""
    deciding = [(claim.sentences or ())[number] for number in claim.rationale]
    return any(text in window or window in text for text in deciding)


def of_questions(records: Sequence[Mapping[str, Any]], name: str, rng: random.Random) -> Iterator[ReadingRow]:
    """Yield questions beside windows of their passages, and beside the nearest passages of other questions.

    A window of a question that asks for a name or a list holds one of its answers; of "yes" or "no" it has that stance
    too, and the near misses are "neither".
    """
    others = NearMisses(records)
    for number, record in enumerate(records):
        if record.get("boilerplate"):
            continue
        question, exact = record["question"], record.get("exact_answer")
        stance = {"yes": "supports", "no": "contradicts"}.get(exact if isinstance(exact, str) else "")
        windows = list(_windows(record, _strings(exact) if not stance else []))
        document = normalised(question)
        drawn = rng.sample(windows, min(PASSAGES, len(windows)))
        for window in drawn:
            if stance:
                yield ReadingRow(question, window, stance, name, document)
            if not stance or rng.random() < 0.3:
                yield ReadingRow(question, window, ANSWERS, name, document)
        for window in others.of(number, len(drawn), rng):
            yield ReadingRow(question, window, BESIDE, name, document)
            if stance:
                yield ReadingRow(question, window, "neither", name, document)


def _strings(answer: Any) -> list[str]:
    if isinstance(answer, str):
        return [answer.lower()]
    return [text for synonym in answer or () for text in _strings(synonym)]


def _windows(record: Mapping[str, Any], exact: Sequence[str]) -> Iterator[str]:
    """Yield the first window of each passage that holds an answer, where there are any to hold."""
    for passage in record["passages"]:
        texts = [text for text in sentences(passage["text"]) if len(text) <= LONGEST]
        for start in range(0, len(texts), WINDOW - 1):
            window = " ".join(texts[start : start + WINDOW - 1])
            if not exact or any(answer in window.lower() for answer in exact):
                yield window
                break


class NearMisses:
    """Passages by their rare words, to find those of other questions that share most words with one."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._questions = [terms(record["question"]) for record in records]
        self._passages = [
            (number, window)
            for number, record in enumerate(records)
            for window in list(_windows(record, []))[:PASSAGES]
        ]
        self._postings: dict[str, list[int]] = defaultdict(list)
        for place, (_, window) in enumerate(self._passages):
            for word in terms(window):
                self._postings[word].append(place)

    def of(self, number: int, count: int, rng: random.Random) -> list[str]:
        """Return the `count` passages of others that share most rare words with a record's question."""
        words = self._questions[number]
        known = (word for word in words if self._postings.get(word))
        rare = sorted(known, key=lambda word: (len(self._postings[word]), word))  # the same in every process
        scores: Counter[int] = Counter()
        for word in rare[:4]:
            numbers = self._postings[word]
            for passage in rng.sample(numbers, min(POSTINGS, len(numbers))):
                if self._passages[passage][0] != number:
                    scores[passage] += 1 + (len(numbers) < POSTINGS)
        return [self._passages[passage][1] for passage, _ in scores.most_common(count)]


Row = TypeVar("Row", bound=Any)  # with `query`, `target`, `source` and `document`, as a `ReadingRow` has them


def divided(
    rows: Sequence[Row],
    contamination: ContaminationPolicy,
    settings: Settings,
    learner: str,
    validation: Sequence[Row] | None = None,
) -> tuple[Split[Row], dict[str, Any]]:
    """Return rows without contamination, the share to validate by apart unless it is given, and the manifest's facts.

    Raises `BadInputError` if no row is left.
    """
    rows, matches = contamination.apply(rows)
    if validation is None:
        apart = {row.document: is_held_out(row.document, settings.training.validation, settings.seed) for row in rows}
        validation = [row for row in rows if apart[row.document]]
        rows = [row for row in rows if not apart[row.document]]
    if not rows:
        raise BadInputError(f"no row is left to train a {learner} on: give inference pairs, claims or questions")
    return Split(rows, validation), {"data": {"sources": counts_of(rows)}, **contamination.facts(matches)}


def counts_of(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Return how many rows of each source have each target."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row.source][row.target] += 1
    return {source: dict(targets) for source, targets in counts.items()}
