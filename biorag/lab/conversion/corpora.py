"""Data in formats that biorag reads, as other sets: BEIR's folders, corpora, claims and training rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from biorag.corpus.claims import read_claims
from biorag.corpus.datasets import first_file, read_qrels, read_queries
from biorag.corpus.readers import OnReject, as_id, read_snippets
from biorag.corpus.sentences import sentence_starts
from biorag.corpus.sources import BEIR_CORPUS, BEIR_QUERIES, Source
from biorag.errors import MissingError, unknown_name
from biorag.lab.conversion.items import Entry, Item, JudgedQuestion, Request, read_array_or_lines
from biorag.training.rows import normalised, parsed_rows, title_abstract_row
from biorag.types import Snippet

SHORTEST = 6  # words of a conclusion


def beir(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion | Snippet]:
    """Yield the questions of each part of a BEIR folder (Thakur et al., 2021) with their judgements, then the snippets.

    These are the folder's own, or those of the corpora that are named after it, as BioASQ's documents are PubMed's.
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
    if request.sources:
        yield from _snippets(request, on_reject)
    else:
        corpus = _file(folder, BEIR_CORPUS)
        yield from read_snippets(Source(str(corpus), corpus), on_reject)


def _file(folder: Path, names: tuple[str, ...]) -> Path:
    if path := first_file(folder, names):
        return path
    raise MissingError(f"{folder / names[0]} is not there: a BEIR folder has it, plain or gzipped")


def title_abstract(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield a row for each snippet, its title the query, its abstract the positive: M+C, 3.2.1; BMRetriever, 3.2.

    A title is a question too, to which its own snippet is relevant (known-item search). A snippet that makes no pair,
    as `title_abstract_row` says, is dropped and counted.
    """
    for snippet in _snippets(request, on_reject):
        row = title_abstract_row(snippet)
        if normalised(row.query) and normalised(row.positive):
            yield {"query": row.query, "positive": row.positive, "positive_id": row.positive_id}
            if snippet.title:
                yield JudgedQuestion(snippet.id, snippet.title, relevant={snippet.id: 1})
        else:
            yield None


def conclusions(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield a row for each abstract of three sentences or more: the last one the query, title and rest the positive.

    Last sentences conclude, as claims do. A shorter text, or a last sentence of few words, is dropped and counted.
    """
    for snippet in _snippets(request, on_reject):
        starts = sentence_starts(snippet.content)
        query = snippet.content[starts[-1] :].strip() if len(starts) >= 2 else ""
        if len(query.split()) < SHORTEST:
            yield None
        else:
            before = replace(snippet, content=snippet.content[: starts[-1]].strip())
            yield {"query": query, "positive": before.contents, "positive_id": snippet.id}


def abstracts(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield the snippets that have a text besides their title; the others are dropped and counted.

    The hybrid paper leaves out the 10 million of 28 million records that have a title alone (Ma et al., BioASQ 8,
    section 5).
    """
    for snippet in _snippets(request, on_reject):
        yield snippet if normalised(snippet.content) else None


def _snippets(request: Request, on_reject: OnReject | None) -> Iterator[Snippet]:
    return chain.from_iterable(read_snippets(source, on_reject) for source in request.sources)


def claims(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield a row for each claim that brings its text: a search should find the text whatever it does to the claim.

    Each text is a snippet too, for an index to mine negatives from. A claim without a text is dropped and counted.
    """
    written: set[str] = set()
    for claim in chain.from_iterable(read_claims(source.path) for source in request.sources):
        if (text := claim.text) is None or not text.content:
            yield None
            continue
        yield {"query": claim.claim, "positive": text.contents, "positive_id": text.id}
        if text.contents not in written:
            written.add(text.contents)
            yield text


def judged_rows(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    """Yield each query of training rows once, with its positives, which are relevant to it, and its negatives."""
    positives: dict[str, dict[str, None]] = {}
    negatives: dict[str, dict[str, None]] = {}
    for row in (row for source in request.sources for row, _ in parsed_rows(source.path)):
        positives.setdefault(row.query, {})[row.positive] = None
        negatives.setdefault(row.query, {}).update(dict.fromkeys(row.negatives))
    written: set[str] = set()
    for query, relevant in positives.items():
        texts = [text for text in (*relevant, *negatives[query]) if text not in written]
        written.update(texts)
        snippets = tuple(Snippet(_id_of(text), "", text) for text in texts)
        yield JudgedQuestion(_id_of(query), query, relevant=dict.fromkeys(map(_id_of, relevant), 1), snippets=snippets)


def questions(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion | Snippet]:
    """Yield questions with the passages that answer them, the rows of `train reader`; then each paper as one snippet.

    A paper is what has a PMID, or else the same text. All that questions quote of it is one snippet, each passage once.
    A question without passages, or whose passages are `boilerplate`, is left out.
    """
    papers: dict[str, tuple[str, int | None, dict[str, None]]] = {}  # title, PMID and passages, by id

    def parse(entry: Entry) -> JudgedQuestion:
        record = entry.json_object()
        passages = [] if record.get("boilerplate") else record.get("passages")
        if not isinstance(passages, list) or not all(isinstance(passage, dict) for passage in passages):
            raise ValueError("no 'passages'")
        relevant = {}
        for passage in passages:
            text, pmid = str(passage.get("text") or "").strip(), passage.get("pmid")
            if text:
                id = f"{request.id_prefix}{pmid}" if pmid else _id_of(text)
                number = int(pmid) if str(pmid).isascii() and str(pmid).isdigit() else None
                papers.setdefault(id, (str(passage.get("title") or ""), number, {}))[2][text] = None
                relevant[id] = 1
        question = " ".join(str(record.get("question") or "").split())
        if not question:
            raise ValueError("no 'question'")
        return JudgedQuestion(as_id(record.get("id"), "id"), question, relevant=relevant)

    yield from (one for one in request.read(read_array_or_lines, parse, on_reject) if one.relevant)
    yield from (Snippet(id, title, " ".join(texts), number) for id, (title, number, texts) in papers.items())


def _id_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
