"""A claim held against one or two neighbouring sentences: how much of it they cover, and what speaks against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from biorag.answering.verification.alignment import Positions, align, gap, misplaced
from biorag.answering.verification.analysis import (
    BOTH,
    REPORTING_WEIGHT,
    Analysis,
    CueKind,
    Scope,
    carries_direction,
    opposed,
)
from biorag.answering.verification.cues import general, lexicon
from biorag.answering.verification.words import Word, WordKind, stem
from biorag.types import Verdict

LEAST_COVERAGE = 0.7
RARE = 0.55  # the weight from which a word must stand in the evidence, and in its place
LEAST_IN_PLACE = 0.5  # coverage without the question's words that stand elsewhere in the snippet
ADDED = 3  # content words in a row that the evidence lacks, and that say something of their own
CLOSE = 4  # content words within which an agent stands before its verb
VOTES = 3  # words of a scope that decide about its polarity
PARTICIPLES = ("ed", "en", "wn", "ght", "lt", "pt", "nt", "und")
NOTHING: frozenset[str] = frozenset()


class Fault(StrEnum):
    """What keeps evidence from supporting a claim; see `judge`."""

    UNCOVERED = "words"
    MISSING = "a number, name, direction or rare word"
    ORDER = "words in other places"
    ROLE = "roles"
    POLARITY = "negation"
    DIRECTION = "direction"
    HEDGE = "hedge"
    AIM = "aim"


REVERSALS = frozenset({Fault.POLARITY, Fault.DIRECTION})


@dataclass(frozen=True, slots=True)
class Judgement:
    """How much of a claim's words, weighted by rarity, some evidence covers, and its faults."""

    coverage: float
    faults: frozenset[Fault]

    @property
    def verdict(self) -> Verdict:
        """Contradicted is what is covered well, but with the polarity or the direction reversed."""
        if not self.faults:
            return Verdict.SUPPORTED
        return Verdict.CONTRADICTED if self.faults <= REVERSALS else Verdict.UNSUPPORTED


def judge(
    claim: Analysis, evidence: Analysis, asked: frozenset[str] = NOTHING, context: frozenset[str] = NOTHING
) -> Judgement:
    """Hold a claim against evidence.

    Parameters
    ----------
    asked : keys of the question's words: repeating them is no evidence, unless the claim has no others
    context : keys of the whole snippet, where a word of the question may stand apart from the evidence
    """
    own = {n for n, word in enumerate(claim.content) if word.key not in asked}
    positions = align(claim, evidence)
    reversals = _reversals(claim, evidence, positions)
    apart = _apart(claim, evidence, positions, asked & context) if own else set()
    faults = set(_missing(claim, evidence, positions, reversals | apart))
    faults |= set(_order(claim, evidence, positions))
    faults |= set(_polarity(claim, evidence, positions))
    faults |= set(_modality(claim, evidence, positions))
    if reversals:
        faults.add(Fault.DIRECTION)
    coverage = _coverage(claim, positions, reversals | apart)
    new = _coverage(claim, positions, reversals | (set(range(len(claim.content))) - own)) if own else coverage
    if _says_more(claim, positions, reversals | apart):
        faults.add(Fault.UNCOVERED)
    if min(coverage, new) < LEAST_COVERAGE or _coverage(claim, positions, reversals) < LEAST_IN_PLACE:
        faults.add(Fault.UNCOVERED)
    return Judgement(coverage, frozenset(faults))


def _apart(claim: Analysis, evidence: Analysis, positions: Positions, asked: frozenset[str]) -> set[int]:
    """Return the question's words that stand elsewhere in the snippet: what a sentence is about is often named before.

    Numbers, populations and directions are never apart from what they belong to, nor is a word in whose place the
    evidence has another name.
    """
    return {
        n
        for n, word in enumerate(claim.content)
        if positions[n] is None
        and word.key in asked
        and word.key[0] not in "#@"
        and not carries_direction(word)
        and not _is_replaced(claim, evidence, positions, n)
    }


def _takes_place(claim: Analysis, evidence: Analysis, positions: Positions, index: int) -> bool:
    """Whether a word stands in the place of a rare one, right before the same word: "loop" or "thiazide diuretics"."""
    place = _slot(evidence, positions, index)
    if place is None or claim.segments[index] != claim.segments[index + 1]:
        return False
    is_word = claim.content[index].kind is WordKind.CONTENT and claim.weights[index] > REPORTING_WEIGHT
    return is_word and evidence.weights[place] >= RARE


def _is_replaced(claim: Analysis, evidence: Analysis, positions: Positions, index: int) -> bool:
    """Whether the evidence has another specific word right before what follows a word of the claim."""
    place = _slot(evidence, positions, index)
    return place is not None and _is_specific(claim.content[index]) and _is_specific(evidence.content[place])


