"""The arms of a comparison, "49 % with A and 32 % with B": to which of them each number belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import NamedTuple

from biorag.answering.verification.alignment import ClaimComparison, is_filler
from biorag.answering.verification.analysis import ARM_JOINING, RESPECTIVELY, ContentWord
from biorag.answering.verification.cues import lexicon
from biorag.answering.verification.words import WordKind

SLACK = 2  # words by which the name of the first or last arm may be longer, if the claim names none otherwise


class Part(NamedTuple):
    """A part of a text between "and", "than" or a comma: its numbers, and the words before and after the first one."""

    numbers: list[int]
    before: list[int]
    after: list[int]

    def has_like(self, words: Sequence[ContentWord], number: ContentWord) -> bool:
        """Return whether one of its numbers is of the same kind."""
        return any(words[n].is_like(number) for n in self.numbers)


def attributed(pair: ClaimComparison) -> Iterator[tuple[set[int], bool]]:
    """Yield the words of the claim that give a number to an arm, and whether the evidence gives it to the same one.

    An arm is a part of the evidence that has a number of the same kind. The claim names the one with whose name it
    shares most words that not all arms have. Numbers that are given "respectively" belong to none.
    """
    words, theirs = pair.claim.content, pair.evidence.content
    weights = {word.key: word.weight for word in (*words, *theirs)}
    ours, parts = _parts(words), _parts(theirs)
    used: dict[int, int] = {}
    for position, index in pair.owners.items():
        arms = [part for part in parts if part.has_like(theirs, theirs[position])]
        own = next((n for n, arm in enumerate(arms) if position in arm.numbers), None)
        if own is None or len(arms) == 1:
            continue
        here = next((part for part in ours if index in part.numbers), None)
        if here is None or RESPECTIVELY in pair.evidence.certain - pair.claim.certain:
            yield {index}, False
            continue
        if used.setdefault(here.numbers[0], parts.index(arms[own])) != parts.index(arms[own]):
            yield {index}, False  # "18 of 58" from "18 of 56 and 22 of 58"
        rivals = [part for part in ours if part.has_like(words, words[index])]
        for slack in (0, SLACK):
            names = _names(theirs, arms, slack)
            common = frozenset.intersection(*names)
            said = {word.key for word in words} if len(rivals) < 2 else _names(words, rivals)[rivals.index(here)]
            telling = said & (frozenset.union(*names) - common)
            if telling:
                break
        shares = [_likeness(telling, name - common, weights) for name in names]
        if max(shares) > shares[own]:
            yield {index}, False
        elif telling and telling <= names[own] and shares.count(shares[own]) == 1:
            yield {index} | {n for n, word in enumerate(words) if word.key in names[own]}, True


def _parts(words: Sequence[ContentWord]) -> list[Part]:
    """Return the parts of a text that have numbers, without those of statistics and brackets with other words."""
    statistics = {word.segment for word in words if word.key in lexicon().statistics}
    worded = {word.segment for word in words if word.kind is not WordKind.NUMBER} - statistics
    parts = []
    for _, group in groupby(range(len(words)), lambda n: (words[n].sentence, words[n].side)):
        part = [n for n in group if words[n].segment not in statistics]
        numbers = [n for n in part if words[n].kind is WordKind.NUMBER]
        if not numbers:
            continue
        names = [n for n in part if n not in numbers and not is_filler(words[n]) and words[n].text not in ARM_JOINING]
        after = [n for n in names if n > numbers[0]]
        # "with placebo (odds ratio 0.3)"
        tail = [words[n].segment for n in after if words[n].segment > words[after[0]].segment]
        end = min((segment for segment in tail if segment - 1 in worded), default=words[part[-1]].segment + 1)
        numbers, after = ([n for n in ns if words[n].segment < end] for ns in (numbers, after))
        parts.append(Part(numbers, [n for n in names if n < numbers[0]], after))
    return parts


def _names(words: Sequence[ContentWord], arms: Sequence[Part], slack: int = 0) -> list[frozenset[str]]:
    """Return the keys of the words that name each of two or more arms, after its number or, as in the second, before.

    What stands before the first arm's name or after the last one's may belong to all: these are no longer than another.
    """
    precedes = bool(arms[1].before)
    names = [arm.before if precedes else arm.after for arm in arms]
    ends = 0 if precedes else -1
    reach = max(map(len, names[1:] if precedes else names[:-1])) + slack
    names[ends] = names[ends][-reach:] if precedes else names[ends][:reach]
    return [frozenset(words[n].key for n in name) for name in names]


def _likeness(said: Set[str], name: Set[str], weights: Mapping[str, float]) -> float:
    """Return the share, by weight, of the words of two names that both have."""
    total = sum(weights[key] for key in said | name)
    return sum(weights[key] for key in said & name) / total if total else 0.0
