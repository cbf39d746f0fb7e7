"""BibTeX in UTF-8: braces balanced, LaTeX's characters escaped, names of groups in braces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from biorag.references.reference import Author, Genre, Reference, references_of
from biorag.types import Hit

TYPES = {Genre.ARTICLE: "article", Genre.BOOK: "book", Genre.CHAPTER: "incollection", Genre.THESIS: "phdthesis"}
# BibTeX counts braces even after a backslash, so a brace is written by its name.
_ESCAPES = {
    "\\": r"{\textbackslash}",
    "{": r"{$\lbrace$}",
    "}": r"{$\rbrace$}",
    "~": r"{\textasciitilde}",
    "^": r"{\textasciicircum}",
    "@": "{@}",  # some readers take it for the beginning of an entry
    **{mark: f"{{${mark}$}}" for mark in "<>|"},
    **{mark: f"\\{mark}" for mark in "&%$#_"},
}
# Letters and signs that LaTeX has in mathematics alone; accented letters stay as they are.
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "", "pi", "rho", "varsigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_MATHEMATICS = {
    **{chr(0x3B1 + offset): name for offset, name in enumerate(_GREEK) if name},
    **{"Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma"},
    **{"Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega"},
    **{"≤": "leq", "≥": "geq", "±": "pm", "×": "times", "≈": "approx", "≠": "neq", "→": "rightarrow", "∞": "infty"},
}
_ESCAPES |= {mark: f"{{$\\{name}$}}" for mark, name in _MATHEMATICS.items()} | {"µ": r"{$\mu$}", "−": "{$-$}"}
_SPECIAL = re.compile("[" + re.escape("".join(_ESCAPES)) + "]")
_AND = re.compile(r"\band\b", re.IGNORECASE)


def bibtex(hits: Sequence[Hit]) -> str:
    """Return the references of hits as BibTeX."""
    return "\n".join(map(entry, references_of(hits)))


def entry(reference: Reference) -> str:
    """Return one entry."""
    lines = (f"  {name} = {{{value}}},\n" for name, value in _fields(reference) if value)
    return f"@{TYPES.get(reference.genre, 'misc')}{{{reference.key},\n{''.join(lines)}}}\n"


def _fields(reference: Reference) -> Iterator[tuple[str, str]]:
    first, last = reference.page_range
    yield "author", " and ".join(map(name, reference.authors))
    yield "title", " ".join(map(_protected, range(len(words := reference.title.split())), words))
    yield "booktitle" if reference.genre is Genre.CHAPTER else "journal", escaped(reference.journal)
    yield "shortjournal", escaped(reference.abbreviation)
    yield "year", reference.year
    yield "month", str(reference.date[1]) if len(reference.date) > 1 else ""
    yield "volume", escaped(reference.volume)
    yield "number", escaped(reference.issue)
    yield "pages", escaped(first) + (f"--{escaped(last)}" if last else "")
    yield "issn", escaped(reference.issn)
    yield "doi", escaped(reference.doi)
    yield "pmid", str(reference.pmid) if reference.pmid else ""
    yield "pmcid", escaped(reference.pmcid)
    yield "url", reference.url if reference.pmid else escaped(reference.url)
    yield "language", escaped(reference.language[0]) if reference.language else ""
    yield "keywords", escaped("; ".join(reference.keywords))
    yield "note", escaped("; ".join(reference.notes))
    yield "abstract", escaped(reference.abstract)


def name(author: Author) -> str:
    """Return "Family, Suffix, Given"; groups, and parts with an "and", are in braces, or BibTeX would split them."""
    if author.group:
        return f"{{{escaped(author.family)}}}"
    return ", ".join(map(_part, filter(None, (author.family, author.suffix, author.given))))


def _protected(number: int, word: str) -> str:
    """Return a word of a title, in braces if a style that writes titles in small letters would harm it."""
    return f"{{{escaped(word)}}}" if any(map(str.isupper, word[not number :])) else escaped(word)


def _part(part: str) -> str:
    return f"{{{escaped(part)}}}" if _AND.search(part) else escaped(part)


def escaped(text: str) -> str:
    """Return text that LaTeX typesets as it stands."""
    return _SPECIAL.sub(lambda mark: _ESCAPES[mark[0]], text)