def _slot(evidence: Analysis, positions: Positions, index: int) -> int | None:
    """Return the evidence's own word right before what follows a word of the claim; None where there is none."""
    after = positions[index + 1] if index + 1 < len(positions) else None
    if not after or after - 1 in positions or evidence.segments[after - 1] != evidence.segments[after]:
        return None
    return after - 1


def _says_more(claim: Analysis, positions: Positions, passed: set[int]) -> bool:
    """Whether some content words in a row are missing: a short false addition to a long sentence."""
    run = 0
    for index, word in enumerate(claim.content):
        run = run + (not _is_filler(word)) if positions[index] is None and index not in passed else 0
        if run >= ADDED:
            return True
    return False


def _coverage(claim: Analysis, positions: Positions, passed: set[int]) -> float:
    weights = [(weight, positions[n] is not None) for n, weight in enumerate(claim.weights) if n not in passed]
    total = sum(weight for weight, _ in weights)
    return sum(weight for weight, covered in weights if covered) / total if total else float(bool(passed))


def _is_specific(word: Word) -> bool:
    return word.key not in general() and not _is_filler(word)


def _is_filler(word: Word) -> bool:
    """Whether a word only reports or says nothing of its own."""
    return word.text.lower() in lexicon().generic or word.text.lower() in lexicon().reporting


def _must_stand(claim: Analysis, index: int) -> bool:
    word = claim.content[index]
    is_period = word.text.lower() in lexicon().periods
    return word.kind is not WordKind.CONTENT or claim.weights[index] >= RARE or carries_direction(word) or is_period


def _missing(claim: Analysis, evidence: Analysis, positions: Positions, passed: set[int]) -> Iterator[Fault]:
    """Yield a fault for each word that had to stand in the evidence, or that stands in the place of another there."""
    taken = {position for position in positions if position is not None}
    for index, position in enumerate(positions):
        if position is not None or index in passed:
            continue
        others = [place for place in gap(index, positions, len(evidence.content)) if place not in taken]
        replaces = _is_specific(claim.content[index]) and any(_is_specific(evidence.content[place]) for place in others)
        if replaces or _takes_place(claim, evidence, positions, index) or _must_stand(claim, index):
            yield Fault.MISSING


def _reversals(claim: Analysis, evidence: Analysis, positions: Positions) -> set[int]:
    """Return the words of the claim whose opposite stands in their place in the evidence."""
    taken = {position for position in positions if position is not None}
    return {
        index
        for index, position in enumerate(positions)
        if position is None
        and any(
            opposed(claim.content[index], evidence.content[place])
            for place in gap(index, positions, len(evidence.content))
            if place not in taken
        )
    }


def _order(claim: Analysis, evidence: Analysis, positions: Positions) -> Iterator[Fault]:
    """Yield faults where words have changed places or roles; a change of voice, or of the sides of "and", is none."""
    other_voice: set[int] = set()  # segments
    if _sides_exchanged(claim, evidence, positions):
        yield Fault.ROLE
    for agent, lead in _voices(claim, evidence, positions):
        if lead < 0:
            yield Fault.ROLE
        elif lead <= CLOSE:
            other_voice.add(claim.segments[agent])
    if _sentences_exchanged(evidence, positions):
        yield Fault.ORDER
    wrong = [index for index in misplaced(claim, evidence, positions) if _must_stand(claim, index)]
    symmetric = {claim.segments[n] for n, word in enumerate(claim.content) if word.key in _symmetric()}
    compared = {claim.segments[n] for n, word in enumerate(claim.content) if carries_direction(word)}
    for index in wrong:
        segment = claim.segments[index]
        exchanged = segment in symmetric - compared and sum(claim.segments[other] == segment for other in wrong) > 1
        if segment not in other_voice and not exchanged:
            yield Fault.ORDER


def _voices(claim: Analysis, evidence: Analysis, positions: Positions) -> Iterator[tuple[int, int]]:
    """Yield each agent that one side alone has in the passive, and by how many words it leads its verb on the other.

    It follows the verb, by a negative number, where the roles are exchanged: what is inhibited by aspirin does not
    inhibit it.
    """
    owners = {position: index for index, position in enumerate(positions) if position is not None}
    for position, index in owners.items():
        ours, theirs = _is_agent(claim, index), _is_agent(evidence, position)
        verb = positions[index - 1] if ours else None
        if verb is not None and not theirs:
            yield index, verb - position
        elif theirs and not ours and position - 1 in owners:
            yield index, owners[position - 1] - index


