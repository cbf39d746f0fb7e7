"""Whether a claim stands in a sentence in nearly these words, or differs in a number, a name or a negation.

Words are compared as stems, in their order, without articles and auxiliaries; numbers with their units. A claim may be
a part of its sentence, cut where the sentence itself joins its parts, but not where it restricts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from biorag.answering.guards.words import Word, WordKind, lexicon, rarity, words
from biorag.utils.text import plain_form

PLACE, NEGATION = "~", "¬"
OPENING, CLOSING, PAUSES = frozenset("(["), frozenset(")]"), frozenset(",;:.()[]–—")
NAMED = 0.6  # rarity from which a word is taken for a name
SHARED = 0.6  # of a claim's words that a sentence must have to be compared
LEAD = 9  # words before "that" in "these results show that"
LONGEST = 400  # words of a claim or sentence that are compared
NEAREST = 3  # sentences of a snippet that are compared word by word


class Relation(IntEnum):
    """How a sentence relates to a claim; the larger, the nearer they are."""

    APART = 0  # nothing is established
    DIFFERS = 1  # in one number, name or negation, and in nothing else
    STATED = 2  # in nearly these words


@dataclass(frozen=True, slots=True)
class Comparison:
    """A relation; where it differs, what the claim has, what the sentence has, and whether one denies the other."""

    relation: Relation
    ours: str = ""
    theirs: str = ""
    opposed: bool = False

    @property
    def difference(self) -> str:
        """What differs, in words: "12 %, not 21 %"."""
        if self.relation is not Relation.DIFFERS:
            return ""
        if not self.theirs or not self.ours:
            return f"this {'with' if self.theirs else 'without'} “{self.ours or self.theirs}”"
        return f"{self.theirs}, not {self.ours}"


class _Token(NamedTuple):
    key: str
    word: Word
    shown: str  # as it is written, with its sign and unit
    pause: bool  # whether a mark stands right before it
    nested: bool  # whether it stands in brackets


class _Edit(NamedTuple):
    """Words of the claim and of the sentence in one place; either may be none."""

    ours: Sequence[_Token]
    theirs: Sequence[_Token]


APART = Comparison(Relation.APART)


def compared(claim: str, sentence: str) -> Comparison:
    """Compare a claim with a sentence."""
    ours, theirs = _tokens(claim), _tokens(sentence)
    if not ours or len(ours) > LONGEST or len(theirs) > LONGEST:
        return APART
    return _aligned(ours, theirs)


def nearest(claim: str, sentences: Sequence[str]) -> Iterator[int]:
    """Yield the positions of the sentences that share most words with a claim, if they share enough.

    Of equals those of about its length come first.
    """
    claimed = _tokens(claim)
    ours = {token.key for token in claimed}
    shares = []
    for position, sentence in enumerate(sentences):
        tokens = _tokens(sentence)
        shared = ours & {token.key for token in tokens}
        shares.append((-len(shared) / max(1, len(ours)), abs(len(tokens) - len(claimed)), position))
    yield from (position for share, _, position in sorted(shares)[:NEAREST] if -share >= SHARED)


@lru_cache(maxsize=1 << 14)
def _tokens(text: str) -> tuple[_Token, ...]:
    """Return the words that are compared, without a lead such as "these results show that"."""
    tokens: list[_Token] = []
    pause, depth, lead = False, 0, 0
    plain = plain_form(text)
    for count, word in enumerate(words(text)):
        sign = word.key[1:2] if word.kind is WordKind.NUMBER and word.key[1:2] in "-<>≤≥" else ""
        lower = word.text.lower().replace("’", "'")
        if word.kind is WordKind.MARK and word.text not in "%<>≤≥=±+":
            depth = max(0, depth + (word.text in OPENING) - (word.text in CLOSING))
            pause = pause or word.text in PAUSES
        elif lower == "that" and 0 < count - lead <= LEAD and _reports(tokens):
            tokens, pause, lead = [], False, count
        elif (key := _key(word, lower)) is not None:
            if word.kind is WordKind.NUMBER and tokens and plain[tokens[-1].word.end : word.start] == ". ":
                pause = tokens[-1].word.kind is not WordKind.NUMBER  # "0. 5 percent" is one number
            tokens.append(_Token(key, word, sign + plain[word.start : word.end], pause, depth > 0))
            pause = False
    return tuple(tokens)


def _key(word: Word, lower: str) -> str | None:
    """Return what a word is compared by; None for one that tells nothing apart."""
    if lower in lexicon().negations or lower.endswith("n't") or lower == "non":
        return NEGATION
    if lower in lexicon().unread:
        return None
    return PLACE if lower in lexicon().places else word.key


def _reports(tokens: Sequence[_Token]) -> bool:
    """Whether words before "that" only report: none denies or doubts, and one is of reporting."""
    content = [token.word.text.lower() for token in tokens if token.word.kind is not WordKind.FUNCTION]
    return (
        bool(content)
        and lexicon().reporting.issuperset(content)
        and not any(
            token.key == NEGATION or token.word.text.lower() in ("whether", "if", "may", "might", "could")
            for token in tokens
        )
    )


def _aligned(ours: Sequence[_Token], theirs: Sequence[_Token]) -> Comparison:
    counted = _is_counted(ours, theirs)  # what so many did not do, or did otherwise, others may have done
    theirs = theirs[counted:]
    matcher = SequenceMatcher(None, [token.key for token in ours], [token.key for token in theirs], autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    matched = sum(block.size for block in matcher.get_matching_blocks())
    if matched < SHARED * len(ours):
        return APART
    edits = []
    for _, begin, end, start, stop in codes:
        before, after = begin == 0, end == len(ours)
        if begin == end and (before or after):
            if not (_cut_before(theirs[:stop], theirs[stop:]) if before else _cut_after(theirs[start:])):
                return APART
            continue
        if after and _cut_after(theirs[start + end - begin : stop]):
            stop = start + end - begin
        edits.append(_Edit(ours[begin:end], theirs[start:stop]))
    edits = [edit for edit in edits if not _is_aside(edit)]
    if not edits:
        return Comparison(Relation.STATED)
    if len(edits) == 1 and (difference := _difference(edits[0], counted)):
        return difference
    return APART


def _is_counted(ours: Sequence[_Token], theirs: Sequence[_Token]) -> bool:
    """Whether the sentence counts what the claim begins with: "21 patients took", but not "21 of the patients took"."""
    adjacent = len(theirs) > 1 and theirs[1].word.start == theirs[0].word.end + 1
    return adjacent and theirs[0].key.removeprefix("#").isdigit() and theirs[1].key == ours[0].key


def _cut_before(left: Sequence[_Token], rest: Sequence[_Token]) -> bool:
    """Whether a claim may begin after these words of its sentence: where the sentence pauses, or joins two parts.

    They neither begin a condition or a place that the claim leaves out, nor deny.
    """
    if _restricts(left[0]):
        return False
    joined = left[-1].word.text.lower() in lexicon().joining
    return joined or (bool(rest) and rest[0].pause)


def _cut_after(right: Sequence[_Token]) -> bool:
    """Whether a claim may end before these words: the sentence pauses or joins, and neither restricts nor denies."""
    if not right or any(token.key == NEGATION for token in right):  # "A helps, a difference that was not significant"
        return False
    if right[0].word.text.lower() in lexicon().joining:
        return len(right) == 1 or not _restricts(right[1])  # "A helps, but only in men"
    return (right[0].pause or right[0].nested) and not _restricts(right[0])


def _restricts(first: _Token) -> bool:
    return first.key == PLACE or first.word.text.lower() in lexicon().restricting


def _is_aside(edit: _Edit) -> bool:
    """Whether only the sentence has these words, and they stand in brackets."""
    return not edit.ours and all(token.nested for token in edit.theirs) and not _restricts(edit.theirs[0])


def _difference(edit: _Edit, counted: bool) -> Comparison | None:
    """Return how texts alike but for this edit differ: in a number, or, if not `counted`, in a name or a negation."""
    ours, theirs = edit
    said, says = _text(ours), _text(theirs)
    if not counted and [token.key for token in (*ours, *theirs)] == [NEGATION]:
        return Comparison(Relation.DIFFERS, said, says, opposed=True)
    if len(ours) == len(theirs) == 1:
        kinds = {ours[0].word.kind, theirs[0].word.kind}
        if kinds == {WordKind.NUMBER}:
            return Comparison(Relation.DIFFERS, said, says)
        if not counted and all(map(_is_name, (ours[0], theirs[0]))):
            return Comparison(Relation.DIFFERS, said, says)
    return None


def _text(tokens: Sequence[_Token]) -> str:
    return " ".join(token.shown for token in tokens)


def _is_name(token: _Token) -> bool:
    word = token.word
    return word.kind is WordKind.NAME or (word.kind is WordKind.CONTENT and rarity(word.key) >= NAMED)
