"""The arms of a comparison, "49 % with A and 32 % with B": to which of them each number belongs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from biorag.answering.verification.alignment import ClaimComparison
from biorag.answering.verification.analysis import RESPECTIVELY, Analysis
from biorag.answering.verification.words import WordKind

SLACK = 2  # words by which the first arm's name may be longer than the second's, where names stand before numbers


class Arm(NamedTuple):
    """The numbers of an arm, by their positions among the content words, and the keys of the words that name it."""

    numbers: tuple[int, ...]
    names: frozenset[str]


def arms(text: Analysis) -> list[Arm]:
    """Return the parts of a text, between "and", "than" or a comma, that have a number and, after or before it, a name.

    What stands before the first number, and after the last arm's name, may belong to all of them.
    """
    words = text.content
    sides = [list(side) for _, side in groupby(range(len(words)), lambda n: (words[n].sentence, words[n].side))]
    found: list[Arm] = []
    before: list[list[str]] = []
    after: list[list[str]] = []
    for side in sides:
        numbers = [n for n in side if words[n].kind is WordKind.NUMBER]
        if numbers:
            alone = {segment for segment in {words[n].segment for n in side} if _has_numbers_alone(text, segment)}
            own = tuple(n for n in numbers if words[n].segment in alone | {words[numbers[0]].segment})
            names = [n for n in side if words[n].kind is not WordKind.NUMBER]
            found.append(Arm(own, frozenset()))
            before.append([words[n].key for n in names if n < numbers[0]])
            after.append([words[n].key for n in names if n > numbers[0]])
    named = []
    for n, arm in enumerate(found):
        if before[max(n, 1) :] and before[max(n, 1)]:  # the second arm tells where the first one's name stands
            reach = len(before[1]) + SLACK if n == 0 else len(before[n])
            keys = before[n][-reach:]
        else:
            reach = max(map(len, after[:n]), default=0) or len(after[n])
            keys = after[n][:reach]
        named.append(arm._replace(names=frozenset(keys)))
    return named


def _has_numbers_alone(text: Analysis, segment: int) -> bool:
    return all(word.kind is WordKind.NUMBER for word in text.content if word.segment == segment)


def attributed(pair: ClaimComparison) -> Iterator[tuple[set[int], bool]]:
    """Yield the words of the claim that give a number to an arm, and whether the evidence gives it to the same one.

    Numbers of one kind are compared, where the claim names one arm by more of the words that are its own than the other.
    """
    words, theirs = pair.claim.content, pair.evidence.content
    ours, others = arms(pair.claim), arms(pair.evidence)
    for position, index in pair.owners.items():
        number = theirs[position]
        if number.kind is not WordKind.NUMBER:
            continue
        alike = [arm for arm in others if any(theirs[n].is_like(number) for n in arm.numbers)]
        own = next((arm for arm in alike if position in arm.numbers), None)
        if own is None or len(alike) < 2:
            continue
        if RESPECTIVELY in pair.evidence.certain and RESPECTIVELY not in pair.claim.certain:
            yield {index}, False
            continue
        rivals = [arm for arm in ours if any(words[n].is_like(number) for n in arm.numbers)]
        said = next((arm.names for arm in rivals if index in arm.numbers and len(rivals) > 1), None)
        common = frozenset.intersection(*(arm.names for arm in alike))
        known = frozenset().union(*(arm.names for arm in alike)) - common
        said = known.intersection(said if said is not None else (word.key for word in words))
        scores = [(len(said & arm.names) / len(said | (arm.names - common)), arm is own) for arm in alike if said]
        best = max(scores, default=(0.0, False))
        if best[0] and sum(score == best[0] for score, _ in scores) == 1:
            yield {index} | {n for n, word in enumerate(words) if word.key in own.names}, best[1]
