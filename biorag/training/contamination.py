"""Contamination: training queries that are, or nearly are, questions of a benchmark.

A query matches a question if both are the same `normalised` text, or if the sets of their character trigrams have a
Jaccard similarity of at least the threshold. With 0.8, BioASQ's and PubMedQA's development questions match themselves
with one letter replaced in 93 of 100 cases and with a common word inserted in 82, while those that are not copies of
MIRAGE's questions reach a similarity of at most 0.57 to them. Only spelling is compared: in a long phrase a short name
counts little ("Is eteplirsen effective for the treatment of Duchenne muscular dystrophy?" matches the same question
about golodirsen), and paraphrases are not found.

A query is compared with the questions that share one of its rarest trigrams: a similarity of t to a query of n trigrams
takes ⌈t·n⌉ shared ones, so that none is missed: the prefix filter of Chaudhuri et al. (2006), Bayardo et al. (2007).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from biorag.corpus.datasets import Dataset, first_file
from biorag.corpus.sources import BEIR_QUERIES, Source, read_chunks
from biorag.errors import BadInputError, BioragError, MissingError, UsageError
from biorag.models.finding import TRAINED_STARTER, ModelFiles
from biorag.training.rows import is_held_out, normalised, parsed_rows, read_records, training_dataset
from biorag.utils.parsing import parse_json

R = TypeVar("R")  # a row

SHINGLE = 3
ROUNDING = 1e-9
EXAMPLES = 3
SHOWN = 100
SHAPES = (
    "expected MIRAGE's benchmark.json, BioASQ's questions, BEIR's queries.jsonl, or JSON Lines with 'question' or "
    "'query'"
)
# The packaged encoder was trained on BioASQ 7 to 11 (docs/starter.md): questions with ids from the first to the last
# (each a time and a counter, in hexadecimal digits), but for what a split of this share and seed holds out.
STARTER_QUESTIONS = ("5acf74460340b9f058000013", "6086f0ef4e6a4cf630000011", 0.2, 0)
ALL, HELD_OUT, TRAINING, DROPPED = PARTS = ("all", "held-out", "training", "dropped")


@dataclass(frozen=True, slots=True)
class ContaminationMatch:
    """A training query and the question of a benchmark file that it matches; 1.0 if the texts are the same."""

    query: str
    question: str
    benchmark: str
    similarity: float


def _shown(text: str) -> str:
    """Return a text on one line, cut if it is long: questions may be whole case histories."""
    return textwrap.shorten(text, SHOWN, placeholder="…")


class ContaminationError(BadInputError):
    """Training queries that match questions of a benchmark; `matches` has them all, and so have `details`."""

    def __init__(self, matches: Sequence[ContaminationMatch]) -> None:
        count = "1 training query matches" if len(matches) == 1 else f"{len(matches)} training queries match"
        examples = "; ".join(
            f'"{_shown(match.query)}" ~ "{_shown(match.question)}" in {match.benchmark}' for match in matches[:EXAMPLES]
        )
        more = " …" if len(matches) > EXAMPLES else ""
        super().__init__(
            f"{count} a benchmark question: {examples}{more}; --drop-contaminated removes them and trains on the rest"
        )
        self.matches = tuple(matches)
        self.details = tuple(f"{match.similarity:.2f}  {match.query}" for match in matches)


class ContaminationDetector:
    """The questions of some benchmark files, to compare training queries with; see `read_benchmark_questions`.

    The threshold, above 0 and at most 1, is the least Jaccard similarity of trigram sets that is a match.
    """

    def __init__(self, benchmarks: Sequence[Path], threshold: float = 0.8) -> None:
        self._threshold = threshold
        self._questions: dict[str, tuple[str, str]] = {}  # normalised text: the question, its benchmark
        for path in benchmarks:
            for question in read_benchmark_questions(path):
                self._questions.setdefault(normalised(question), (question, str(path)))
        self._texts = list(self._questions)
        self._grams = [shingles(text) for text in self._texts]
        self._postings: dict[str, list[int]] = {}
        for number, grams in enumerate(self._grams):
            for gram in grams:
                self._postings.setdefault(gram, []).append(number)

    def matches(self, queries: Iterable[str]) -> list[ContaminationMatch]:
        """Return the best match of each query that has one, in their order.

        Queries that are the same when `normalised` are named once, by the first. Of equally similar questions the
        first in the benchmarks is taken.
        """
        matches: list[ContaminationMatch] = []
        seen = {""}
        for query in queries:
            text = normalised(query)
            if text not in seen:
                seen.add(text)
                matches += self._best(query, text)
        return matches

    def _best(self, query: str, text: str) -> Iterator[ContaminationMatch]:
        """Yield the best match, if there is one."""
        if text in self._questions:
            yield ContaminationMatch(query, *self._questions[text], 1.0)
            return
        grams = shingles(text)
        compared = ((-jaccard(grams, self._grams[number]), number) for number in self._candidates(grams))
        distance, number = min(compared, default=(0.0, -1))
        if number >= 0 and -distance >= self._threshold:
            yield ContaminationMatch(query, *self._questions[self._texts[number]], -distance)

    def _candidates(self, grams: set[str]) -> Iterator[int]:
        """Yield the questions that may match: of a similar size, with one of so many trigrams that a match has one."""
        rarest = sorted(grams, key=lambda gram: len(self._postings.get(gram, ())))
        needed = len(grams) - math.ceil(self._threshold * len(grams) - ROUNDING) + 1
        for number in {number for gram in rarest[:needed] for number in self._postings.get(gram, ())}:
            smaller, larger = sorted((len(grams), len(self._grams[number])))
            if smaller >= self._threshold * larger:
                yield number


def _query(row: Any) -> tuple[str, ...]:
    return (row.query,)


@dataclass(frozen=True, slots=True)
class ContaminationPolicy:
    """Benchmarks whose questions must not be trained on, and whether rows that match one are dropped or refused.

    Raises UsageError if rows are to be dropped and no benchmark is given.
    """

    benchmarks: tuple[Path, ...] = ()
    drop: bool = False

    def __post_init__(self) -> None:
        if self.drop and not self.benchmarks:
            raise UsageError("--drop-contaminated needs --guard FILE: name the benchmark file")

    def apply(
        self, rows: Sequence[R], texts: Callable[[R], Sequence[str]] = _query
    ) -> tuple[list[R], list[ContaminationMatch]]:
        """Return the rows of which none of the `texts`, by default the query, matches a question, and the matches.

        Raises ContaminationError if there are matches and they are not to be dropped.
        """
        if not self.benchmarks:
            return list(rows), []
        matches = ContaminationDetector(self.benchmarks).matches(text for row in rows for text in texts(row))
        if matches and not self.drop:
            raise ContaminationError(matches)
        matched = {normalised(match.query) for match in matches}
        return [row for row in rows if matched.isdisjoint(map(normalised, texts(row)))], matches

    def facts(self, matches: Sequence[ContaminationMatch]) -> dict[str, Any]:
        """Return the matches for a training manifest; nothing if no benchmark was given."""
        if not self.benchmarks:
            return {}
        files = [str(path) for path in self.benchmarks]
        return {"guard": {"benchmarks": files, "dropped": [asdict(match) for match in matches]}}


def shingles(text: str) -> set[str]:
    """Return the character trigrams of a normalised text with a space before and after it."""
    padded = f" {text} "
    return {padded[start : start + SHINGLE] for start in range(len(padded) - SHINGLE + 1)}


def jaccard(first: set[str], second: set[str]) -> float:
    """Return |A ∩ B| / |A ∪ B|; at least one set has a member."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


