"""The rows of a judge's training: people's claims, hard neutrals of them, and claims that are made, split."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from biorag.corpus.claims import ClaimRow
from biorag.errors import BadInputError
from biorag.settings.settings import Settings
from biorag.training.claims.rows import (
    SHORTEST,
    ClaimMaker,
    ExpertStatement,
    LabelledClaim,
    LabelledPair,
    of_experts,
    of_people,
    of_snippets,
)
from biorag.training.contamination import ContaminationPolicy
from biorag.training.data import Split
from biorag.training.estimating import CHARACTERS
from biorag.training.rows import is_held_out, normalised
from biorag.types import LABELS, Snippet

QUESTIONS = "questions"  # the source whose claims are true or false, as people decided
NEUTRALS = 0.5  # share of people's decided claims that also stand beside a text that does not decide them


@dataclass(frozen=True, slots=True)
class ClaimSources:
    """What claims are taken and made from: rows of files by name, snippets, and experts' answers.

    The claims of `held_out` are validated on, and neither they nor their texts are trained on.
    """

    people: Sequence[tuple[str, Sequence[ClaimRow]]]
    snippets: Sequence[Snippet] = ()
    statements: Sequence[ExpertStatement] = ()
    held_out: Sequence[ClaimRow] = ()


@dataclass(frozen=True, slots=True)
class ClaimPreparation:
    """How the sources become rows: at most `made` that are made; with `claim_only` all evidence is left out."""

    contamination: ContaminationPolicy
    settings: Settings
    made: int = 0
    claim_only: bool = False

    def read(self, sources: ClaimSources) -> tuple[Split[LabelledPair], dict[str, Any]]:
        """Return the pairs to train on and those held out, by document, and the facts of the manifest.

        Raises `BadInputError` if no row is left, or one of a benchmark's questions is refused.
        """
        rng = random.Random(self.settings.seed)
        decided = [claim for name, rows in sources.people for claim in of_people(rows, name)]
        true = list(of_snippets(_texts(sources), rng)) if self.made else []
        statements, dropped = self.contamination.apply(sources.statements, lambda statement: (statement.question,))
        for claim in of_experts(statements, rng):
            (decided if claim.source == QUESTIONS else true).append(claim)
        decided, matches = self.contamination.apply(decided, _stated)
        true, more = self.contamination.apply(true, _stated)
        held_out = list(of_people(sources.held_out, "held out"))
        decided, true = unseen(decided, held_out), unseen(true, held_out, texts=True)
        if held_out:
            training, validation = self._pairs(decided, true, self.made), self._as_read(held_out)
        else:
            made = int(self.made * self.settings.training.validation)
            training = self._pairs(self._part(decided, False), self._part(true, False), self.made)
            validation = self._pairs(self._part(decided, True), self._part(true, True), made)
        if not training:
            raise BadInputError("no claim is left to train on: give files of labelled claims, or --snippets and --made")
        facts = {"sources": counts_of(training)}
        return Split(training, validation), {"data": facts, **self.contamination.facts([*dropped, *matches, *more])}

    def _part(self, claims: Sequence[LabelledClaim], held_out: bool) -> list[LabelledClaim]:
        fraction, seed = self.settings.training.validation, self.settings.seed
        return [claim for claim in claims if is_held_out(claim.document, fraction, seed) == held_out]

    def _pairs(self, decided: Sequence[LabelledClaim], true: Sequence[LabelledClaim], made: int) -> list[LabelledPair]:
        """Return the pairs of one side: its texts alone are what others are taken from."""
        maker, rng = self._maker([*decided, *true]), random.Random(self.settings.seed)
        asked = [claim for claim in decided if claim.label != "neither" and rng.random() < NEUTRALS]
        neutrals = [
            replace(claim, source=f"{claim.source}, neutral") for claim in filter(None, map(maker.neutral, asked))
        ]
        return self._evidence(
            [
                *decided,
                *(window for claim in decided for window in maker.windows(claim)),
                *neutrals,
                *limited(map(maker.near_misses, in_turn({claim.claim: claim for claim in true}.values())), made),
            ],
            maker,
        )

    def _as_read(self, claims: Sequence[LabelledClaim]) -> list[LabelledPair]:
        """Return claims with the evidence that is found without their rationale, as it is where a judge is used."""
        return self._evidence((replace(claim, rationale=()) for claim in claims), self._maker(claims))

    def _maker(self, claims: Sequence[LabelledClaim]) -> ClaimMaker:
        characters = self.settings.training.max_tokens * CHARACTERS
        return ClaimMaker(claims, random.Random(self.settings.seed), characters)

    def _evidence(self, claims: Iterable[LabelledClaim], maker: ClaimMaker) -> list[LabelledPair]:
        """Return each claim with the evidence that fits into a training pair; the first of those that are the same."""
        pairs: dict[tuple[str, str], LabelledPair] = {}
        for claim in claims:
            evidence = " ".join(maker.read(claim).sentences)
            pairs.setdefault((evidence, claim.claim), LabelledPair(evidence, claim.claim, claim.label, claim.source))
        return [replace(pair, evidence="") if self.claim_only else pair for pair in pairs.values()]


def unseen(
    claims: Sequence[LabelledClaim], held_out: Sequence[LabelledClaim], texts: bool = False
) -> list[LabelledClaim]:
    """Return the claims that are not held out, by id and words; with `texts` none of a held-out claim's text either."""
    ids = {claim.id for claim in held_out} - {""}
    stated = {normalised(claim.claim) for claim in held_out}
    read = {normalised(text) for claim in held_out for text in claim.sentences if len(text.split()) >= SHORTEST}
    return [
        claim
        for claim in claims
        if claim.id not in ids
        and normalised(claim.claim) not in stated
        and not (texts and read and not read.isdisjoint(map(normalised, claim.sentences)))
    ]


def in_turn(claims: Iterable[LabelledClaim]) -> Iterator[LabelledClaim]:
    """Yield claims in turn from each source until it has no more."""
    by_source: dict[str, list[LabelledClaim]] = {}
    for claim in claims:
        by_source.setdefault(claim.source, []).append(claim)
    for group in itertools.zip_longest(*by_source.values()):
        yield from filter(None, group)


def limited(groups: Iterable[Iterable[LabelledClaim]], most: int) -> Iterator[LabelledClaim]:
    """Yield the claims of whole groups, at most so many."""
    for group in map(list, groups if most else ()):
        if len(group) > most:
            return
        most -= len(group)
        yield from group


def counts_of(pairs: Iterable[LabelledPair]) -> dict[str, dict[str, int]]:
    """Return how many pairs of each source have each label."""
    counts: dict[str, Counter[str]] = {}
    for pair in pairs:
        counts.setdefault(pair.source, Counter(dict.fromkeys(LABELS, 0)))[pair.label] += 1
    return {source: dict(labels) for source, labels in counts.items()}


def _stated(claim: LabelledClaim) -> tuple[str]:
    return (claim.claim,)


def _texts(sources: ClaimSources) -> Iterator[Snippet]:
    """Yield the snippets that claims are made from: those of the sources, and the texts of people's claims, once."""
    texts = {snippet.contents: snippet for snippet in sources.snippets}
    for _, rows in sources.people:
        for row in rows:
            if row.text and row.title:  # a whole abstract, not sentences of one
                texts.setdefault(row.text.contents, row.text)
    return iter(texts.values())
