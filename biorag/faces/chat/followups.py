"""Follow-up questions made to stand alone: by the generator if one is named, else with words of the last question."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from biorag.answering.guards.words import RARE, is_common, rarity, stems, units
from biorag.api.results import AnswerResult, SearchResult
from biorag.api.session import Filter, Session
from biorag.corpus.sentences import terms
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import load_template, object_schema
from biorag.types import GenerationRequest
from biorag.utils.text import comparable

FIELDS = ("question", "previous", "answer")
SCHEMA = object_schema({"question": {"type": "string"}})
MOST_TOKENS = 96
MOST_QUOTED = 600  # characters of the earlier question, and of its answer
LONGEST_REWRITE = 400  # characters
LONGEST = 40  # words of a follow-up; a longer question names its subject
SHORTEST = 3  # words of a question that is complete
MOST_CARRIED = 12  # words that a question takes over
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_OPENING = re.compile(r"(?:and|but|or|also|then|so|what about|how about|what of|what if)\b", re.IGNORECASE)
_REFERRING = re.compile(
    r"\b(?:it|its|itself|they|them|their|theirs|those|these|this|such|former|latter|same|instead|else|otherwise)\b"
    r"|\b(?:too|either|as well)\W*$",
    re.IGNORECASE,
)
# "that" refers where a verb or a preposition stands before it, or nothing; else it mostly begins a clause.
_THAT = re.compile(
    r"(?:^|\b(?:is|are|was|were|be|do|does|did|can|could|should|would|will|may|might|has|have|had|of|for|in|with|to|at"
    r"|on|by|from|about|after|before|during|without|than|like|and|or|why|how|when|where)\s+)that\b(?!\s+of\b)",
    re.IGNORECASE,
)
# "Is it true that metformin …" and "Is it safe to give aspirin …" name their subject.
_EMPTY_IT = re.compile(r"\b(?:is|was|would|can|could|will)\s+it\s+(?:be\s+)?\w+\s+(?:that|to|for)\b", re.IGNORECASE)
ENOUGH_TERMS = 4  # content words with which such a question names it
# "antidote? (apixaban)": what an earlier question was asked of stands in parentheses at the end of what was searched.
_CARRIED = re.compile(r"\(([^()]*)\)\s*$")
LEAST_LETTERS = 3
_PREPOSITION = re.compile(
    r"(?:in|for|with|without|during|after|before|at|by|among|under|versus|vs|compared|than|if|when)\b", re.IGNORECASE
)
_DEFINITION = re.compile(r"(?:what|who)\s+(?:is|are|was|were|does|do|causes?)\b|define\b", re.IGNORECASE)


# What one asks of a subject that was named before.
_ATTRIBUTES = (
    "antidote dose dosage contraindication half-life onset duration interaction prognosis incidence prevalence "
    "mortality mechanism complication monitoring toxicity overdose pregnancy breastfeeding lactation alternative "
    "symptom sign cause diagnosis treatment prevention cost evidence adverse safety efficacy elderly reversal "
    "side effect amount much day"
)
SUBJECT = 0.47  # rarity of a word from which it can be a subject
SHORT = 8  # words of a question that may leave out its subject unsaid


@cache
def _attributes() -> frozenset[str]:
    return frozenset(stems(_ATTRIBUTES))


class Rewritten(NamedTuple):
    """What is searched for a question; whether a snippet `holds` both its topic and all that it asks of it."""

    text: str
    holds: bool = False


def standalone(session: Session, question: str, previous: str, answer: str, *, filter: Filter = ()) -> Rewritten:
    """Return a follow-up made to stand alone; another question stays as it is.

    `previous` is the last question as it was searched, "" of the first one, `answer` the answer to it; `filter` is that
    of the question. Raises `ServiceError` if the generator fails.
    """
    if not previous:
        return Rewritten(question)
    combined = with_topic_of(previous, question)
    holds = combined != question and _held_together(question, combined, session.search(combined, filter=filter))
    if not holds and not is_follow_up(question):
        return Rewritten(question)
    # The answer quotes documents, so the chat's own marks in it are defused.
    quoted = (defused(" ".join(text[:MOST_QUOTED].split()), tuple(session.controls)) for text in (previous, answer))
    earlier_question, earlier_answer = quoted
    template = load_template("standalone", known=FIELDS)
    prompt = template.fill(question=question, previous=earlier_question, answer=earlier_answer or "(none)")
    generation = session.generate(GenerationRequest(prompt, SCHEMA, MOST_TOKENS))
    rewrite = usable(generation.text, previous) if generation and not generation.capped else ""
    return Rewritten(rewrite or combined, holds)


def _held_together(question: str, combined: str, found: SearchResult) -> bool:
    """Return whether a hit holds a word of the topic and all that the question adds to it."""
    added = set(stems(question))
    telling, topic = {stem for stem in added if not is_common(stem)}, set(stems(combined)) - added
    hit_stems = [set(stems(hit.snippet.contents)) for hit in found.hits]
    return bool(telling) and any(telling <= words and not topic.isdisjoint(words) for words in hit_stems)


def usable(reply: str, previous: str) -> str:
    """Return the question of a reply; empty if it is blank, absurdly long, or the last question again."""
    rewrite = " ".join(parse_reply(reply).text("question").split())
    if len(rewrite) > LONGEST_REWRITE or comparable(rewrite) == comparable(previous):
        return ""
    return rewrite


def is_follow_up(question: str) -> bool:
    """Return whether a question seems to leave out its subject."""
    text = question.strip()
    words = _WORD.findall(text)
    if not words or len(words) > LONGEST:
        return False
    if _OPENING.match(text) or _THAT.search(text):
        return True
    if _EMPTY_IT.search(text) and len(terms(text)) >= ENOUGH_TERMS:
        text = _EMPTY_IT.sub(" ", text)
    return bool(_REFERRING.search(text)) or _is_fragment(text, len(words)) or _names_nothing(text, len(words))


def _names_nothing(text: str, count: int) -> bool:
    """Return whether a short question asks for something of a subject that it does not name: "how much a day?"."""
    words = (match[0] for match in _WORD.finditer(text) if match[0] not in units())  # "how much per kg?"
    named = (stem for word in words for stem in stems(word) if stem not in _attributes())
    return count <= SHORT and all(rarity(stem) < SUBJECT for stem in named)


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
        names = [*(() if _REFERRING.search(own) else _names(own)[0]), *(rare or words)]
    topic = [word for word in dict.fromkeys(names) if not terms(word) <= known][:MOST_CARRIED]
    return f"{question.strip()} ({' '.join(topic)})" if topic else question.strip()


def _names(text: str) -> tuple[list[str], list[str]]:
    """Return the rare words of a text, each once, which can be its subject, and its content words."""
    common = _attributes()
    by_terms: dict[frozenset[str], str] = {}
    for match in _WORD.finditer(text):
        if held := terms(match[0]):
            by_terms.setdefault(frozenset(held), match[0])
    words = list(by_terms.values())
    return [word for word in words if any(rarity(stem) >= SUBJECT for stem in set(stems(word)) - common)], words


def answer_in_turn(
    session: Session, question: str, rewritten: Rewritten, previous: str, answer: str, **asked: Any
) -> AnswerResult:
    """Answer a question as it was rewritten after the last one and its answer; `asked` are arguments of `Session.ask`.

    Raises as that does.
    """
    searched, holds = rewritten
    asked["answer_anyway"] = asked.get("answer_anyway") or holds or None
    if searched == question:
        return session.ask(question, **asked)
    return following(question, previous, answer, session.ask(searched, **asked))


def following(question: str, last_question: str, last_answer: str, answer: AnswerResult) -> AnswerResult:
    """Return the answer to a follow-up; withheld if its hits lack what it adds, or if it repeats the last answer.

    They lack it if they hold not a rare word that it adds, or none of its words and the answer is not sure.
    Where no hit holds one beside the topic, the answer is one that may be.
    """
    if answer.abstained or not (added := _added(question, last_question)):
        return answer
    hit_stems = [set(stems(hit.snippet.contents)) for hit in answer.hits]
    topic = set(stems(answer.question.text)).difference(stems(question))
    answer_stems = set(stems(answer.text))
    missing = [word for word in added if set().union(*hit_stems).isdisjoint(stems(word))]
    lacks_all = missing == added and answer.certainty != "answer"
    if missing and (lacks_all or any(rarity(stem) >= RARE for word in missing for stem in stems(word))):
        text = f"I found no snippet on {', '.join(missing)} here."
    elif comparable(answer.text) == comparable(last_answer) and all(
        answer_stems.isdisjoint(stems(word)) for word in added
    ):
        text = f"I found no sentence on {', '.join(added)} that answers this."
    else:
        beside = set().union(*(words for words in hit_stems if not topic.isdisjoint(words)))
        apart = topic and any(beside.isdisjoint(stems(word)) for word in added)
        return replace(answer, certainty="may") if apart and answer.certainty == "answer" else answer
    return replace(
        answer, text=text, short_answer="", items=(), sentences=(), citations=(), certainty="nothing", abstained=True
    )


def _added(question: str, last: str) -> list[str]:
    """Return the words that a follow-up adds to the last question and that say something."""
    known_stems = set(stems(last))
    words = [match[0] for match in _WORD.finditer(question) if len(match[0]) > LEAST_LETTERS]
    return [
        word
        for word in words
        if (word_stems := stems(word)) and known_stems.isdisjoint(word_stems) and not all(map(is_common, word_stems))
    ]


def _is_fragment(text: str, count: int) -> bool:
    """Return whether a few words are not a complete question: "side effects?", "in children with asthma"."""
    return count <= SHORTEST + bool(_PREPOSITION.match(text)) and not _DEFINITION.match(text)
