"""PubMedQA as its repository publishes it (Jin et al., 2019, arXiv:1909.06146).

A file is one JSON object of questions by PMID: `ori_pqal.json` (PQA-L), `ori_pqaa.json` (PQA-A), `ori_pqau.json`
(PQA-U), or a part of one made by its `split_dataset.py`. The passage of a question is its abstract without the
conclusion, which is the long answer. The official test set is the 500 PMIDs of `test_ground_truth.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from biorag.corpus.readers import OnReject, snippet_of
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.lab.conversion.items import WHOLE, Entry, JudgedQuestion, Request, read_object

TRAIN = "train"
DECISIONS = ("yes", "no", "maybe")


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    """Yield the questions, each with the passages of its abstract."""
    test = _test_ids(request)

    def parse(entry: Entry) -> JudgedQuestion:
        return _question(entry.key, entry.json_object(), request, test)

    return request.read(read_object, parse, on_reject)


def _test_ids(request: Request) -> frozenset[str] | None:
    """Return the PMIDs of the official test set, the keys of `test_ground_truth.json`; None without that file."""
    path = request.test_ids
    if path is None:
        if request.split:
            raise UsageError("--split needs the official test set: add --test-ids test_ground_truth.json")
        return None
    if not path.is_file():
        raise MissingError(f"{path} is not there: --test-ids names PubMedQA's test_ground_truth.json")
    ids = frozenset(entry.key for entry in read_object(Source(str(path), path)))
    if not ids or not all(id.isascii() and id.isdigit() for id in ids):
        raise BadInputError(f"{path} is not an object with PMIDs as keys: name PubMedQA's test_ground_truth.json")
    return ids


def _question(pmid: str, record: Mapping[str, Any], request: Request, test: frozenset[str] | None) -> JudgedQuestion:
    if not (pmid.isascii() and pmid.isdigit()):
        raise ValueError(f"{pmid!r:.40} is not a PMID")
    question = record.get("QUESTION")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("'QUESTION' is not a text, or blank")
    snippet = snippet_of({"id": request.id_prefix + pmid, "content": _passage(record), "PMID": pmid})
    return JudgedQuestion(
        id=pmid,
        text=question,
        part=WHOLE if test is None or pmid in test else TRAIN,
        relevant={snippet.id: 1},
        answer=_answer(record),
        snippets=(snippet,),
    )


def _passage(record: Mapping[str, Any]) -> str:
    """Return the sections of the abstract but the conclusion."""
    sections = record.get("CONTEXTS")
    if not isinstance(sections, list) or not all(isinstance(text, str) for text in sections):
        raise ValueError("'CONTEXTS' is not a list of texts")
    passage = " ".join(filter(None, map(str.strip, sections)))
    if not passage:
        raise ValueError("'CONTEXTS' has no text")
    return passage


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer, as `answers.jsonl` has it; that of PQA-U is a conclusion alone."""
    long_answer, decision = record.get("LONG_ANSWER"), record.get("final_decision")
    has_long = isinstance(long_answer, str) and long_answer
    if decision in DECISIONS:
        return {"final_decision": decision} | ({"long_answer": long_answer} if has_long else {})
    if decision not in (None, ""):
        raise ValueError(f"'final_decision' is {decision!r:.40}, not one of {', '.join(DECISIONS)}")
    return {"type": "summary", "ideal_answer": [long_answer]} if has_long else {}
