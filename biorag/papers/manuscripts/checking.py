"""The check of a manuscript: what is wrong with its references, and with what it cites them for, the worst first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from biorag.answering.guards.stated import compared
from biorag.api.session import Session
from biorag.corpus.enriching import Find
from biorag.corpus.sentences import best_sentence, terms
from biorag.errors import OfflineError, ServiceError
from biorag.papers.manuscripts.manuscript import MOST_SHOWN, CitingSentence, ListedReference, Manuscript
from biorag.papers.manuscripts.matching import Difference, Match, asked, matched
from biorag.papers.manuscripts.reading import read_manuscript
from biorag.references.reference import has_concern, reference_of, texts
from biorag.registries import ENRICHERS
from biorag.types import Progress, Snippet, Stance, Verdict
from biorag.utils.progress import silent
from biorag.utils.text import cut

logger = logging.getLogger(__name__)

LEAST_WORDS = 3  # of a claim that is judged
SURE_FROM = 0.8  # a reader's probability of "neither" from which a record is said not to support a claim
DIGITS = 4  # of probabilities


class FindingKind(StrEnum):
    """What is wrong, the most harmful first."""

    RETRACTED = "retracted"
    NOT_FOUND = "not_found"
    WRONG_IDENTIFIER = "wrong_identifier"
    CONTRADICTED = "contradicted"
    WRONG_METADATA = "wrong_metadata"
    UNSUPPORTED = "unsupported"

    @property
    def shown(self) -> str:
        """The kind in a reader's words."""
        return self.value.replace("_", " ").capitalize()


