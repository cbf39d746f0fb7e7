"""The rules: how much of a claim one or two neighbouring sentences cover, and what forbids to call it supported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from biorag.answering.verification.alignment import NOTHING, ClaimComparison, compare, is_filler, is_specific, misplaced
from biorag.answering.verification.analysis import (
    BOTH,
    REPORTING_WEIGHT,
    Analysis,
    ContentWord,
    CueKind,
    Scope,
    carries_direction,
    denials,
)
from biorag.answering.verification.arms import attributed
from biorag.answering.verification.cues import lexicon
from biorag.answering.verification.words import WordKind, is_symbol, stem
from biorag.types import Verdict

LEAST_COVERAGE = 0.7
RARE = 0.55  # the weight from which a word must stand in the evidence, and in its place
LEAST_IN_PLACE = 0.5  # coverage without the question's words that stand elsewhere in the snippet
ADDED = 3  # content words in a row that the evidence lacks, and that say something of their own
CLOSE = 4  # content words within which an agent stands before its verb
COPIED = 0.5  # likeness from which a claim copies its evidence
ABOUT = 0.45  # coverage from which a claim in other words speaks of the same things
SHORTEST_SYMBOL = 3  # letters of a symbol that another one may contain
VOTES = 3  # words of a scope that decide about its polarity
PARTICIPLES = ("ed", "en", "wn", "ght", "lt", "pt", "nt", "und")


class Fault(StrEnum):
    """What keeps evidence from supporting a claim; see `RULES`."""

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
    """How much of a claim's words, weighted by rarity, some evidence covers, its faults, and the comparison."""

    coverage: float
    faults: frozenset[Fault]
    pair: ClaimComparison

    @property
    def vetoes(self) -> frozenset[Fault]:
        """The faults for which not even a judge may call the claim supported."""
        return veto(self.pair)

    @property
    def verdict(self) -> Verdict:
        """Contradicted is what is covered well, but with the polarity or the direction reversed, not both."""
        if not self.faults:
            return Verdict.SUPPORTED
        is_reversed = self.faults <= REVERSALS and len(self.faults) == 1  # "did not reduce" leaves "increases" open
        return Verdict.CONTRADICTED if is_reversed else Verdict.UNSUPPORTED


def assess(
    claim: Analysis, evidence: Analysis, asked: frozenset[str] = NOTHING, context: frozenset[str] = NOTHING
) -> Judgement:
    """Hold a claim against evidence.

    Parameters
    ----------
    asked : keys of the question's words: repeating them is no evidence, unless the claim has no others
    context : keys of the whole snippet, where a word of the question may stand apart from the evidence
    """
    pair = compare(claim, evidence, asked, context)
    return Judgement(pair.coverage(pair.reversals | pair.apart), faults_of(pair), pair)


def veto(pair: ClaimComparison) -> frozenset[Fault]:
    """Return the faults that forbid to call a claim supported, whatever a judge says of it.

    Of a claim that copies its evidence, word after word, all rules speak, but a rare word that is no name may be
    missing. Of one in other words, only rules that other words do not mislead, and where it speaks of the same things.
    """
    if pair.likeness >= COPIED:
        return frozenset(fault for fault, applies in VETO_OF_A_COPY if applies(pair))
    about = pair.coverage(pair.reversals | pair.apart | frozenset(_unknown(pair))) >= ABOUT
    return frozenset(fault for fault, applies in VETO if applies(pair)) if about else frozenset()


def faults_of(pair: ClaimComparison) -> frozenset[Fault]:
    """Return the faults of a claim beside its evidence, of which one suffices: those whose rule applies."""
    return frozenset(fault for fault, applies in RULES if applies(pair))


def _says_too_little(pair: ClaimComparison) -> bool:
    """Whether too few of the claim's words stand in the evidence, with or without those of the question."""
    coverage = pair.coverage(pair.reversals | pair.apart)
    own = pair.coverage(pair.reversals | pair.repeated) if pair.repeated else coverage
    return min(coverage, own) < LEAST_COVERAGE or pair.coverage(pair.reversals) < LEAST_IN_PLACE


def _adds_words(pair: ClaimComparison) -> bool:
    """Whether some content words in a row are missing: a short false addition to a long sentence."""
    passed, run = pair.reversals | pair.apart, 0
    for index, word in enumerate(pair.claim.content):
        run = run + (not is_filler(word)) if pair.positions[index] is None and index not in passed else 0
        if run >= ADDED:
            return True
    return False


def _lacks_needed_word(pair: ClaimComparison) -> bool:
    """Whether a word had to stand in the evidence, or stands in the place of another there."""
    missing = (pair.claim.content[n] for n in pair.missing if n not in pair.reversals | pair.apart)
    return any(map(_must_stand, missing)) or _lacks_named_word(pair)


