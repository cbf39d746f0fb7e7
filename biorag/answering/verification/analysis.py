"""A sentence as it is compared: its content words, the cues that negate, hedge or plan them, and their direction."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from biorag.answering.verification.aliases import Aliases, merged
from biorag.answering.verification.cues import cues, general, lexicon, rarity, read_list
from biorag.answering.verification.words import Word, WordKind, stem, words

REACH = 6  # content words that a cue governs at most
NEAR = 3  # content words within which a negation undoes that of a prefix
RELATIVE = 5  # words within which a relative pronoun stands before its negation
REPORTING_WEIGHT = 0.05
LEAST_WEIGHT = 0.02
GENERAL_SHARE = 0.5  # of its weight that a word of general English keeps
LISTING = frozenset({"and", "or"})
JOINING = frozenset({"and", "or", ",", "/", "the", "&"})
CLOSING = frozenset(";:.?!")
SEPARATING = frozenset(",;:.?!()[]–—")
ARM_JOINING = frozenset({"and", "or", "than", "versus", "vs", "compared", "whereas", "while", "but", ",", ";"})
ALL, BOTH, THAN, RESPECTIVELY = "all", "both", "than", "respectively"
NEGATING = ("un", "in", "im", "ir", "il", "non", "dis", "ab", "mis", "contra")  # prefixes of which one reverses a word
SHORTEST_BASE = 5  # letters of a stem from which a prefix is taken to negate it
COMPARED = (WordKind.CONTENT, WordKind.NAME, WordKind.NUMBER)
Directions = frozenset[tuple[str, int]]


class CueKind(StrEnum):
    """What a cue does to the words in its scope."""

    NEGATION = "negation"
    HEDGE = "hedge"
    AIM = "aim"


@dataclass(frozen=True, slots=True)
class Scope:
    """A cue and the content words that it governs, by their positions among the content words, the nearest first."""

    kind: CueKind
    targets: tuple[int, ...]
    restricting: bool = False  # it stands in a clause that says of which things the sentence speaks: "that has not"


@dataclass(frozen=True, slots=True)
class ContentWord(Word):
    """A word that is compared, as it stands in its sentence.

    Attributes
    ----------
    weight : how rare it is, 0 to 1
    denied : whether an odd number of negations governs it, its own prefix among them
    segment : the number of the part of the sentence between commas and brackets that it stands in
    side : the number of the part between what joins the arms of a comparison, such as "and" and "than"
    sentence : the number of its sentence
    after_by : whether "by" stands right before it, as before the agent of a passive
    joined : whether "and", "or" or a comma alone stands between it and the content word before
    alternative : whether "or" alone does
    quantifier : how many of it are meant: "all", "most", "some", "few", "one"; "" if nothing says so
    """

    weight: float = 0.0
    denied: bool = False
    segment: int = 0
    side: int = 0
    sentence: int = 0
    after_by: bool = False
    joined: bool = False
    alternative: bool = False
    quantifier: str = ""


@dataclass(frozen=True, slots=True)
class Analysis:
    """One or two neighbouring sentences.

    Attributes
    ----------
    content : the words that are compared
    scopes : the cues, with positions in `content`
    compared : the positions of the words that follow "than"
    coupled : whether two things are named together or counted
    certain : the words such as "prove" and "only", which claim certainty or exclude the rest, or speak of all or both
    """

    content: tuple[ContentWord, ...] = ()
    scopes: tuple[Scope, ...] = ()
    compared: tuple[int, ...] = ()
    coupled: bool = False
    certain: frozenset[str] = frozenset()

    @property
    def hedged(self) -> bool:
        """Whether it has a hedge."""
        return any(scope.kind is CueKind.HEDGE for scope in self.scopes)

    @property
    def aims(self) -> bool:
        """Whether it tells an aim or a hypothesis."""
        return any(scope.kind is CueKind.AIM for scope in self.scopes)

    def followed_by(self, other: Analysis) -> Analysis:
        """Return this and the next sentence as one."""
        count = len(self.content)
        segments = max((word.segment for word in self.content), default=0) + 1
        sentences = max((word.sentence for word in self.content), default=0) + 1
        moved_words = (
            replace(word, segment=word.segment + segments, sentence=word.sentence + sentences) for word in other.content
        )
        moved_scopes = (replace(scope, targets=tuple(n + count for n in scope.targets)) for scope in other.scopes)
        return Analysis(
            (*self.content, *moved_words),
            (*self.scopes, *moved_scopes),
            self.compared + tuple(n + count for n in other.compared),
            self.coupled or other.coupled,
            self.certain | other.certain,
        )


@cache
def _lists() -> dict[str, Any]:
    return read_list("direction.toml")


@cache
def _directions() -> dict[str, Directions]:
    directions: dict[str, set[tuple[str, int]]] = {}
    for axis, sides in _lists()["axes"].items():
        for side, sign in (("up", 1), ("down", -1)):
            for word in sides[side]:
                directions.setdefault(stem(word), set()).add((axis, sign))
    return {key: frozenset(pairs) for key, pairs in directions.items()}


@cache
def denials() -> frozenset[str]:
    """Return the stems of words that deny without negating: "deficiency", "inverse"."""
    return frozenset(map(stem, cues().denials))


def directions(word: Word) -> Directions:
    """Return the axes on which a word points, each with +1 or -1."""
    return _directions().get(word.key, frozenset()) if word.kind in (WordKind.CONTENT, WordKind.NAME) else frozenset()


def carries_direction(word: Word) -> bool:
    """Return whether a word points on an axis that findings are told by, such as amount or activity."""
    return any(axis in _lists()["core"] for axis, _ in directions(word))


def opposed(one: Word, other: Word) -> bool:
    """Return whether two words point in opposite ways."""
    theirs = directions(other)
    by_prefix = any(
        _negates(*pair)
        for pair in ((one.key, other.key), (other.key, one.key), (one.text, other.text), (other.text, one.text))
    )
    return one.key != other.key and (by_prefix or any((axis, -sign) in theirs for axis, sign in directions(one)))


def _negates(one: str, other: str) -> bool:
    """Return whether a word or stem is another one after a negating prefix: "abnormal", "normal"."""
    return len(other) >= SHORTEST_BASE and any(one == prefix + other for prefix in NEGATING)


def aligned(one: Word, other: Word) -> bool:
    """Return whether two words point the same way on an axis, and on none in opposite ways."""
    return bool(directions(one) & directions(other)) and not opposed(one, other)


@lru_cache(maxsize=1 << 14)
def analyse(sentence: str, aliases: Aliases = ()) -> Analysis:
    """Return the analysis of one sentence."""
    tokens = merged(words(sentence), aliases)
    lower = [word.text.lower().replace("’", "'") for word in tokens]
    spans = list(_cue_spans(lower))
    governing = {position for start, length, _ in spans for position in range(start, start + length)}
    places = [position for position, word in enumerate(tokens) if word.kind in COMPARED and position not in governing]
    scopes = tuple(_scopes(lower, spans, places))
    if lower and lower[-1] == "?":
        scopes += (Scope(CueKind.AIM, tuple(range(len(places)))),)
    return Analysis(
        tuple(_content(tokens, lower, places, scopes)),
        scopes,
        _compared(lower, places),
        not cues().coupled.isdisjoint(lower),
        frozenset(_certain(lower, spans)),
    )


def _content(
    tokens: Sequence[Word], lower: Sequence[str], places: Sequence[int], scopes: Sequence[Scope]
) -> Iterator[ContentWord]:
    """Yield the content words, which stand at these places among the tokens."""
    marks = [position for position, word in enumerate(tokens) if word.text in SEPARATING]
    joints = [position for position, word in enumerate(lower) if word in ARM_JOINING]
    governed = [scope.targets for scope in scopes if scope.kind is CueKind.NEGATION]
    # "not ineffective" is effective; "not prolong survival in patients previously untreated" treats nobody.
    denials = {reach: Counter(n for targets in governed for n in targets[:reach]) for reach in (REACH, NEAR)}
    for n, (before, position) in enumerate(zip([-1, *places], places, strict=False)):
        word, between = tokens[position], lower[before + 1 : position]
        yield ContentWord(
            *(word.text, word.start, word.end, word.key, word.kind, word.negated, word.value),
            weight=_weight(word),
            denied=(denials[NEAR if word.negated else REACH][n] % 2 == 1) != word.negated,
            segment=bisect_left(marks, position),
            side=bisect_left(joints, position),
            after_by="by" in lower[max(0, position - 2) : position],
            joined=before >= 0 and bool(between) and JOINING.issuperset(between),
            alternative=between == ["or"],
            quantifier=_quantifier(lower, position),
        )


def _certain(lower: list[str], spans: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    """Yield the stems of words of certainty, but not that of "only" in "not only"."""
    passed = {
        position for start, length, name in spans if name == "pseudo" for position in range(start, start + length)
    }
    for position, word in enumerate(lower):
        if position not in passed and cues().certain.match(lower, position):
            yield stem(word)
        elif word in (BOTH, RESPECTIVELY):
            yield word
        elif word in cues().universal:
            yield ALL


def _quantifier(lower: Sequence[str], position: int) -> str:
    """Return the group of the quantifier before a word: right before it, or before its article or "of"."""
    named = (cues().quantifiers.get(word, "") for word in reversed(lower[max(0, position - 3) : position]))
    before = lower[position - 1] if position else ""
    return next(named, "") if before not in ("of", "the", "these", "those") else next(filter(None, named), "")


def _compared(lower: Sequence[str], places: Sequence[int]) -> tuple[int, ...]:
    """Return the content word that follows the first "than", if there is one."""
    return (bisect_left(places, lower.index(THAN)),) if THAN in lower else ()


def _weight(word: Word) -> float:
    if word.kind is WordKind.NUMBER:
        return 1.0
    if word.text.lower() in lexicon().reporting:
        return REPORTING_WEIGHT
    weight = max(LEAST_WEIGHT, rarity(word.key))
    return weight * GENERAL_SHARE if word.kind is WordKind.CONTENT and word.key in general() else weight


def _cue_spans(lower: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the cues of a sentence: where each begins, how many words it has, and the list that it stands in."""
    position, negated = 0, False
    while position < len(lower):
        length, name = max(
            ((phrases.match(lower, position), name) for name, phrases in cues().scoped.items()),
            key=lambda pair: pair[0],
        )
        # "nor" carries on a negation: "neither A nor B" negates each once. "No, ..." answers a question.
        carries_on = lower[position] == "nor" and negated
        answers = lower[position] == "no" and lower[position + 1 : position + 2] == [","]
        if length and not carries_on and not answers:
            yield position, length, name
        negated = (negated and lower[position] not in CLOSING) or (length > 0 and name in ("before", "determiners"))
        position += max(length, 1)


