"""BioASQ's golden files: questions, and the documents in which experts found the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from biorag.corpus.sources import Source, read_chunks
from biorag.errors import BadInputError, MissingError
from biorag.utils.parsing import parse_json, validated

PUBMED = "http://www.ncbi.nlm.nih.gov/pubmed/"  # BioASQ's evaluator compares whole URLs
Text = Annotated[str, Field(pattern=r"\S")]


class _Question(TypedDict):
    id: Text
    body: Text
    type: NotRequired[str | None]
    documents: list[Text]


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """A question with its relevant documents, each once: a PMID, or the last part of another URL."""

    id: str
    text: str
    type: str
    documents: Sequence[str]


@dataclass(frozen=True, slots=True)
class GoldenBatch:
    """The questions of one golden file; `name` is the file's without "_golden.json"."""

    name: str
    questions: Sequence[GoldenQuestion]


def read_batches(paths: Iterable[Path]) -> list[GoldenBatch]:
    """Read golden files, gzip or not.

    Raises `MissingError` if a file is not there; `BadInputError` naming the file and the question, or if two files have
    the same name, which results go by.
    """
    batches = [read_golden(path) for path in paths]
    names = [batch.name for batch in batches]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInputError(f"two golden files are named {twice[0]}, which results go by: rename one")
    return batches


def read_golden(path: Path) -> GoldenBatch:
    """Read one golden file; see `read_batches`."""
    questions = [_question(path, number, record) for number, record in enumerate(read_questions(path), 1)]
    ids = [question.id for question in questions]
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise BadInputError(f"{path}: two questions have the id {twice!r}")
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return GoldenBatch(name.removesuffix("_golden") or name, questions)


def read_questions(path: Path) -> list[Any]:
    """Return the questions of a golden or training file, unchecked.

    Raises `MissingError` if the file is not there; `BadInputError` if it has no list of questions.
    """
    if not path.is_file():
        raise MissingError(f"golden file {path} is not there")
    content = b"".join(read_chunks(Source(str(path), path)))
    try:
        records = parse_json(content)["questions"]
    except (ValueError, KeyError, TypeError):
        records = None
    if not isinstance(records, list) or not records:
        raise BadInputError(f"{path} is not a golden file of BioASQ: it has no list of 'questions'")
    return records


def _question(path: Path, number: int, record: Any) -> GoldenQuestion:
    try:
        return parse_question(record)
    except ValueError as error:
        named = f" ({record.get('id')!r:.60})" if isinstance(record, dict) else ""
        raise BadInputError(f"{path}, question {number}{named}: {error}") from None


def parse_question(record: Any) -> GoldenQuestion:
    """Return a question of a golden file; raise ValueError with the reason if it is not one."""
    values = validated(_Question, record, extra="ignore")
    return GoldenQuestion(
        id=values["id"],
        text=values["body"],
        type=values.get("type") or "unknown",
        documents=list(dict.fromkeys(url.rstrip("/").rsplit("/", 1)[-1] for url in values["documents"])),
    )