def _lacks_named_word(pair: ClaimComparison) -> bool:
    """Whether a name, number, direction or period is missing, or a word stands in the place of another one."""
    return any(
        _replaces(pair, index) or _takes_place(pair, index) or _is_bound(pair.claim.content[index])
        for index in pair.missing
        if index not in pair.reversals | pair.apart
    )


def _must_stand(word: ContentWord) -> bool:
    return word.weight >= RARE or _is_bound(word)


def _is_bound(word: ContentWord) -> bool:
    is_period = word.text.lower() in lexicon().periods
    return word.kind is not WordKind.CONTENT or carries_direction(word) or is_period


def _replaces(pair: ClaimComparison, index: int) -> bool:
    """Whether a specific word stands where the evidence has another."""
    others = (pair.evidence.content[position] for position in pair.vacant(index))
    return is_specific(pair.claim.content[index]) and any(map(is_specific, others))


def _takes_place(pair: ClaimComparison, index: int) -> bool:
    """Whether a word stands in the place of a rare one, right before the same word: "loop" or "thiazide diuretics"."""
    words, slot = pair.claim.content, pair.slot(index)
    if slot is None or words[index].segment != words[index + 1].segment:
        return False
    is_word = words[index].kind is WordKind.CONTENT and words[index].weight > REPORTING_WEIGHT
    return is_word and pair.evidence.content[slot].weight >= RARE


def _exchanges_roles(pair: ClaimComparison) -> bool:
    """Whether sides or roles have changed: what is inhibited by aspirin does not inhibit it."""
    return _exchanges_sides(pair) or any(lead < 0 for _, lead in _voices(pair))


def _exchanges_sides(pair: ClaimComparison) -> bool:
    """Whether what is compared, or follows something, has changed sides: "A is better than B", "B after A"."""
    words, positions, orders = pair.claim.content, pair.positions, lexicon().ordering
    ordering = [(n + 1, p + 1) for p, n in pair.owners.items() if words[n].text.lower() in orders]
    for ours, theirs in ordering + [(n, p) for n in pair.claim.compared for p in pair.evidence.compared]:
        part = [n for n in range(ours, len(positions)) if words[n].segment == words[ours].segment]
        right = [p < theirs for n in part if (p := positions[n]) is not None]
        if sum(right) * 2 > len(right) and any(p is not None and p >= theirs for p in positions[:ours]):
            return True
    return False


def _voices(pair: ClaimComparison) -> Iterator[tuple[int, int]]:
    """Yield each agent that one side alone has in the passive, and by how many words it leads its verb on the other.

    The number is negative where the agent follows the verb: the roles are exchanged.
    """
    for position, index in pair.owners.items():
        ours, theirs = _is_agent(pair.claim, index), _is_agent(pair.evidence, position)
        verb = pair.positions[index - 1] if ours else None
        if verb is not None and not theirs:
            yield index, verb - position
        elif theirs and not ours and position - 1 in pair.owners:
            yield index, pair.owners[position - 1] - index


def _is_agent(text: Analysis, index: int) -> bool:
    """Whether "by" and a participle stand before a word: `is inhibited by aspirin`."""
    if not index or not text.content[index].after_by or text.content[index].kind is WordKind.NUMBER:
        return False
    return text.content[index - 1].text.endswith(PARTICIPLES)


def _moves_words(pair: ClaimComparison) -> bool:
    """Whether words have changed places; a change of voice, or of the sides of "and", does not count."""
    words = pair.claim.content
    other_voice = {words[agent].segment for agent, lead in _voices(pair) if 0 <= lead <= CLOSE}
    placed = {index for indices, is_same in attributed(pair) if is_same for index in indices}
    moved = [words[index].segment for index in misplaced(pair, placed) if _must_stand(words[index])]
    relations = set(map(stem, lexicon().symmetric))
    symmetric = {word.segment for word in words if word.key in relations}
    compared = {word.segment for word in words if carries_direction(word)}
    exchanged = {segment for segment in symmetric - compared if moved.count(segment) > 1}
    moves = set(moved) - other_voice - exchanged
    precedes = any(_precedes_for_another(pair, n) for n in pair.owners.values() if n not in placed)
    return bool(moves) or precedes or _exchanges_sentences(pair)


def _unknown(pair: ClaimComparison) -> Iterator[int]:
    """Yield the claim's numbers, symbols and populations that stand nowhere in the snippet, by whatever alias.

    A population counts where the evidence has another one.
    """
    others = any(word.key.startswith("@") for word in pair.evidence.content)
    for index in pair.missing:
        word = pair.claim.content[index]
        if index in pair.reversals | pair.apart or word.key in pair.known:
            continue
        if word.kind is WordKind.NUMBER:
            unknown = not any(map(word.is_about, pair.known))
        elif word.key.startswith("@"):
            unknown = others
        else:
            named = is_symbol(word.text) and len(word.key) > 1 and word.weight >= RARE
            unknown = named and not any(_is_kin(word.key, key) for key in pair.known)
        if unknown:
            yield index


