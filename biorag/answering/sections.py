"""The sections of an abstract: which sentences stand where, and which of them are evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.corpus.sentences import sentence_spans
from biorag.utils.parsing import packaged_toml

UNFOUND = frozenset({"objective", "background"})  # sections that tell no finding
_LABEL = re.compile(r"([A-Za-z][A-Za-z'’/&,\- ]{2,40}?)\s*:\s+(?=[\"'(\[]?[A-Z0-9])")


@dataclass(frozen=True, slots=True)
class LabelledSentence:
    """A sentence without its section's label, at `start` to `end` of the content, and the kind of section."""

    text: str
    start: int
    end: int
    section: str = ""


@cache
def lists() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the lists of section labels and phrases."""
    return packaged_toml(__file__, "sections.toml")


@cache
def _sections() -> Mapping[str, str]:
    return {label: section for section, labels in lists()["sections"].items() for label in labels}


@cache
def pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of any of the phrases of a list."""
    phrases = sorted(lists()["phrases"][name], key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, phrases))})\b", re.IGNORECASE)


@lru_cache(maxsize=1 << 12)
def labelled_sentences(content: str) -> tuple[LabelledSentence, ...]:
    """Return the sentences of a snippet's content, without the labels of structured abstracts."""
    section, rows = "", []
    for start, end in sentence_spans(content):
        label = _LABEL.match(content[start:end])
        if label and (named := _sections().get(label[1].strip().lower().replace("’", "'"))):
            section, start = named, start + label.end()
        if start < end:
            rows.append(LabelledSentence(content[start:end], start, end, section))
    return tuple(rows)


def is_evidence(row: LabelledSentence | EvidenceSentence, claim: str = "") -> bool:
    """Return whether a sentence tells a finding: it neither asks, nor plans, nor stands in a background section.

    An aim is evidence of a claim that tells the aim.
    """
    if row.section in UNFOUND or row.text.rstrip("\"')").endswith("?"):
        return False
    return not pattern("aim").search(row.text) or bool(pattern("aim").search(claim))
