"""For and against: which of the studies that a search found support a claim, and which oppose it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from biorag.answering.guards.words import lacking
from biorag.answering.sections import is_evidence
from biorag.corpus.joining import paper_numbers
from biorag.corpus.sentences import terms
from biorag.references.facts import Participants, number_of, participants
from biorag.references.reference import Reference, has_concern, reference_of
from biorag.types import Answer, CheckedSentence, Hit, Opposition, Snippet, Stance, Verdict
from biorag.utils.text import squeezed

if TYPE_CHECKING:
    from biorag.answering.extract import ScoredSentences

STUDIES = 50  # that are judged at most
QUESTION_STUDIES = 20  # snippets whose studies may answer a question
SURE = 0.9  # probability from which an answer says that a study says otherwise
ABOUT = 0.4  # share of a sentence's words without which a snippet cannot surely say otherwise
NEAR = 1.0  # score of a sentence from which its study comes near a claim; chosen on 190 claims of SciFact
MARGIN = 0.1  # by how much a study's one stance must be likelier than another part's opposite one
COLUMNS = {Verdict.SUPPORTED: "supporting", Verdict.CONTRADICTED: "opposing", Verdict.UNSURE: "unsure"}
LONGEST = 4000  # characters of a sentence that are read
_NUMBER = r"[-−–+]?\d{1,6}(?:[.·,]\d{1,6})?\s?%?"
_SHARE = r"\d{1,3}(?:\.\d{1,3})?\s?%"
_P = r"[pP]\s?(?:-?\s?values?\s?)?[<=>≤≥]\s?0?[.·]\d{1,8}"
_GAP = r"[\s,;:=()\[\]]{0,5}"
_INTERVAL = (
    rf"(?:{_GAP}9[059]\s?%\s?(?:CI|C\.I\.|(?i:confidence intervals?|credible intervals?|CrI))s?{_GAP}(?:CI)?{_GAP}"
    rf"(?P<low>{_NUMBER})\s?(?:to|and|[-–—−,;])\s?(?P<high>{_NUMBER}))"
)
# A unit, or words without a number, that part a value from its interval.
_BETWEEN = r"(?P<between>(?!\d|[.·,/]\d|[-‐])(?:[^\s.;:()\[\]]|\.(?=\d)|\s(?![-−–+]?\d)){1,60}?(?!\)))??"
_VALUE = rf"(?!9[059]\s?%\s?(?:CI|C\.I\.|(?i:confidence|credible)|CrI))(?P<value>{_NUMBER})"  # no level of an interval
_MEASURE = (
    r"(?<![A-Za-z])(?:(?i:(?:adjusted|pooled|summary|crude)\s)?(?i:(?:odds|hazards?|risk|rate|prevalence) ratios?"
    r"|relative risks?|(?:weighted\s|standardi[sz]ed\s)?mean differences?|risk differences?|(?:absolute|relative) risk "
    r"reductions?|number needed to (?:treat|harm))|a?(?:OR|HR|RR|IRR|MD|WMD|SMD|RD|ARR|NNT))s?\b"
)
_EFFECTS = [
    re.compile(pattern)
    for pattern in (
        rf"(?P<alone>{_MEASURE}{_GAP}(?:[A-Za-z]{{2,5}}{_GAP})?(?:(?:of|was|were|is){_GAP})?{_VALUE})"
        rf"(?:{_BETWEEN}{_INTERVAL})?(?:{_GAP}{_P})?",
        rf"(?<![\w.,/–-]){_VALUE}{_BETWEEN}{_INTERVAL}(?:{_GAP}{_P})?",
        rf"(?<![\w.]){_SHARE}\s(?:vs\.?|versus|compared (?:with|to))\s{_SHARE}(?:{_GAP}{_P})?",
    )
]
_SIZE = re.compile(r"\b[nN]\s?=\s?(\d{1,3}(?:,\d{3}){1,3}|\d{1,9})\b")
Judge = Callable[[str, Sequence[Snippet]], Sequence[Stance]]


@dataclass(frozen=True)
class Study:
    """A study and its stance on a claim; `snippet` has the sentence that decides.

    `records` are the study's snippets, those of its richest record first; `lacking` is what of a claim that it merely
    comes near none of them mentions.
    """

    snippet: Snippet
    stance: Stance
    records: tuple[Snippet, ...]
    lacking: tuple[str, ...] = ()

    @property
    def effect(self) -> str | None:
        """The effect that the sentence states, with its interval."""
        return effect_of(self.stance.quote)

    @property
    def participants(self) -> Participants | None:
        """How many people it took in."""
        sizes = (sample_size(self.stance.quote, one.content) for one in (*self.records, self.snippet))
        return next(filter(None, sizes), None)

    @cached_property
    def reference(self) -> Reference:
        """Its publication, as the richest record has it, under the id of the quote's; notices of any of them count."""
        concern = any(map(has_concern, self.records))
        richest = reference_of(self.records[0])
        return replace(richest, id=self.snippet.id, retracted=self.retracted, concern=concern)

    @property
    def retracted(self) -> bool:
        """Whether one of its records says that it was retracted."""
        return any(one.retracted for one in self.records)


