"""What kind of answer a question asks for, by its words: yes or no, a fact, a list or a summary."""

from __future__ import annotations

import re
from functools import lru_cache

from biorag.types import AnswerKind

LIST_HITS = 10
_YES_NO = re.compile(
    r"\W*(?:(?:in|for|among|at|during|with|on|after|before)\b[^?]*?, )?"
    r"(?:is|are|was|were|do|does|did|can|could|has|have|had|should|would|will|may|might|must|am)\b",
    re.IGNORECASE,
)
# "Was it more frequent with A or with B?" asks which.
_WHICH = re.compile(
    r"\b(?:more|less|better|worse|earlier|later|\w{2,}er)\b.*\bor (?:with|in|by|after|on|for|during)\b", re.IGNORECASE
)
_YES_OR_NO = re.compile(r"\b(?:yes or no|true or false)\W*$|\?\s*\(?yes/no", re.IGNORECASE)
_VERBS = (  # that end as plural nouns do: "what blocks vitamin K?" asks for one
    r"(?:blocks|inhibits|causes|regulates|activates|mediates|triggers|treats|drives|induces|prevents|makes|predicts"
    r"|controls|encodes|happens|contains|produces|reduces|increases)\b"
)
_LIST = re.compile(
    r"\W*(?:(?:please |can you |could you )*(?:list|enumerate|provide|give|mention)\b|name(?! (?:one|an?)\b)"
    r"|(?:which|what) (?:are|were|other|have)\b"
    r"|(?:for |in |by |to |with |as of \d+, )?(?:which|what) (?:[\w-]+ ){1,4}?(?:are|were|have|do)\b"
    rf"|(?:for |in |by |to |with )?(?:which|what) (?:(?!does|is|was|has|{_VERBS})[\w-]+ ){{0,2}}?"
    rf"(?!does|{_VERBS})[\w-]{{2,}}[^\Wsui]s"
    r"(?! (?:is|was|has|does|the|an?|in|of|[\w-]+(?:tion|ity|ness))\b)\b [\w-]*[^\Ws]\b)",
    re.IGNORECASE,
)
_SUMMARY = re.compile(
    r"\W*(?:how(?! (?:many|much|often|long|old|common|frequent|large|big|high)\b)|why|describe|explain|define|please"
    r"|what (?:is|are|was|were) (?:the |a |an )?(?:mechanism|mode|roles?|functions?|rationale|effects?|differences?"
    r"|use|aim|goal|purpose|principle|importance|significance|indication|association|relation|relationship|link"
    r"|evidence|status|basis|outcome|consequence|main|definition|clinical)\b"
    r"|what (?:is (?:\S+ ?){1,4}|are \S+ ?\S*)\?$|what do(?:es)? .* (?:do|mean)\b|what is known)",
    re.IGNORECASE,
)


# What a question asks for, and what a text that answers it has: a dose, a share, a time, a date, or any number.
_NUMBER = r"(?:\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|half|third|quarter|once|twice)\b)"
_NUMBERS = tuple(
    (re.compile(asked, re.IGNORECASE), re.compile(held, re.IGNORECASE))
    for asked, held in (
        (
            r"\bdos(?:e|es|age|ing)\b|\bmg\b|\bmilligrams?\b",
            rf"{_NUMBER}[\s-]?(?:k?g|mg|[µmu]c?g|ng|ml|l|iu|units?|m?mol|gy)\b",
        ),
        (
            r"\b(?:percent\w*|proportion|share|prevalence|incidence|rates?|how (?:common|frequent))\b|%",
            rf"{_NUMBER}\s?(?:%|per\s?cent)|{_NUMBER}(?: out)? (?:of|in) (?:the )?{_NUMBER}|\d/\d|\bper [\d,]+",
        ),
        (
            r"\bhow (?:long|soon|fast)\b|\bhalf-life\b|\bhow many (?:hour|day|week|month|year)s\b",
            rf"{_NUMBER}[\s-]?(?:s|sec\w*|min\w*|h|hr?s?|hours?|d|days?|w|wks?|weeks?|mo|months?|y|yrs?|years?)\b",
        ),
        (
            r"\b(?:what|which) (?:\w+ )?(?:year|date)\b|\bsince when\b|\bwhen (?:was|were|did)\b",
            r"\b(?:1[789]|20)\d\d\b",
        ),
        (
            r"\bhow (?:many|much|often|old|large|big|high|tall|far)\b|\bone in\b|\bsurvival\b|\bcost\b|\bprice\b"
            r"|\b(?:what|which) (?:\w+ )?age\b",
            _NUMBER,
        ),
    )
)


def lacks_number(question: str, text: str) -> bool:
    """Return whether a question asks for a dose, a share, a time, a date or another number, and a text has none."""
    return any(not held.search(text) for held in _numbers_asked(question))


@lru_cache(maxsize=1 << 8)
def _numbers_asked(question: str) -> tuple[re.Pattern[str], ...]:
    """Return what the numbers look like that a question asks for; it is put to many sentences."""
    return tuple(held for asked, held in _NUMBERS if asked.search(question))


def kind_of(question: str) -> AnswerKind:
    """Return the kind of answer that a question asks for, as BioASQ has it: yesno, factoid, list or summary."""
    if _YES_OR_NO.search(question) or (_YES_NO.match(question) and not _WHICH.search(question)):
        return "yesno"
    if _SUMMARY.match(question):
        return "summary"
    return "list" if _LIST.match(question) else "factoid"
