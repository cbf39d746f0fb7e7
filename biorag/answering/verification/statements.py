"""What an answer asserts: of a yes/no question, or by choosing an option."""

from __future__ import annotations

import re

_LEAD = re.compile(
    r"^\s*(?:is|are|was|were|does|do|did|can|could|has|have|had|should|would|will|may|might|must)\s+", re.IGNORECASE
)
_ANSWER = re.compile(
    r"^\s*(yes|no)\b\s*(?:[,.;:!–—-]+\s*|$)(?:it (?:is|does|has|can|will)(?: not)?\s*[.,;]\s*)?", re.IGNORECASE
)
_BOUNDARY = re.compile(
    r"\s(?=(?:\w+(?:ed|ing|ive|ible|able|ous|ful)|an?|the|effective|part|more|less|better|worse|higher|lower|safe|"
    r"due|present|known|useful|sufficient|necessary|caused|involved)\b)",
    re.IGNORECASE,
)


def asserted(question: str, answer: str) -> str:
    """Return the statement that answering a question asserts, for a comparison of words, not for a reader.

    A yes/no question loses its auxiliary and its mark, so that "Does aspirin prevent colds?" becomes "aspirin prevent
    colds."; for "no" it gets "not" before what is likely to be its predicate. Any other answer, such as the text of an
    option, stands after the question's words.
    """
    words = question.strip().rstrip("?").strip()
    verdict = answer.strip().lower().rstrip(".")
    if verdict not in ("yes", "no"):
        return f"{words} {answer.strip()}".strip()
    statement = _LEAD.sub("", words)
    if verdict == "yes" or not statement:
        return f"{statement}."
    boundary = _BOUNDARY.search(statement, min(len(statement), len(statement.split()[0])))
    if boundary is None:
        return f"it is not the case that {statement}."
    return f"{statement[: boundary.start()]} not{statement[boundary.start() :]}."


def is_polar(question: str) -> bool:
    """Return whether a question asks for yes or no."""
    return bool(_LEAD.match(question))


def leading_answer(sentence: str) -> tuple[str, str]:
    """Split "Yes, it was associated" into "yes" and the rest; "" where a sentence begins with neither yes nor no."""
    match = _ANSWER.match(sentence)
    return (match[1].lower(), sentence[match.end() :].strip()) if match else ("", sentence)
