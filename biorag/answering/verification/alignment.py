"""A claim beside its evidence: which word of the evidence each word of the claim is, and whether it is in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from biorag.answering.verification.analysis import Analysis, aligned, carries_direction, opposed
from biorag.answering.verification.cues import general, lexicon
from biorag.answering.verification.words import Word

EXTRA = 5  # content words of the evidence's own that may stand between two neighbours of the claim
MOST_PAIRS = 1000  # of equal words; the most among 2,009 pairs of sentences in PubMed were 263
ADJOINING = 2  # content words of the evidence from one to the next, if they are neighbours
FAR = 50  # words of the claim within which a neighbour says where a word should stand
NEAR = 4  # content words of the claim within which a neighbour counts
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ClaimComparison:
    """A claim and its evidence, aligned; words are numbered among the content words of their side.

    Attributes
    ----------
    positions : for each word of the claim its number in the evidence, None for none
    asked : keys of the question's words
    context : keys of the whole snippet, where a word of the question may stand apart from the evidence
    """

    claim: Analysis
    evidence: Analysis
    positions: tuple[int | None, ...]
    asked: frozenset[str] = NOTHING
    context: frozenset[str] = NOTHING

    @cached_property
    def owners(self) -> Mapping[int, int]:
        """The words of the claim by their positions in the evidence."""
        return {position: index for index, position in enumerate(self.positions) if position is not None}

    @cached_property
    def missing(self) -> list[int]:
        """The words of the claim without a position."""
        return [index for index, position in enumerate(self.positions) if position is None]

    @cached_property
    def likeness(self) -> float:
        """The share of the claim's pairs of neighbours that are neighbours in the evidence too: of a copy, most."""
        steps = [
            there - here
            for here, there in zip(self.positions, self.positions[1:], strict=False)
            if here is not None and there is not None
        ]
        return sum(0 < step <= ADJOINING for step in steps) / max(1, len(self.positions) - 1)

    @cached_property
    def known(self) -> frozenset[str]:
        """The keys of the evidence's words and of the whole snippet's."""
        return self.context.union(word.key for word in self.evidence.content)

    @cached_property
    def repeated(self) -> frozenset[int]:
        """The words of the claim that repeat the question; none if it has no others."""
        words = frozenset(n for n, word in enumerate(self.claim.content) if word.key in self.asked)
        return words if len(words) < len(self.claim.content) else frozenset()

    @cached_property
    def reversals(self) -> frozenset[int]:
        """The words of the claim whose opposite stands in their place in the evidence."""
        words, theirs = self.claim.content, self.evidence.content
        return frozenset(
            n for n in self.missing if any(opposed(words[n], theirs[position]) for position in self.vacant(n))
        )

    @cached_property
    def apart(self) -> frozenset[int]:
        """The question's words that stand elsewhere in the snippet: what a sentence is about is often named before.

        Numbers, populations and directions are never apart from what they belong to, nor is a word whose place in the
        evidence another name takes.
        """
        words = self.claim.content
        return frozenset(
            n
            for n in self.repeated.intersection(self.missing)
            if words[n].key in self.context
            and words[n].key[0] not in "#@"
            and not carries_direction(words[n])
            and not self._is_replaced(n)
        )

    def vacant(self, index: int) -> list[int]:
        """Return the places of the evidence, free of the claim's words, where a word would stand by its neighbours."""
        return [
            position
            for position in gap(index, self.positions, len(self.evidence.content))
            if position not in self.owners
        ]

    def slot(self, index: int) -> int | None:
        """Return the evidence's own word right before what follows a word of the claim; None if there is none."""
        after = self.positions[index + 1] if index + 1 < len(self.positions) else None
        words = self.evidence.content
        if not after or after - 1 in self.owners or words[after - 1].segment != words[after].segment:
            return None
        return after - 1

    def _is_replaced(self, index: int) -> bool:
        slot = self.slot(index)
        return slot is not None and is_specific(self.claim.content[index]) and is_specific(self.evidence.content[slot])

    def coverage(self, passed: frozenset[int]) -> float:
        """Return the share of the claim's words that have a position, weighted by rarity, without those `passed`."""
        weights = [(word.weight, self.positions[n]) for n, word in enumerate(self.claim.content) if n not in passed]
        total = sum(weight for weight, _ in weights)
        covered = sum(weight for weight, position in weights if position is not None)
        return covered / total if total else float(bool(passed))


def compare(
    claim: Analysis, evidence: Analysis, asked: frozenset[str] = NOTHING, context: frozenset[str] = NOTHING
) -> ClaimComparison:
    """Align a claim with evidence; see `ClaimComparison` for the parameters."""
    return ClaimComparison(claim, evidence, tuple(_Tiling(claim, evidence).aligned()), asked, context)


def is_specific(word: Word) -> bool:
    """Return whether a word is neither of general English nor a filler."""
    return word.key not in general() and not is_filler(word)


def is_filler(word: Word) -> bool:
    """Return whether a word only reports or says nothing of its own."""
    return word.text.lower() in lexicon().generic or word.text.lower() in lexicon().reporting


