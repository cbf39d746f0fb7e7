"""Systems compared with golden files, batch by batch and over all questions, and their submissions to phase A."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from biorag.benchmarks.bioasq.golden import OFFSETS, PUBMED, SECTIONS, GoldenBatch, Span
from biorag.benchmarks.bioasq.measures import MEASURES, MOST, RankingScore, score_documents, score_snippets, summary
from biorag.benchmarks.retrieval import DEPTH, JudgedCount, held_pmids, refuse_unjudged
from biorag.benchmarks.significance import paired
from biorag.corpus.sentences import sentences, terms
from biorag.errors import UsageError, unknown_name
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.types import Hit, Index, OnProgress, Snippet
from biorag.utils.files import write_json

# Settings of each system, from the paper's parts to the whole.
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "bm25": {"mode": "bm25", "rerank": False},
    "dense": {"mode": "dense", "rerank": False},
    "hybrid": {"mode": "hybrid", "rerank": False},
    "hybrid+rerank": {"mode": "hybrid", "rerank": True},
}
CROSS = "hybrid+cross"  # HybridRerank of the paper, run where it is asked for: it needs a cross-encoder
RERANKER = "cross:ID"
REORDERED = 10  # documents that it reorders
TITLES = {
    "bm25": "BM25",
    "dense": "dual encoder",
    "hybrid": "hybrid",
    "hybrid+rerank": "hybrid + rerank",
    CROSS: "hybrid + cross-encoder",
}
COMPARED = (("hybrid", "bm25"), ("hybrid", "dense"), ("hybrid+rerank", "hybrid"), (CROSS, "hybrid"))


@dataclass(frozen=True, slots=True)
class SubmittedPassage:
    """A sentence of a retrieved document; `span` is None where its offsets in the record are unknown."""

    text: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class Response:
    """The documents of one question, PMIDs, best first, and a passage of each."""

    documents: Sequence[str]
    passages: Sequence[SubmittedPassage]

    @property
    def spans(self) -> list[Span]:
        """The passages that can be submitted."""
        return [passage.span for passage in self.passages if passage.span]


SystemResponses: TypeAlias = Mapping[str, Mapping[str, Response]]  # by batch and question id


def chosen_systems(names: Sequence[str]) -> list[str]:
    """Return the systems asked for, each once, in the paper's order; those of `SYSTEMS` for none."""
    known = (*SYSTEMS, CROSS)
    for name in names:
        if name not in known:
            raise unknown_name("system", name, known)
    return [name for name in known if name in (names or SYSTEMS)]


def settings_of(system: str, settings: RetrievalSettings) -> Mapping[str, Any]:
    """Return the settings that a system changes.

    "hybrid+cross" is the paper's HybridRerank (BioASQ 8, section 5.1): the best 10 of hybrid search in the order of a
    cross-encoder's scores, to which no earlier score is added. The cross-encoder is that of the configured chain.

    Raises `UsageError` if "hybrid+cross" is asked for, and the chain has no cross-encoder.
    """
    if system != CROSS:
        return SYSTEMS[system]
    stage = next((stage for stage in settings.stages if stage.kind.name == "cross-encoder"), None)
    if stage is None:
        raise UsageError(f"--system {CROSS} orders by a cross-encoder: name one with --reranker {RERANKER}")
    alone = {"reranker": f"{stage.kind.prefix}{stage.name}@{REORDERED}", "cross_interpolation": 0.0}
    return {"mode": "hybrid", "rerank": True, "k_init": max(settings.k_init, REORDERED), **alone}


def settings_of_all(systems: Sequence[str], settings: Settings) -> Settings:
    """Return the settings to open an index with, so that it serves every system."""
    changes = [settings_of(system, settings.retrieval) for system in systems]
    bm25_alone = all(change["mode"] == "bm25" for change in changes)
    return settings.replace(rerank=any(change["rerank"] for change in changes), mode="bm25" if bm25_alone else "hybrid")


def answer(
    batches: Sequence[GoldenBatch], retriever: Retriever, whole_records: bool, on_progress: OnProgress
) -> SystemResponses:
    """Retrieve for every question of every batch."""
    return {
        batch.name: {
            question.id: response(question.text, ranking.hits, whole_records)
            for question, ranking in search_questions(retriever, batch.questions, DEPTH, on_progress=on_progress)
        }
        for batch in batches
    }


def coverage(batches: Sequence[GoldenBatch], index: Index, dimension: int) -> list[dict[str, Any]]:
    """Return how many golden documents of each batch the index, whose vectors have this dimension, holds."""
    rows = []
    for batch in batches:
        golden = {document for question in batch.questions for document in question.documents}
        counts = {"documents": len(golden), "documents_in_index": len(held_pmids(index, dimension, golden) & golden)}
        rows.append({"batch": batch.name, "questions": len(batch.questions), **counts})
    return rows


def check_coverage(rows: Sequence[Mapping[str, Any]], index: str) -> None:
    """Refuse an index with hardly any of the golden documents; raises as `refuse_unjudged` does."""
    held, total = (sum(row[key] for row in rows) for key in ("documents_in_index", "documents"))
    refuse_unjudged(JudgedCount(held, total - held), ", ".join(row["batch"] for row in rows), index)


