"""From people's claims, snippets and experts' answers to pairs of claim and evidence with a label."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from biorag.answering.verification.checker import asserted
from biorag.corpus.claims import ClaimRow
from biorag.corpus.sentences import sentences, terms
from biorag.training.claims.making import CHANGERS, Change, Names, changed_alike, names_by_kind
from biorag.training.rows import normalised
from biorag.types import ClaimLabel, Snippet

SHORTEST, LONGEST = 6, 45  # words of a sentence that claims are made of
OTHERS = 40  # texts among which the nearest is taken
ALIKE = 0.5  # share of a claim's words, by rarity, from which another text may decide it
_ASSERTS = re.compile(
    r"\b(?:is|are|was|were|has|have|had|can|may|show[ns]?|showed|suggests?|plays?|leads?|associated|(?:increas|decreas|"
    r"reduc|induc|caus|improv|regulat|promot|mediat|activat)e[sd]?|(?:inhibit|prevent|suppress)(?:s|es|ed)?)\b"
)
_ASKS = re.compile(
    r"\b(?:aim(?:s|ed)?|objectives?|purpose|goal|whether|hypothes\w+|further (?:studies|research)|this review|"
    r"should be|we (?:investigat|examin|stud|evaluat|assess|review|discuss|describ)\w*)\b|\?$",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:(?:in )?conclusions?|thus|therefore|hence|in summary|overall|moreover|furthermore|in addition|results|"
    r"(?:taken )?together|(?:(?:these|our) (?:results|findings|data)|this study|here,? we|we) "
    r"(?:suggest|indicate|show|demonstrate|conclude|found|find)s?(?: here)?(?: that)?)[,:]?\s+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim, the sentences of a text, and what they do to it; `rationale` has the positions of those that decide.

    `source` is where it is from, `document` the same for all claims of a text, `id` that of the row or snippet.
    """

    claim: str
    sentences: tuple[str, ...]
    label: ClaimLabel
    source: str
    document: str
    rationale: tuple[int, ...] = ()
    id: str = ""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Evidence as a judge reads it, a claim, and the label."""

    evidence: str
    claim: str
    label: ClaimLabel
    source: str


class ExpertStatement(NamedTuple):
    """A question, its answer "yes", "no" or "maybe" if it is such a question, ideal answers, and relevant snippets."""

    question: str
    decision: str | None
    ideal: Sequence[str]
    snippets: Sequence[Snippet]


def of_people(rows: Iterable[ClaimRow], source: str) -> Iterator[LabelledClaim]:
    """Yield the labelled claims of a file; rows without a label or a text are left out."""
    for row in rows:
        texts = tuple(filter(None, (row.title, *(_joined(sentence) for sentence in row.sentences or ()))))
        if row.label and texts:
            rationale = tuple(
                index + bool(row.title) for index in row.rationale if index + bool(row.title) < len(texts)
            )
            document = _document([row.document] if row.document else texts[bool(row.title) :])
            yield LabelledClaim(row.claim, texts, row.label, source, document, rationale, row.id)


def of_snippets(snippets: Iterable[Snippet], rng: random.Random) -> Iterator[LabelledClaim]:
    """Yield true claims of snippets: a title beside the text, a conclusion beside the rest, a sentence beside all."""
    for snippet in snippets:
        texts = tuple(map(_joined, sentences(snippet.content)))
        title = _joined(snippet.title).rstrip(".") + "."
        document = _document(texts)
        if texts and is_assertion(title) and title.rstrip(".") not in snippet.content:
            yield LabelledClaim(title, texts, "supports", "titles", document, id=snippet.id)
        if len(texts) > 2 and is_assertion(texts[-1]):
            yield LabelledClaim(without_lead(texts[-1]), texts[:-1], "supports", "conclusions", document, id=snippet.id)
        if own := [index for index, text in enumerate(texts) if is_assertion(text)]:
            index = rng.choice(own)
            yield LabelledClaim(texts[index], texts, "supports", "sentences", document, (index,), snippet.id)


def of_experts(statements: Iterable[ExpertStatement], rng: random.Random) -> Iterator[LabelledClaim]:
    """Yield ideal answers beside their snippets, and yes/no questions as statements: as many yes as no, and maybe."""
    decided: dict[str, list[LabelledClaim]] = {"yes": [], "no": [], "maybe": []}
    for statement in statements:
        texts = tuple(dict.fromkeys(_joined(s) for snippet in statement.snippets for s in sentences(snippet.contents)))
        answer = [without_lead(sentence) for ideal in statement.ideal[:1] for sentence in sentences(ideal)]
        document = normalised(statement.question)
        for sentence in filter(is_assertion, answer if texts else []):
            yield LabelledClaim(sentence, texts, "supports", "answers", document)
        if statement.decision in decided and texts:
            claim = asserted(statement.question, "yes")
            decided[statement.decision].append(
                LabelledClaim(claim, (*texts, *answer), "neither", "questions", document)
            )
    few = min(len(decided["yes"]), len(decided["no"]))
    yield from (replace(claim, label="supports") for claim in rng.sample(decided["yes"], few))
    yield from (replace(claim, label="contradicts") for claim in rng.sample(decided["no"], few))
    yield from decided["maybe"]


def is_assertion(sentence: str) -> bool:
    """Return whether a sentence says something that can be true: no question, no aim, no piece of a sentence."""
    fits = SHORTEST <= len(sentence.split()) <= LONGEST and sentence[0].isalnum()
    return fits and bool(_ASSERTS.search(sentence)) and not _ASKS.search(sentence)


def without_lead(sentence: str) -> str:
    """Return a sentence without "In conclusion," or "These data show that" before it."""
    rest = _LEAD.sub("", sentence)
    return sentence if rest == sentence or not rest else without_lead(rest[0].upper() + rest[1:])


class ClaimMaker:
    """Makes near misses and hard neutrals of claims, beside texts of theirs.

    Evidence and claim have at most so many characters together, if a sentence alone has not more.
    """

    def __init__(self, claims: Sequence[LabelledClaim], rng: random.Random, characters: int) -> None:
        self._texts = list({claim.document: claim.sentences for claim in claims}.items())
        self._names: Names = names_by_kind(text for _, texts in self._texts for text in texts)
        self._rng, self._characters = rng, characters
        self.rarity = rarity_of(text for _, texts in self._texts for text in texts)

    def near_misses(self, claim: LabelledClaim) -> Iterator[LabelledClaim]:
        """Yield claims of a true one: as many that support it as of each other label; none if it has no near miss.

        The sentence and its near miss stand beside the evidence, beside evidence that is changed alike, and beside
        another text.
        """
        read = self.read(claim)
        for kind, changer in self._rng.sample(list(CHANGERS.items()), len(CHANGERS)):
            change = changer(claim.claim, self._rng, self._names)
            alike = changed_alike(change, claim.claim, read.sentences) if change else None
            if change and alike and (other := self.neutral(claim)):
                yield from self._mirrored(read, change, alike, kind, other)
                return

    def _mirrored(
        self, claim: LabelledClaim, change: Change, alike: tuple[str, ...], kind: str, other: LabelledClaim
    ) -> Iterator[LabelledClaim]:
        near_miss = replace(claim, claim=change.text)
        yield claim
        yield replace(near_miss, label=change.label)
        yield replace(near_miss, sentences=alike)
        if kind != "hedge":  # what is certain is also possible
            yield replace(claim, sentences=alike, label=change.label)
        if change.label == "contradicts" or kind == "hedge":
            yield other
        if change.label == "contradicts":
            yield replace(other, claim=change.text)

    def windows(self, claim: LabelledClaim) -> Iterator[LabelledClaim]:
        """Yield a claim beside single windows of its text, as a judge reads them.

        They are what decides it, each run of neighbouring sentences, and the nearest of the other sentences that share
        less than half of its words: "neither". A claim that its text does not decide has the two nearest.
        """
        positions = sorted(claim.rationale)
        runs = [
            tuple(position for _, position in run)
            for _, run in itertools.groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
        ]
        for run in runs:
            texts = tuple(claim.sentences[position] for position in run)
            yield replace(claim, sentences=texts, rationale=tuple(range(len(texts))))
        if not runs and claim.label != "neither":
            return
        others = [text for index, text in enumerate(claim.sentences) if index not in positions]
        shares = sorted(((self.share(claim.claim, [text]), text) for text in others), reverse=True)
        nearest = [text for share, text in shares if share < ALIKE or not runs]
        for text in nearest[: 1 if runs else 2]:
            yield replace(claim, sentences=(text,), label="neither", rationale=())

    def neutral(self, claim: LabelledClaim) -> LabelledClaim | None:
        """Return a claim beside sentences that do not decide it, of the same text or another; None if there are none.

        Of the same text they are those that are not the rationale, of others the nearest of some drawn ones; both share
        less than half of the claim's words, weighted by rarity.
        """
        neutrals = list(self._neutrals(claim))
        return self._rng.choice(neutrals) if neutrals else None

    def _neutrals(self, claim: LabelledClaim) -> Iterator[LabelledClaim]:
        drawn = self._rng.sample(self._texts, min(OTHERS, len(self._texts)))
        own = tuple(text for index, text in enumerate(claim.sentences) if index not in claim.rationale)
        others = [texts for document, texts in drawn if document != claim.document]
        for candidates in ([own] if claim.rationale and len(own) > 1 else [], others):
            shares = [(self.share(claim.claim, texts), texts) for texts in candidates]
            if apart := [texts for share, texts in sorted(shares, reverse=True) if share < ALIKE]:
                yield self.read(replace(claim, sentences=apart[0], label="neither", rationale=()))

    def share(self, claim: str, texts: Iterable[str]) -> float:
        """Return the share of a claim's words that texts have, each counted by its rarity."""
        words = _terms(claim)
        weight = math.fsum(self.rarity.get(word, 1.0) for word in words)
        shared = words & frozenset[str]().union(*map(_terms, texts))
        return math.fsum(self.rarity.get(word, 1.0) for word in shared) / weight if weight else 0.0

    def read(self, claim: LabelledClaim) -> LabelledClaim:
        """Return a claim with those of its sentences alone that a judge reads, which all count as its rationale."""
        positions = chosen(claim, self.rarity, self._characters - len(claim.claim))
        sentences = tuple(claim.sentences[index] for index in positions)
        return replace(claim, sentences=sentences, rationale=tuple(range(len(sentences))))


