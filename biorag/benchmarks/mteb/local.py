"""Reading the local tasks: judged corpora, sentence pairs, mentions of concepts."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.corpus.datasets import Dataset, Qrels, corpus_file, load_dataset, read_qrels
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import MAX_LINE, Source
from biorag.errors import BadInputError, MissingError
from biorag.types import Question, Snippet
from biorag.utils.parsing import parse_json
from biorag.utils.text import is_whole

CONCEPTS, MENTIONS = "concepts.jsonl", "mentions.jsonl"
PAIR_FIELDS = ("sentence1", "sentence2", "score")
PAIR_LINE = "two sentences and a number: tab-separated, or a JSON object with sentence1, sentence2 and score"
CONCEPT_LINE = "a JSON object with _id and names, a list of texts"
MENTION_LINE = "a JSON object with _id, text and concept, the id of a concept or a list of them"


@dataclass(frozen=True, slots=True)
class JudgedCorpus:
    """A corpus with judged questions; `candidates` are the judged snippets of each question, relevant or not."""

    snippets: Sequence[Snippet]
    dataset: Dataset
    candidates: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences and how alike people found them."""

    sentence1: str
    sentence2: str
    score: float


@dataclass(frozen=True, slots=True)
class Linking:
    """Concepts with their names, and mentions with the concepts (`qrels`) that they mean."""

    names: Mapping[str, Sequence[str]]
    mentions: Sequence[Question]
    qrels: Qrels


def read_corpus(folder: Path, split: str = "test") -> JudgedCorpus:
    """Read `corpus.jsonl` (BEIR's or MedRAG's fields, or gzipped), `queries.jsonl` and `qrels/SPLIT.tsv`.

    Raises
    ------
    MissingError
        If a file is not there.
    BadInputError
        Naming file, line and reason; or if no judged snippet is in the corpus.
    """
    path = corpus_file(folder)
    dataset = load_dataset(folder, split)
    snippets = list({snippet.id: snippet for snippet in read_snippets(Source(str(path), path))}.values())
    held = {snippet.id for snippet in snippets}
    if not any(id in held for found in dataset.qrels.values() for id in found):
        raise BadInputError(f"{path} holds none of the judged snippets: do the ids belong together?")
    judged = read_qrels(folder / "qrels" / f"{split}.tsv", lowest=0)
    candidates = {question.id: [id for id in judged[question.id] if id in held] for question in dataset.questions}
    return JudgedCorpus(snippets, dataset, candidates)


def read_pairs(path: Path) -> list[Pair]:
    """Read sentence pairs with a score: tab-separated, with or without a header, or JSON lines.

    Raises
    ------
    MissingError
        If the file is not there.
    BadInputError
        Naming file, line and reason; or if there are not two scores to order.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a file of sentence pairs, .tsv or .jsonl")
    rows = _json_pairs(path) if path.suffix == ".jsonl" else _tab_pairs(path)
    pairs = []
    for number, (first, second, score) in rows:
        try:
            pair = Pair(_text(first), _text(second), float(score))
        except (TypeError, ValueError):
            raise _bad(path, number, PAIR_LINE) from None
        if not (pair.sentence1 and pair.sentence2 and math.isfinite(pair.score)):
            raise _bad(path, number, PAIR_LINE)
        pairs.append(pair)
    if len({pair.score for pair in pairs}) < 2:
        raise BadInputError(f"{path} needs pairs of two scores at least: a correlation has nothing to order")
    return pairs


def _tab_pairs(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    for number, line in _lines(path):
        fields = next(csv.reader([line], delimiter="\t", quoting=csv.QUOTE_NONE))
        if len(fields) != len(PAIR_FIELDS):
            raise _bad(path, number, PAIR_LINE)
        if number > 1 or fields[-1] != PAIR_FIELDS[-1]:
            yield number, fields


def _json_pairs(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    for number, record in _records(path, PAIR_LINE):
        yield number, [record.get(field) for field in PAIR_FIELDS]


def read_linking(folder: Path) -> Linking:
    """Read `concepts.jsonl` (`_id`, `names`) and `mentions.jsonl` (`_id`, `text`, `concept`).

    Raises
    ------
    MissingError
        If a file is not there.
    BadInputError
        Naming file, line and reason.
    """
    for name in (CONCEPTS, MENTIONS):
        if not (folder / name).is_file():
            raise MissingError(f"{folder / name} is not there: entity linking reads {CONCEPTS} and {MENTIONS}")
    names: dict[str, list[str]] = {}
    for number, record in _records(folder / CONCEPTS, CONCEPT_LINE):
        id, listed = _text(record.get("_id")), record.get("names")
        if not id or not isinstance(listed, list) or not listed or not all(map(_text, listed)):
            raise _bad(folder / CONCEPTS, number, CONCEPT_LINE)
        names.setdefault(id, []).extend(map(_text, listed))
    mentions: dict[str, Question] = {}
    qrels: dict[str, dict[str, int]] = {}
    path = folder / MENTIONS
    for number, record in _records(path, MENTION_LINE):
        id, text, meant = _text(record.get("_id")), _text(record.get("text")), record.get("concept")
        concepts = list(map(_text, meant if isinstance(meant, list) else [meant]))
        if not id or not text or not concepts or not all(concepts):
            raise _bad(path, number, MENTION_LINE)
        if unknown := [concept for concept in concepts if concept not in names]:
            raise BadInputError(f"{path}, line {number}: concept {unknown[0]!r} is not in {CONCEPTS}")
        if id in mentions:
            raise BadInputError(f"{path}, line {number}: {id!r} is there a second time")
        mentions[id], qrels[id] = Question(id, text), dict.fromkeys(concepts, 1)
    if not mentions:
        raise BadInputError(f"{path} holds no mention")
    return Linking(names, list(mentions.values()), qrels)


def _text(value: Any) -> str:
    """Return a text without white space around it; an empty one for anything else, or for half a character."""
    return value.strip() if isinstance(value, str) and is_whole(value) else ""


def _records(path: Path, expected: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in _lines(path):
        try:
            record = parse_json(line)
        except ValueError:
            raise _bad(path, number, expected) from None
        if not isinstance(record, dict):
            raise _bad(path, number, expected)
        yield number, record


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as stream:
        for number, raw in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), 1):
            if len(raw) == MAX_LINE:
                raise BadInputError(f"{path}, line {number}: longer than {MAX_LINE >> 20} MiB")
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
            except UnicodeDecodeError:
                raise BadInputError(f"{path}, line {number}: not UTF-8") from None
            if line.strip():
                yield number, line


def _bad(path: Path, number: int, expected: str) -> BadInputError:
    return BadInputError(f"{path}, line {number}: expected {expected}")
