"""From a generator's reply to an answer of which each sentence has been checked; replies that are not answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from biorag.answering.guards.checker import CheckedAnswer, Checker, citation_of
from biorag.answering.options import held
from biorag.corpus.sentences import first_sentences
from biorag.prompts.marks import plain_marks, without_marks
from biorag.prompts.parse import Reply, cited_numbers
from biorag.prompts.template import Template
from biorag.types import Answer, Question

MOST_SENTENCES = 200  # of a reply; each is held against each snippet
LONGEST = 100_000  # characters of a reply
CUT = f"only the first {MOST_SENTENCES} sentences, or {LONGEST:,} characters, of the model's text were read"
NO_CITATION = "no citation holds: take the answer as unsupported and read the evidence"
_WORD = re.compile(r"[^\W_]+(?:[-'’_][^\W_]+)*")
# What a JSON prompt speaks of: its keys and its own words.
KEYS = frozenset(
    _WORD.findall(
        """
    a an answer answer_choice answers as below by choice citation citations cited context document documents field
    follows following for here is json key keys my n number numbers object of one option options output provided
    question quote relevant relevant_context reply response step step_by_step_thinking string summary task text the
    thinking value your
        """
    )
)
LONGEST_ECHO = 8  # words of a reply that holds nothing but keys
SHORTEST_TITLE = 3  # words of a title that names a topic; a shorter one may be the name that was asked for
RUN = 6  # words in a row that a text and the prompt share by more than chance
MOST_SHARED = 0.6  # of a text's runs that may stand in the prompt's instructions
MOST_ASKED = 0.8  # of the question's words that a text made of nothing else may have


def written(answer: Answer, reply: Reply, checker: Checker) -> Answer:
    """Return an answer with the text that a reply to an open question gives, checked against the supplied hits."""
    text, notes = _readable(reply.text("answer"), answer)
    checked = _checked(text, answer, reply, checker)
    parsed = reply.strict and bool(text)
    return _with_check(replace(answer, text=_kept(text, checked), parsed=parsed), checked, notes)


def chosen(answer: Answer, reply: Reply, template: Template, checker: Checker) -> Answer:
    """Return an answer with the option that a reply chooses, held against the hits, and its reasoning, checked too.

    The option is the first of the answer's sentences. Reasoning that only echoes the prompt is left out.
    """
    question, hits = answer.question, answer.hits[: answer.supplied]
    choice = reply.choice(tuple(question.options))
    reasoning, notes = _readable(reply.text("step_by_step_thinking"), answer)
    if reasoning and (fault := fault_of(reasoning, question, template)):
        reasoning, notes = "", (f"the model's reasoning {fault}, so it is not shown",)
    checked = _checked(reasoning, answer, reply, checker)
    answer = replace(
        answer,
        text=question.options[choice] if choice else "",
        choice=choice,
        parsed=reply.strict and bool(choice),
        reasoning=_kept(reasoning, checked),
        relevant_context=reply.text("relevant_context") or None,
    )
    if choice and hits:
        option = held(question.text, question.options[choice], hits, checker)
        spans = [span for span in option.evidence if span.n in option.citations]
        citations = tuple(citation_of(hits[span.n - 1], span.n, span.quote) for span in spans)
        others = tuple(citation for citation in checked.citations if citation.n not in {own.n for own in citations})
        checked = replace(checked, sentences=(option, *checked.sentences), citations=citations + others)
    return _with_check(answer, checked, notes)


def _readable(text: str, answer: Answer) -> tuple[str, tuple[str, ...]]:
    """Return a model's prose with plain marks, of bounded length, and the note that says so."""
    readable = first_sentences(text[:LONGEST], MOST_SENTENCES)
    notes = (CUT,) if len(readable) < len(text) else ()
    return plain_marks(readable, [hit.snippet for hit in answer.hits[: answer.supplied]]), notes


def _checked(text: str, answer: Answer, reply: Reply, checker: Checker) -> CheckedAnswer:
    """Check a text against the supplied hits, if there are any."""
    hits = answer.hits[: answer.supplied]
    if not hits:
        return CheckedAnswer()
    return checker.check_answer(text, hits, answer.question.text, cited_numbers(reply, text))


def _kept(text: str, checked: CheckedAnswer) -> str:
    """Return a text without the marks whose citations were dropped."""
    return without_marks(text, {citation.n for citation in checked.citations})


def _with_check(answer: Answer, checked: CheckedAnswer, notes: tuple[str, ...]) -> Answer:
    notes += checked.notes + answer.notes
    if answer.supplied and not checked.citations:
        notes += (NO_CITATION,)
    return replace(answer, sentences=checked.sentences, citations=checked.citations, notes=notes)


def fault_of(text: str, question: Question, template: Template, titles: Sequence[str] = ()) -> str:
    """Return why a generated text is not an answer, as a note says it; "" if it may be one.

    `template` is the prompt's, whose documents may be repeated; `titles` are those of the documents.
    """
    words = _words(text)
    if not words:
        return "is empty"
    if len(words) <= LONGEST_ECHO and KEYS.issuperset(words):
        return f"only names the reply's parts ({text.strip()!r})"
    asked = _words(question.text)
    if set(words) <= set(asked) and len(words) >= MOST_ASKED * len(asked):
        return "repeats the question"
    if len(words) >= SHORTEST_TITLE and words in map(_words, titles):
        return "only names the title of a snippet"
    instructions = _words(f"{template.system} {template.user}")
    runs = _runs(words, RUN)
    if len(words) >= RUN and len(runs & _runs(instructions, RUN)) > MOST_SHARED * len(runs):
        return "repeats the prompt"
    return ""


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _runs(words: list[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}
