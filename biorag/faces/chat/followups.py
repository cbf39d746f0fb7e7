"""Follow-up questions made to stand alone: as the evidence answers them best, or by the generator if one is named."""

from __future__ import annotations

import re
from dataclasses import replace

from biorag.answering.answerer import FOUND_NOTHING
from biorag.answering.certainty import TELLING, missing_words
from biorag.answering.guards.words import rarity, stems
from biorag.api.results import AnswerResult
from biorag.api.session import Filter, Session
from biorag.corpus.sentences import first_sentences, terms
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import load_template, object_schema
from biorag.types import MAY, GenerationRequest
from biorag.utils.text import comparable

FIELDS = ("question", "previous", "answer")
SCHEMA = object_schema({"question": {"type": "string"}})
MOST_TOKENS = 96
MOST_QUOTED = 600  # characters of the earlier question, and of its answer
LONGEST_REWRITE = 400  # characters
MOST_CARRIED = 12  # words that a question takes over
MOST_NAMED = 3  # names of an answer of which a follow-up may speak
AS_IT_IS = 0.1  # by how much likelier another reading of a question that names a subject must be than as it is
BY_FAR = 0.25  # by how much a reading without the topic must be likelier, if the question has no telling word
UNLIKELY = 0.1  # probability below which no reading is chosen for its evidence: no question would be answered
FRAGMENT = 3  # words up to which a question is none that names its subject: "side effects?"
SUBJECT = 0.47  # rarity of a word from which it can be a subject
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_REFERRING = re.compile(r"\b(?:it|its|itself|they|them|their|theirs|those|these|this|such|same)\b", re.IGNORECASE)
# "antidote? (apixaban)": what an earlier question was asked of stands in parentheses at the end of what was searched.
_CARRIED = re.compile(r"\(([^()]*)\)\s*$")


def standalone(session: Session, question: str, previous: str, answer: str, *, filter: Filter = ()) -> str:
    """Return a question as it is to be searched after others, by which of its readings the evidence answers likeliest.

    It is read of the topic of the last question, of what the answer names, if that is likelier by far, and, if it names
    a subject, as it is; as it is, too, where no evidence has its names and rare words. Where no reading is likely, it
    is read as it is if it names a telling subject, else of the topic. A generator, if one is named, rewrites what is
    not read as it is. `previous` is the last question as it was searched, "" of the first one,
    `answer` the answer to it; `filter` is that of the question. Raises `ServiceError` if the generator fails.
    """
    if not previous:
        return question
    margins: dict[str, float] = {}
    if names_subject(question) and len(question.split()) > FRAGMENT:
        margins[question] = AS_IT_IS if max(map(rarity, stems(question))) >= TELLING else -BY_FAR
    carried = _CARRIED.search(previous)  # "And neuropathy? (metformin)", "What about calcium?": of metformin alone, too
    of_topic = with_topic_of(previous, question)
    margins |= {of_topic: 0.0, with_topic_of(carried[1] if carried else previous, question): 0.0}
    margins |= dict.fromkeys(_of_named(question, previous, answer), -BY_FAR)
    likely = dict(zip(margins, session.likelihoods(question, list(margins), filter=filter), strict=True))
    possible = [reading for reading, chance in likely.items() if chance] or [question]
    likeliest = max(possible, key=lambda reading: likely.get(reading, 0.0) + margins.get(reading, 0.0))
    if 0 < likely.get(likeliest, 0.0) < UNLIKELY:
        likeliest = question if margins.get(question, 0.0) > 0 else of_topic
    if likeliest == question:
        return question
    # The answer quotes documents, so the chat's own marks in it are defused.
    quoted = (defused(" ".join(text[:MOST_QUOTED].split()), tuple(session.controls)) for text in (previous, answer))
    earlier_question, earlier_answer = quoted
    template = load_template("standalone", known=FIELDS)
    prompt = template.fill(question=question, previous=earlier_question, answer=earlier_answer or "(none)")
    generation = session.generate(GenerationRequest(prompt, SCHEMA, MOST_TOKENS))
    return (usable(generation.text, previous) if generation and not generation.capped else "") or likeliest


def in_turn(answer: AnswerResult, searched: str, last: str) -> AnswerResult:
    """Return an answer to what was searched after the answer `last`.

    It is one that may be where it says what the last one said, or cites no snippet with a word of what was carried on,
    or none with a telling word of the question itself: "Does it work in bipolar disorder, too?"
    """
    if answer.certainty != "answer":
        return answer
    doubtful = comparable(answer.text) == comparable(last.removeprefix(MAY))
    if not doubtful and (carried := _CARRIED.search(searched)):
        texts, topic = [hit.snippet.contents for hit in answer.cited_hits], set(stems(carried[1]))
        missing = missing_words(searched[: carried.start()], texts)
        apart = topic and not any(topic.intersection(stems(text)) for text in texts)
        doubtful = bool(apart) or max(missing.values(), default=0.0) >= TELLING
    return replace(answer, certainty="may", text=f"{MAY} {answer.text}", short_answer="") if doubtful else answer


def usable(reply: str, previous: str) -> str:
    """Return the question of a reply; empty if it is blank, absurdly long, or the last question again."""
    rewrite = " ".join(parse_reply(reply).text("question").split())
    if len(rewrite) > LONGEST_REWRITE or comparable(rewrite) == comparable(previous):
        return ""
    return rewrite


def names_subject(question: str) -> bool:
    """Return whether a question has a rare word and refers to nothing by a pronoun."""
    return bool(_names(question)[0]) and not _REFERRING.search(question)


def with_topic_of(last: str, question: str) -> str:
    """Return a question followed by the topic of the last one, in parentheses: "antidote? (apixaban)".

    `last` is the last question as it was searched, so that a topic stays from one follow-up to the next; one that names
    a subject of its own ("And heparin?") puts that before it.
    """
    carried, known = _CARRIED.search(last), terms(question)
    names = _names(last)[0] or _names(last)[1]
    if carried:
        own = last[: carried.start()]
        rare, words = _names(carried[1])
        names = [*(_names(own)[0] if names_subject(own) else ()), *(rare or words)]
    topic = [word for word in dict.fromkeys(names) if not terms(word) <= known][:MOST_CARRIED]
    return f"{question.strip()} ({' '.join(topic)})" if topic else question.strip()


def _of_named(question: str, previous: str, answer: str) -> list[str]:
    """Return a question asked of each of the rarest words that the first sentence of the last answer brings in."""
    if answer.startswith(FOUND_NOTHING):
        return []
    known = terms(question) | terms(previous)
    sentence = first_sentences(answer.removeprefix(MAY).strip(), 1)
    named = [word for word in _names(sentence)[0] if not terms(word) <= known]
    named.sort(key=lambda word: -max(map(rarity, stems(word))))
    return [f"{question.strip()} ({word})" for word in named[:MOST_NAMED]]


def _names(text: str) -> tuple[list[str], list[str]]:
    """Return the rare words of a text, each once, which can be its subject, and its content words."""
    by_terms: dict[frozenset[str], str] = {}
    for match in _WORD.finditer(text):
        if held := terms(match[0]):
            by_terms.setdefault(frozenset(held), match[0])
    words = list(by_terms.values())
    return [word for word in words if any(rarity(stem) >= SUBJECT for stem in stems(word))], words
