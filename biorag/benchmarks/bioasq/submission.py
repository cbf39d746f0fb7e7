"""What a system submits to BioASQ's phase A: documents, and sentences of them with their places in the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.benchmarks.bioasq.golden import OFFSETS, PUBMED, SECTIONS, Batch, Span
from biorag.benchmarks.bioasq.measures import MOST
from biorag.corpus.sentences import sentences, terms
from biorag.types import Hit, Snippet
from biorag.utils.files import write_json


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence of a retrieved document; `span` is None where its place in the record is unknown."""

    text: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class Response:
    """What was found for one question: PMIDs, best first, and a passage of each."""

    documents: Sequence[str]
    passages: Sequence[Passage]

    @property
    def spans(self) -> list[Span]:
        """The passages that can be submitted."""
        return [passage.span for passage in self.passages if passage.span]


def response(question: str, hits: Sequence[Hit], whole_records: bool) -> Response:
    """Return the first ten documents of a ranking, and of each the sentence that shares most words with the question.

    Of several hits of one PubMed record the best one stands for it; hits without a PMID are passed over.

    Parameters
    ----------
    whole_records : that every snippet's title and content are those of its whole record
    """
    first: dict[str, Snippet] = {}
    for hit in hits:
        if hit.snippet.pmid is not None:
            first.setdefault(str(hit.snippet.pmid), hit.snippet)
    documents = list(first)[:MOST]
    asked = terms(question)
    return Response(documents, [_best_passage(first[document], asked, whole_records) for document in documents])


def _best_passage(snippet: Snippet, asked: set[str], whole_records: bool) -> Passage:
    known = is_whole_record(snippet) or (whole_records and "block" not in snippet.metadata)
    found = list(_passages(snippet))
    section, begin, text = max(found, key=lambda passage: len(terms(passage[2]) & asked))
    span = Span(str(snippet.pmid), (section, section), begin, begin + len(text))
    return Passage(text, span if known else None)


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


def write_submission(path: Path, batch: Batch, responses: Mapping[str, Response]) -> None:
    """Write the JSON that BioASQ's evaluator takes; passages whose place is unknown are left out of it."""
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


def _snippet(passage: Passage) -> dict[str, Any]:
    span = passage.span
    assert span, "left out before"
    places = zip((*OFFSETS, *SECTIONS), (span.begin, span.end, *span.sections), strict=True)
    return {"document": PUBMED + span.document, **dict(places), "text": passage.text}
