"""What became of each question of a run, in `questions.jsonl`: its evidence, answer and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from biorag.benchmarks.mirage.questions import Benchmark
from biorag.benchmarks.mirage.results import Layout, read_result
from biorag.benchmarks.mirage.scoring import locate, score_reply
from biorag.errors import BadInputError, MissingError, unknown_name
from biorag.types import Answer, Hit, Question
from biorag.utils.files import json_line, replacing
from biorag.utils.parsing import parsed
from biorag.utils.runs import whole_lines
from biorag.utils.text import whole

QUESTIONS = "questions.jsonl"
SHOWN = 600  # characters of a passage that are kept


class Evidence(TypedDict):
    """A hit that a question was answered from; earlier versions kept no `text`, how its passage begins."""

    rank: int
    id: str
    pmid: int | None
    title: str
    score: float
    text: NotRequired[str]


class JudgedSentence(TypedDict):
    """A sentence of an answer, and what the evidence says of it."""

    text: str
    verdict: str


class QuestionRow(TypedDict):
    """A line of `QUESTIONS`.

    `choice` is the letter that MIRAGE's scorer reads, null where it finds none and takes "A"; `right` is as it scores.
    `evidence` is null without retrieval, and where an earlier version answered; `gold_retrieved` tells whether a
    record that the question was made from is among it, null where the question names none.
    """

    task: str
    id: str
    question: str
    options: dict[str, str]
    gold: str
    choice: str | None
    right: bool
    reply: str
    evidence: list[Evidence] | None
    gold_pmids: list[int]
    gold_retrieved: bool | None
    verdicts: list[JudgedSentence]


def evidence_of(hits: Sequence[Hit]) -> list[Evidence]:
    """Return hits as rows have them."""
    return [
        Evidence(
            rank=hit.rank,
            id=hit.snippet.id,
            pmid=hit.snippet.pmid,
            title=hit.snippet.title,
            score=round(hit.score, 6),
            text=hit.snippet.content[:SHOWN],
        )
        for hit in hits
    ]


def verdicts_of(answer: Answer | None) -> list[JudgedSentence]:
    """Return the sentences of an answer as rows have them; none where no answer could be asked for."""
    return [
        JudgedSentence(text=sentence.text, verdict=str(sentence.verdict))
        for sentence in (answer.sentences if answer else ())
    ]


def question_row(
    task: str, question: Question, reply: str, evidence: list[Evidence] | None, verdicts: list[JudgedSentence]
) -> QuestionRow:
    """Return the row of a question with this reply in its result file; no evidence where it is not known."""
    located = locate(reply)
    known = bool(question.pmids) and evidence is not None
    return QuestionRow(
        task=task,
        id=question.id,
        question=question.text,
        options=dict(question.options),
        gold=question.answer or "",
        choice=None if located.forced else located.letter,
        right=score_reply(question, reply).correct,
        reply=whole(reply),
        evidence=evidence,
        gold_pmids=list(question.pmids),
        gold_retrieved=any(hit["pmid"] in question.pmids for hit in evidence or ()) if known else None,
        verdicts=verdicts,
    )


def write_questions(out: Path, benchmark: Benchmark, layout: Layout) -> None:
    """Put the rows that were written as questions ended in the benchmark's order, each question once.

    A question that an earlier version answered gets its row of the result file. Rows of other tasks stay.
    """
    written = {(row["task"], row["id"]): row for row in _rows(out / QUESTIONS)}
    with replacing(out / QUESTIONS) as stream:
        for task, questions in benchmark.items():
            for question in questions:
                row = written.pop((task, question.id), None)
                evidence, verdicts = (row["evidence"], row["verdicts"]) if row else (None, [])
                reply = read_result(layout.file(task, question.id)) or ""
                stream.write(json_line(question_row(task, question, reply, evidence, verdicts)))
        for row in written.values():
            stream.write(json_line(row))


def questions_file(run: Path) -> Path:
    """Return the file of a run's questions, whose folder or file is named."""
    return run / QUESTIONS if run.is_dir() else run


def _rows(path: Path) -> Iterator[QuestionRow]:
    """Yield the lines of a file that are whole; a kill may have torn one, and another run have added to it."""
    for line in whole_lines(path):
        try:
            yield parsed(QuestionRow, line)
        except ValueError:
            continue


def read_questions(run: Path) -> list[QuestionRow]:
    """Return the questions of a run, whose folder or file is named.

    Raises
    ------
    MissingError
        If there are none.
    BadInputError
        Naming the line that is damaged.
    """
    path = questions_file(run)
    if not path.is_file():
        raise MissingError(f"{path} is not there: run 'biorag bench mirage' with --out {run} to its end")
    rows: list[QuestionRow] = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            rows.append(parsed(QuestionRow, line))
        except ValueError as error:
            raise BadInputError(f"{path}, line {number} is damaged ({error}): run the benchmark again") from None
    return rows


def chosen_rows(rows: Sequence[QuestionRow], tasks: Iterable[str], wrong: bool) -> list[QuestionRow]:
    """Return the questions of these tasks (none: of all), only those answered wrong if asked.

    Raises
    ------
    UsageError
        If a task is not in the run.
    """
    known = {row["task"] for row in rows}
    wanted = set(tasks)
    for task in sorted(wanted - known):
        raise unknown_name("task", task, known)
    return [row for row in rows if row["task"] in (wanted or known) and not (wrong and row["right"])]


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the questions of each task, and how many of them are right."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        count = found.setdefault(row["task"], {"questions": 0, "right": 0})
        count["questions"] += 1
        count["right"] += bool(row["right"])
    return found
