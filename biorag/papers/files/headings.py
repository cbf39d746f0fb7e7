"""The headings of lists of references, in the languages that PubMed's authors write in most, and where lists end."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 60  # characters, from which on a paragraph is no heading
_NAMES = (
    r"(?:cited )?references?(?: and notes| list| cited)?|bibliography|(?:literature|works) cited|(?:cited )?literature",
    r"literatur(?:verzeichnis|angaben|nachweise?)?|referenzen|quellen(?:verzeichnis|angaben)?|bibliogra(?:ph|f)ie",
    r"références(?: bibliographiques)?|referencias(?: bibliográficas)?|bibliograf[ií]a|literatura(?: citada)?",
    r"riferimenti(?: bibliografici)?|referenze|referências(?: bibliográficas)?|referenties|literatuur(?:lijst)?",
    r"(?:библиографический )?список(?: использованной| использованных| цитируемой)?(?: литературы| источников)?",
    r"литература|библиография|piśmiennictwo|źródła|kaynak(?:lar|ça)|referen(?:ser|cer)|referanser|litteratur",
    r"(?:主要)?参考文献|參考文獻|参考资料|参考書目|引用文献|文\s*献|참고\s*문헌|인용\s*문헌",
)
LIST_HEADING = re.compile(rf"\W{{0,9}}(?:[0-9IVX]{{1,4}}\W{{1,3}})?(?:{'|'.join(_NAMES)})\W{{0,9}}", re.IGNORECASE)
AFTER = re.compile(
    r"\W*(?:acknowledge?ments?|appendix|appendices|supplement\w*|supporting information|figures?|tables?|"
    r"(?:figure|table) legends?|funding|author contributions?|conflicts? of interest|competing interests?|"
    r"data availability|abbreviations)\b[^.]{0,60}",
    re.IGNORECASE,
)
HAS_YEAR = re.compile(r"\b(?:(?:19|20)\d\d[a-z]?|in press)\b|\bn\.\s?d\.", re.IGNORECASE)


def heads_list(text: str) -> bool:
    """Return whether a paragraph is the heading of a list of references."""
    return len(text) < LONGEST and LIST_HEADING.fullmatch(text) is not None


def without_list(lines: Sequence[str], headings: Sequence[str]) -> list[str]:
    """Return the lines of a section without its list of references, up to what follows that.

    All of a section under a heading of such lists is one. Elsewhere it begins with the last paragraph that reads like
    such a heading, if most paragraphs after it have a year: a line of a table of contents begins none.
    """
    begins = [n for n, line in enumerate(lines) if line.strip() and (not n or lines[n - 1].strip()[-1:] in ("", "."))]
    is_list = [heads_list(one) for one in headings if heads_list(one) or AFTER.fullmatch(one)][-1:] == [True]
    start = -1 if is_list else next((n for n in reversed(begins) if heads_list(lines[n])), len(lines))
    end = next((n for n in begins if n > start and AFTER.fullmatch(lines[n])), len(lines))
    paragraphs = "\n".join(line.strip() for line in lines[start + 1 : end]).split("\n\n")
    dated = [bool(HAS_YEAR.search(text)) for text in paragraphs if text.strip()]
    return [*lines[: max(start, 0)], *lines[end:]] if is_list or 2 * sum(dated) > len(dated) else list(lines)
