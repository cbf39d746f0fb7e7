"""BEIR's folders (Thakur et al., 2021), zipped files of theirs or not, and BEIR's and mteb's data sets of the hub.

A folder has `corpus.jsonl`, `queries.jsonl` (both also gzipped) and `qrels/SPLIT.tsv`. A data set of the hub has them
as configurations `corpus` and `queries`; judgements are its `default` configuration (mteb/…), or a data set of their
own, named NAME-qrels (BeIR/…).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from biorag.conversion.entries import Entry, read_each
from biorag.conversion.hub import HubDataset
from biorag.conversion.items import JudgedQuestion, Request
from biorag.corpus.datasets import HIGHEST_GRADE, Qrels, first_file, parse_query, read_qrels, read_queries
from biorag.corpus.readers import OnReject, as_id, read_snippets, snippet_of
from biorag.corpus.sources import BEIR_CORPUS, BEIR_QUERIES, Source
from biorag.errors import BadInputError, MissingError, UsageError, unknown_name
from biorag.types import Question, Snippet

QRELS_OF = "-qrels"
FIX = "fix the data set"
BeirSet = tuple[list[Question], Mapping[str, Qrels], Iterator[Snippet]]  # questions, judgements by part, snippets


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion | Snippet]:
    """Yield the questions of each part with their judgements, then the snippets.

    A bad line of the corpus can be skipped; a bad question or judgement cannot, since every figure would be another.
    """
    questions, parts, snippets = _of_hub(request.hub, on_reject) if request.hub else _of(request.paths[0], on_reject)
    if request.split and request.split not in parts:
        raise unknown_name("--split", request.split, parts)
    for part in [request.split] if request.split else parts:
        for question in questions:
            if question.id in parts[part]:
                yield JudgedQuestion(question.id, question.text, part, parts[part][question.id])
    yield from snippets


def _of(folder: Path, on_reject: OnReject | None) -> BeirSet:
    parts = {path.stem: read_qrels(path, 0) for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not parts:
        raise MissingError(f"{folder / 'qrels'} has no judgements: expected SPLIT.tsv, such as test.tsv")
    corpus = _file(folder, BEIR_CORPUS)
    return list(read_queries(_file(folder, BEIR_QUERIES))), parts, read_snippets(Source(str(corpus), corpus), on_reject)


def _file(folder: Path, names: tuple[str, ...]) -> Path:
    if path := first_file(folder, names):
        return path
    raise MissingError(f"{folder / names[0]} is not there: a BEIR folder has it, plain or gzipped")


def _of_hub(hub: HubDataset, on_reject: OnReject | None) -> BeirSet:
    if hub.config:
        raise UsageError("format beir reads the configurations corpus, queries and qrels: leave out --hub-config")
    queries, corpus = replace(hub, config="queries"), replace(hub, config="corpus")
    questions = list(read_each(queries.shown, queries.rows(), lambda entry: parse_query(entry.content), None, FIX))
    try:
        parts = _hub_qrels(replace(hub, config="default"))
    except MissingError:
        parts = _hub_qrels(replace(hub, name=hub.name + QRELS_OF))
    snippets = read_each(corpus.shown, corpus.rows(), lambda entry: snippet_of(entry.json_object()), on_reject)
    return questions, parts, snippets


def _hub_qrels(hub: HubDataset) -> dict[str, dict[str, dict[str, int]]]:
    parts: dict[str, dict[str, dict[str, int]]] = {}
    for part, question, snippet, score in read_each(hub.shown, hub.rows(), _judgement, None, FIX):
        parts.setdefault(part, {}).setdefault(question, {})[snippet] = score
    if not parts:
        raise BadInputError(f"the data set {hub.shown} has no judgement")
    return parts


def _judgement(entry: Entry) -> tuple[str, str, str, int]:
    record = entry.json_object()
    score = record.get("score")
    if not isinstance(score, int | float) or score != int(score) or not 0 <= score <= HIGHEST_GRADE:
        raise ValueError(f"'score' {score!r:.20} is not a whole number from 0 to {HIGHEST_GRADE:,}")
    return entry.key, as_id(record.get("query-id"), "query-id"), as_id(record.get("corpus-id"), "corpus-id"), int(score)
