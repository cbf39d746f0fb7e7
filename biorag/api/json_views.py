"""Hits, answers and snippets as JSON: the same from the command line, Python, the page, the API and MCP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from biorag.corpus.sentences import matches
from biorag.references.facts import Facts, facts_of
from biorag.references.formats import citation
from biorag.references.reference import reference_of, study_types
from biorag.types import Answer, CheckedSentence, Citation, Hit, Opposition, Snippet

if TYPE_CHECKING:
    from biorag.answering.weighing import Study, Weighing

DIGITS = 6  # of scores and probabilities: the last ones differ with how vectors lie in memory


def hit_json(hit: Hit) -> dict[str, Any]:
    """Return the JSON of a hit."""
    snippet = hit.snippet
    return {
        "rank": hit.rank,
        "id": snippet.id,
        "pmid": snippet.pmid,
        "title": snippet.title,
        "content": snippet.content,
        "score": round(hit.score, DIGITS),
        **_optional(snippet.location, snippet.retracted),
        "metadata": dict(snippet.metadata),
        "facts": facts_of(snippet).to_json(),
    }


def answer_json(answer: Answer, models: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of an answer, with the names of the models that made it."""
    probability = answer.evidence_probability
    return {
        "question": answer.question.text,
        "options": dict(answer.question.options),
        "kind": answer.kind,
        "short_answer": answer.short_answer,
        "items": [{"text": item.text, "citations": list(item.citations)} for item in answer.items],
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
        "certainty": answer.certainty,
        "abstained": answer.abstained,
        "evidence_probability": None if probability is None else round(probability, DIGITS),
        "sentences": [_sentence_json(sentence) for sentence in answer.sentences],
    }


def weighing_json(weighing: Weighing) -> dict[str, Any]:
    """Return the JSON of a weighing: the columns, and how many studies stand in each."""
    return {
        "claim": weighing.claim,
        "searched": weighing.searched,
        "counts": weighing.counts,
        **{name: [study_json(study) for study in studies] for name, studies in weighing.columns.items()},
    }


def study_json(study: Study) -> dict[str, Any]:
    """Return the JSON of a study that stands in a column; null for what is not stated."""
    from biorag.answering.weighing import COLUMNS

    snippet, reference, people = study.snippet, study.reference, study.participants
    return {
        "id": snippet.id,
        "pmid": snippet.pmid,
        "title": snippet.title,
        "author": reference.authors[0].name if reference.authors else None,
        "year": reference.date[0] if reference.date else None,
        "type": ", ".join(study_types(reference.types)) or None,
        "participants": people._asdict() if people else None,
        "effect": study.effect,
        "retracted": snippet.retracted,
        "quote": study.stance.quote,
        "probability": round(study.stance.probability, DIGITS),
        "basis": study.stance.basis,
        "leaning": COLUMNS[study.stance.leaning] if study.stance.leaning else None,
        "location": snippet.location or None,
    }


def snippet_json(snippet: Snippet, facts: Facts, words: set[str]) -> dict[str, Any]:
    """Return the JSON of a whole snippet with its reference; `marks` are the spans of these words in the content."""
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


def basis_json(checked: CheckedSentence) -> dict[str, Any]:
    """Return what a verdict rests on, what differs, and a reader's probability of each label, if one was asked."""
    rounded = {label: round(value, DIGITS) for label, value in checked.probability.items()}
    return {
        "basis": checked.basis,
        **({"difference": checked.difference} if checked.difference else {}),
        **({"probability": rounded} if rounded else {}),
    }


def _sentence_json(sentence: CheckedSentence) -> dict[str, Any]:
    return {
        "text": sentence.text,
        "verdict": sentence.verdict.value,
        "citations": list(sentence.citations),
        "evidence": [{"id": span.id, "quote": span.quote} for span in sentence.evidence],
        **basis_json(sentence),
        **({"otherwise": [_opposition_json(one) for one in sentence.otherwise]} if sentence.otherwise else {}),
    }


def _opposition_json(opposition: Opposition) -> dict[str, Any]:
    probability = round(opposition.probability, DIGITS)
    return {"id": opposition.id, "pmid": opposition.pmid, "quote": opposition.quote, "probability": probability}


def _citation_json(citation: Citation, answer: Answer) -> dict[str, Any]:
    fields = {**asdict(citation), "score": round(citation.score, DIGITS)}
    retracted, location = fields.pop("retracted"), fields.pop("location")
    metadata = next((hit.snippet.metadata for hit in answer.hits if hit.rank == citation.n), {})
    return {**fields, **_optional(location, retracted), "metadata": dict(metadata)}


def _optional(location: str, retracted: bool) -> dict[str, Any]:
    return ({"location": location} if location else {}) | ({"retracted": True} if retracted else {})
