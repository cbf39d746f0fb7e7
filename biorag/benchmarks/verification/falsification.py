"""True sentences made false, each in one way. Pure functions of a sentence and a random generator.

The word lists are this module's own: the measured check knows none of them. A function returns None for a sentence
without anything to change, or if the change might leave it true.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

from biorag.utils.parsing import packaged_toml

Falsifier = Callable[[str, str, random.Random], str | None]

# Under these, a changed sentence may not be false: a question, a possibility, a list of alternatives.
_OPEN = re.compile(r"\b(?:whether|if|may|might|could|unknown|unclear|not only|possibly|perhaps)\b", re.IGNORECASE)
_AUXILIARY = re.compile(
    r"\b(is|are|was|were|has been|have been|can|does|do|did|will|should)\b(?! (?:not|no|only|never)\b|n't|not\b)"
)
_LISTS = packaged_toml(__file__, "falsification.toml")
_OPPOSITES = dict(_LISTS["opposites"]) | {there: here for here, there in _LISTS["opposites"]}
_COMMON = frozenset(_LISTS["common"])
_NUMBER = re.compile(r"(?<![\w.,/<>=≤≥-])(?<![<>=≤≥] )\d+(?:\.\d+)?(?![\w]|[.,]\d|-[A-Za-z]|/)")
_ENDINGS = "mab|nib|ine|ide|cin|zole|pril|statin|vir|mycin|oma|itis|emia|aemia|osis|pathy|lysis|ase|phy|sartan|olol"
_NAMES = re.compile(
    rf"\b(?:[A-Za-z]*[A-Z][A-Za-z]*\d\w*(?:-[A-Z0-9]+)?|[A-Z][A-Z0-9]{{1,}}(?:-[A-Z0-9α-ω]+)?|[a-z]{{3,}}(?:{_ENDINGS}))\b(?![-/(])"
)


def _first(pattern: re.Pattern[str], sentence: str, rng: random.Random) -> re.Match[str] | None:
    matches = list(pattern.finditer(sentence))
    return rng.choice(matches) if matches else None


def _replaced(sentence: str, match: re.Match[str], text: str) -> str:
    return sentence[: match.start()] + text + sentence[match.end() :]


def negation(sentence: str, text: str, rng: random.Random) -> str | None:
    """Remove a negation, or put one before an assertion."""
    if _OPEN.search(sentence) or re.search(r"\bwith(?:out)? or |\bnot limited|\bnot, however", sentence):
        return None
    for pattern, plain in _LISTS["negations"]:
        changed = re.sub(pattern, plain, sentence, count=1)
        if changed != sentence:
            return changed
    if re.search(r"\b(?:no|not|nor|neither|without|n't|lack\w*|fail\w*|absen\w*|unlike\w*)\b", sentence, re.IGNORECASE):
        return None
    if match := _AUXILIARY.search(sentence):
        words = match[0].split()
        return _replaced(sentence, match, " ".join([words[0], "not", *words[1:]]))
    for forms, auxiliary in ((_LISTS["verbs"], "does not"), (_LISTS["past"], "did not")):
        if match := re.search(rf"\b(?:{'|'.join(forms)})\b", sentence):
            return _replaced(sentence, match, f"{auxiliary} {forms[match[0]]}")
    return None


def direction(sentence: str, text: str, rng: random.Random) -> str | None:
    """Replace a word of direction by its opposite."""
    match = _first(re.compile(rf"\b(?<!-)(?:{'|'.join(_OPPOSITES)})\b(?!-)"), sentence, rng)
    if match is None or re.match(r"(?:more|most|less|least) (?:than|of|important|common)", sentence[match.start() :]):
        return None
    return _replaced(sentence, match, _OPPOSITES[match[0]])


def number(sentence: str, text: str, rng: random.Random) -> str | None:
    """Change a number: ten times, a tenth, other figures, a little more."""
    match = _first(_NUMBER, sentence, rng)
    if match is None:
        return None
    old = match[0]
    value = float(old)
    if "." in old:
        choices = [f"{value * 10:g}", f"{value + rng.choice([1, 2, 5]):g}", old[:-1] + str((int(old[-1]) + 3) % 10)]
    elif 1800 < value < 2100:
        choices = [str(int(value) + rng.choice([-11, -3, 4, 9]))]
    else:
        choices = [f"{old}0", str(int(value) + rng.choice([1, 2, 7])), str(int(value) * 2 + 1)]
    there = set(_NUMBER.findall(sentence))
    fresh = [choice for choice in choices if choice not in there and float(choice) != value]
    return _replaced(sentence, match, rng.choice(fresh)) if fresh else None


def unit(sentence: str, text: str, rng: random.Random) -> str | None:
    """Replace the unit of a number by another."""
    names = "|".join(sorted(map(re.escape, _LISTS["units"]), key=len, reverse=True))
    match = _first(re.compile(rf"(?<=\d)(?P<gap>[\s-]*)(?P<unit>{names})(?![\w])"), sentence, rng)
    if match is None:
        return None
    other = rng.choice(_LISTS["units"][match["unit"]])
    gap = "" if other.startswith(("-", " ")) else match["gap"] or ("" if other == "‰" else " ")
    return _replaced(sentence, match, gap + other)


def name(sentence: str, text: str, rng: random.Random) -> str | None:
    """Put another name of the same text, and of the same form, in the place of a name.

    Names that stand side by side with "or", a slash or a bracket may be two names of one thing, and are left alone.
    """
    here = [match for match in _NAMES.finditer(sentence) if match[0] not in _COMMON and match.start() > 0]
    there = {match[0] for match in _NAMES.finditer(text)} - _COMMON
    pairs = [
        (match, other)
        for match in here
        for other in sorted(there)
        if _is_other(match[0], other) and other.lower() not in sentence.lower() and not _is_alias(match[0], other, text)
    ]
    if not pairs:
        return None
    match, other = rng.choice(pairs)
    return _replaced(sentence, match, other)


def _is_other(one: str, other: str) -> bool:
    return (
        one.islower() == other.islower()
        and one.lower()[:4] != other.lower()[:4]
        and one.lower() not in other.lower()
        and other.lower() not in one.lower()
        and (not one.islower() or one[-3:] == other[-3:])
    )


def _is_alias(one: str, other: str, text: str) -> bool:
    between = r"[\s,]*(?:[(\[/]|or |also |called |known as |i\.e\.|namely )\W*"
    pair = rf"{re.escape(one)}\)?{between}{re.escape(other)}|{re.escape(other)}\)?{between}{re.escape(one)}"
    return re.search(pair, text, re.IGNORECASE) is not None


def hedge(sentence: str, text: str, rng: random.Random) -> str | None:
    """State a possibility as certain."""
    for pattern, plain in _LISTS["hedges"]:
        changed = re.sub(pattern, plain, sentence, count=1)
        if changed != sentence:
            return changed[:1].upper() + changed[1:]
    return None


def population(sentence: str, text: str, rng: random.Random) -> str | None:
    """Ascribe a finding to another population."""
    match = _first(re.compile(rf"\b(?<!-)(?:{'|'.join(_LISTS['populations'])})\b(?!-)"), sentence, rng)
    if match is None:
        return None
    others = [other for other in _LISTS["populations"][match[0]] if other.lower() not in sentence.lower()]
    return _replaced(sentence, match, rng.choice(others)) if others else None


FALSIFIERS: Mapping[str, Falsifier] = {
    "negation": negation,
    "direction": direction,
    "number": number,
    "unit": unit,
    "name": name,
    "hedge": hedge,
    "population": population,
}
OTHER = "other snippet"  # the eighth kind: a true sentence, held against snippets that it does not come from
KINDS: Sequence[str] = (*FALSIFIERS, OTHER)
