"""From a generator's reply to an answer of which each sentence has been checked."""

from __future__ import annotations

from dataclasses import replace

from biorag.answering.echoes import fault_of
from biorag.answering.options import held
from biorag.answering.verification.checker import CheckedAnswer, Checker, citation_of
from biorag.corpus.sentences import first_sentences
from biorag.prompts.marks import plain_marks, without_marks
from biorag.prompts.parse import Reply, cited_numbers
from biorag.prompts.template import Template
from biorag.types import Answer

MOST_SENTENCES = 200  # of a reply; each is held against each snippet
LONGEST = 100_000  # characters of a reply
CUT = f"only the first {MOST_SENTENCES} sentences, or {LONGEST:,} characters, of the model's text were read"
NO_CITATION = "no citation holds: take the answer as unsupported and read the evidence"


def written(answer: Answer, reply: Reply, checker: Checker) -> Answer:
    """Return an answer with the text that a reply to an open question gives, checked against the supplied hits."""
    text, notes = _readable(reply.text("answer"), answer)
    checked = _checked(text, answer, reply, checker)
    kept = {citation.n for citation in checked.citations}
    return _with_check(
        replace(answer, text=without_marks(text, kept), parsed=reply.strict and bool(text)),
        checked,
        notes + checked.notes,
    )


def chosen(answer: Answer, reply: Reply, template: Template, checker: Checker) -> Answer:
    """Return an answer with the option that a reply chooses, held against the hits, and its reasoning, checked too.

    The option is the first of the answer's sentences. Reasoning that is none is left out.
    """
    question = answer.question
    choice = reply.choice(tuple(question.options))
    reasoning, notes = _readable(reply.text("step_by_step_thinking"), answer)
    if reasoning and (fault := fault_of(reasoning, question, template)):
        reasoning, notes = "", (f"the model's reasoning {fault}, so it is not shown",)
    checked = _checked(reasoning, answer, reply, checker)
    kept = {citation.n for citation in checked.citations}
    answered = replace(
        answer,
        text=question.options[choice] if choice else "",
        choice=choice,
        parsed=reply.strict and bool(choice),
        reasoning=without_marks(reasoning, kept),
        relevant_context=reply.text("relevant_context") or None,
    )
    notes += checked.notes
    if choice and answer.supplied:
        hits = answer.hits[: answer.supplied]
        option = held(question.text, question.options[choice], hits, checker)
        citations = tuple(
            citation_of(hits[span.n - 1], span.n, span.quote) for span in option.evidence if span.n in option.citations
        )
        others = tuple(citation for citation in checked.citations if citation.n not in {own.n for own in citations})
        checked = CheckedAnswer((option, *checked.sentences), citations + others, ())
    return _with_check(answered, checked, notes)


def _readable(text: str, answer: Answer) -> tuple[str, tuple[str, ...]]:
    """Return a model's prose with plain marks, of bounded length, and the note that says so."""
    readable = first_sentences(text[:LONGEST], MOST_SENTENCES)
    notes = (CUT,) if len(readable) < len(text) else ()
    return plain_marks(readable, [hit.snippet for hit in answer.hits[: answer.supplied]]), notes


def _checked(text: str, answer: Answer, reply: Reply, checker: Checker) -> CheckedAnswer:
    """Check a text against the supplied hits; without any there is nothing to check it against."""
    hits = answer.hits[: answer.supplied]
    cited = cited_numbers(reply, text)
    return checker.check_answer(text, hits, answer.question.text, cited) if hits else CheckedAnswer((), (), ())


def _with_check(answer: Answer, checked: CheckedAnswer, notes: tuple[str, ...]) -> Answer:
    missing = (NO_CITATION,) if answer.supplied and not checked.citations else ()
    return replace(
        answer, sentences=checked.sentences, citations=checked.citations, notes=notes + answer.notes + missing
    )