def _sides_exchanged(claim: Analysis, evidence: Analysis, positions: Positions) -> bool:
    """Whether what is compared, or follows something, has changed sides: "A is better than B", "B after A"."""
    ordering = [(n, p) for n, p in enumerate(positions) if p is not None and _orders(claim.content[n])]
    pairs = [(n + 1, p + 1) for n, p in ordering] + [(n, p) for n in claim.compared for p in evidence.compared]
    for ours, theirs in pairs:
        part = [n for n in range(ours, len(positions)) if claim.segments[n] == claim.segments[ours]]
        right = [p < theirs for n in part if (p := positions[n]) is not None]
        if sum(right) * 2 > len(right) and any(p is not None and p >= theirs for p in positions[:ours]):
            return True
    return False


def _sentences_exchanged(evidence: Analysis, positions: Positions) -> bool:
    """Whether a claim runs from the second sentence into the first: its predicate may belong to another subject."""
    order = [evidence.sentences[position] for position in positions if position is not None]
    return len(set(order)) > 1 and order == sorted(order, reverse=True)


def _orders(word: Word) -> bool:
    return word.text.lower() in lexicon().ordering


def _symmetric() -> frozenset[str]:
    return frozenset(stem(word) for word in lexicon().symmetric)


def _is_agent(text: Analysis, index: int) -> bool:
    """Whether "by" and a participle stand before a word: `is inhibited by aspirin`."""
    if not index or not text.after_by[index] or text.content[index].kind is WordKind.NUMBER:
        return False
    return text.content[index - 1].text.endswith(PARTICIPLES)


def _polarity(claim: Analysis, evidence: Analysis, positions: Positions) -> Iterator[Fault]:
    owners = {position: index for index, position in enumerate(positions) if position is not None}
    pairs = {index: position for position, index in owners.items()}
    for scope in _negations(claim):
        targets = [index for index in scope.targets if index in pairs]
        same = [claim.negated[index] == evidence.negated[pairs[index]] for index in targets[:VOTES]]
        if not _agree(same):
            yield Fault.POLARITY
    if _ungoverned(claim, set(pairs)) > _ungoverned(evidence, set(owners)):
        yield Fault.POLARITY
    for scope in _negations(evidence):
        targets = [owners[position] for position in scope.targets[: VOTES + 1] if position in owners]
        if not _agree([claim.negated[index] == evidence.negated[pairs[index]] for index in targets[:VOTES]]):
            yield Fault.POLARITY
        if scope.restricting and scope.targets and not targets and min(scope.targets) - 1 in owners:
            yield Fault.POLARITY
    for index, position in pairs.items():
        by_prefix = claim.content[index].negated or evidence.content[position].negated
        if by_prefix and claim.negated[index] != evidence.negated[position]:
            yield Fault.POLARITY


def _ungoverned(text: Analysis, matched: set[int]) -> int:
    """Return how many negations govern no word that the other side has."""
    return sum(matched.isdisjoint(scope.targets) for scope in _negations(text))


def _negations(text: Analysis) -> Iterator[Scope]:
    return (scope for scope in text.scopes if scope.kind is CueKind.NEGATION)


def _agree(same: Sequence[bool]) -> bool:
    """Whether the nearest word has the same polarity, or most of the nearest."""
    return not same or same[0] or sum(same) * 2 > len(same)


def _modality(claim: Analysis, evidence: Analysis, positions: Positions) -> Iterator[Fault]:
    owners = {position: index for index, position in enumerate(positions) if position is not None}
    hedged = {target for scope in claim.scopes if scope.kind is CueKind.HEDGE for target in scope.targets}
    known = evidence.certain | ({BOTH} if evidence.coupled else set())
    widened = any(_is_widened(claim, evidence, positions, index) for index in owners.values())
    recounted = any(_is_recounted(claim.quantifiers[n], evidence.quantifiers[p]) for p, n in owners.items())
    if not claim.certain <= known or widened or recounted:
        yield Fault.HEDGE
    for scope in evidence.scopes:
        governed = {owners[target] for target in scope.targets if target in owners}
        if scope.kind is CueKind.HEDGE and governed and not governed & hedged:
            yield Fault.HEDGE
        if scope.kind is CueKind.AIM and governed and not claim.aims:
            yield Fault.AIM


def _is_widened(claim: Analysis, evidence: Analysis, positions: Positions, index: int) -> bool:
    """Whether the claim joins by "and" two words of which the evidence has one "or" the other."""
    before, here = positions[index - 1] if index else None, positions[index]
    if here is None or before is None or abs(here - before) != 1:
        return False
    return claim.joined[index] and not claim.alternative[index] and evidence.alternative[max(here, before)]


def _is_recounted(ours: str, theirs: str) -> bool:
    """Whether a claim speaks of another number of things than its evidence; of some, where that speaks of more."""
    return bool(ours and theirs) and ours != theirs and not (ours == "some" and theirs in ("all", "most"))