def _is_kin(one: str, other: str) -> bool:
    """Whether two symbols may name the same: "HIV" and "HIV-1", "ACE2" and "hACE2"; not "IL-1" and "IL-6"."""
    short, long = sorted((one, other), key=len)
    rest = long.removesuffix(short) if long.endswith(short) else long.removeprefix(short)
    if len(rest) == len(long) or len(short) < SHORTEST_SYMBOL:
        return False
    return rest.isalpha() or short.isalpha()


def _exchanges_names(pair: ClaimComparison) -> bool:
    """Whether two names or numbers have exchanged their neighbours; a change of voice, or of "and", does not count."""
    words = pair.claim.content
    spared = {words[agent].segment for agent, _ in _voices(pair)}
    spared |= {word.segment for word in words if word.key in set(map(stem, lexicon().symmetric))}
    moved = {
        index: places
        for index in pair.owners.values()
        if words[index].segment not in spared and (places := _usurped(pair, index))
    }
    return any(pair.positions[other] in places for places in moved.values() for other in moved)


def _takes_number_of_another(pair: ClaimComparison) -> bool:
    """Whether a number is given to another arm than in the evidence: "7 % with placebo", which is semaglutide's."""
    return not all(is_same for _, is_same in attributed(pair))


def _is_name(word: ContentWord) -> bool:
    """Whether a word is a number, a name, or one as rare as the name of a drug."""
    if carries_direction(word):
        return False
    return word.kind is not WordKind.CONTENT or (word.weight >= RARE and is_specific(word))


def _usurped(pair: ClaimComparison, index: int) -> set[int]:
    """Return the places of other names in the evidence whose neighbours a name of the claim has, and not its own."""
    word, theirs = pair.claim.content[index], pair.evidence.content
    if not _is_name(word):
        return set()
    own = max((_shared(pair, index, n) for n, other in enumerate(theirs) if other.key == word.key), default=0)
    return {
        n
        for n, other in enumerate(theirs)
        if _is_name(other)
        and n != pair.positions[index]
        and other.key != word.key
        and not (word.after_by or other.after_by)
        and _shared(pair, index, n) > own
    }


def _shared(pair: ClaimComparison, index: int, position: int) -> int:
    """Return on how many sides a word of the claim has the neighbour that stands there in the evidence."""
    ours, theirs = pair.claim.content, pair.evidence.content
    return sum(
        0 <= index + step < len(ours)
        and 0 <= position + step < len(theirs)
        and ours[index + step].segment == ours[index].segment
        and ours[index + step].key == theirs[position + step].key
        for step in (-1, 1)
    )


def _denies(pair: ClaimComparison) -> bool:
    """Whether one side negates what the other asserts, in each place, and has no word that denies it otherwise."""
    sides = (pair.claim, pair.evidence, dict(enumerate(pair.positions))), (pair.evidence, pair.claim, pair.owners)
    for here, there, counterparts in sides:
        if _denying(there, set(counterparts.values())):
            continue
        for scope in _negations(here):
            same = [
                any(
                    here.content[n].denied == other.denied
                    for other in there.content
                    if other.key == here.content[n].key
                )
                for n in scope.targets
                if counterparts.get(n) is not None
            ]
            if not _agree(same):
                return True
    return False


def _denying(text: Analysis, matched: set[int | None]) -> bool:
    """Whether a text denies something by a word of its own: "lack", "unlikely", "inverse", or without an object."""
    own = [word for n, word in enumerate(text.content) if n not in matched]
    return any(word.negated or word.key in denials() for word in own) or any(
        matched.isdisjoint(scope.targets) for scope in _negations(text)
    )


def _precedes_for_another(pair: ClaimComparison, index: int) -> bool:
    """Whether a name that begins a part of the claim stands right before what another name does in the evidence."""
    words, position, slot = pair.claim.content, pair.positions[index], pair.slot(index)
    if slot is None or words[index].segment != words[index + 1].segment:
        return False
    if index and words[index - 1].segment == words[index].segment:
        return False
    other = pair.evidence.content[slot]
    listed = other.joined and position == slot - 1
    return words[index].kind is other.kind and _is_name(words[index]) and _is_name(other) and not listed


def _exchanges_sentences(pair: ClaimComparison) -> bool:
    """Whether a claim runs from the second sentence into the first: its predicate may belong to another subject."""
    order = [pair.evidence.content[position].sentence for position in pair.owners]
    return len(set(order)) > 1 and order == sorted(order, reverse=True)


