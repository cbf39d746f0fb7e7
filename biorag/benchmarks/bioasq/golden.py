"""BioASQ's golden files: questions with the documents and snippets that experts found to answer them."""

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
OFFSETS = ("offsetInBeginSection", "offsetInEndSection")
SECTIONS = ("beginSection", "endSection")
Text = Annotated[str, Field(pattern=r"\S")]
Offset = Annotated[int, Field(ge=0)]


class _Snippet(TypedDict):
    document: Text
    beginSection: Text
    endSection: Text
    offsetInBeginSection: Offset
    offsetInEndSection: Offset


class _Question(TypedDict):
    id: Text
    body: Text
    type: NotRequired[str | None]
    documents: list[Text]
    snippets: NotRequired[list[_Snippet] | None]


@dataclass(frozen=True, slots=True)
class Span:
    """A passage of a document: characters `begin` to `end` of a section ("title" or "abstract").

    `document` is a PMID, or the last part of another URL. The evaluator counts the character at `end` in;
    BioASQ's own files have there the one after the last.
    """

    document: str
    sections: tuple[str, str]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The characters of the passage, as the evaluator counts them; none where it ends before it begins."""
        return max(0, self.end - self.begin + 1)

    def overlap(self, other: Span) -> int:
        """Return the characters that both have; 0 unless document and sections are the same."""
        if (self.document, self.sections) != (other.document, other.sections):
            return 0
        return max(0, min(self.end, other.end) - max(self.begin, other.begin) + 1)


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """A question with its relevant documents and snippets, each document once."""

    id: str
    text: str
    type: str
    documents: Sequence[str]
    snippets: Sequence[Span]


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
    """Return the questions of a golden or training file as they stand there.

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
    """Return a question of a golden file; raise ValueError, saying why, if it is not one."""
    values = validated(_Question, record, extra="ignore")
    return GoldenQuestion(
        id=values["id"],
        text=values["body"],
        type=values.get("type") or "unknown",
        documents=list(dict.fromkeys(map(_last_part, values["documents"]))),
        snippets=[_span(snippet) for snippet in values.get("snippets") or []],
    )


def _span(values: _Snippet) -> Span:
    # Files of the first years write "sections.0" and "sections.title".
    first, last = (section.rpartition("sections.")[2] for section in (values["beginSection"], values["endSection"]))
    offsets = values["offsetInBeginSection"], values["offsetInEndSection"]
    return Span(_last_part(values["document"]), (first, last), *offsets)


def _last_part(url: str) -> str:
    return url.rstrip("/").rsplit("/", 1)[-1]
