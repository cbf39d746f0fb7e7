"""Follow-up questions made to stand alone, and what is doubtful in an answer to one."""

from __future__ import annotations

import re
from dataclasses import replace

from biorag.answering.answerer import NAMING
from biorag.answering.certainty import missing_words
from biorag.answering.guards.words import names, rarity, stems
from biorag.api.results import AnswerResult
from biorag.api.session import Session
from biorag.corpus.sentences import terms
from biorag.types import MAY
from biorag.utils.text import comparable

MOST_CARRIED = 12  # words that a question takes over
FRAGMENT = 3  # words up to which a question is none that names its subject: "side effects?"
SUBJECT = 0.47  # rarity of a word from which it can be a subject
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_REFERRING = re.compile(r"\b(?:it|its|itself|they|them|their|theirs|those|these|this|such|same)\b", re.IGNORECASE)
# "antidote? (apixaban)": what an earlier question was asked of stands in parentheses at the end of what was searched.
_CARRIED = re.compile(r"\(([^()]*)\)\s*$")


def standalone(session: Session, question: str, previous: str, answer: str) -> str:
    """Return a question as it is to be searched after others: rewritten to stand alone, or with the topic's words.

    `previous` is the last question as it was searched, "" of the first one, `answer` the answer to it. Raises
    `ServiceError` if the generator fails.
    """
    if not previous:
        return question
    return session.standalone(question, previous, answer) or by_words(question, previous)


def by_words(question: str, previous: str) -> str:
    """Return a follow-up as it is if it names a subject, else with the topic of the last question."""
    own = names_subject(question) and len(question.split()) > FRAGMENT
    return question if own else with_topic_of(previous, question)


def in_turn(answer: AnswerResult, question: str, searched: str, last: str) -> AnswerResult:
    """Return an answer to a follow-up as it was searched, after the answer `last`.

    It is one that may be where it says what that said, or no hit has a name or a very rare word of the follow-up that
    was searched: "and in astronauts?"
    """
    if answer.certainty != "answer":
        return answer
    doubtful = comparable(answer.text) == comparable(last.removeprefix(MAY))
    if searched != question:
        named, kept = names(question), set(stems(searched))
        missing = missing_words(question, [hit.snippet.contents for hit in answer.hits])
        rare = (word for word, share in missing.items() if share >= NAMING or word in named)
        doubtful = doubtful or any(kept.intersection(stems(word)) for word in rare)
    if not doubtful:
        return answer
    return replace(answer, certainty="may", text=f"{MAY} {answer.text}", short_answer="")


def names_subject(question: str) -> bool:
    """Return whether a question has a rare word and refers to nothing by a pronoun."""
    return bool(_names(question)[0]) and not _REFERRING.search(question)


def with_topic_of(last: str, question: str) -> str:
    """Return a question followed by the topic of the last one, in parentheses: "antidote? (apixaban)".

    `last` is the last question as it was searched, so that a topic stays from one follow-up to the next; one that names
    a subject of its own ("And heparin?") puts that before it.
    """
    carried, known = _CARRIED.search(last), terms(question)
    topical = _names(last)[0] or _names(last)[1]
    if carried:
        own = last[: carried.start()]
        rare, words = _names(carried[1])
        topical = [*(_names(own)[0] if names_subject(own) else ()), *(rare or words)]
    topic = [word for word in dict.fromkeys(topical) if not terms(word) <= known][:MOST_CARRIED]
    return f"{question.strip()} ({' '.join(topic)})" if topic else question.strip()


def _names(text: str) -> tuple[list[str], list[str]]:
    """Return the rare words of a text, each once, which can be its subject, and its content words."""
    by_terms: dict[frozenset[str], str] = {}
    for match in _WORD.finditer(text):
        if held := terms(match[0]):
            by_terms.setdefault(frozenset(held), match[0])
    words = list(by_terms.values())
    return [word for word in words if any(rarity(stem) >= SUBJECT for stem in stems(word))], words
