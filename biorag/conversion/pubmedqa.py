"""PubMedQA as its repository publishes it (Jin et al., 2019, arXiv:1909.06146), and as the hub has it.

A file is one JSON object of questions by PMID: `ori_pqal.json` (PQA-L), `ori_pqaa.json` (PQA-A), `ori_pqau.json`
(PQA-U), or a part of one made by its `split_dataset.py`. The passage of a question is its abstract without the
conclusion, which is the long answer. The official test set is the 500 PMIDs of `test_ground_truth.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from biorag.conversion.entries import Entry, read_object
from biorag.conversion.items import WHOLE, JudgedQuestion, Request
from biorag.corpus.readers import OnReject, as_id, snippet_of
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.types import Snippet

TRAIN = "train"
DECISIONS = ("yes", "no", "maybe")
# The same fields in the repository's files and BigBio's source configurations, in qiaojin/PubMedQA, and in BigBio's
# question answering schema, whose contexts are joined.
_PMID = ("PMID", "pubid", "document_id")
_LONG_ANSWER = ("LONG_ANSWER", "long_answer")


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    """Yield the questions, each with the passages of its abstract."""
    test = _test_ids(request)

    def parse(entry: Entry) -> JudgedQuestion:
        record = entry.json_object()
        return _question(_pmid(record, "" if request.hub else entry.key), record, request, test)

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


def _pmid(record: Mapping[str, Any], key: str) -> str:
    named = next((record[name] for name in _PMID if record.get(name) is not None), None)
    pmid = key or as_id(named, " or ".join(_PMID))
    if not (pmid.isascii() and pmid.isdigit()):
        raise ValueError(f"{pmid!r:.40} is not a PMID")
    return pmid


def _question(pmid: str, record: Mapping[str, Any], request: Request, test: frozenset[str] | None) -> JudgedQuestion:
    key = "QUESTION" if "QUESTION" in record else "question"
    question = record.get(key)
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"{key!r} is not a text, or blank")
    snippets = _snippets(pmid, _contexts(record), request)
    return JudgedQuestion(
        id=pmid,
        text=question,
        part=WHOLE if test is None or pmid in test else TRAIN,
        relevant={snippet.id: 1 for snippet in snippets},
        answer=_answer(record),
        snippets=snippets,
    )


def _contexts(record: Mapping[str, Any]) -> list[str]:
    """Return the sections of the abstract but the conclusion."""
    contexts = record["CONTEXTS"] if "CONTEXTS" in record else record.get("context")
    if isinstance(contexts, dict):
        contexts = contexts.get("contexts")
    if isinstance(contexts, str):
        contexts = [contexts]
    if not isinstance(contexts, list) or not all(isinstance(text, str) for text in contexts):
        raise ValueError("'CONTEXTS' is not a list of texts")
    texts = [text.strip() for text in contexts if text.strip()]
    if not texts:
        raise ValueError("'CONTEXTS' has no text")
    return texts


def _snippets(pmid: str, contexts: list[str], request: Request) -> tuple[Snippet, ...]:
    id = request.id_prefix + pmid
    passages = (
        {f"{id}_{n}": text for n, text in enumerate(contexts)} if request.each_context else {id: " ".join(contexts)}
    )
    return tuple(snippet_of({"id": id, "content": text, "PMID": pmid}) for id, text in passages.items())


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer, as `answers.jsonl` has it; that of PQA-U is a conclusion alone."""
    long_answer = next((record[key] for key in _LONG_ANSWER if isinstance(record.get(key), str)), None)
    decision = record.get("final_decision", record.get("answer"))
    if isinstance(decision, list) and len(decision) < 2:
        decision = next(iter(decision), None)
    if decision in DECISIONS:
        return {"final_decision": decision} | ({"long_answer": long_answer} if long_answer else {})
    if decision is not None and decision != "":
        raise ValueError(f"'final_decision' is {decision!r:.40}, not one of {', '.join(DECISIONS)}")
    return {"type": "summary", "ideal_answer": [long_answer]} if long_answer else {}
