"""Which word of the evidence each word of a claim is, and whether it stands among the same words there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from biorag.answering.verification.analysis import Analysis, aligned

EXTRA = 5  # content words of the evidence's own that may stand between two neighbours of the claim
MOST_PAIRS = 1000  # of equal words; the most among 2,009 pairs of sentences in PubMed were 263
FAR = 50  # words of the claim within which a neighbour says where a word should stand
NEAR = 4  # content words of the claim within which a neighbour counts
Positions: TypeAlias = list[int | None]


def align(claim: Analysis, evidence: Analysis) -> Positions:
    """Return for each content word of the claim its position among those of the evidence, None for none.

    Each word of the evidence is used once. Longest common runs come first (greedy string tiling: Wise, 1993), so that
    clauses may have changed places; single words go where their neighbours are. Last, words of the same direction, such
    as "elevated" and "increased", are the same where the words around them are.
    """
    keys, theirs = [word.key for word in claim.content], [word.key for word in evidence.content]
    positions: Positions = [None] * len(keys)
    taken: set[int] = set()
    where: dict[str, list[int]] = {}
    for position, key in enumerate(theirs):
        where.setdefault(key, []).append(position)
    if sum(len(where.get(key, ())) for key in keys) > MOST_PAIRS:
        return positions  # a few words, hundreds of times: it would take minutes
    while run := _longest_run(keys, theirs, where, positions, taken):
        start, position, length = run
        for offset in range(length):
            positions[start + offset] = position + offset
            taken.add(position + offset)
    _align_directions(claim, evidence, positions, taken)
    return positions


def _longest_run(
    keys: Sequence[str], theirs: Sequence[str], where: dict[str, list[int]], positions: Positions, taken: set[int]
) -> tuple[int, int, int] | None:
    """Return the longest run of free equal words: its start in the claim, in the evidence, and its length."""
    best: tuple[tuple[int, int], tuple[int, int, int]] | None = None
    for start, key in enumerate(keys):
        if positions[start] is not None:
            continue
        for position in where.get(key, ()):
            if position in taken or _continues(keys, theirs, positions, taken, start, position):
                continue
            length = 1
            while (
                start + length < len(keys)
                and position + length < len(theirs)
                and positions[start + length] is None
                and position + length not in taken
                and keys[start + length] == theirs[position + length]
            ):
                length += 1
            if best is not None and length < best[0][0]:
                continue
            rank = (length, -_strain(start, position, positions))
            if best is None or rank > best[0]:
                best = rank, (start, position, length)
    return best[1] if best else None


def _continues(
    keys: Sequence[str], theirs: Sequence[str], positions: Positions, taken: set[int], start: int, position: int
) -> bool:
    """Whether the words before are free and equal too, so that a longer run begins there."""
    before, there = start - 1, position - 1
    if before < 0 or there < 0 or positions[before] is not None or there in taken:
        return False
    return keys[before] == theirs[there]


def _strain(start: int, position: int, positions: Positions) -> int:
    """Return how far a word would stand from where its nearest neighbour that has a position says."""
    for distance in range(1, min(len(positions), FAR)):
        for neighbour in (start - distance, start + distance):
            if 0 <= neighbour < len(positions) and (theirs := positions[neighbour]) is not None:
                return abs(position - theirs - (start - neighbour))
    return 0


def _align_directions(claim: Analysis, evidence: Analysis, positions: Positions, taken: set[int]) -> None:
    for index, position in enumerate(positions):
        if position is None:
            for candidate in gap(index, positions, len(evidence.content)):
                if candidate not in taken and aligned(claim.content[index], evidence.content[candidate]):
                    positions[index] = candidate
                    taken.add(candidate)
                    break


def gap(index: int, positions: Positions, length: int) -> list[int]:
    """Return the places of the evidence where a word of the claim would stand by its neighbours: next to theirs.

    They lie after the evidence's place of the word before, and before that of the word after, the nearest first.
    """
    before = next((positions[n] for n in range(index - 1, -1, -1) if positions[n] is not None), None)
    after = next((positions[n] for n in range(index + 1, len(positions)) if positions[n] is not None), None)
    if before is not None and after is not None and before < after:
        return list(range(before + 1, min(after, before + EXTRA + 1)))
    places = [] if before is None else list(range(before + 1, min(length, before + 3)))
    return places + ([] if after is None else list(range(after - 1, max(-1, after - 3), -1)))


def misplaced(claim: Analysis, evidence: Analysis, positions: Positions) -> Iterator[int]:
    """Yield the words of the claim that stand in the evidence, but not among their neighbours or not in their order.

    A word is in place if, of its next neighbours on either side that stand in the evidence too, one is on the same side
    of it there, with nothing between that the claim has elsewhere. Words without neighbours in their part of the
    sentence are in place if they stand in the sentence of the evidence where most of the claim stands.
    """
    owners = {position: index for index, position in enumerate(positions) if position is not None}
    sentences = [evidence.sentences[position] for position in owners]
    main = max(set(sentences), key=sentences.count) if sentences else 0
    for index, position in enumerate(positions):
        if position is None:
            continue
        sides = [_neighbour(claim, positions, index, step) for step in (-1, 1)]
        neighbours = [neighbour for neighbour in sides if neighbour is not None]
        if not neighbours:
            if evidence.sentences[position] != main and len(owners) > 1:
                yield index
        elif not any(_in_order(claim, evidence, positions, owners, index, neighbour) for neighbour in neighbours):
            yield index


def _neighbour(claim: Analysis, positions: Positions, index: int, step: int) -> int | None:
    """Return the next word of the claim that has a position, in the same part of the sentence; skip joined words."""
    skipping = True
    for neighbour in range(index + step, index + step * (NEAR + 1), step):
        if not 0 <= neighbour < len(positions):
            return None
        skipping = skipping and claim.joined[max(neighbour, neighbour - step)]
        if claim.segments[neighbour] != claim.segments[index] and not skipping:
            return None
        if not skipping and positions[neighbour] is not None:
            return neighbour
    return None


def _in_order(
    claim: Analysis, evidence: Analysis, positions: Positions, owners: dict[int, int], index: int, neighbour: int
) -> bool:
    here, there = positions[index], positions[neighbour]
    assert here is not None and there is not None, "both have one"
    if (here > there) != (index > neighbour) or evidence.sentences[here] != evidence.sentences[there]:
        return False
    low, high = sorted((index, neighbour))
    # What the claim lists together with the two may stand in another order.
    while low > 0 and claim.joined[low]:
        low -= 1
    while high + 1 < len(positions) and claim.joined[high + 1]:
        high += 1
    extra = 0
    for position in range(min(here, there) + 1, max(here, there)):
        owner = owners.get(position)
        if owner is None:
            extra += 1
        elif not low <= owner <= high:
            return False
    return extra <= EXTRA