def read_benchmark_questions(path: Path) -> list[str]:
    """Return the texts of a benchmark's questions, in their order; those without a word are skipped.

    The file is MIRAGE's `benchmark.json`, BioASQ's JSON with `questions`, BEIR's `queries.jsonl` (or the folder
    it is in), or JSON Lines with `question` or `query`; any of them may be gzip.

    Raises MissingError if it does not exist; BadInputError if it cannot be read, has another shape or has no question.
    """
    file = (first_file(path, BEIR_QUERIES) or path / BEIR_QUERIES[0]) if path.is_dir() else path
    if not file.is_file():
        raise MissingError(f"benchmark {file} is not there: {SHAPES}")
    questions = []
    for location, question in _questions(file):
        if not isinstance(question, str):
            raise BadInputError(f"{location}: the question is not a text; {SHAPES}")
        if normalised(question):
            questions.append(question)
    if not questions:
        raise BadInputError(f"benchmark {file} has no question: {SHAPES}")
    return questions


def _questions(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield `(location, question)` as the file has them, of any type."""
    try:
        document = parse_json(b"".join(read_chunks(Source(str(path), path))))
    except ValueError:  # more than one document, else the line is named
        for location, record in read_records(path):
            yield location, _question(record)
        return
    if not isinstance(document, dict):
        raise BadInputError(f"benchmark {path} is a JSON {type(document).__name__}: {SHAPES}")
    if isinstance(document.get("questions"), list):
        for number, record in enumerate(document["questions"], 1):
            yield f"{path}, question {number}", record.get("body") if isinstance(record, dict) else None
    elif all(isinstance(task, dict) for task in document.values()):
        for task, records in document.items():
            for id, record in records.items():
                yield f"{path}, {task!r}, {id!r}", record.get("question") if isinstance(record, dict) else None
    else:
        yield f"{path}, line 1", _question(document)


def _question(record: Mapping[str, Any]) -> Any:
    keys = ("question", "query", *(("text",) if "_id" in record else ()))
    return next((record[key] for key in keys if key in record), None)


@dataclass(frozen=True, slots=True)
class HeldOutSplit:
    """How training split its questions (see `biorag.training.rows.split`), and which part of them to take.

    Training dropped the questions of the `benchmarks`. The part "held-out" is those that training did not see, held out
    or dropped; "training" is the rest, and "dropped" those that were dropped and not held out.

    Raises UsageError if dropped questions are to be taken and no benchmark is given.
    """

    fraction: float
    seed: int
    benchmarks: tuple[Path, ...] = ()
    part: str = ALL

    def __post_init__(self) -> None:
        if self.part == DROPPED and not self.benchmarks:
            raise UsageError("--dropped takes the questions that --guard FILE dropped: give the benchmark")

    def select(self, data: Dataset) -> Dataset:
        """Return the data set with that part of its questions; raises BadInputError if no question is in that part."""
        if self.part == ALL:
            return data
        held_out = {question.id for question in data.questions if is_held_out(question.text, self.fraction, self.seed)}
        dropped = self._dropped(data)
        ids, why_none = {
            HELD_OUT: (held_out | dropped, f"is held out by --validation {self.fraction}"),
            TRAINING: (
                {question.id for question in data.questions} - held_out - dropped,
                f"is left for training by --validation {self.fraction}",
            ),
            DROPPED: (dropped - held_out, "was dropped by --guard"),
        }[self.part]
        questions = [question for question in data.questions if question.id in ids]
        if not questions:
            raise BadInputError(f"no question of {data.name} {why_none}")
        qrels = {question.id: data.qrels[question.id] for question in questions}
        return replace(data, questions=questions, qrels=qrels)

    def _dropped(self, data: Dataset) -> set[str]:
        """Return the ids of the questions that match a benchmark's."""
        policy = ContaminationPolicy(self.benchmarks, drop=bool(self.benchmarks))
        clean, _ = policy.apply(data.questions, lambda question: (question.text,))
        return {question.id for question in data.questions} - {question.id for question in clean}


def learnt_note(encoder: str, data: Dataset) -> str:
    """Return how many of a data set's questions an encoder was trained on, and what to do; empty if none, or unknown.

    The questions of the packaged encoder are told by their ids, those of a folder that biorag trained by the files that
    its manifest names, as far as they are there.
    """
    if encoder == TRAINED_STARTER.title:
        first, last, fraction, seed = STARTER_QUESTIONS
        learnt = [one for one in data.questions if len(one.id) == len(first) and first <= one.id <= last]
    else:
        made = ModelFiles(encoder, "", Path(encoder), "").settings("training.json")
        settings, facts = made.get("identity", {}).get("settings", {}), made.get("data", {})
        fraction, seed = settings.get("train_validation", 0), settings.get("seed", 0)
        files = (Path(file) for part in facts.get("sets", [facts]) for file in part.get("files", ()))
        dropped = {normalised(match["query"]) for match in made.get("guard", {}).get("dropped", ())}
        read = set[str]().union(*map(_trained_on, files)) - dropped
        learnt = [one for one in data.questions if normalised(one.text) in read]
    number = sum(not is_held_out(one.text, fraction, seed) for one in learnt)
    part = f"the others with --held-out --validation {fraction:g}" + f" --seed {seed}" * bool(seed)
    trained = f"{encoder} was trained on {number:,} of these {len(data.questions):,} questions, so that its figures are"
    return f"{trained} too high: measure {part if fraction else 'it on other questions'}" if number else ""


def _trained_on(path: Path) -> set[str]:
    """Return the questions of training data, normalised; none if it can no longer be read."""
    try:
        judged = training_dataset(path).questions if path.is_dir() else ()
        texts = [question.text for question in judged] or [row.query for row, _ in parsed_rows(path)]
        return set(map(normalised, texts))
    except (BioragError, OSError):
        return set()