Judge = Callable[[str, Sequence[Snippet]], Sequence[Stance]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a reference, or with what a sentence cites it for; `kind` is None where nobody can be sure.

    `message` says it in a sentence. Where no sentence cites the reference, the finding is at the reference itself.
    """

    kind: FindingKind | None
    reference: ListedReference
    message: str
    citing: CitingSentence | None = None
    claim: str = ""
    stance: Stance | None = None
    fields: tuple[Difference, ...] = ()
    record: Snippet | None = None

    @property
    def sentence(self) -> str:
        """The text of the sentence that cites, as a report shows it; "" without one."""
        return self.citing.shown if self.citing else ""

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return self.citing.paragraph.place if self.citing else self.reference.place

    @property
    def span(self) -> tuple[int, int, int]:
        """The number of the paragraph, and (start, end) in it; (0, 0) is all of it."""
        return (self.citing.paragraph.number, *self.citing.span) if self.citing else (self.reference.paragraph, 0, 0)

    def to_json(self) -> dict[str, Any]:
        """Return its JSON."""
        stance, record = self.stance, self.record
        return {
            "kind": self.kind.value if self.kind else "not_sure",
            "message": self.message,
            "reference": self.reference.text,
            "key": self.reference.key,
            "sentence": self.sentence,
            "claim": self.claim,
            "place": self.place,
            "verdict": stance.verdict.value if stance else None,
            "probability": round(stance.probability, DIGITS) if stance else None,
            "quote": stance.quote if stance else "",
            "fields": [one._asdict() for one in self.fields],
            "id": record.id if record else None,
            "pmid": record.pmid if record else None,
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The check of a manuscript; `not_sure` are pairs that the evidence does not decide, and are no findings.

    `not_judged` counts what nothing is said of, by what it is and why.
    """

    manuscript: Manuscript
    index: str
    findings: tuple[Finding, ...]
    not_sure: tuple[Finding, ...]
    counts: Mapping[str, int]
    not_judged: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def uncited(self) -> list[ListedReference]:
        """The references that the manuscript itself lists and no sentence cites."""
        cited = {claim.key for sentence in self.manuscript.sentences for claim in sentence.claims}
        return [one for one in self.manuscript.references if one.paragraph and one.key not in cited]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag check --json` prints."""
        sentences = self.manuscript.sentences
        return {
            "file": self.manuscript.file,
            "index": self.index,
            "references": len(self.manuscript.references),
            "citing_sentences": len(sentences),
            "counts": dict(self.counts),
            "not_judged": dict(self.not_judged),
            "findings": [one.to_json() for one in self.findings],
            "not_sure": [one.to_json() for one in self.not_sure],
            "unlisted": [
                {"mark": mark, "sentence": one.shown, "place": one.paragraph.place}
                for one in sentences
                for mark in one.unlisted
            ],
            "uncited": [{"key": one.key, "reference": one.text, "place": one.place} for one in self.uncited],
            "notes": list(self.notes),
        }


def check_manuscript(
    session: Session,
    file: Path,
    references: Sequence[Path] = (),
    enrich: str | None = None,
    progress: Progress = silent,
) -> CheckReport:
    """Check whether a manuscript's citations hold, as `biorag check` does.

    `references` are files of references in place of those beside the manuscript; `enrich` names the service that is
    asked for references which the index lacks. Raises `BadInputError` if a file cannot be read or cites nothing,
    `MissingError` if it is not there, `OfflineError` if a service is asked in offline mode.
    """
    manuscript = read_manuscript(file, references)
    with session.stored() as (index, manifest):
        matches = matched(manuscript.references, index, manifest.encoder.dimension)
    if enrich is not None:
        find = ENRICHERS.named(enrich).load()(session.settings.services)
        matches = enriched(matches, find, enrich, progress)
    return checked(manuscript, matches, session.stances, session.name, progress)


def checked(
    manuscript: Manuscript, matches: Sequence[Match], judge: Judge, index: str, progress: Progress
) -> CheckReport:
    """Return the findings on matched references and on what sentences cite them for."""
    by_key = {match.reference.key: match for match in matches}
    pairs = [(sentence, claim) for sentence in manuscript.sentences for claim in sentence.claims]
    first_sentences = {claim.key: sentence for sentence, claim in reversed(pairs)}
    cited = Counter(claim.key for _, claim in pairs)
    findings = [
        replace(finding, citing=first_sentences.get(match.reference.key))
        for match in matches
        for finding in _of_reference(match, index, cited[match.reference.key])
    ]
    fields = Counter(field for match in matches for field in match.uncompared)
    supported, unjudged = 0, Counter[str]()
    with progress("Judging", len(pairs)) as advance:
        for sentence, (key, claim) in pairs:
            match = by_key.get(key)
            evidence = [one for one in match.snippets if one.content not in ("", one.title)] if match else []
            if match is None or not match.snippets:
                unjudged["claim without a record"] += 1
            elif not evidence:
                unjudged["claim without an abstract"] += 1
            elif len(claim.split()) < LEAST_WORDS:
                unjudged[f"claim of fewer than {LEAST_WORDS} words"] += 1
            else:
                stance, snippet = max(zip(judge(claim, evidence), evidence, strict=True), key=_strength)
                supported += stance.verdict is Verdict.SUPPORTED
                of_claim = _of_claim(match.reference, claim, stance, snippet)
                findings += [replace(finding, citing=sentence, claim=cut(claim, MOST_SHOWN)) for finding in of_claim]
            advance(1)
    by_kind = {kind: [finding for finding in findings if finding.kind is kind] for kind in (*FindingKind, None)}
    numbers = {kind.value if kind else "not_sure": len(of_kind) for kind, of_kind in by_kind.items()}
    not_sure = tuple(by_kind.pop(None, []))
    return CheckReport(
        manuscript,
        index,
        tuple(chain.from_iterable(by_kind.values())),
        not_sure,
        {**numbers, "supported": supported, "not_judged": unjudged.total()},
        {**unjudged, **{f"{field} not in the record": count for field, count in fields.items()}},
        (*manuscript.notes, *_corrections(matches)),
    )


def _of_reference(match: Match, index: str, cited: int) -> Iterator[Finding]:
    """Yield what is wrong with a reference, whatever it is cited for in so many sentences."""
    reference = match.reference
    foreign = "; ".join(f"its {one.field} {one.manuscript} belongs to “{one.record}”" for one in match.foreign)
    if not match.snippets:
        where = f"neither in index {index!r} nor at {match.service}" if match.service else f"not in index {index!r}"
        unjudged = f"none of the {cited} sentences that cite it was judged" if cited > 1 else ""
        message = "; ".join(filter(None, [f"no record found: {where}", foreign, unjudged]))
        yield Finding(FindingKind.NOT_FOUND, reference, message, fields=match.foreign)
        return
    record = match.snippets[0]
    numbers = tuple(one for one in match.differences if one.field in ("PMID", "DOI"))
    if wrong := (*match.foreign, *numbers):
        numbered = reference_of(record)
        rights = (f"PMID {numbered.pmid}" if numbered.pmid else "", f"DOI {numbered.doi}" if numbered.doi else "")
        right = "; ".join(filter(None, rights))
        stated = "; ".join(f"its {one.field} {one.manuscript} is not this paper's" for one in numbers)
        message = "; ".join(filter(None, [foreign, stated, f"the paper of this title has {right}" if right else ""]))
        yield Finding(FindingKind.WRONG_IDENTIFIER, reference, message, fields=wrong, record=record)
    if any(snippet.retracted for snippet in match.snippets):
        notices = ", ".join(f"PMID {one}" if one.isdigit() else one for one in texts(record.metadata, "retraction"))
        message = "the paper was retracted" + (f": {notices}" if notices else "")
        yield Finding(FindingKind.RETRACTED, reference, message, record=record)
    elif any(map(has_concern, match.snippets)):
        yield Finding(FindingKind.RETRACTED, reference, "an expression of concern was published on it", record=record)
    if fields := tuple(one for one in match.differences if one not in numbers):
        message = "; ".join(f"{one.field}: “{one.manuscript}”, but “{one.record}” in the record" for one in fields)
        yield Finding(FindingKind.WRONG_METADATA, reference, message, fields=fields, record=record)


def _strength(judged: tuple[Stance, Snippet]) -> tuple[int, float]:
    """Return how much of what a record says of a claim one of its snippets decides."""
    order = (Verdict.UNSUPPORTED, Verdict.UNSURE, Verdict.CONTRADICTED, Verdict.SUPPORTED)
    return order.index(judged[0].verdict), judged[0].probability


def _of_claim(reference: ListedReference, claim: str, stance: Stance, record: Snippet) -> Iterator[Finding]:
    """Yield what the evidence says against a claim, or that it does not decide it, with the nearest sentence."""
    differs = compared(claim, stance.quote).difference if stance.basis == "quote" else ""
    if stance.verdict is Verdict.CONTRADICTED or differs.lstrip("-<>≤≥")[:1].isdigit():  # no name
        message = "the cited paper says otherwise"
        yield Finding(FindingKind.CONTRADICTED, reference, message, stance=stance, record=record)
    elif stance.verdict is Verdict.UNSUPPORTED and stance.basis == "reader" and stance.probability >= SURE_FROM:
        message = "the cited abstract does not say so"
        yield Finding(FindingKind.UNSUPPORTED, reference, message, stance=stance, record=record)
    elif stance.verdict is not Verdict.SUPPORTED:
        nearest = stance.quote or best_sentence(record.content, terms(claim))
        stance = replace(stance, quote=nearest)
        yield Finding(None, reference, "not sure whether the cited paper says so", stance=stance, record=record)


def _corrections(matches: Sequence[Match]) -> Iterator[str]:
    for match in matches:
        if match.snippets and (errata := texts(match.snippets[0].metadata, "errata")):
            yield f"reference {match.reference.key} has corrections: {', '.join(errata)}"


def enriched(matches: Sequence[Match], find: Find, service: str, progress: Progress) -> list[Match]:
    """Return matches with the records that a service has of references which the index lacks.

    A service that fails ends the asking with a warning: those left are as they were. Raises `OfflineError`.
    """
    updated = list(matches)
    lacking = [n for n, match in enumerate(matches) if not match.snippets]
    try:
        with progress(f"Asking {service}", len(lacking)) as advance:
            for n in lacking:
                updated[n] = asked(matches[n], find, service)
                advance(1)
    except OfflineError:
        raise
    except ServiceError as error:
        logger.warning("%s; references that are left were looked for in the index alone", error)
    return updated
