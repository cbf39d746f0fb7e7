"""BioASQ task B: training files and golden files (participants-area.bioasq.org), `{"questions": [...]}`.

The hybrid paper trains on the training file of a year but for its last 200 questions, which are its development set
(Ma et al., BioASQ 8, section 5.1): `--last 200`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from biorag.benchmarks.golden import expert_answer, parse_question, read_questions
from biorag.corpus.readers import OnReject, as_id
from biorag.errors import UsageError
from biorag.lab.conversion.items import WHOLE, Entry, JudgedQuestion, Request, read_each

TRAIN, DEVELOPMENT = "train", "dev"
ANSWER = ("type", "exact_answer", "ideal_answer")


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    """Yield the questions with the documents that are relevant to them, of one file after the other.

    The last `request.last` of all, bad ones included, are for development, the others for training.
    """
    if request.split and request.last is None:
        raise UsageError(
            "--split needs the number of questions for development: add --last 200, as in the hybrid paper"
        )
    files = [(source.name, read_questions(source.path)) for source in request.sources]
    training = _training(files, request.last)
    before = 0
    for name, records in files:
        entries = (
            Entry(number, repr(record.get("id")) if isinstance(record, dict) else "", record, "question")
            for number, record in enumerate(records, 1)
        )

        def parse(entry: Entry, before: int = before) -> JudgedQuestion:
            number = before + entry.number
            part = WHOLE if training is None else TRAIN if number <= training else DEVELOPMENT
            return _question(entry.content, part, request.id_prefix)

        yield from read_each(name, entries, parse, on_reject)
        before += len(records)


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
