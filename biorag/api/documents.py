"""What is found, answered and judged, as JSON: the same from the command line, Python, the page, the API and MCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from biorag.corpus.sentences import matches
from biorag.references.facts import Facts, facts_of
from biorag.references.reference import reference_of
from biorag.references.vancouver import citation
from biorag.retrieval.retriever import Ranking
from biorag.types import Answer, CheckedSentence, Citation, Hit, Snippet, Verdict

DIGITS = 6  # of scores and probabilities: the last ones differ with how vectors lie in memory


def search_json(ranking: Ranking, mode: str) -> dict[str, Any]:
    """Return what a search found."""
    return {
        "query": ranking.query,
        "mode": mode,
        "hits": [hit_json(hit) for hit in ranking.hits],
        "timings_ms": ranking.timings_ms,
    }


def hit_json(hit: Hit) -> dict[str, Any]:
    """Return a hit."""
    snippet = hit.snippet
    return {
        "rank": hit.rank,
        "id": snippet.id,
        "pmid": snippet.pmid,
        "title": snippet.title,
        "content": snippet.content,
        "score": round(hit.score, DIGITS),
        **_location(snippet.location),
        **_retraction(snippet.retracted),
        "metadata": dict(snippet.metadata),
        "facts": facts_of(snippet).to_json(),
    }


def answer_json(answer: Answer, models: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer, with the names of the models that made it."""
    probability = answer.evidence_probability
    return {
        "question": answer.question.text,
        "options": dict(answer.question.options),
        "answer": answer.text,
        "choice": answer.choice,
        "reasoning": answer.reasoning,
        "relevant_context": answer.relevant_context,
        "citations": [_citation_json(citation, answer) for citation in answer.citations],
        "hits": [hit_json(hit) for hit in answer.hits],
        "models": dict(models),
        "parsed": answer.parsed,
        "option_logprobs": dict(answer.option_logprobs),
        "supplied": answer.supplied,
        "notes": list(answer.notes),
        "timings_ms": dict(answer.timings_ms),
        "answerer": answer.answerer,
        "abstained": answer.abstained,
        "evidence_probability": None if probability is None else round(probability, DIGITS),
        "sentences": [_sentence_json(sentence) for sentence in answer.sentences],
    }


def verdict_json(checked: CheckedSentence) -> dict[str, Any]:
    """Return the verdict on a claim."""
    evidence = [
        {"id": span.id, "pmid": span.pmid, "quote": span.quote, "verdict": span.verdict.value}
        for span in checked.evidence
    ]
    return {"claim": checked.text, "verdict": checked.verdict.value, "evidence": evidence}


def snippet_json(snippet: Snippet, facts: Facts, words: set[str]) -> dict[str, Any]:
    """Return a whole snippet with its reference; `marks` are where these words stand in the content."""
    reference = reference_of(snippet)
    return {
        "id": snippet.id,
        "pmid": snippet.pmid,
        "title": snippet.title,
        "content": snippet.content,
        "metadata": dict(snippet.metadata),
        "facts": facts.to_json(),
        "reference": citation(reference),
        "url": reference.url or None,
        "marks": [list(span) for span in matches(snippet.content, words)],
    }


def snippets_json(index: str, snippets: Sequence[Snippet], facts: Sequence[Facts], words: set[str]) -> dict[str, Any]:
    """Return the snippets that an id or a PMID names."""
    shown = [snippet_json(snippet, fact, words) for snippet, fact in zip(snippets, facts, strict=True)]
    return {"index": index, "snippets": shown}


def cited_hits(answer: Answer) -> list[Hit]:
    """Return the hits that an answer cites, all hits where it cites none."""
    cited = {citation.n for citation in answer.citations}
    return [hit for hit in answer.hits if hit.rank in cited or not cited]


def is_supported(answer: Answer) -> bool:
    """Return whether there is an answer of which the evidence supports a sentence and contradicts none.

    Of a multiple-choice answer the option counts, not the reasoning.
    """
    judged: Sequence[CheckedSentence] = answer.sentences[:1] if answer.choice else answer.sentences
    verdicts = {sentence.verdict for sentence in judged}
    return not answer.abstained and Verdict.SUPPORTED in verdicts and Verdict.CONTRADICTED not in verdicts


def _sentence_json(sentence: CheckedSentence) -> dict[str, Any]:
    return {
        "text": sentence.text,
        "verdict": sentence.verdict.value,
        "citations": list(sentence.citations),
        "evidence": [{"id": span.id, "quote": span.quote} for span in sentence.evidence],
    }


def _citation_json(citation: Citation, answer: Answer) -> dict[str, Any]:
    fields = {**asdict(citation), "score": round(citation.score, DIGITS)}
    retracted, location = fields.pop("retracted"), fields.pop("location")
    metadata = next((hit.snippet.metadata for hit in answer.hits if hit.rank == citation.n), {})
    return {**fields, **_location(location), **_retraction(retracted), "metadata": dict(metadata)}


def _location(place: str) -> dict[str, str]:
    return {"location": place} if place else {}


def _retraction(retracted: bool) -> dict[str, bool]:
    return {"retracted": True} if retracted else {}
