"""Questions with judged snippets in BEIR's layout: `queries.jsonl` and `qrels/SPLIT.tsv`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biorag.errors import BadInputError, MissingError
from biorag.files import write_text
from biorag.text import is_whole
from biorag.types import Question

QRELS_HEADER = "query-id\tcorpus-id\tscore\n"

Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions with their relevant snippet ids."""

    name: str
    questions: Sequence[Question]
    qrels: Qrels


def load_dataset(folder: Path, split: str = "test") -> Dataset:
    """Read `queries.jsonl` and `qrels/SPLIT.tsv`; questions without a relevant snippet are left out.

    Raises
    ------
    MissingError
        If the folder or one of the files is not there.
    BadInputError
        Naming file, line and reason.
    """
    queries, judged = folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    for path in (queries, judged):
        if not path.is_file():
            raise MissingError(f"{path} is not there: a dataset folder has queries.jsonl and qrels/{split}.tsv")
    qrels = read_qrels(judged)
    questions = [question for question in read_queries(queries) if question.id in qrels]
    if not questions:
        raise BadInputError(f"no question of {queries} has a judgement in {judged}: do the ids belong together?")
    asked = {question.id for question in questions}
    return Dataset(folder.resolve().name, questions, {id: found for id, found in qrels.items() if id in asked})


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """Write `queries.jsonl` and `qrels/test.tsv`, as `load_dataset` reads them."""
    rows = [{"_id": question.id, "text": question.text} for question in dataset.questions]
    write_text(folder / "queries.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    lines = [f"{question}\t{id}\t{grade}\n" for question, found in dataset.qrels.items() for id, grade in found.items()]
    write_text(folder / "qrels" / "test.tsv", QRELS_HEADER + "".join(lines))


def read_queries(path: Path) -> Iterator[Question]:
    """Yield the questions of a `queries.jsonl`.

    Raises
    ------
    BadInputError
        Naming file, line and reason.
    """
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            id, text = record["_id"], record["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInputError(f"{path}, line {number}: not a JSON object with _id and text") from None
        if not isinstance(id, str) or not isinstance(text, str) or not text.strip() or not is_whole(id + text):
            raise BadInputError(f"{path}, line {number}: _id and text must be texts")
        yield Question(id, text)


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Return question -> snippet -> relevance of a tab-separated judgement file; only relevance above 0.

    Raises
    ------
    BadInputError
        Naming file, line and reason.
    """
    qrels: dict[str, dict[str, int]] = {}
    for number, raw in enumerate(path.read_bytes().splitlines(), 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise BadInputError(f"{path}, line {number}: not UTF-8") from None
        fields = line.split("\t")
        if not line.strip() or (number == 1 and fields[-1] == "score"):
            continue
        try:
            question, snippet, score = fields
            relevance = int(score)
        except ValueError:
            raise BadInputError(
                f"{path}, line {number}: expected three tab-separated fields: query-id, corpus-id, whole-number score"
            ) from None
        if relevance > 0:
            qrels.setdefault(question, {})[snippet] = relevance
    return qrels