@dataclass(frozen=True)
class Weighing:
    """A claim and the studies on either side of it, the likeliest first; those not sure in the order of the search.

    Without a reader that tells sides, studies that come near are not sure, the nearest first. Retracted ones are last.
    `silent` counts the others. `found` are the studies of a question of which no side is told, the nearest first, with
    the sentence that comes nearest.
    """

    claim: str
    supporting: tuple[Study, ...] = ()
    opposing: tuple[Study, ...] = ()
    unsure: tuple[Study, ...] = ()
    silent: int = 0
    found: tuple[Study, ...] = ()

    @property
    def rows(self) -> list[tuple[str, Study]]:
        """Each study with the name of its column, "" for none."""
        sided = [(name, study) for name, studies in self.columns.items() for study in studies]
        return sided + [("", study) for study in self.found]

    @property
    def columns(self) -> dict[str, tuple[Study, ...]]:
        """The studies by the name of their column."""
        return {name: getattr(self, name) for name in COLUMNS.values()}

    @property
    def nowhere(self) -> tuple[str, ...]:
        """What of the claim none of those that come near mentions."""
        first, *others = [study.lacking for study in self.unsure] or [()]
        return tuple(word for word in first if all(word in other for other in others))

    @property
    def searched(self) -> int:
        """How many studies were judged."""
        return self.silent + len(self.rows)

    @property
    def counts(self) -> dict[str, int]:
        """How many studies stand in each column without the retracted ones, how many are silent, and retracted."""
        counted = {name: sum(not one.retracted for one in studies) for name, studies in self.columns.items()}
        retracted = sum(one.retracted for studies in self.columns.values() for one in studies)
        return {**counted, "silent": self.silent, "retracted": retracted}


def weigh(claim: str, hits: Sequence[Hit], judge: Judge, most: int = STUDIES) -> Weighing:
    """Return the first studies of a ranking, at most so many, by what they do to a claim."""
    studies = joined(hits, most)
    snippets = [snippet for parts in studies for snippet in parts]
    stances = iter(judge(claim, snippets))
    judged = [_of_study([Study(snippet, next(stances), _richest(parts)) for snippet in parts]) for parts in studies]
    supporting, opposing, unsure = (
        tuple(sorted((one for one in judged if one.stance.verdict is verdict), key=_order)) for verdict in COLUMNS
    )
    silent = sum(one.stance.verdict not in COLUMNS for one in judged)
    return Weighing(claim, supporting, opposing, unsure, silent)


def with_near(weighing: Weighing, hits: Sequence[Hit], scored: ScoredSentences) -> Weighing:
    """Return a weighing by words alone whose other studies that come near the claim are not sure."""
    sided = {study.records[0].id for _, study in weighing.rows}
    tells = np.array([is_evidence(row, weighing.claim) for row in scored.rows], bool)
    scored = scored._replace(scores=np.where(tells, scored.scores, -np.inf))
    near = [study for study in found(hits, scored, NEAR) if study.records[0].id not in sided]
    studies = [
        replace(
            study,
            stance=replace(study.stance, verdict=Verdict.UNSURE),
            lacking=lacking(weighing.claim, " ".join(one.contents for one in study.records)),
        )
        for study in near
    ]
    unsure = tuple(sorted((*weighing.unsure, *studies), key=_order))
    return replace(weighing, unsure=unsure, silent=weighing.silent - len(studies))


def found(hits: Sequence[Hit], scored: ScoredSentences, floor: float) -> tuple[Study, ...]:
    """Return the studies with a sentence of at least this score, each with its best one, the best first."""
    nearest: dict[int, tuple[float, Study]] = {}
    snippets = [hit.snippet for hit in hits]
    numbers = paper_numbers(snippets)
    for row, score in zip(scored.rows, scored.scores.tolist(), strict=True):
        study = numbers[row.n - 1]
        if score >= floor and (study not in nearest or score > nearest[study][0]):
            parts = [one for one, number in zip(snippets, numbers, strict=True) if number == study]
            stance = Stance(Verdict.UNSUPPORTED, 0.0, row.text)
            nearest[study] = score, Study(snippets[row.n - 1], stance, _richest(parts))
    ranked = sorted(nearest.values(), key=lambda scored_study: -scored_study[0])
    return tuple(study for _, study in ranked)


def joined(hits: Sequence[Hit], most: int) -> list[list[Snippet]]:
    """Return the snippets of each study of a ranking, the studies by their best rank, whatever their records."""
    snippets = list({hit.snippet.id: hit.snippet for hit in hits}.values())
    studies: dict[int, list[Snippet]] = {}
    for snippet, number in zip(snippets, paper_numbers(snippets), strict=True):
        studies.setdefault(number, []).append(snippet)
    return list(studies.values())[:most]