def chosen(claim: LabelledClaim, rarity: Mapping[str, float], characters: int) -> list[int]:
    """Return the positions of the sentences of a claim's evidence, in their order.

    They are the rationale, and then one by one the sentence that adds most of the claim's words, each counted by its
    rarity (unseen ones 1), as long as one adds any and they fit into so many characters. The first always fits.
    """
    words = [_terms(text) for text in claim.sentences]
    positions = list(claim.rationale)
    missing = set(_terms(claim.claim)).difference(*(words[index] for index in positions))
    used = sum(len(claim.sentences[index]) + 1 for index in positions)
    while True:
        fitting = [
            index
            for index, text in enumerate(claim.sentences)
            if index not in positions and (not positions or used + len(text) <= characters)
        ]
        gains = [(math.fsum(rarity.get(word, 1.0) for word in missing & words[index]), -index) for index in fitting]
        gain, index = max(gains, default=(0.0, 0))
        if not gains or (positions and not gain):
            return sorted(positions)
        positions.append(-index)
        missing -= words[-index]
        used += len(claim.sentences[-index]) + 1


def rarity_of(texts: Iterable[str]) -> dict[str, float]:
    """Return the inverse document frequency of the words of texts, as a share of that of a word never seen, 0 to 1."""
    counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        counts.update(_terms(text))
        total += 1
    return {word: math.log((total + 1) / (count + 1)) / math.log(total + 1) for word, count in counts.items()}


def _document(texts: Sequence[str]) -> str:
    """Return what all claims of a text have in common: its first sentence."""
    return normalised(texts[0]) if texts else ""


def _joined(text: str) -> str:
    return " ".join(text.replace("\\n", " ").split())


@lru_cache(maxsize=1 << 17)
def _terms(text: str) -> frozenset[str]:
    return frozenset(terms(text))