def _changes_polarity(pair: ClaimComparison) -> bool:
    """Whether a negation governs other words, or none, on the other side."""
    claim, evidence, owners = pair.claim, pair.evidence, pair.owners
    words, theirs = claim.content, evidence.content
    same = {n: words[n].denied == theirs[position].denied for position, n in owners.items()}
    for scope in _negations(claim):
        if not _agree([same[n] for n in scope.targets if n in same]):
            return True
    for scope in _negations(evidence):
        targets = [owners[position] for position in scope.targets[: VOTES + 1] if position in owners]
        restricts = scope.restricting and scope.targets and not targets and min(scope.targets) - 1 in owners
        if restricts or not _agree([same[n] for n in targets]):
            return True
    by_prefix = (n for p, n in owners.items() if words[n].negated or theirs[p].negated)
    return not all(same[n] for n in by_prefix) or _ungoverned(claim, set(same)) > _ungoverned(evidence, set(owners))


def _negations(text: Analysis) -> Iterator[Scope]:
    return (scope for scope in text.scopes if scope.kind is CueKind.NEGATION)


def _agree(same: Sequence[bool]) -> bool:
    """Whether the nearest word has the same polarity, or most of the nearest."""
    nearest = same[:VOTES]
    return not nearest or nearest[0] or sum(nearest) * 2 > len(nearest)


def _ungoverned(text: Analysis, matched: set[int]) -> int:
    """Return how many negations govern no word that the other side has."""
    return sum(matched.isdisjoint(scope.targets) for scope in _negations(text))


def _is_more_certain(pair: ClaimComparison) -> bool:
    """Whether the claim is more certain than the evidence, or speaks of more."""
    claim, evidence = pair.claim, pair.evidence
    hedged = {target for scope in claim.scopes if scope.kind is CueKind.HEDGE for target in scope.targets}
    known = evidence.certain | ({BOTH} if evidence.coupled else set())
    return (
        not claim.certain <= known
        or any(_is_widened(pair, n) or _is_recounted(pair, n, p) for p, n in pair.owners.items())
        or any(governed.isdisjoint(hedged) for governed in _governed(pair, CueKind.HEDGE))
    )


def _is_widened(pair: ClaimComparison, index: int) -> bool:
    """Whether the claim joins by "and" two words of which the evidence has one "or" the other."""
    before, here = pair.positions[index - 1] if index else None, pair.positions[index]
    if here is None or before is None or abs(here - before) != 1:
        return False
    word = pair.claim.content[index]
    return word.joined and not word.alternative and pair.evidence.content[max(here, before)].alternative


def _is_recounted(pair: ClaimComparison, index: int, position: int) -> bool:
    """Whether a claim speaks of another number of things than its evidence; of some, where that speaks of more."""
    ours, theirs = pair.claim.content[index].quantifier, pair.evidence.content[position].quantifier
    return bool(ours and theirs) and ours != theirs and not (ours == "some" and theirs in ("all", "most"))


def _reports_an_aim(pair: ClaimComparison) -> bool:
    """Whether the evidence only plans or asks what the claim asserts."""
    return not pair.claim.aims and any(_governed(pair, CueKind.AIM))


def _governed(pair: ClaimComparison, kind: CueKind) -> Iterator[set[int]]:
    """Yield the words of the claim that each cue of the evidence governs, if there are any."""
    for scope in pair.evidence.scopes:
        governed = {pair.owners[target] for target in scope.targets if target in pair.owners}
        if scope.kind is kind and governed:
            yield governed


RULES: Sequence[tuple[Fault, Callable[[ClaimComparison], bool]]] = (
    (Fault.UNCOVERED, _says_too_little),
    (Fault.UNCOVERED, _adds_words),
    (Fault.MISSING, _lacks_needed_word),
    (Fault.ROLE, _exchanges_roles),
    (Fault.ORDER, _moves_words),
    (Fault.ORDER, _takes_number_of_another),
    (Fault.POLARITY, _changes_polarity),
    (Fault.DIRECTION, lambda pair: bool(pair.reversals)),
    (Fault.HEDGE, _is_more_certain),
    (Fault.AIM, _reports_an_aim),
)

VETO_OF_A_COPY = [
    (Fault.MISSING, _lacks_named_word),
    *((fault, applies) for fault, applies in RULES if fault not in (Fault.UNCOVERED, Fault.MISSING)),
]

VETO: Sequence[tuple[Fault, Callable[[ClaimComparison], bool]]] = (
    (Fault.MISSING, lambda pair: next(_unknown(pair), None) is not None),
    (Fault.ROLE, _exchanges_roles),
    (Fault.ORDER, _exchanges_names),
    (Fault.ORDER, _takes_number_of_another),
    (Fault.POLARITY, _denies),
    (Fault.DIRECTION, lambda pair: bool(pair.reversals)),
    (Fault.AIM, _reports_an_aim),
)
