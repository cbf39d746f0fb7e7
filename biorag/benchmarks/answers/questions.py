"""Questions with the exact and ideal answers that experts wrote, in BioASQ's form or PubMedQA's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.benchmarks.bioasq.golden import read_golden, read_questions
from biorag.corpus.datasets import drawn, load_dataset
from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.utils.parsing import parse_json

YES_NO, FACTOID, LIST, SUMMARY = TYPES = ("yesno", "factoid", "list", "summary")
FILES = ("answers.jsonl", "answers.jsonl.gz")


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


def load_answers(folder: Path) -> AnswerDataset:
    """Read a folder in BEIR layout with `answers.jsonl`, gzip or not; a question without an answer is left out.

    Raises `MissingError` if a file is not there; `BadInputError` naming file, line and reason.
    """
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
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise MissingError(f"{folder / FILES[0]} is not there: it has the experts' answers, plain or gzipped")
    answers = {}
    for number, line in read_lines(Source(str(path), path)):
        try:
            record = parse_json(line)
            answers[str(record["_id"])] = expert_answer(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInputError(f"{path}, line {number}: not the answer to a question ({error})") from None
    return answers


def read_golden_answers(paths: Iterable[Path]) -> list[AnswerDataset]:
    """Read BioASQ's golden files with the answers of phase B.

    Raises `MissingError` or `BadInputError` naming the file and the question.
    """
    return [_golden(path) for path in paths]


def _golden(path: Path) -> AnswerDataset:
    batch, questions = read_golden(path), []
    for golden, record in zip(batch.questions, read_questions(path), strict=True):
        pmids = sorted({int(document) for document in golden.documents if document.isdecimal() and len(document) < 19})
        try:
            expert = expert_answer(record)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{path}, question {golden.id}: no golden answer of BioASQ ({error})") from None
        questions.append(AnsweredQuestion(golden.id, golden.text, expert, (), tuple(pmids)))
    return AnswerDataset(batch.name, questions)


def expert_answer(record: Mapping[str, Any]) -> ExpertAnswer:
    """Return the answer of a record: BioASQ's `type`, by default summary, and answers, or PubMedQA's fields.

    Raises `ValueError` if the type or the exact answer is not BioASQ's.
    """
    if "final_decision" in record:
        return ExpertAnswer(YES_NO, str(record["final_decision"]).lower(), (), _texts(record.get("long_answer")))
    ideal = _texts(record.get("ideal_answer"))
    kind, exact = record["type"] if "type" in record or not ideal else SUMMARY, record.get("exact_answer")
    if kind not in TYPES:
        raise ValueError(f"its type is {kind!r:.40}, not one of {', '.join(TYPES)}")
    if kind == YES_NO:
        decision = (exact[0] if isinstance(exact, list) and exact else exact) or ""
        return ExpertAnswer(kind, str(decision).strip().strip(".").lower() or None, (), ideal)
    if kind == SUMMARY:
        return ExpertAnswer(kind, None, (), ideal)
    return ExpertAnswer(
        kind, None, tuple(_texts(thing) for thing in ([exact] if isinstance(exact, str) else exact or ())), ideal
    )


def _texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(text for text in values if isinstance(text, str) and text.strip())


def sample(data: AnswerDataset, limit: int | None, seed: int) -> AnswerDataset:
    """Return the questions in their order, at most `limit` of them, drawn with the seed."""
    return AnswerDataset(data.name, drawn(data.questions, limit, seed))
