"""MIRAGE's `benchmark.json` (Xiong et al., 2024): its tasks, and questions judged by the PMIDs that it names."""

from __future__ import annotations

from collections.abc import Iterator

from biorag.benchmarks.mirage.questions import parse_question, read_tasks
from biorag.conversion.entries import NEXT_STEP
from biorag.conversion.items import JudgedQuestion, Request
from biorag.corpus.readers import SHOWN, OnReject, Reject
from biorag.errors import BadInputError, unknown_name
from biorag.utils.files import json_text


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    """Yield each question with its options, and as a judged one; its task is its part.

    Ids are `TASK_ID`, since tasks share ids. Questions for which MIRAGE names no PMID have nothing relevant.
    """
    for source in request.sources:
        tasks = read_tasks(source.path)
        if request.split and request.split not in tasks:
            raise unknown_name("--split", request.split, tasks)
        for task in [request.split] if request.split else tasks:
            for id, record in tasks[task].items():
                named = f"{source.name}, task {task}, question {id}"
                try:
                    question = parse_question(id, record, named)
                except BadInputError as error:
                    if on_reject is None:
                        raise BadInputError(f"{error}; {NEXT_STEP}") from None
                    reason = str(error).removeprefix(f"{source.name}, ")
                    on_reject(Reject(source.name, 1, reason, json_text(record)[:SHOWN]))
                    continue
                relevant = {f"{request.id_prefix}{pmid}": 1 for pmid in question.pmids}
                yield JudgedQuestion(f"{task}_{id}", question.text, task, relevant, choices=(id, record))
