"""Facts of the study behind a snippet, from its record and its abstract; they are not grades."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from biorag.references.reference import texts
from biorag.types import Snippet

LARGEST = 1_000_000_000
BEGINNING = 20_000  # characters of an abstract that are read
AROUND = 100  # characters before and after a number, in which its meaning is looked for
_UNITS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = {
    **{"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50},
    **{"sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90},
}
_WORDS = {**{word: value for value, word in enumerate(_UNITS, 1)}, **_TENS}

_DIGITS = r"\d{1,3}(?:[,\u2009\u202f\u00a0 ]\d{3}){1,3}|\d+"
_SPELLED = (
    rf"(?:(?:{'|'.join(_WORDS)})[ -])?(?:{'|'.join([*_WORDS, 'hundred', 'thousand'])})"
    rf"(?:[ -](?:and[ -])?(?:{'|'.join([*_WORDS, 'hundred'])})){{0,6}}"
)
_NUMBER = rf"(?P<number>(?<![\w.,/%-])(?:{_DIGITS}|\b(?:{_SPELLED})\b)(?![\w%/]|[.,]\d|-))"
_PEOPLE = (
    r"(?:(?:in|out)?patients|participants|subjects|individuals|people|persons|adults|children|women|men|volunteers|"
    r"infants|neonates|newborns|adolescents|teenagers|girls|boys|toddlers|students|respondents|veterans|mothers|"
    r"residents|survivors|workers|nurses|physicians|smokers|athletes)\b(?![-–/]|\s+(?:per|years?|days?)\b)"
)
# Words between a number and its noun: adjectives, but nothing that makes it the number of something else.
_OTHER = (
    r"of|in|at|to|by|on|for|from|with|without|per|and|or|than|after|before|during|among|between|into|as|the|were|was|"
    r"is|are|had|who|whom|that|which|trials?|studies|rcts?|hospitals?|cent(?:er|re)s?|sites?|clinics?|countries|"
    r"centuries|years?|months?|weeks?|days?|hours?|minutes?|mg|ml|kg|cm|mm|groups?|arms?|pairs?|articles|reports|"
    r"papers|reviews|schools|families|samples|times|percent|million|billion|consecutive\s+years"
)
_ADJECTIVES = rf"(?:(?!(?:{_OTHER}|{'|'.join(_WORDS)})\b)(?:type\s[12]|[A-Za-z][\w'’-]*),?\s+){{0,5}}?"
_COUNTED = rf"{_NUMBER}\s+{_ADJECTIVES}{_PEOPLE}"
_TAKEN_IN = (
    r"enrol(?:l)?ed|recruited|included|randomi[sz]ed|randomly\s+(?:assigned|allocated)|assigned|allocated|divided|studied|"
    r"analy[sz]ed|investigated|evaluated|examined|surveyed|interviewed|followed"
)
_DID = (
    rf"(?:(?:were|was|been)\s+(?:\w+ly\s+)?(?:{_TAKEN_IN}|entered)|enrol(?:l)?ed|recruited|included|studied|examined|"
    r"investigated|participated|took\s+part|completed|underwent\s+randomi[sz]ation|entered)"
)
_SAME_CLAUSE = (
    r"(?:(?!,\s*\d+\s+(?:were|was)\b|\band\s+in\s+\d|\d\s+of\s|\b(?:median|mean)\s+number\b|"
    r"\b(?:screened|eligible|approached|invited)\b)[^.;:]){0,80}?"
)
_PATTERNS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:a\s+total\s+of|in\s+total,?|altogether,?|overall,?|in\s+all,?)\s+{_COUNTED}",
        rf"\b(?:{_TAKEN_IN})\s+(?:a\s+total\s+of\s+)?{_COUNTED}",
        rf"\b(?:sample|cohort|population|trial|study|survey|series|meta-analysis)\s+(?:of|in|involving|with|"
        rf"comprising|including)\s+(?:a\s+total\s+of\s+)?{_COUNTED}",
        rf"\b(?:trials|studies|rcts|cohorts|articles|reports)\s+(?:\([^()]*\)\s+)?(?:with|involving|including|"
        rf"comprising|enrol+ing|randomi[sz]ing|on|in)\s+(?:a\s+total\s+of\s+)?{_COUNTED}",
        rf"\b(?:PARTICIPANTS|PATIENTS|SUBJECTS|POPULATION|SETTING AND PARTICIPANTS):\s+{_COUNTED}",
        rf"{_COUNTED}{_SAME_CLAUSE}\b{_DID}\b",
    )
]
_VERB = re.compile(rf"\b(?:{_TAKEN_IN}|participated|took\s+part|completed|underwent|entered)\b", re.IGNORECASE)
_BEFORE = re.compile(  # words that make a number a share, a rate, a limit or another study's
    r"(?:\d\s+to\s+|\b(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|most|some|all|half|many|none|each|any|few)\s+(?:out\s+)?"
    r"of\s+(?:the\s+|these\s+|our\s+)?|\d\s*/\s*|\b(?:per|every|each|first|last|next|remaining|other|another|additional|"
    r"more\s+than|less\s+than|fewer\s+than|at\s+least|at\s+most|up\s+to|over|under|about|around|almost|nearly|"
    r"approximately|roughly|only|groups?\s+of|arms?\s+of|subset\s+of|subgroup\s+of|subsample\s+of|[<>≥≤~≈±]|in\s+(?:a|one))\s*)\Z",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"\b(?:previous|earlier|prior|another|will|planned|plan|aims?|intend|would|required?|needed|power(?:ed)?|calculated|"
    r"screened|assessed\s+for\s+eligibility|approached|invited|eligible|not|n't|excluded|withdrew|died|survived|admitted|dropped|"
    r"deaths|largest|controls?|each\s+(?:group|arm)|per\s+(?:group|arm)|respectively|rats|mice)\b",
    re.IGNORECASE,
)
# "120 patients to A and 118 to B": the first number is not all.
_SECOND = re.compile(
    r"\band\s+(?:(?:the\s+(?:other|remaining)|another)\s+)?(?:\d+|\w+-\w+)\s+"
    r"(?:(?:\w+\s+)?(?:were|was)\s+(?:randomly\s+)?(?:assigned|allocated|randomi[sz]ed)\s+to\b|"
    r"(?:(?!were\b|was\b)\w+\s+){0,4}?(?:to|received|in|with|controls)\b)|\bwith\s+\d+\s+(?:[\w-]+\s+){0,4}?controls?\b"
)
_YEAR_BEFORE = re.compile(r"\b(?:in|since|from|until|till|by|during|before|after|and|to|between)\s+\Z", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[\"'(\[]?[A-Z0-9])")


class Participants(NamedTuple):
    """How many people a study took in, and the words that say so, verbatim."""

    number: int
    quote: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a study, from its record and its abstract; None if unknown.

    `concern` is known of PubMed's own records, which name every notice; `retracted` if a record says either. `cited_by`
    counts the papers of the local citation graph that cite this one.
    """

    publication_types: tuple[str, ...] | None
    retracted: bool | None
    concern: bool | None
    notices: tuple[str, ...]
    corrections: tuple[str, ...]
    participants: Participants | None
    cited_by: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON; null stands for unknown."""
        people = self.participants
        return {**asdict(self), "participants": people._asdict() if people else None}


def facts_of(snippet: Snippet, cited_by: int | None = None) -> Facts:
    """Return the facts of a snippet; a block of a long abstract may lack the words that state them."""
    fields = snippet.metadata
    of_pubmed = {"version", "retracted"} <= set(fields)  # which its reader sets in every record
    concerns = texts(fields, "concern")
    return Facts(
        publication_types=texts(fields, "type") or None,
        retracted=snippet.retracted if "retracted" in fields else None,
        concern=bool(concerns) if of_pubmed or concerns else None,
        notices=(*texts(fields, "retraction"), *concerns),
        corrections=texts(fields, "errata"),
        participants=participants(snippet.content),
        cited_by=cited_by,
    )


def participants(abstract: str) -> Participants | None:
    """Return the number of participants that an abstract states; None where it states none, or several.

    Of several the largest counts, unless the same is said of another, as of two groups. A share ("12 of 45 patients"),
    a rate, a limit ("more than 100 patients"), a plan, the number screened, and one of two groups are not the number.
    """
    stated: dict[int, Participants] = {}
    ways: dict[int, set[str]] = {}
    for sentence in _SENTENCE.split(abstract[:BEGINNING]):
        for _, number, quote, way in sorted(_candidates(sentence)):
            stated.setdefault(number, Participants(number, quote))
            ways.setdefault(number, set()).add(way)
    largest = max(stated, default=0)
    others = {way for number in ways if number != largest for way in ways[number]}
    return stated[largest] if largest and ways[largest] - others else None


def _candidates(sentence: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield position, number and words of each statement of participants in a sentence, and how it says so."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(sentence):
            start, value = match.start("number"), number_of(match["number"])
            if value and not _is_something_else(sentence, match, value):
                verb = _VERB.search(match[0])
                yield start, value, " ".join(match[0].split()), verb[0].lower() if verb else pattern.pattern


def _is_something_else(sentence: str, match: re.Match[str], value: int) -> bool:
    start, end = match.start("number"), match.end()
    before, after = sentence[max(0, start - AROUND) : start], sentence[end : end + AROUND]
    if _BEFORE.search(before) or _ELSEWHERE.search(match[0]):
        return True
    if _SECOND.search(after) or _SECOND.match(sentence, max(0, start - len("and "))):
        return True
    if match["number"].isdigit() and 1900 <= value <= 2099 and _YEAR_BEFORE.search(before):
        return True
    clause = re.split(r",\s", sentence[max(0, match.start() - AROUND) : match.start()])[-1]
    return bool(_ELSEWHERE.search(" ".join(clause.split()[-4:])) or _ELSEWHERE.search(" ".join(after.split()[:4])))


def number_of(text: str) -> int:
    """Return the value of a number in digits or in English words; 0 where it is too large or not a number."""
    digits = re.sub(r"[^\d]", "", text)
    if digits:
        return int(digits) if len(digits) <= 10 and int(digits) <= LARGEST else 0
    total = group = 0
    for word in re.findall("[a-z]+", text.lower()):
        if word == "hundred":
            group = (group or 1) * 100
        elif word == "thousand":
            total, group = total + (group or 1) * 1000, 0
        else:
            group += _WORDS.get(word, 0)
    return total + group
