"""British and American spelling: one form of both, for comparing words."""

from __future__ import annotations

import re
from functools import lru_cache

# In whichever place of a word. "ae" and "oe" are not replaced alone: "aerobic", "coefficient", "does".
_PARTS = {
    "aem": "em", "aesth": "esth", "aetiol": "etiol", "paed": "ped", "gynaec": "gynec", "faec": "fec", "caec": "cec",
    "caesar": "cesar", "naev": "nev", "palaeo": "paleo", "phaeo": "pheo", "oedem": "edem", "oestr": "estr",
    "oesoph": "esoph", "foet": "fet", "rrhoea": "rrhea", "rrhoei": "rrhei", "pnoea": "pnea", "homoeo": "homeo",
    "coeliac": "celiac", "manoeuvre": "maneuver",
    "manoeuvr": "maneuver", "leucocyt": "leukocyt", "leucopen": "leukopen", "sulph": "sulf", "mould": "mold",
    "aluminium": "aluminum", "artefact": "artifact", "programme": "program", "ciclospor": "cyclospor",
}  # fmt: skip
# American too: "angioedema", "gastroesophageal".
_PART = re.compile(rf"(?<!angi)(?<!gastr)(?:{'|'.join(_PARTS)})")
_ENDINGS = (
    # tumour, behavioural
    (r"^(\w*(?:tum|behavi|col|fav|lab|neighb|od|vap|hum|harb|hon|endeav|flav|vig|rum|rig|sav|arm))our", r"\1or"),
    (r"^practis(e|es|ed|ing)$", r"practic\1"),
    # randomised, hospitalisation; not exercise, precise, otherwise
    (r"^(?!\w*(?:[aou]|rc|dv|ec|nc|ev|erv|rov|pr|rom|rm|xc|umc|w|and|ad|eat|esp|ert|chast|nch|em)is)"
     r"(\w{3,})is(e|es|ed|er|ers|ing|ation|ations)$", r"\1iz\2"),
    # analyze, paralyzed: one of the family of "analysis"
    (r"^(\w+ly)z(e|es|ed|er|ers|ing)$", r"\1s\2"),
    # centre, litres, fibres
    (r"^(\w*(?:cent|lit|met|fib|tit|calib|theat|lust))re(s|d)?$", r"\1er\2"),
    (r"^(\w*(?:cata|ana|homo|dia|ortho|para))logue(s)?$", r"\1log\2"),
    # labelled, signalling
    (r"^(\w*(?:label|travel|model|signal|counsel|channel|cancel|tunnel|total|level|dial|fuel|panel))l(ed|ing|er|ers)$",
     r"\1\2"),
    (r"^(de|of)fence(s)?$", r"\1fense\2"),
    (r"^licenc(e|es|ed|ing)$", r"licens\1"),
    (r"^(enrol|fulfil|instil)(s|ment|ments)?$", r"\1l\2"),
    (r"^grey(\w*)$", r"gray\1"),
    (r"^ageing$", "aging"),
    (r"^whilst$", "while"),
)  # fmt: skip
_RULES = tuple((re.compile(pattern), plain) for pattern, plain in _ENDINGS)


@lru_cache(maxsize=1 << 16)
def one_spelling(word: str) -> str:
    """Return a lower-case word in the form that stands for its British and its American spelling."""
    word = _PART.sub(lambda match: _PARTS[match[0]], word)
    for pattern, plain in _RULES:
        changed = pattern.sub(plain, word)
        if changed != word:
            return changed
    return word
