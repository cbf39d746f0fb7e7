"""BioASQ task B: training files and golden files (participants-area.bioasq.org), `{"questions": [...]}`.

The hybrid paper trains on the training file of a year but for its last 200 questions, which are its development set
(Ma et al., BioASQ 8, section 5.1): `--last 200`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from biorag.benchmarks.answers.questions import expert_answer
from biorag.benchmarks.bioasq.golden import parse_question, read_questions
from biorag.conversion.entries import NEXT_STEP
from biorag.conversion.items import WHOLE, JudgedQuestion, Request
from biorag.corpus.readers import SHOWN, OnReject, Reject, as_id
from biorag.errors import BadInputError, UsageError
from biorag.utils.files import json_text

TRAIN, DEVELOPMENT = "train", "dev"
ANSWER = ("type", "exact_answer", "ideal_answer")


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    """Yield the questions with the documents that are relevant to them, of one file after the other.

    The last `request.last` of all, bad ones included, are for development, the others for training.

    Raises
    ------
    UsageError
        If `--split` is asked for without the number that decides it, or there are no more questions than that.
    BadInputError
        As `Format` says.
    """
    if request.split and request.last is None:
        raise UsageError(
            "--split needs the number of questions for development: add --last 200, as in the hybrid paper"
        )
    files = [(source.name, read_questions(source.path)) for source in request.sources]
    training = _training(files, request.last)
    number = 0
    for name, records in files:
        for place, record in enumerate(records, 1):
            part = WHOLE if training is None else TRAIN if number < training else DEVELOPMENT
            number += 1
            try:
                yield _question(record, part, request.id_prefix)
            except ValueError as error:
                reason = f"{record.get('id')!r:.60}: {error}" if isinstance(record, dict) else str(error)
                if on_reject is None:
                    raise BadInputError(f"{name}, question {place}: {reason}; {NEXT_STEP}") from None
                on_reject(Reject(name, place, reason, json_text(record)[:SHOWN]))


def _training(files: Sequence[tuple[str, Sequence[Any]]], last: int | None) -> int | None:
    """Return how many questions are for training; None if the set has no parts."""
    if last is None:
        return None
    total = sum(len(records) for _, records in files)
    if last >= total:
        raise UsageError(f"--last {last} leaves no question for training: there are {total:,}")
    return total - last


def _question(record: Any, part: str, prefix: str) -> JudgedQuestion:
    question = parse_question(record)
    answer = {key: record[key] for key in ANSWER if record.get(key) is not None}
    if answer.keys() - {"type"}:
        try:
            expert_answer(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no answer of BioASQ ({error})") from None
    else:
        answer = {}
    return JudgedQuestion(
        id=as_id(question.id, "id"),
        text=question.text,
        part=part,
        relevant={as_id(prefix + document, "documents"): 1 for document in question.documents},
        answer=answer,
        golden=record,
    )