def _richest(parts: Sequence[Snippet]) -> tuple[Snippet, ...]:
    """Return a study's snippets, PubMed's first, then those with the most fields."""
    return tuple(sorted(parts, key=lambda one: (one.pmid is None, -len(one.metadata))))


def opposed(answer: Answer, judge: Judge) -> Answer:
    """Return an answer whose supported sentences name the other hits that surely say otherwise, a study once.

    Retracted articles say nothing.
    """
    if answer.abstained:
        return answer
    sentences = tuple(_opposed(sentence, answer.hits, judge) for sentence in answer.sentences)
    return replace(answer, sentences=sentences)


def _opposed(sentence: CheckedSentence, hits: Sequence[Hit], judge: Judge) -> CheckedSentence:
    if sentence.verdict is not Verdict.SUPPORTED:
        return sentence
    studies = dict(zip((hit.rank for hit in hits), paper_numbers([hit.snippet for hit in hits]), strict=True))
    supporting = {studies[rank] for rank in sentence.citations if rank in studies}
    others = [
        hit
        for hit in hits
        if not hit.snippet.retracted and studies[hit.rank] not in supporting and _is_about(sentence.text, hit.snippet)
    ]
    stances = judge(sentence.text, [hit.snippet for hit in others])
    oppositions: dict[int, Opposition] = {}
    for hit, stance in zip(others, stances, strict=True):
        if stance.verdict is Verdict.CONTRADICTED and stance.probability >= SURE:
            snippet = hit.snippet
            opposition = Opposition(hit.rank, snippet.id, snippet.pmid, stance.quote, stance.probability)
            oppositions.setdefault(studies[hit.rank], opposition)
    return replace(sentence, otherwise=tuple(oppositions.values()))


def _is_about(sentence: str, snippet: Snippet) -> bool:
    """Whether a snippet has enough of a sentence's words to contradict it."""
    words = terms(sentence)
    return len(words & terms(snippet.contents)) >= ABOUT * len(words)


def _of_study(parts: Sequence[Study]) -> Study:
    """Return what a study says, of the stances of its parts the likeliest; unsure where two parts oppose each other.

    Of copies whose quotes are the same but for letters' case and the like, that of the richest record tells.
    """
    decided = [one for one in parts if one.stance.verdict in (Verdict.SUPPORTED, Verdict.CONTRADICTED)]
    ranked = sorted(decided or [one for one in parts if one.stance.verdict in COLUMNS] or parts, key=_order)
    verdict, quote = ranked[0].stance.verdict, squeezed(ranked[0].stance.quote)
    copies = [one for one in ranked if one.stance.verdict is verdict and squeezed(one.stance.quote) == quote]
    first = min(copies, key=lambda one: one.records.index(one.snippet))
    for other in ranked[1:]:
        close = ranked[0].stance.probability - other.stance.probability < MARGIN
        if close and other.stance.verdict is not first.stance.verdict:
            return replace(first, stance=Stance(Verdict.UNSURE, first.stance.probability, first.stance.quote))
    return first


def _order(study: Study) -> tuple[bool, float]:
    """Retracted studies are last; a leaning does not count, so that those not sure keep the order of the search."""
    return study.retracted, 0.0 if study.stance.verdict is Verdict.UNSURE else -study.stance.probability


def effect_of(sentence: str) -> str | None:
    """Return the measure that a sentence states first, with its interval and p-value; else two shares."""
    matches = (match for pattern in _EFFECTS for match in pattern.finditer(sentence[:LONGEST]))
    effect = next(filter(None, map(_own, matches)), "").strip()
    for opening, closing in ("[]", "()"):  # one of which may stand outside of what is matched
        effect = effect.replace(closing, "", max(0, effect.count(closing) - effect.count(opening)))
        effect += closing * (effect.count(opening) - effect.count(closing))
    return effect or None


def _own(effect: re.Match[str]) -> str:
    """Return an effect, without an interval beyond words if its value does not lie in that, but for the sign."""
    groups = effect.groupdict()
    if not groups.get("between"):
        return effect[0]
    signs = str.maketrans({"−": "-", "–": "-", "·": ".", ",": ".", "%": ""})
    value, low, high = (float(groups[name].translate(signs)) for name in ("value", "low", "high"))
    return effect[0] if low <= value <= high or low <= -value <= high else groups.get("alone", "")


def sample_size(sentence: str, abstract: str) -> Participants | None:
    """Return the number of participants as an abstract states it, else the deciding sentence's "n = 52"."""
    if stated := participants(abstract):
        return stated
    sizes = list(_SIZE.finditer(sentence[:LONGEST]))  # one of two is not the number of participants
    return Participants(number_of(sizes[0][1]), sizes[0][0]) if len(sizes) == 1 else None
