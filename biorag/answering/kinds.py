"""What kind of answer a question asks for, by its words: yes or no, a fact, a list or a summary."""

from __future__ import annotations

import re

from biorag.types import Kind

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


_NUMBER = re.compile(
    r"\bhow (?:many|much|often|long|old|common|large|big|high|tall|far|soon|fast)\b|%|\bmg\b|\bone in\b|\bsince when\b"
    r"|\b(?:dos(?:e|es|age|ing)|percent\w*|proportion|share|prevalence|incidence|frequency|half-life|survival|rates?"
    r"|cost|price)\b|\b(?:what|which) (?:\w+ )?(?:year|age|date)\b",
    re.IGNORECASE,
)


def asks_number(question: str) -> bool:
    """Return whether a question seems to ask for a number: a dose, a share, a time."""
    return bool(_NUMBER.search(question))


def kind_of(question: str) -> Kind:
    """Return the kind of answer that a question asks for, as BioASQ has it: yesno, factoid, list or summary."""
    if _YES_OR_NO.search(question) or (_YES_NO.match(question) and not _WHICH.search(question)):
        return "yesno"
    if _SUMMARY.match(question):
        return "summary"
    return "list" if _LIST.match(question) else "factoid"
