"""Near misses of true sentences: pure functions of a sentence and a random generator.

Each says what was exchanged, so that evidence can be changed alike: then the near miss is true and the sentence is not,
and a claim alone does not tell its label.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from biorag.answering.reversal import LISTS, any_of, denied, exclusive, replaced, undenied
from biorag.types import ClaimLabel

Names = Mapping[str, Sequence[str]]  # names by their kind; see `kind_of`

_LISTS = tomllib.loads((files("biorag.training.claims") / "making.toml").read_text(encoding="utf-8"))


class Change(NamedTuple):
    """A near miss, what evidence of the sentence does to it, and the words that were exchanged, by those before.

    Without words, evidence is changed alike only where the sentence itself stands in it.
    """

    text: str
    label: ClaimLabel
    words: Mapping[str, str]


Changer = Callable[[str, random.Random, Names], Change | None]


_OPPOSITES = exclusive(group for groups in LISTS["opposites"].values() for group in groups)
_POPULATIONS = exclusive(_LISTS["populations"])
_STRONGER: dict[str, list[str]] = {hedged: [plain] for hedged, plain in _LISTS["stronger"].items()}
_PATTERNS = [(any_of(words), words) for words in (_OPPOSITES, _POPULATIONS, _STRONGER)]
_NUMBER = re.compile(r"(?<![\w.,/-])\d+(?:\.\d+)?(?![\w/'′-]|[.,]\d)")
_NAME = re.compile(
    r"(?<![\w-])(?:[A-Za-z]*[A-Z][A-Za-z]*\d[\w-]*|[A-Z]{2,6}(?:-[A-Z0-9]+)?"
    r"|[a-z]{4,}(?:mab|nib|zole|pril|statin|vir|mycin|sartan|olol|amine|cillin|gliptin|parin|itis|emia|osis|pathy))"
    r"(?![\w-])"
)
_NO_NAMES = frozenset(_LISTS["no_names"].split())
_SYMMETRIC = re.compile(r"(?:associat|correlat|interact|combin|compar|differ|similar|relat)\w*|\bbetween\b|\bboth\b")
_DENIAL = re.compile(r"\b(?:not|no|nor|neither|never|without|cannot|fail\w*|lack\w*|absence|only)\b", re.IGNORECASE)
YEARS = range(1800, 2101)


def direction(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Exchange a word of direction, degree or order for its opposite."""
    return _exchanged_word(sentence, rng, *_PATTERNS[0], "contradicts")


def population(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Exchange the people or animals for others, of whom the evidence says nothing."""
    return _exchanged_word(sentence, rng, *_PATTERNS[1], "neither")


def hedge(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Drop a hedge, or make a correlation a cause."""
    return _exchanged_word(sentence, rng, *_PATTERNS[2], "neither")


def number(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Exchange a number for another of about as many digits, a year for one near it."""
    if not (numbers := _NUMBER.findall(sentence)):
        return None
    old = rng.choice(numbers)
    value, decimals = float(old), len(old.partition(".")[2])
    other = value + rng.choice([-9, -4, 3, 6]) if value in YEARS else value * rng.choice([0.1, 0.5, 2, 3, 10])
    new = f"{other:.{decimals}f}"
    return None if new in numbers else _change(sentence, {old: new}, "contradicts")


def exchange(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Let two names exchange places, unless they are listed together, alike, or the relation holds both ways."""
    own = sorted(set(names_of(sentence)))
    if len(own) < 2 or _SYMMETRIC.search(sentence):
        return None
    one, other = rng.sample(own, 2)
    either = rf"(?:{re.escape(one)}|{re.escape(other)})"
    if re.search(rf"{either}\W*(?:and|or|with|versus)?\W*{either}|\(\s*{either}", sentence):
        return None
    return _change(sentence, {one: other, other: one}, "contradicts")


def other_name(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Exchange a name for another of its kind, of which the evidence says nothing."""
    if not (own := names_of(sentence)):
        return None
    old = rng.choice(own)
    others = [name for name in names.get(kind_of(old), ()) if name.lower() not in sentence.lower()]
    return _change(sentence, {old: rng.choice(others)}, "neither") if others else None


def negation(sentence: str, rng: random.Random, names: Names) -> Change | None:
    """Deny a sentence that has no other denial, or drop its one denial."""
    text = None
    if len(_DENIAL.findall(sentence)) == 1:
        text = undenied(sentence)
    elif not _DENIAL.search(sentence):
        text = denied(sentence, rng.choice(["not", "not", "never"]), rng.choice([0, 1]))
    return Change(text, "contradicts", {}) if text else None


CHANGERS: dict[str, Changer] = {
    "direction": direction,
    "negation": negation,
    "number": number,
    "exchange": exchange,
    "name": other_name,
    "hedge": hedge,
    "population": population,
}


def changed_alike(change: Change, sentence: str, evidence: Sequence[str]) -> tuple[str, ...] | None:
    """Return evidence in which the near miss is as true as the sentence was before; None if nothing can be changed."""
    changed = tuple(change.text if text == sentence else replaced(text, change.words) for text in evidence)
    return changed if changed != tuple(evidence) else None


def names_of(sentence: str) -> list[str]:
    """Return the genes, drugs, diseases and abbreviations of a sentence, as they are recognised by their form."""
    return [name for name in _NAME.findall(sentence) if name not in _NO_NAMES]


def kind_of(name: str) -> str:
    """Return the kind of a name by its form: the ending of a word; of a symbol, whether it has a digit."""
    return name[-3:] if name.islower() else "numbered" if any(map(str.isdigit, name)) else "letters"


def names_by_kind(texts: Iterable[str]) -> Names:
    """Return the names of texts by kind."""
    kinds: dict[str, list[str]] = {}
    for name in sorted({name for text in texts for name in names_of(text)}):
        kinds.setdefault(kind_of(name), []).append(name)
    return kinds


def _exchanged_word(
    sentence: str, rng: random.Random, pattern: re.Pattern[str], words: Mapping[str, list[str]], label: ClaimLabel
) -> Change | None:
    """Return the sentence with one of the words that the pattern finds exchanged for another that excludes it."""
    if not (own := pattern.findall(sentence)):
        return None
    old = rng.choice(own)
    new = rng.choice(words.get(old) or words[old.lower()])
    return None if any_of([new]).search(sentence) else _change(sentence, {old.lower(): new}, label)


def _change(sentence: str, words: Mapping[str, str], label: ClaimLabel) -> Change:
    return Change(replaced(sentence, words), label, words)