def report(batches: Sequence[GoldenBatch], runs: Mapping[str, SystemResponses], seed: int) -> dict[str, Any]:
    """Return each system's measures by batch with their unweighted mean, and the comparisons of `COMPARED`."""
    documents = {system: _documents(batches, responses) for system, responses in runs.items()}
    return {
        "systems": {system: _system(batches, responses, documents[system]) for system, responses in runs.items()},
        "comparisons": [
            {"ours": ours, "theirs": theirs, **_compared(documents[ours], documents[theirs], seed)}
            for ours, theirs in COMPARED
            if ours in documents and theirs in documents
        ],
    }


def _documents(batches: Sequence[GoldenBatch], responses: SystemResponses) -> list[list[RankingScore]]:
    return [
        [
            score_documents(question.documents, responses[batch.name][question.id].documents)
            for question in batch.questions
        ]
        for batch in batches
    ]


def _system(
    batches: Sequence[GoldenBatch], responses: SystemResponses, documents: Sequence[Sequence[RankingScore]]
) -> dict[str, Any]:
    passages = [
        passage for answered in responses.values() for response in answered.values() for passage in response.passages
    ]
    unknown = sum(passage.span is None for passage in passages)
    measured = [summary(scores) for scores in documents]
    placed = [_snippets(batch, responses[batch.name]) for batch in batches] if unknown < len(passages) else None
    return {
        "batches": [
            {"batch": batch.name, "documents": measured[number], "snippets": placed[number] if placed else None}
            for number, batch in enumerate(batches)
        ],
        "mean": {"documents": _mean(measured), "snippets": _mean(placed) if placed else None},
        "returned_snippets": len(passages),
        "offsets_unknown": unknown,
    }


def _snippets(batch: GoldenBatch, responses: Mapping[str, Response]) -> dict[str, float]:
    return summary([score_snippets(question.snippets, responses[question.id].spans) for question in batch.questions])


def _mean(summaries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the unweighted mean over the batches."""
    return {name: float(np.mean([summary[name] for summary in summaries])) for name in MEASURES}


def _compared(
    ours: Sequence[Sequence[RankingScore]], theirs: Sequence[Sequence[RankingScore]], seed: int
) -> dict[str, Any]:
    """Compare the average precision of documents over the questions of all batches."""
    mine, others = ([score.average_precision for batch in side for score in batch] for side in (ours, theirs))
    return asdict(paired(mine, others, seed))


def response(question: str, hits: Sequence[Hit], whole_records: bool) -> Response:
    """Return the first ten documents of a ranking, and of each the sentence that shares most words with the question.

    Of several hits of one PubMed record the best one stands for it; hits without a PMID are passed over.

    `whole_records`: that every snippet's title and content are those of its whole record.
    """
    first: dict[str, Snippet] = {}
    for hit in hits:
        if hit.snippet.pmid is not None:
            first.setdefault(str(hit.snippet.pmid), hit.snippet)
    documents = list(first)[:MOST]
    asked = terms(question)
    return Response(documents, [_best_passage(first[document], asked, whole_records) for document in documents])


def _best_passage(snippet: Snippet, asked: set[str], whole_records: bool) -> SubmittedPassage:
    known = is_whole_record(snippet) or (whole_records and "block" not in snippet.metadata)
    section, begin, text = max(_passages(snippet), key=lambda passage: len(terms(passage[2]) & asked))
    span = Span(str(snippet.pmid), (section, section), begin, begin + len(text))
    return SubmittedPassage(text, span if known else None)


def is_whole_record(snippet: Snippet) -> bool:
    """Return whether title and content are known to be a record's own: read from PubMed's XML and not split."""
    return isinstance(snippet.metadata.get("abstract"), bool) and "block" not in snippet.metadata


def _passages(snippet: Snippet) -> Iterator[tuple[str, int, str]]:
    """Yield section, offset and text of each sentence; the abstract's first, which are preferred to the title."""
    for section, text in (("abstract", snippet.content), ("title", snippet.title)):
        end = 0
        for sentence in sentences(text):
            begin = text.index(sentence, end)
            end = begin + len(sentence)
            yield section, begin, sentence


def write_submission(path: Path, batch: GoldenBatch, responses: Mapping[str, Response]) -> None:
    """Write the JSON that BioASQ's evaluator takes; passages without known offsets are left out of it."""
    rows = [
        {
            "id": question.id,
            "body": question.text,
            "type": question.type,
            "documents": [PUBMED + document for document in responses[question.id].documents],
            "snippets": [_snippet(passage) for passage in responses[question.id].passages if passage.span],
        }
        for question in batch.questions
    ]
    write_json(path, {"questions": rows})


def _snippet(passage: SubmittedPassage) -> dict[str, Any]:
    span = passage.span
    assert span, "left out before"
    places = zip((*OFFSETS, *SECTIONS), (span.begin, span.end, *span.sections), strict=True)
    return {"document": PUBMED + span.document, **dict(places), "text": passage.text}
