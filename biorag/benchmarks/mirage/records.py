"""Records of each question: MIRAGE's own result file, and a row of `questions.jsonl` with evidence and verdicts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from biorag.benchmarks.mirage.questions import Benchmark
from biorag.benchmarks.mirage.scoring import locate, score_reply
from biorag.errors import BadInputError, MissingError, unknown_name
from biorag.types import Answer, Hit, Question
from biorag.utils.files import json_line, json_text, replacing, write_text
from biorag.utils.parsing import parsed, read_regular
from biorag.utils.runs import whole_lines
from biorag.utils.text import whole

QUESTIONS = "questions.jsonl"
SHOWN = 600  # characters of a passage to keep
LONGEST = 200  # characters of a folder's name; file systems take 255


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a run's result files, as MIRAGE's scorer looks for them.

    `{task}/rag_{k}/{llm}/{corpus}/{retriever}/{split}_{id}.json`, or without retrieval (`retriever` None)
    `{task}/cot/{llm}/{split}_{id}.json`.
    """

    llm: str
    k: int
    corpus: str
    retriever: str | None

    def file(self, out: Path, task: str, question_id: str) -> Path:
        """Return one question's file; the split is `dev` for medmcqa, `test` otherwise."""
        split, llm = "dev" if task == "medmcqa" else "test", _folder_name(self.llm)
        if self.retriever is None:
            folder = out / task / "cot" / llm
        else:
            folder = out / task / f"rag_{self.k}" / llm / _folder_name(self.corpus) / _folder_name(self.retriever)
        return folder / f"{split}_{question_id}.json"


def _folder_name(name: str) -> str:
    """Return a name without slashes, for models named by a path and chains of rerankers."""
    folder = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip(".-") or "model"
    if len(folder) <= LONGEST:
        return folder
    return f"{folder[: LONGEST - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def write_result(path: Path, reply: str) -> None:
    """Write one question's file: a JSON list whose first string is the reply."""
    write_text(path, json_text([whole(reply)]))


def read_result(path: Path) -> str | None:
    """Return the reply of a question's file; None if it is not answered yet.

    Raises BadInputError if the file is there but is not a JSON list that begins with a string.
    """
    try:
        replies = parsed(Annotated[list[Any], Field(min_length=1)], read_regular(path))
        return str(parsed(str, json_text(replies[0])))
    except FileNotFoundError:
        return None
    except (ValueError, NotADirectoryError):
        raise BadInputError(f"result file {path} is damaged: delete it, and it is made again") from None


class RetrievedHit(TypedDict):
    """A hit that a question was answered from; `text` is the beginning of its passage."""

    rank: int
    id: str
    pmid: int | None
    title: str
    score: float
    text: str


class QuestionRow(TypedDict):
    """A line of `QUESTIONS`.

    `choice` is the letter that MIRAGE's scorer reads, null where it finds none and takes "A"; `right` is as it scores.
    `evidence` is null without retrieval; `gold_retrieved` tells whether a record that the question was made from is
    among it, null where the question names none. `retries` counts how often a free reply was asked for again.
    """

    task: str
    id: str
    question: str
    options: dict[str, str]
    gold: str
    choice: str | None
    right: bool
    reply: str
    retries: NotRequired[int]  # which runs of before lack
    evidence: list[RetrievedHit] | None
    gold_pmids: list[int]
    gold_retrieved: bool | None
    verdicts: list[dict[str, str]]  # `text` and `verdict` of each sentence of the answer
    timings_ms: dict[str, float]


def question_row(
    task: str, question: Question, reply: str, hits: Sequence[Hit] | None, answer: Answer | None
) -> QuestionRow:
    """Return the row of a question with this reply in its result file; no hits without retrieval."""
    located = locate(reply)
    evidence = None if hits is None else [_retrieved(hit) for hit in hits]
    known = bool(question.pmids) and hits is not None
    return QuestionRow(
        task=task,
        id=question.id,
        question=question.text,
        options=dict(question.options),
        gold=question.answer or "",
        choice=None if located.forced else located.letter,
        right=score_reply(question, reply).correct,
        reply=whole(reply),
        retries=answer.retries if answer else 0,
        evidence=evidence,
        gold_pmids=list(question.pmids),
        gold_retrieved=any(hit["pmid"] in question.pmids for hit in evidence or ()) if known else None,
        verdicts=[
            {"text": sentence.text, "verdict": sentence.verdict} for sentence in (answer.sentences if answer else ())
        ],
        timings_ms=dict(answer.timings_ms) if answer else {},
    )


def _retrieved(hit: Hit) -> RetrievedHit:
    snippet = hit.snippet
    return RetrievedHit(
        rank=hit.rank,
        id=snippet.id,
        pmid=snippet.pmid,
        title=snippet.title,
        score=round(hit.score, 6),
        text=snippet.content[:SHOWN],
    )


def arrange_rows(out: Path, benchmark: Benchmark) -> list[QuestionRow]:
    """Sort the rows of a run by the benchmark, dropping repeated and torn ones, and return those of the benchmark.

    Of a repeated question the last row counts. Rows of other questions stay, at the end.
    """
    rows: dict[tuple[str, str], QuestionRow] = {}
    for line in whole_lines(out / QUESTIONS):
        try:
            row: QuestionRow = parsed(QuestionRow, line)
        except ValueError:
            continue
        rows[row["task"], row["id"]] = row
    keys = [(task, question.id) for task, questions in benchmark.items() for question in questions]
    selected = [rows.pop(key) for key in keys if key in rows]
    with replacing(out / QUESTIONS) as stream:
        stream.writelines(json_line(row) for row in [*selected, *rows.values()])
    return selected


def read_questions(run: Path) -> list[QuestionRow]:
    """Return the questions of a run, named by its folder or file.

    Raises MissingError if there are none; BadInputError naming the line that is damaged.
    """
    path = run / QUESTIONS if run.is_dir() else run
    if not path.is_file():
        raise MissingError(f"{path} is not there: run 'biorag bench mirage' with --out {run} to its end")
    rows: list[QuestionRow] = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            rows.append(parsed(QuestionRow, line))
        except ValueError as error:
            raise BadInputError(f"{path}, line {number} is damaged ({error}): run the benchmark again") from None
    return rows


def chosen_rows(rows: Sequence[QuestionRow], tasks: Iterable[str]) -> list[QuestionRow]:
    """Return the questions of some tasks (none named: all).

    Raises UsageError if a task is not in the run.
    """
    known = {row["task"] for row in rows}
    wanted = set(tasks)
    for task in sorted(wanted - known):
        raise unknown_name("task", task, known)
    return [row for row in rows if row["task"] in (wanted or known)]


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the questions of each task, and how many of them are right."""
    tasks: dict[str, dict[str, int]] = {}
    for row in rows:
        count = tasks.setdefault(row["task"], {"questions": 0, "right": 0})
        count["questions"] += 1
        count["right"] += bool(row["right"])
    return tasks
