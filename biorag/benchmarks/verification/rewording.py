"""True sentences in slightly other words. Pure functions; the word lists are this module's own."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from biorag.utils.parsing import packaged_toml

Edit = Callable[[str, random.Random], str]
EDITS = 2  # at most, in one sentence

_LISTS = packaged_toml(__file__, "rewording.toml")
_SYNONYMS: dict[str, list[str]] = _LISTS["synonyms"]
_CONTRACTIONS: dict[str, str] = _LISTS["contractions"]
_ACTIVE: dict[str, str] = _LISTS["active"]


def synonym(sentence: str, rng: random.Random) -> str:
    """Replace a general word or turn of phrase."""
    matches = list(re.finditer(rf"\b(?:{'|'.join(sorted(_SYNONYMS, key=len, reverse=True))})\b", sentence))
    if not matches:
        return sentence
    match = rng.choice(matches)
    return sentence[: match.start()] + rng.choice(_SYNONYMS[match[0]]) + sentence[match.end() :]


def contraction(sentence: str, rng: random.Random) -> str:
    """Contract a negated auxiliary."""
    return re.sub(rf"\b(?:{'|'.join(_CONTRACTIONS)})\b", lambda match: _CONTRACTIONS[match[0]], sentence, count=1)


def without_aside(sentence: str, rng: random.Random) -> str:
    """Leave out an aside in brackets."""
    return re.sub(r"\s*\([^()]{2,60}\)(?=[\s,.;])", "", sentence, count=1)


def without_opening(sentence: str, rng: random.Random) -> str:
    """Leave out a connective at the beginning."""
    changed = re.sub(rf"^(?:{'|'.join(_LISTS['needless'])}),\s+", "", sentence, flags=re.IGNORECASE)
    return changed[:1].upper() + changed[1:]


def opening(sentence: str, rng: random.Random) -> str:
    """Report the sentence."""
    first = sentence.split(" ", 1)[0]
    plain = sentence if first != first.capitalize() or len(first) > 5 else sentence[:1].lower() + sentence[1:]
    return f"{rng.choice(_LISTS['openings'])} {plain}"


def fronting(sentence: str, rng: random.Random) -> str:
    """Move a last phrase of place or time to the front."""
    match = re.fullmatch(r"(?P<rest>[^,;:()]{25,}) (?P<phrase>(?:in|during|among) [\w -]{4,40})\.", sentence)
    if match is None or re.search(r"\b(?:that|which|who|and|or|not|no)\b", match["phrase"]):
        return sentence
    rest, phrase = match["rest"], match["phrase"]
    lowered = rest if re.match(r"[A-Z][A-Z0-9]|\w+\d", rest) else rest[:1].lower() + rest[1:]
    return f"{phrase[:1].upper()}{phrase[1:]}, {lowered}."


def active(sentence: str, rng: random.Random) -> str:
    """Turn a short passive sentence into an active one."""
    match = re.fullmatch(rf"([^,;:()]{{3,60}}) (?:is|are) ({'|'.join(_ACTIVE)}) by ([^,;:()]{{3,60}})\.", sentence)
    if match is None or " and " in match[3] or " which " in match[0]:
        return sentence
    return f"{match[3][:1].upper()}{match[3][1:]} {_ACTIVE[match[2]]} {match[1]}."


def exchanged_pair(sentence: str, rng: random.Random) -> str:
    """Exchange the two words that "and" joins."""
    match = re.search(r"(?<=\s)([a-z]{4,}|[A-Z0-9-]{2,}) and ([a-z]{4,}|[A-Z0-9-]{2,})(?=[.,;])(?! and)", sentence)
    if match is None or re.search(r",\s*$", sentence[: match.start()]):
        return sentence
    return f"{sentence[: match.start()]}{match[2]} and {match[1]}{sentence[match.end() :]}"


REWORDINGS: tuple[Edit, ...] = (
    synonym, synonym, contraction, without_aside, without_opening, opening, fronting, active, exchanged_pair,
)  # fmt: skip


def reworded(sentence: str, rng: random.Random) -> str | None:
    """Return the sentence with one or two edits; None where none applies."""
    changed, edits = sentence, 0
    # The other edits look at how a sentence begins, so that a new beginning comes last.
    for edit in sorted(rng.sample(REWORDINGS, len(REWORDINGS)), key=lambda edit: edit is opening):
        result = edit(changed, rng)
        edits += result != changed
        changed = result
        if edits == EDITS:
            break
    return changed if changed != sentence else None
