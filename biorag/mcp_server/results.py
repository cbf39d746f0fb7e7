"""What the tools return, as their JSON schemas say it; the values are those of `biorag.api.documents`."""

from __future__ import annotations

from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict


class HitResult(TypedDict):
    """A snippet that a search found; `location` and `retracted` stand only where they say something."""

    rank: int
    id: str
    pmid: int | None
    title: str
    content: str
    score: float
    location: NotRequired[str]
    retracted: NotRequired[bool]
    metadata: dict[str, Any]
    facts: dict[str, Any]


class SearchResults(TypedDict):
    """What a search found, best first."""

    query: str
    mode: str
    hits: list[HitResult]
    timings_ms: dict[str, float]


class CitationResult(TypedDict):
    """A citation of the hit numbered `n`; `quote` stands verbatim in its snippet."""

    n: int
    id: str
    pmid: int | None
    title: str
    quote: str
    score: float
    location: NotRequired[str]
    retracted: NotRequired[bool]
    metadata: dict[str, Any]


class QuoteResult(TypedDict):
    """The words of a snippet that a verdict rests on."""

    id: str
    quote: str


class SentenceResult(TypedDict):
    """A sentence of an answer, and what the evidence says of it: supported, unsupported or contradicted."""

    text: str
    verdict: str
    citations: list[int]
    evidence: list[QuoteResult]


class AnswerResults(TypedDict):
    """An answer with its evidence; `abstained` is true where the index is too unlikely to hold one."""

    question: str
    options: dict[str, str]
    answer: str
    choice: str | None
    reasoning: str
    relevant_context: str | None
    citations: list[CitationResult]
    hits: list[HitResult]
    models: dict[str, Any]
    parsed: bool
    option_logprobs: dict[str, float]
    supplied: int
    notes: list[str]
    timings_ms: dict[str, float]
    answerer: str
    abstained: bool
    evidence_probability: float | None
    sentences: list[SentenceResult]


class EvidenceResult(TypedDict):
    """What a snippet says of a claim, in its own words."""

    id: str
    pmid: int | None
    quote: str
    verdict: str


class ClaimVerdict(TypedDict):
    """What the evidence says of a claim: supported, unsupported or contradicted."""

    claim: str
    verdict: str
    evidence: list[EvidenceResult]


class SnippetResult(TypedDict):
    """A whole snippet with its reference; `marks` are where the words to mark begin and end in `content`."""

    id: str
    pmid: int | None
    title: str
    content: str
    metadata: dict[str, Any]
    facts: dict[str, Any]
    reference: str
    url: str | None
    marks: list[list[int]]


class SnippetResults(TypedDict):
    """The snippets that an id or a PMID names."""

    index: str
    snippets: list[SnippetResult]


class References(TypedDict):
    """References of snippets in a format, in the order of the ids."""

    format: str
    ids: list[str]
    text: str


@with_config(ConfigDict(extra="allow"))
class IndexFacts(TypedDict):
    """What an index holds and was made with; how it was made has further fields."""

    name: str
    snippets: int
    bytes: int
    metadata: dict[str, Any]
