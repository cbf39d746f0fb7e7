"""A text in each format that biorag writes: Markdown, HTML, a cell of CSV or TSV, LaTeX, a segment of a URL.

Whatever a record holds is shown as text: it becomes no markup, link, formula, command or other address.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from biorag.utils.text import first_visible, showable

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Marks of CommonMark and GitHub's extensions; what begins a list, a rule or the line under a heading; bare addresses.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>|#~&$@]|\A[-+=]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_NUMBERED = re.compile(r"\A(\d{1,9})([.)])")
_FORMULA = ("=", "+", "-", "\N{MINUS SIGN}", "@")  # begin a formula of a spreadsheet
_PLAIN = "-._~!$'()*+,;:@"  # beside letters and digits, what a segment of a path may have (RFC 3986, pchar)


def one_line(text: str) -> str:
    """Return a text on one line, without control characters and half surrogate pairs."""
    return " ".join(_CONTROL.sub(" ", text).split())


def in_markdown(text: str) -> str:
    """Return text that Markdown shows as it stands, on one line, also in a table's cell."""
    return _NUMBERED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", one_line(text)))


def markdown_link(text: str, url: str) -> str:
    """Return a link in Markdown to a URL as `in_url` makes it; the text alone without one."""
    return f"[{in_markdown(text)}](<{url}>)" if url else in_markdown(text)


def in_html(text: object) -> str:
    """Return text that HTML shows as it stands, in an element or in quotes, without secrets and control characters."""
    return escape(showable(str(text)))


def cell(value: object) -> object:
    """Return a text on one line, a quote before one that a spreadsheet would take for a formula; a number as it is."""
    if not isinstance(value, str):
        return value
    line = one_line(value)
    return f"'{line}" if first_visible(line) in _FORMULA else line


def separated(columns: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    """Return rows under their columns as CSV, or with another delimiter, each value a `cell`."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerows([columns, *(map(cell, row) for row in rows)])
    return stream.getvalue()


def in_url(identifier: str, slashes: bool = False) -> str:
    """Return an identifier as a segment of a URL's path, or, with slashes, as several below one another.

    None of them is "." or "..", which lead elsewhere even where their dots are percent-encoded: they are `_` then.
    """
    parts = identifier.split("/") if slashes else [identifier]
    return "/".join("_" if part in (".", "..") else quote(part.encode("utf-8", "replace"), _PLAIN) for part in parts)


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
# Letters and signs that LaTeX has in mathematics alone, Greek ones by their names; accented letters stay as they are.
_GREEK = {
    mark: unicodedata.name(mark).split()[-1].replace("LAMDA", "LAMBDA") for mark in "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
}
_MATHEMATICS = {
    **{mark: name.lower() if mark.islower() else name.capitalize() for mark, name in _GREEK.items()},
    **{"ς": "varsigma", "≤": "leq", "≥": "geq", "±": "pm", "×": "times", "≈": "approx", "≠": "neq"},
    **{"→": "rightarrow", "∞": "infty"},
}
_ESCAPES |= {mark: f"{{$\\{name}$}}" for mark, name in _MATHEMATICS.items()} | {"µ": r"{$\mu$}", "−": "{$-$}"}
_SPECIAL = re.compile("[" + re.escape("".join(_ESCAPES)) + "]")


def in_latex(text: str) -> str:
    """Return text that LaTeX typesets as it stands."""
    return _SPECIAL.sub(lambda mark: _ESCAPES[mark[0]], text)
