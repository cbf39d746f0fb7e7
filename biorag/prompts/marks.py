"""Marks of citation in a model's prose: read in whatever form they are written, and rewritten as `[n]`.

Real text that looks alike stays: "CO(2)", "[1-13C]", "(9 patients)", the numbers of a list. Raised and circled numbers,
and names with years, are text too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from biorag.types import Snippet
from biorag.utils.text import INVISIBLE

MARK = re.compile(r"(?<!\s)\s*(?<!\w)\[(\d{1,9}(?:, \d{1,9})*)\](?![^\W\d_])")  # as `plain_marks` writes them
MOST_IN_RANGE = 20  # numbers that "[1-9]" may stand for; of a longer range the ends are read
LARGEST_NUMBER = 9999  # of a document; a larger one is a PMID

_S = r"[^\S\n]{0,3}"  # bounded, so that reading takes linear time
_KIND = (
    r"(?:documents?|docs?|snippets?|passages?|sources?|references?|refs?|citations?|abstracts?|pmids?|pubmed(?: id)?)"
)
_LABEL = rf"(?:(?:see|from|cf\.?){_S})?{_KIND}\b\.?{_S}(?:nos?\b\.?|numbers?\b)?{_S}[:=#]?{_S}"
_ITEM = rf"[#^]?(?:{_LABEL})?[#^]?\d{{1,9}}"
_DASH = "[-\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}]"
_JOINT = rf"(?:{_DASH}|[,;&+]?{_S}\b(?:and|or|to|through)\b|[,;&+]|\s)"
_LIST = rf"{_ITEM}(?:{_S}{_JOINT}{_S}{_ITEM}){{0,200}}"
_FORMS = re.compile(
    # [1, 2]  [1-9]  [1 and 9]  [document 9]  [PMID 12345678]  [^1]  【9†source】  [1](https://…)  \cite{1}
    rf"(?P<bracket>(?:\[{{1,3}}|\\\[|\\cite[a-z]{{0,6}}\{{|[［【〔〖〘〚⟦⟨〈❬❲⁅﹝‹]){_S}(?P<in_bracket>{_LIST})"
    rf"(?:[†:][^\[\]【】\n]{{0,80}})?{_S}(?:\]{{1,3}}|\\\]|[}}］】〕〗〙〛⟧⟩〉❭❳⁆﹞›])(?:\(https?://[^\s()]{{0,300}}\))?)"
    # (document 2, lines 3-4)  (PMID 12345678)
    rf"|(?P<labelled>[(（]{_S}(?P<in_labelled>{_LABEL}{_LIST})\b[^()（）]{{0,80}}[)）])"
    rf"|(?P<round>[(（]{_S}(?P<in_round>\d{{1,2}}(?:{_S}{_JOINT}{_S}\d{{1,2}}){{0,50}}){_S}[)）])"
    rf"|(?P<pmid>\bPMIDs?\b{_S}:?{_S}(?P<in_pmid>#?{_LIST})\b)"
    # document 9  documents 1 and 9
    rf"|\b(?P<prose>(?P<kind>document|doc|snippet|passage)\b{_S}(?:no\.?|number|\#)?{_S}(?P<in_prose>\d{{1,4}})\b)"
    rf"|\b(?P<several>(?P<kinds>documents|docs|snippets|passages)\b{_S}"
    rf"(?P<in_several>\d{{1,4}}(?:{_S}{_JOINT}{_S}\d{{1,4}}){{1,200}})\b)",
    re.IGNORECASE,
)
_NUMBERS = re.compile(rf"\d{{1,9}}|{_DASH}|\b(?:to|through)\b", re.IGNORECASE)
_ENUMERATED = re.compile(r"\((\d{1,2})\)")
_BEFORE_ENUMERATED = re.compile(r"(?:\A|\n|[.:;,!?]|\b(?:and|or))\s{0,3}\Z", re.IGNORECASE)
_CONTEXT = re.compile(r"\S{0,40}\s?\Z")
_PMID = re.compile("pmid|pubmed", re.IGNORECASE)
_CLOSING = frozenset(".,;:!?)]\"'”’")


def plain_marks(text: str, snippets: Sequence[Snippet] = ()) -> str:
    """Return prose in which every mark of citation has the form `[n]` or `[n, m]`.

    A number stays as it is, whether there is such a document or not; a PMID becomes the number of the snippet that has
    it, else it stays, or becomes 0 where it could be taken for a document's. What could be a mark or not is text where
    a snippet has it after the same word. The first of `snippets` is document 1.
    """
    text = INVISIBLE.sub("", text)
    return _FORMS.sub(_Reader(text, snippets).rewritten, text)


def numbers_in(text: str) -> Iterator[int]:
    """Yield the numbers of the marks of a text that `plain_marks` has read, in their order."""
    for mark in MARK.findall(text):
        yield from map(int, mark.split(", "))


def without_marks(text: str, kept: set[int]) -> str:
    """Return a text that `plain_marks` has read without the marks whose number is not in `kept`."""

    def fixed(match: re.Match[str]) -> str:
        numbers = [number for number in match[1].split(", ") if int(number) in kept]
        return f" [{', '.join(numbers)}]" if numbers else ""

    return MARK.sub(fixed, text).strip()


class _Reader:
    """Rewrites the marks of one text."""

    def __init__(self, text: str, snippets: Sequence[Snippet]) -> None:
        self._text = text
        self._snippets = snippets
        self._pmids = {snippet.pmid: n for n, snippet in enumerate(snippets, 1) if snippet.pmid is not None}

    def rewritten(self, match: re.Match[str]) -> str:
        """Return a mark in its plain form, and other text unchanged."""
        form = str(match.lastgroup)
        if self._is_text(form, match):
            return match[0]
        numbers = ", ".join(map(str, dict.fromkeys(self._numbers(match[f"in_{form}"], bool(_PMID.search(match[0]))))))
        if form in ("prose", "several"):
            return f"{match['kind'] or match['kinds']} [{numbers}]"
        before, after = self._text[match.start() - 1 : match.start()], self._text[match.end() : match.end() + 1]
        return f"{' ' * (before.isalnum() or before in _CLOSING)}[{numbers}]{' ' * after.isalpha()}"

    def _numbers(self, mark: str, pmids: bool) -> Iterator[int]:
        """Yield the numbers that a mark names."""
        last, ranges = 0, False
        for piece in _NUMBERS.findall(mark):
            if not piece.isdecimal():
                ranges = True
                continue
            number = int(piece)
            if pmids or number > LARGEST_NUMBER:
                number = self._pmids.get(number, number if number > LARGEST_NUMBER else 0)
            elif ranges and 0 < number - last <= MOST_IN_RANGE:
                yield from range(last + 1, number)
            yield number
            last, ranges = number, False

    def _is_text(self, form: str, match: re.Match[str]) -> bool:
        """Whether a likely mark is text."""
        before, after = self._text[match.start() - 1 : match.start()], self._text[match.end() : match.end() + 1]
        if form == "bracket":  # of a name: "[1,2,4]triazolo", "G1P[8]"
            return (before.isalnum() or after.isalpha()) and self._stands(match)
        if form == "round":
            joined = before.isalnum() or after.isalpha() or after == "%"  # "CO(2)", "(18)F", "(11)%"
            return joined or self._is_wide(match) or self._is_enumerated(match) or self._stands(match)
        return False

    def _is_wide(self, match: re.Match[str]) -> bool:
        """Whether it is a range of ages and the like: "(18-65)"."""
        ends = [int(number) for number in re.findall(r"\d+", match[0])]
        return len(ends) == 2 and ends[1] - ends[0] > MOST_IN_RANGE and not re.search("[,;&+ ]", match[0])

    def _is_enumerated(self, match: re.Match[str]) -> bool:
        """Whether a number in round brackets begins an item of a list that has the next number, or the one before."""
        number = _ENUMERATED.fullmatch(match[0])
        if not number or not self._text[match.end() : match.end() + 1].isspace():
            return False
        first, last = self._enumerated
        n = int(number[1])
        listed = first.get(n - 1, match.start()) < match.start() or last.get(n + 1, -1) > match.start()
        return listed and bool(_BEFORE_ENUMERATED.search(self._text[max(0, match.start() - 8) : match.start()]))

    @cached_property
    def _enumerated(self) -> tuple[dict[int, int], dict[int, int]]:
        """Where each number in round brackets stands first and last."""
        places = [(int(match[1]), match.start()) for match in _ENUMERATED.finditer(self._text)]
        return dict(reversed(places)), dict(places)

    def _stands(self, match: re.Match[str]) -> bool:
        """Whether a snippet has it, after the same word."""
        return _in_context(self._text, match) in self._evidence

    @cached_property
    def _evidence(self) -> frozenset[str]:
        contents = [INVISIBLE.sub("", snippet.contents) for snippet in self._snippets]
        return frozenset(_in_context(text, match) for text in contents for match in _FORMS.finditer(text))


def _in_context(text: str, match: re.Match[str]) -> str:
    """Return a mark with the word before it."""
    before = _CONTEXT.search(text[max(0, match.start() - 41) : match.start()])
    return f"{before[0] if before else ''}{match[0]}"
