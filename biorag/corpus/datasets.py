"""Questions with judged snippets: BEIR's layout (`queries.jsonl`, `qrels/SPLIT.tsv`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from typing_extensions import TypedDict

from biorag.corpus.readers import text_of
from biorag.corpus.sources import BEIR_CORPUS, Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.types import Question
from biorag.utils.parsing import parsed

QRELS_HEADER = "query-id\tcorpus-id\tscore\n"
BEIR_FIELDS = "query-id, corpus-id, whole-number score between tabs, or TREC's four: query-id, 0, corpus-id, score"
# trec_eval sums gains over all grades up to the highest, so one of billions would take it minutes.
HIGHEST_GRADE = 1_000_000

T = TypeVar("T")
Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions with their relevant snippet ids."""

    name: str
    questions: Sequence[Question]
    qrels: Qrels


def load_dataset(folder: Path, split: str = "test") -> Dataset:
    """Read `queries.jsonl` and `qrels/SPLIT.tsv`; questions without a relevant snippet are left out.

    Raises `MissingError` without one of the files, and `BadInputError`, naming file, line and reason.
    """
    queries, judgements = folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    for path in (queries, judgements):
        if not path.is_file():
            raise MissingError(f"{path} is not there: a dataset folder has queries.jsonl and qrels/{split}.tsv")
    qrels = read_qrels(judgements)
    questions = [question for question in read_queries(queries) if question.id in qrels]
    if not questions:
        raise BadInputError(f"no question of {queries} has a judgement in {judgements}: check that the ids match")
    return Dataset(folder.resolve().name, questions, {question.id: qrels[question.id] for question in questions})


def drawn(items: Sequence[T], number: int | None, seed: int) -> list[T]:
    """Return so many questions or the like, drawn with the seed, in their order; None for all."""
    if number is None or number >= len(items):
        return list(items)
    return [items[place] for place in sorted(Random(seed).sample(range(len(items)), number))]


def corpus_file(folder: Path) -> Path:
    """Return the corpus of a folder in BEIR's layout; raises `MissingError` if it has none."""
    if path := first_file(folder, BEIR_CORPUS):
        return path
    raise MissingError(f"{folder / BEIR_CORPUS[0]} is not there: it belongs beside queries.jsonl and qrels")


def first_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that the folder has."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


class _Query(TypedDict):
    """The fields of a question's line that are read."""

    _id: str
    text: str


def read_queries(path: Path) -> Iterator[Question]:
    """Yield the questions of a `queries.jsonl`; raises `BadInputError`, naming file, line and reason."""
    for number, line in _lines(path):
        try:
            record = parsed(_Query, line, extra="ignore")
        except ValueError as error:
            raise BadInputError(f"{path}, line {number}: not a JSON object with _id and text ({error})") from None
        if not record["text"].strip():
            raise BadInputError(f"{path}, line {number}: the text is blank")
        yield Question(record["_id"], record["text"])


def read_qrels(path: Path, lowest: int = 1) -> dict[str, dict[str, int]]:
    """Return question -> snippet -> relevance of a judgement file, BEIR's or TREC's; only relevance from `lowest` up.

    A line has tabs between question, snippet and relevance, or white space between four fields, as in trec_eval.
    """
    qrels: dict[str, dict[str, int]] = {}
    for number, raw in _lines(path):
        fields = _text(path, number, raw).split("\t")
        if not "".join(fields).strip() or (number == 1 and fields[-1] == "score"):
            continue
        if len(fields) != 3 and len(trec := " ".join(fields).split()) == 4:
            fields = [trec[0], trec[2], trec[3]]
        try:
            question, snippet, score = fields
            relevance = int(score)
        except ValueError:
            raise BadInputError(f"{path}, line {number}: expected {BEIR_FIELDS}") from None
        if relevance > HIGHEST_GRADE:
            raise BadInputError(f"{path}, line {number}: the relevance is above {HIGHEST_GRADE:,}")
        if relevance >= lowest:
            qrels.setdefault(question, {})[snippet] = relevance
    return qrels


def trec_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields, which ASCII white space separates, of a TREC run file."""
    for number, raw in _lines(path):
        if fields := raw.split():
            yield number, [_text(path, number, field) for field in fields]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    return read_lines(Source(str(path), path))


def _text(path: Path, number: int, raw: bytes) -> str:
    try:
        return text_of(raw)  # trec_eval's strings end at a NUL, so two ids could become one
    except ValueError as error:
        raise BadInputError(f"{path}, line {number}: {error}") from None