def _scopes(lower: list[str], spans: Sequence[tuple[int, int, str]], places: Sequence[int]) -> Iterator[Scope]:
    kinds = {"hedges": CueKind.HEDGE, "aims": CueKind.AIM}
    # A scope ends with its clause, and before a termination.
    ends = [position for position, word in enumerate(lower) if word in CLOSING or word in cues().terminations]
    # "No nucleus and cannot divide": the next cue of a list begins a scope of its own.
    listed = [start for start, _, name in spans if name != "pseudo" and start and lower[start - 1] in LISTING]
    for start, length, name in spans:
        if name == "pseudo":
            continue
        end = start + length
        first, here = bisect_left(places, end), bisect_left(places, start)
        stop = min(_next(ends, end, len(lower)), _next(listed, end, len(lower)) - 1)
        targets = [n for n in range(first, min(first + REACH, len(places))) if places[n] <= stop]
        opening = ends[bisect_left(ends, start) - 1] if ends and ends[0] < start else -1
        before = [n for n in range(here - 1, max(here - REACH - 1, -1), -1) if places[n] > opening]
        if name == "after":
            targets = before
        elif name == "determiners":
            targets += [n for n in before[:1] if places[n] >= start - 2]
        yield Scope(kinds.get(name, CueKind.NEGATION), tuple(targets), _restricts(lower, start))


def _next(places: Sequence[int], start: int, otherwise: int) -> int:
    """Return the first of the places, in their order, from `start` on."""
    index = bisect_left(places, start)
    return places[index] if index < len(places) else otherwise


def _restricts(lower: list[str], start: int) -> bool:
    """Whether a relative clause without a comma before it leads there: "schizophrenia that has not responded"."""
    before = lower[max(0, start - RELATIVE) : start]
    places = [position for position, word in enumerate(before) if word in ("that", "who", "whose", "which")]
    return bool(places) and places[-1] > 0 and SEPARATING.isdisjoint(before[places[-1] - 1 :])
