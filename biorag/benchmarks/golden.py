"""Questions that experts answered: BioASQ's golden files, and folders in BEIR layout with `answers.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from biorag.corpus.datasets import drawn, first_file, load_dataset
from biorag.corpus.sources import Source, read_chunks, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.utils.parsing import parse_json, validated

PUBMED = "http://www.ncbi.nlm.nih.gov/pubmed/"  # BioASQ's evaluator compares whole URLs
YES_NO, FACTOID, LIST, SUMMARY = TYPES = ("yesno", "factoid", "list", "summary")
FILES = ("answers.jsonl", "answers.jsonl.gz")
LONGEST_PMID = 18  # digits
Text = Annotated[str, Field(pattern=r"\S")]
Parsed = TypeVar("Parsed")


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


@dataclass(frozen=True, slots=True)
class ExpertAnswer:
    """The answer of experts: its type, of `TYPES`, and the ideal answers in sentences.

    `decision` is "yes", "no" or "maybe" of a yes/no question, else None; `things` are the answers of a factoid or a
    list, each with its synonyms.
    """

    type: str
    decision: str | None
    things: tuple[tuple[str, ...], ...]
    ideal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question with its experts' answer, and the relevant passages by id, or documents by PMID."""

    id: str
    text: str
    expert: ExpertAnswer
    relevant: tuple[str, ...] = ()
    pmids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerDataset:
    """A named set of questions with experts' answers."""

    name: str
    questions: Sequence[AnsweredQuestion]

    def sample(self, limit: int | None, seed: int) -> AnswerDataset:
        """Return the questions in their order, at most `limit` of them, drawn with the seed."""
        return AnswerDataset(self.name, drawn(self.questions, limit, seed))


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
    questions = _each(path, parse_question)
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


def _each(path: Path, parse: Callable[[Any], Parsed]) -> list[Parsed]:
    """Return what `parse` makes of each question of a file; a ValueError becomes a BadInputError that names it."""
    parsed = []
    for number, record in enumerate(read_questions(path), 1):
        try:
            parsed.append(parse(record))
        except (ValueError, TypeError) as error:
            named = f" ({record.get('id')!r:.60})" if isinstance(record, dict) else ""
            raise BadInputError(f"{path}, question {number}{named}: {error}") from None
    return parsed


def parse_question(record: Any) -> GoldenQuestion:
    """Return a question of a golden file; raise ValueError with the reason if it is not one."""
    values = validated(_Question, record, extra="ignore")
    return GoldenQuestion(
        id=values["id"],
        text=values["body"],
        type=values.get("type") or "unknown",
        documents=list(dict.fromkeys(url.rstrip("/").rsplit("/", 1)[-1] for url in values["documents"])),
    )


def read_golden_answers(path: Path) -> AnswerDataset:
    """Read a golden file with the answers of phase B; raises as `read_batches`."""
    batch = read_golden(path)
    questions = []
    for golden, expert in zip(batch.questions, _each(path, expert_answer), strict=True):
        documents = {text for text in golden.documents if text.isdecimal() and len(text) <= LONGEST_PMID}
        questions.append(AnsweredQuestion(golden.id, golden.text, expert, (), tuple(sorted(map(int, documents)))))
    return AnswerDataset(batch.name, questions)


def load_answers(folder: Path) -> AnswerDataset:
    """Read a folder in BEIR layout with `answers.jsonl`, gzip or not, or a golden file.

    Of a folder a question without an answer is left out. Raises `MissingError` if a file is not there; `BadInputError`
    naming file, line and reason.
    """
    if folder.is_file():
        return read_golden_answers(folder)
    data, answers = load_dataset(folder), read_expert_answers(folder)
    asked = [
        AnsweredQuestion(question.id, question.text, answers[question.id], tuple(sorted(data.qrels[question.id])))
        for question in data.questions
        if question.id in answers
    ]
    if not asked:
        raise BadInputError(f"no question of {data.name} has an answer in {folder}: check that the ids match")
    return AnswerDataset(data.name, asked)


def read_expert_answers(folder: Path) -> dict[str, ExpertAnswer]:
    """Return the answers of `answers.jsonl[.gz]` by question; raises as `load_answers` does."""
    if (path := first_file(folder, FILES)) is None:
        raise MissingError(f"{folder / FILES[0]} is not there: it has the experts' answers, plain or gzipped")
    answers = {}
    for number, line in read_lines(Source(str(path), path)):
        try:
            record = parse_json(line)
            answers[str(record["_id"])] = expert_answer(record)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{path}, line {number}: not the answer to a question ({error})") from None
    return answers


def expert_answer(record: Mapping[str, Any]) -> ExpertAnswer:
    """Return the answer of a record: BioASQ's `type`, by default summary, and answers, or PubMedQA's fields.

    Raises `ValueError` if the type or the exact answer is not BioASQ's.
    """
    if "final_decision" in record:
        return ExpertAnswer(YES_NO, str(record["final_decision"]).lower(), (), _texts(record.get("long_answer")))
    ideal, exact = _texts(record.get("ideal_answer")), record.get("exact_answer")
    kind = record.get("type", SUMMARY if ideal else None)
    if kind not in TYPES:
        raise ValueError(f"its type is {kind!r:.40}, not one of {', '.join(TYPES)}")
    if kind == YES_NO:
        decision = (exact[0] if isinstance(exact, list) and exact else exact) or ""
        return ExpertAnswer(kind, str(decision).strip().strip(".").lower() or None, (), ideal)
    things = [exact] if isinstance(exact, str) else exact or ()
    return ExpertAnswer(kind, None, tuple(map(_texts, things)) if kind != SUMMARY else (), ideal)


def _texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(text for text in values if isinstance(text, str) and text.strip())
