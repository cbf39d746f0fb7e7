"""Yes, no or neither: what the sentences of the evidence say of a yes/no question, and which of them decides.

Each sentence gets features beside the question: what it negates (NegEx scopes; see `verification.analysis`), whether it
points the other way, names another of a category or reports a null result, how it is hedged. A multinomial logistic
regression weighs their mean over the most relevant sentences; as it is linear, it says of each sentence alone, too,
which side it is on. `scripts/fit_yes_no.py` fits the coefficients of `yes_no.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.answering.verification.analysis import Analysis, ContentWord, analyse, opposed
from biorag.answering.verification.cues import general
from biorag.types import Vectors
from biorag.utils.parsing import packaged_toml

POLAR = ("yes", "no", "maybe")  # in the order of the log-odds
YES, NO, MAYBE = range(3)
TOP = 5  # sentences that count
TEMPERATURE = 0.3  # of the weights of these sentences, in units of their scores
PLAN = 0.3  # share of its weight that a sentence keeps which asks, or tells an aim
PLAINLY = 0.61  # probability from which yes or no is said
PLAIN = 0.65  # probability from which a single sentence is on a side
CUES = (
    *("null_result", "insignificant", "equal", "unlikely", "unclear", "contrast"),
    *("affirm", "conclusion", "significant"),
)
FEATURES = (
    *("denied_share", "denied_general", "denied_name", "denies", "denies_covering", "grants_denied", "opposed"),
    *("exchanged", "coverage", "hedged", *CUES),
)
NAMED = 0.5  # weight of a word from which it can be a side of a comparison
_COMPARING = re.compile(  # not "A was compared with B", which tells a design
    r"\b(?:than|superior to|inferior to|as \w+ as|(?<!was )(?<!were )compared (?:with|to)|versus|vs)\b", re.IGNORECASE
)
_STUDIED = r"(?:studied|evaluated|investigated|assessed|examined|tested|established)\b"
_UNSTUDIED = re.compile(rf"\b(?:not|never)(?: yet)?(?: been)?(?: \w+ly)? {_STUDIED}", re.IGNORECASE)
_WORD = re.compile(r"[a-z][a-z-]*[a-z]")


@dataclass(frozen=True, slots=True)
class YesNoLead:
    """What the evidence says of a yes/no question.

    Attributes
    ----------
    answer : "yes", "no", or "unclear" where the evidence does not say plainly
    probability : of "yes", "no" and "maybe"; they sum to 1
    deciding : the most relevant sentence on the side of the answer
    other : a sentence of another snippet that is plainly on the other side, if there is one
    """

    answer: str
    probability: Mapping[str, float]
    deciding: EvidenceSentence
    other: EvidenceSentence | None = None


@dataclass(frozen=True, slots=True)
class _Model:
    cues: Mapping[str, re.Pattern[str]]
    categories: Mapping[str, str]
    coefficients: Vectors  # (3, features)
    intercepts: Vectors  # (3,)


@cache
def _model() -> _Model:
    lists = packaged_toml(__file__, "yes_no.toml")
    return _Model(
        {name: re.compile(rf"(?<![\w-])(?:{'|'.join(lists['cues'][name])})(?!\w)") for name in CUES},
        {word: name for name, words in lists["categories"].items() for word in words},
        np.array([lists["model"]["coefficients"][name] for name in FEATURES]).T,
        np.array(lists["model"]["intercepts"]),
    )


def yes_no_lead(question: str, rows: Sequence[EvidenceSentence], relevance: Vectors) -> YesNoLead | None:
    """Return the lead of a yes/no question by its evidence; None without evidence.

    `relevance` is that of the rows, (sentences,); larger is nearer.
    """
    if not rows:
        return None
    top, log_odds, weights = judged(question, rows, relevance)
    chances = softmax(weights @ log_odds)
    yes, no = chances[YES] / (chances[YES] + chances[NO]), chances[NO] / (chances[YES] + chances[NO])
    side = YES if yes >= no else NO
    best = deciding_sentence(log_odds, weights, side)
    deciding, signs = top[best], np.array([softmax(row[:MAYBE])[1 - side] for row in log_odds])
    # The sentence that is shown first has to say what the answer says.
    is_plain = (
        max(yes, no) >= PLAINLY
        and 1 - signs[best] >= PLAIN
        and compares_alike(question, rows[deciding].text)
        and tells_results(question, rows[deciding].text)
    )
    others = [n for n, sign in enumerate(signs) if sign >= PLAIN and rows[top[n]].n != rows[deciding].n]
    other = rows[top[max(others, key=lambda n: weights[n] * signs[n])]] if others else None
    probability = dict(zip(POLAR, chances.tolist(), strict=True))
    return YesNoLead(POLAR[side] if is_plain else "unclear", probability, rows[deciding], other)


def compares_alike(question: str, text: str) -> bool:
    """Whether a sentence compares the sides of a question that compares, in its order; true of another question.

    "Dupilumab (11 %) than velnacitinib (2 %)" does not say whether velnacitinib causes more than dupilumab.
    """
    asked, said = _sides(question), _sides(text)
    if not asked or not said:
        return not asked
    exchanged = (asked[0] & said[1]) - said[0] | (asked[1] & said[0]) - said[1]
    return not exchanged


def tells_results(question: str, text: str) -> bool:
    """Whether a sentence does not only say that something "has not been studied", unless that is asked."""
    return not _UNSTUDIED.search(text) or bool(re.search(_STUDIED, question, re.IGNORECASE))


def _sides(text: str) -> tuple[set[str], set[str]] | None:
    """Return the telling words before and after the word that compares them; None without one."""
    if not (match := _COMPARING.search(text)):
        return None
    before, after = (analyse(part).content for part in (text[: match.start()], text[match.end() :]))
    return _names(before), _names(after)


def _names(words: Sequence[ContentWord]) -> set[str]:
    return {word.key for word in words if word.weight >= NAMED and word.key not in general() and word.key[0] != "#"}


def judged(question: str, rows: Sequence[EvidenceSentence], relevance: Vectors) -> tuple[list[int], Vectors, Vectors]:
    """Return the rows that count, best first, their log-odds of yes, no and maybe, and their weights.

    The log-odds are (sentences, 3), the weights (sentences,) sum to 1; `weights @ log_odds` are the question's.
    """
    top, features, weights = weighted_features(question, rows, relevance)
    model = _model()
    return top, features @ model.coefficients.T + model.intercepts, weights


def deciding_sentence(log_odds: Vectors, weights: Vectors, side: int) -> int:
    """Return which sentence speaks most for a side, by its weight and its chance of that side; see `judged`."""
    return int(np.argmax([weight * softmax(row)[side] for weight, row in zip(weights, log_odds, strict=True)]))


def weighted_features(
    question: str, rows: Sequence[EvidenceSentence], relevance: Vectors
) -> tuple[list[int], Vectors, Vectors]:
    """Return the rows that count, best first, their features, (sentences, features), and weights, (sentences,)."""
    top = [int(index) for index in np.argsort(-relevance, kind="stable")[:TOP]]
    asked = analyse(question)
    features: Vectors = np.array([sentence_features(question, asked, rows[index]) for index in top])
    weights = np.exp((relevance[top] - relevance[top[0]]) / TEMPERATURE)
    weights *= [PLAN if _plans(rows[index].text) else 1.0 for index in top]
    return top, features, weights / weights.sum()


def _plans(text: str) -> bool:
    return text.rstrip().endswith("?") or analyse(text).aims


def sentence_features(question: str, asked: Analysis, row: EvidenceSentence) -> list[float]:
    """Return the features of a sentence in the order of `FEATURES`; what its title names, it need not say again."""
    said, lower, words = analyse(row.text), row.text.lower(), frozenset(_WORD.findall(question.lower()))
    keys = {word.key for word in said.content}
    in_question = {word.key for word in asked.content}
    named = {word.key for word in analyse(row.title).content} if keys & in_question else set()
    coverage = _share(asked, keys | named)
    already = {word.key for word in asked.content if word.denied}
    denied = {word.key for word in said.content if word.denied} - already
    grants = any(word.key in already and not word.denied for word in said.content)
    lacking = [word for word in asked.content if word.key not in keys]
    own = [word for word in said.content if word.key not in in_question]
    return [
        _share(asked, denied),
        float(bool(denied & in_question & general())),
        float(bool((denied & in_question) - general())),
        float(bool(denied)),
        coverage * _denies_what_is_asked(said, in_question, already),
        float(grants),
        float(any(opposed(word, other) for word in lacking for other in own)),
        float(_exchanges(words, frozenset(_WORD.findall(lower)))),
        coverage,
        float(said.hedged),
        *(float(bool(_model().cues[name].search(lower))) for name in CUES),
    ]


def _denies_what_is_asked(said: Analysis, in_question: set[str], already: set[str]) -> bool:
    """Whether a sentence denies a word before its last one of the question, or one of general English after that.

    Not "the trial was stopped early for lack of funding", asked whether it was stopped early.
    """
    last = max((n for n, word in enumerate(said.content) if word.key in in_question), default=-1)
    return any(
        word.denied and word.key not in already and (n < last or word.key in general())
        for n, word in enumerate(said.content)
    )


def _share(asked: Analysis, keys: set[str]) -> float:
    """Return the share of the question's words that are among `keys`, rare ones weighing more."""
    total = sum(word.weight for word in asked.content)
    return sum(word.weight for word in asked.content if word.key in keys) / total if total else 0.0


def _exchanges(asked: frozenset[str], said: frozenset[str]) -> bool:
    """Whether a sentence names another of a category ("recessive") and not the question's ("dominant")."""
    categories = _model().categories
    replaced = {categories[word] for word in asked - said if word in categories}
    return any(categories.get(word) in replaced for word in said - asked)


def softmax(log_odds: Vectors) -> Vectors:
    """Return probabilities of log-odds along the last axis."""
    powers = np.exp(log_odds - log_odds.max(axis=-1, keepdims=True))
    chances: Vectors = powers / powers.sum(axis=-1, keepdims=True)
    return chances
