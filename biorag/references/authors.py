"""Names of authors, as references and first pages print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from biorag.references.reference import Author

JOINING = ("y", "e")  # join the two names of a family
GROUP = re.compile(
    r"(?:(?:on behalf of|for)\s+)?(?:the\s+)?(.{2,80}\b(?:investigators?|collaborat(?:ors?|ion)|groups?|"
    r"consorti(?:um|a)|networks?|committee|team|trialists|alliance|society|initiative|association|organi[sz]ation))",
    re.IGNORECASE,
)
SUFFIX = re.compile(r",?\s((?:[JS][Rr])\b\.?|II|III|IV)(?=\s*(?:[,;·•|&*\d]|\band\b|$))")
_PARTICLE = re.compile(
    r"van(?:'t)?|'t|von|de[rnl]?|dell[ao]|dall?a?|degli|d[aiu]|das|dos?|l[aeo]s?|el|al|i?bin|ibn|te[nr]?|und|zu[rm]?|vom|a[fv]|"
    r"de'|ben|abd|st\.?|ní|ó|mac",
    re.IGNORECASE,
)
# Authors as references have them: family and initials or given names, in either order; or a group.
_UPPER = "A-ZÀ-ÖØ-ÞĀČĆĐĘĚĞİŁŃŇŌŐÖŘŚŠŞȘŤŢȚŪŰŻŽŹА-ЯЁІЇЄ"
_LETTER = r"[\w'’′ʼ‐‑-]"
_PARTICLES = rf"(?:(?i:{_PARTICLE.pattern}|vande[rn]?)\s){{0,3}}"
_SECOND = rf"(?:\s(?!et\b|and\b|und\b|[{_UPPER}]{{2,3}}\b){_PARTICLES}[{_UPPER}]{_LETTER}{{1,40}})"
FAMILY = rf"{_PARTICLES}(?:[ODd]['’′ʼ])?[{_UPPER}]{_LETTER}{{1,40}}{_SECOND}{{0,2}}"
_ENDS_NAME = r"(?=[\s,.;:&(]|\Z)"
_SUFFIXED = r"(?:,?\s(Jr|Sr|II|III|IV|2nd|3rd)\b\.?)?"
_INITIALS = rf"(?:[{_UPPER}]\.[\s‐-]?){{1,4}}|[{_UPPER}](?![a-z])(?:[\s‐-]?[{_UPPER}](?![a-z])){{0,3}}\.?"
_NEXT = rf"(?:,|\sand)\s(?:{_PARTICLES}(?![a-z])|(?:et|and)\b)"  # a name, not the next word of a title
_AUTHOR = re.compile(rf"({FAMILY}),?\s({_INITIALS}){_SUFFIXED}{_ENDS_NAME}(?!\.?\s?{FAMILY}{_NEXT})")
_FULL_NAME = re.compile(
    rf"({FAMILY}),\s([{_UPPER}]{_LETTER}{{1,40}}(?:\s[{_UPPER}](?:\.|\b)){{0,2}}){_SUFFIXED}(?=\s*[,.;&]|\sand\b)"
)
_GIVEN_FIRST = re.compile(rf"((?:[{_UPPER}][a-z]?\.[\s‐-]?){{1,4}})\s?({FAMILY}){_SUFFIXED}{_ENDS_NAME}")
_IN_FULL = re.compile(
    rf"([{_UPPER}]{_LETTER}{{1,40}}(?:\s[{_UPPER}](?:\.|\b)){{0,2}})\s({FAMILY}){_SUFFIXED}(?=\s*[,.;&(]|\sand\b|\set\sal\b)"
)
_BETWEEN = re.compile(r"[\s.]{0,3}(?:[,;]*\s*(?:&|(?:and|und|et(?!\sal\b)|y|e)\b|\.\.\.|…)\s*|[,;]+\s*)")
_NAME_FORMS = (_AUTHOR, _GIVEN_FIRST, _FULL_NAME, _IN_FULL)
_ET_AL = re.compile(r"[\s,;.]*\bet\s+al\b\.?", re.IGNORECASE)
_CITED_GROUP = re.compile(
    r"([^.]{3,100}\b(?:collaborat\w+|groups?|organi[sz]ation|consorti\w+|investigators|committee|network|team|society|"
    r"association|agency|institutes?|cent(?:er|re)s?|administration|ministry|trialists)\b[^.]{0,40})\.(?=\s|\Z)",
    re.IGNORECASE,
)


def cited_authors(text: str) -> tuple[list[Author], int]:
    """Return the authors that a reference begins with, and where they end; none and 0 where it begins otherwise."""
    authors: list[Author] = []
    end = position = 0
    group = _CITED_GROUP.match(text)
    if group and not any(form.match(text) for form in _NAME_FORMS[:-1]):
        return [Author(group[1].strip(), group=True)], group.end()
    while match := next(filter(None, (form.match(text, position) for form in _NAME_FORMS)), None):
        is_inverted = match.re in (_AUTHOR, _FULL_NAME)
        family, given = (match[1], match[2]) if is_inverted else (match[2], match[1])
        authors.append(Author(family, given.strip(" .-"), match[3] or ""))
        end = match.end()
        between = _BETWEEN.match(text, end)
        if not between:
            break
        position = between.end()
    if authors and (others := _ET_AL.match(text, end)):
        end = others.end()
    return authors, end


def is_name(text: str) -> bool:
    """Whether a text can be a person's name: two to five words that begin with capitals, and particles."""
    words = text.replace(",", " ").replace("’", "'").split()
    capitals = [word for word in words if not (_PARTICLE.fullmatch(word) or word in JOINING)]
    return (
        2 <= len(words) <= 7
        and 1 <= len(capitals) <= 5
        and all(word[0].isupper() and not any(map(str.isdigit, word)) for word in capitals)
    )


def inverted(names: Sequence[str], cited: str = "") -> list[str]:
    """Return names as "Family, Given", with a suffix as "Family, Given, Jr"; a group's as it is.

    A family name of two words is known by its particle, or if the text in `cited` has it before initials.
    """
    inverted = []
    for name in names:
        name = " ".join(name.split())
        suffix = SUFFIX.search(name)
        words = (name[: suffix.start()] if suffix else name).replace("’", "'").split()
        if "," in " ".join(words) or len(words) < 2 or GROUP.fullmatch(name):
            inverted.append(name)
            continue
        particles = (n for n, word in enumerate(words[1:], 1) if _PARTICLE.fullmatch(word) or word in JOINING)
        start = next(particles, len(words) - 1)
        start -= start > 1 and words[start] in JOINING  # "García y Robles"
        start = next((n for n in range(1, len(words) - 1) if _is_cited(words, n, cited)), start)
        initials_last = re.fullmatch(r"[A-Z]{1,3}", words[-1]) and not re.fullmatch(r"[A-Z]\.?|[A-Z]{1,3}", words[0])
        family, given = (words[:-1], words[-1:]) if initials_last else (words[start:], words[:start])
        inverted.append(", ".join([" ".join(family), " ".join(given), *([suffix[1]] if suffix else [])]))
    return list(dict.fromkeys(inverted))


def _is_cited(words: Sequence[str], start: int, text: str) -> bool:
    """Whether a text names the words from `start` on as a family, before "et al" or the first one's initial."""
    family = r"\s+".join(map(re.escape, words[start:]))
    following = rf"(?:{re.escape(words[0][0])}[A-Z.-]{{0,5}}(?!\w)|et\s+al\b)"
    return bool(re.search(rf"(?:^|[,;:&(]\s?|\band\s+){family},?\s+{following}", text.replace("’", "'"), re.MULTILINE))
