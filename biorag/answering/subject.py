"""The subject of a question, and which sentences speak of another one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.answering.verification.cues import general, rarity
from biorag.answering.verification.words import stems
from biorag.types import Hit, Vectors
from biorag.utils.parsing import packaged_toml

_PART = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
RARE = 0.65  # rarity of a word from which it can be the subject
LONGEST_ABBREVIATION = 6  # letters
OUTCOME = re.compile(r"\b(?:causes?|leads? to|risk of|prevents?) \w+(?: \w+)?")  # "cause renal failure": no group
TELLING = 0.6  # rarity of a word without which hits are hardly an answer


class QuestionCue(NamedTuple):
    """What a question may ask for, or a group of patients that it may ask of: by what it does, and what tells it."""

    name: str
    asked: re.Pattern[str]
    told: re.Pattern[str]
    weight: float  # of a sentence that tells it


@cache
def extract_cues() -> Mapping[str, Any]:
    """Return the cue lists of the extract."""
    return packaged_toml(__file__, "extract_cues.toml")


@cache
def _cues(table: str) -> Sequence[QuestionCue]:
    cues = []
    for name, cue in extract_cues()[table].items():
        asked, told = (re.compile(cue[part], re.IGNORECASE) for part in ("asked", "told"))
        cues.append(QuestionCue(name, asked, told, cue.get("weight", 0.0)))
    return cues


def asked_cues(table: str, question: str) -> list[QuestionCue]:
    """Return the cues of a table, "wanted" or "groups", that a question asks for or of."""
    return [cue for cue in _cues(table) if cue.asked.search(question)]


def _groups(question: str) -> list[QuestionCue]:
    """Return the groups of patients, to whom what holds in general need not apply, that a question asks of."""
    return asked_cues("groups", OUTCOME.sub("", question))


def elsewhere(question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> Vectors:
    """Return which sentences speak of something else than the question, 1 or 0, (sentences,).

    Neither they nor the sentences before them name its subject, and their snippets do not either, or only in passing:
    not in the title nor in the first sentence. Or neither they nor their titles name the group that it asks of.
    """
    subject, groups = _subject(question, hits), _groups(question)
    named = [_names(subject, row.text) for row in rows]
    opening = {row.n: index for index, row in reversed(list(enumerate(rows)))}
    about = {n: named[index] or _names(subject, rows[index].title) for n, index in opening.items()}
    others = (
        not (about[row.n] or named[index] or (index > opening[row.n] and named[index - 1]))
        or not all(group.told.search(f"{row.title} {row.text}") for group in groups)
        for index, row in enumerate(rows)
    )
    return np.fromiter(others, np.float32, len(rows))


def on_subject(question: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    """Return the hits that hold the question's subject; all, where they hold none that is rare."""
    subject = _subject(question, hits)
    return [hit for hit in hits if _names(subject, hit.snippet.contents)]


def _subject(question: str, hits: Sequence[Hit]) -> str | None:
    """Return the rarest word of the question that any of the snippets holds, if it is rare."""
    asked = sorted({stem for stem in stems(question) if rarity(stem) >= RARE}, key=lambda stem: (-rarity(stem), stem))
    held = {stem for hit in hits for stem in stems(hit.snippet.contents)}
    return next((stem for stem in asked if stem in held), None)


def _names(subject: str | None, text: str) -> bool:
    return subject is None or subject in stems(text)


def untold_groups(question: str, hits: Sequence[Hit]) -> list[str]:
    """Return the groups of patients that a question asks of and that no hit on its subject names."""
    texts = [hit.snippet.contents for hit in on_subject(question, hits)]
    return [group.name for group in _groups(question) if not any(map(group.told.search, texts))]


def lacking(question: str, hits: Sequence[Hit]) -> list[str]:
    """Return the telling words of a question that none of the hits holds, the rarest first, as they are written.

    A short word is held by words in sequence of which it has the initials, "ACE" by "angiotensin-converting enzyme",
    a long one by its parts, "heatshock" by "heat shock". Adverbs tell nothing.
    """
    texts = [hit.snippet.contents.lower() for hit in hits]
    joined = " ".join("".join(_PART.findall(text)) for text in texts)
    initials = " ".join("".join(word[0] for word in _PART.findall(text)) for text in texts)
    held = {stem for hit in hits for stem in stems(hit.snippet.contents)}
    missed = {
        match[0]: max(rarity(stem) for stem in own)
        for match in _WORD.finditer(question)
        if (own := [stem for stem in stems(match[0]) if stem not in general()])
        and held.isdisjoint(own)
        and not match[0].endswith("ly")
        and match[0].lower() not in (initials if len(match[0]) <= LONGEST_ABBREVIATION else joined)
    }
    return sorted((word for word, rare in missed.items() if rare >= TELLING), key=lambda word: -missed[word])
