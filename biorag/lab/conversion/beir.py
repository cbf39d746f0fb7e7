"""BEIR's folders (Thakur et al., 2021): `corpus.jsonl`, `queries.jsonl` (both also gzipped) and `qrels/SPLIT.tsv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from biorag.corpus.datasets import first_file, read_qrels, read_queries
from biorag.corpus.readers import OnReject, read_snippets
from biorag.corpus.sources import BEIR_CORPUS, BEIR_QUERIES, Source
from biorag.errors import MissingError, unknown_name
from biorag.lab.conversion.items import JudgedQuestion, Request
from biorag.types import Snippet


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion | Snippet]:
    """Yield the questions of each part with their judgements, then the snippets.

    A bad line of the corpus can be skipped; a bad question or judgement cannot, since every figure would be another.
    """
    folder = request.paths[0]
    parts = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not parts:
        raise MissingError(f"{folder / 'qrels'} has no judgements: expected SPLIT.tsv, such as test.tsv")
    if request.split and request.split not in parts:
        raise unknown_name("--split", request.split, parts)
    questions = list(read_queries(_file(folder, BEIR_QUERIES)))
    for part in [request.split] if request.split else parts:
        qrels = read_qrels(parts[part], 0)
        for question in questions:
            if question.id in qrels:
                yield JudgedQuestion(question.id, question.text, part, qrels[question.id])
    corpus = _file(folder, BEIR_CORPUS)
    yield from read_snippets(Source(str(corpus), corpus), on_reject)


def _file(folder: Path, names: tuple[str, ...]) -> Path:
    if path := first_file(folder, names):
        return path
    raise MissingError(f"{folder / names[0]} is not there: a BEIR folder has it, plain or gzipped")
