"""The headings of lists of references, in the languages that PubMed's authors write in most."""

from __future__ import annotations

import re

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


def heads_list(text: str) -> bool:
    """Return whether a paragraph is the heading of a list of references."""
    return len(text) < LONGEST and LIST_HEADING.fullmatch(text) is not None