class _Tiling:
    """Greedy string tiling (Wise, 1993) of a claim's words over those of the evidence, each used once.

    The longest common runs come first, so that clauses may have changed places; single words go where their neighbours
    are. Last, words of the same direction, such as "elevated" and "increased", and rounded numbers match where the
    words around them do.
    """

    def __init__(self, claim: Analysis, evidence: Analysis) -> None:
        self._claim, self._evidence = claim, evidence
        self._ours, self._theirs = [word.key for word in claim.content], [word.key for word in evidence.content]
        self._positions: list[int | None] = [None] * len(self._ours)
        self._taken: set[int] = set()
        self._places: dict[str, list[int]] = {}
        for position, key in enumerate(self._theirs):
            self._places.setdefault(key, []).append(position)

    def aligned(self) -> list[int | None]:
        """Return the positions of the claim's words."""
        if sum(len(self._places.get(key, ())) for key in self._ours) > MOST_PAIRS:
            return self._positions  # a few words, hundreds of times: it would take minutes
        while run := self._longest_run():
            start, position, length = run
            for offset in range(length):
                self._take(start + offset, position + offset)
        for index, word in enumerate(self._claim.content):
            if self._positions[index] is None:
                places = gap(index, self._positions, len(self._theirs))
                if word.value is not None:
                    places += range(len(self._theirs))
                free = (n for n in places if n not in self._taken and _restates(word, self._evidence.content[n]))
                self._take(index, next(free, None))
        return self._positions

    def _take(self, index: int, position: int | None) -> None:
        if position is not None:
            self._positions[index] = position
            self._taken.add(position)

    def _longest_run(self) -> tuple[int, int, int] | None:
        """Return the longest run of free equal words: its start in the claim, in the evidence, and its length."""
        best: tuple[tuple[int, int], tuple[int, int, int]] | None = None
        for start, key in enumerate(self._ours):
            for position in self._places.get(key, ()):
                if not self._is_free(start, position) or self._is_free(start - 1, position - 1):
                    continue  # a longer run begins before it
                length = 1
                while self._is_free(start + length, position + length):
                    length += 1
                if best is not None and length < best[0][0]:
                    continue
                rank = (length, -self._strain(start, position))
                if best is None or rank > best[0]:
                    best = rank, (start, position, length)
        return best[1] if best else None

    def _is_free(self, index: int, position: int) -> bool:
        """Whether two words are there, equal and without a counterpart."""
        if not (0 <= index < len(self._ours) and 0 <= position < len(self._theirs)):
            return False
        free = self._positions[index] is None and position not in self._taken
        return free and self._ours[index] == self._theirs[position]

    def _strain(self, start: int, position: int) -> int:
        """Return how far a word would stand from where its nearest neighbour with a position suggests."""
        for distance in range(1, min(len(self._positions), FAR)):
            for neighbour in (start - distance, start + distance):
                if 0 <= neighbour < len(self._positions) and (theirs := self._positions[neighbour]) is not None:
                    return abs(position - theirs - (start - neighbour))
        return 0


def _restates(word: Word, other: Word) -> bool:
    """Whether a word points the same way as another, or rounds its number."""
    return aligned(word, other) or word.is_about(other.key)


def gap(index: int, positions: tuple[int | None, ...] | list[int | None], length: int) -> list[int]:
    """Return the places among the evidence's `length` words where a word would stand by its neighbours, nearest first.

    They lie after the place of the word before, and before that of the word after.
    """
    before = next((positions[n] for n in range(index - 1, -1, -1) if positions[n] is not None), None)
    after = next((positions[n] for n in range(index + 1, len(positions)) if positions[n] is not None), None)
    if before is not None and after is not None and before < after:
        return list(range(before + 1, min(after, before + EXTRA + 1)))
    places = [] if before is None else list(range(before + 1, min(length, before + 3)))
    return places + ([] if after is None else list(range(after - 1, max(-1, after - 3), -1)))


def misplaced(pair: ClaimComparison, placed: Collection[int] = ()) -> Iterator[int]:
    """Yield the words of the claim that stand in the evidence, but not among their neighbours or not in their order.

    A word is in place if, of its next neighbours on either side that stand in the evidence too, one is on the same side
    of it there, with nothing between that the claim has elsewhere. Words without neighbours in their part of the
    sentence are in place if they stand in the sentence of the evidence where most of the claim stands. Those `placed`
    are in place, and say nothing of the others.
    """
    sentences = [word.sentence for word in map(pair.evidence.content.__getitem__, pair.owners)]
    main = max(set(sentences), key=sentences.count) if sentences else 0
    for position, index in pair.owners.items():
        if index in placed:
            continue
        sides = [_neighbour(pair, index, step, placed) for step in (-1, 1)]
        neighbours = [neighbour for neighbour in sides if neighbour is not None]
        if not neighbours:
            if pair.evidence.content[position].sentence != main and len(pair.owners) > 1:
                yield index
        elif not any(_in_order(pair, index, neighbour) for neighbour in neighbours):
            yield index


def _neighbour(pair: ClaimComparison, index: int, step: int, placed: Collection[int]) -> int | None:
    """Return the next word of the claim that has a position, in the same part of the sentence; skip joined words."""
    words, skipping = pair.claim.content, True
    for neighbour in range(index + step, index + step * (NEAR + 1), step):
        if not 0 <= neighbour < len(pair.positions):
            return None
        skipping = skipping and words[max(neighbour, neighbour - step)].joined
        if words[neighbour].segment != words[index].segment and not skipping:
            return None
        if not skipping and pair.positions[neighbour] is not None and neighbour not in placed:
            return neighbour
    return None


def _in_order(pair: ClaimComparison, index: int, neighbour: int) -> bool:
    words, theirs = pair.claim.content, pair.evidence.content
    here, there = pair.positions[index], pair.positions[neighbour]
    assert here is not None and there is not None, "both have one"
    if (here > there) != (index > neighbour) or theirs[here].sentence != theirs[there].sentence:
        return False
    low, high = sorted((index, neighbour))
    # What the claim lists together with the two may stand in another order.
    while low > 0 and words[low].joined:
        low -= 1
    while high + 1 < len(words) and words[high + 1].joined:
        high += 1
    between = (pair.owners.get(position) for position in range(min(here, there) + 1, max(here, there)))
    return all(owner is None or low <= owner <= high for owner in between)
