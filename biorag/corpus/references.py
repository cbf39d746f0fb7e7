"""References with their abstracts in formats that a library reads: BibTeX, CSL-JSON, EndNote's XML."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from unicodedata import lookup

from biorag.corpus import fields
from biorag.corpus.hardened_xml import XmlFormat, check_entities, flat_text, read_elements, source_text
from biorag.corpus.publications import described, listed, plain, publication
from biorag.corpus.pubmed import date_in, date_of
from biorag.corpus.readers import EMPTY, LARGEST_TEXT, LONGEST_TEXT, FileReader, Record, read_text
from biorag.corpus.sources import DamagedSourceError, Source
from biorag.types import Snippet
from biorag.utils.parsing import parse_json

LONGEST = 2000  # characters of a field of CSL-JSON but for the abstract
LONGEST_LATEX = 100_000  # characters of a field that is read as LaTeX; of a longer one commands are dropped


# --- BibTeX and BibLaTeX

# What LaTeX takes for a comment or a table's mark, and texts have as it stands; a comma that is missing after a field.
_BARE_SIGN = re.compile(r"(?<!\\)[%&#]")
_NO_COMMA = re.compile(r"([}\"])([ \t]*\n[ \t]*[A-Za-z][\w-]{0,40}[ \t]*=[ \t]*[{\"])")
_JOINED = re.compile(
    r'(?:"[^"]{0,300}"|[A-Za-z][\w-]{0,60})(?:\s{0,9}#\s{0,9}(?:"[^"]{0,300}"|[A-Za-z][\w-]{0,60})){1,20}'
)
_SHOWN = re.compile(r"\\(?:mbox|hbox|text|textrm|mathrm|mathit)\b\*?(?=\s?\{)")  # commands that show what they hold
_EXPONENT = re.compile(
    r"(?<=\d)(?:\\textsuperscript\{(?=[^{}]*\})|\$\^\{?(?=[^${}]*\}?\$))([-−–+]?\d{1,4})(?:\}\$?|\$)"
)
_INDEX = re.compile(r"\$([_^])\{?([\w+−-]{1,12})\}?\$")  # alone in mathematics, as in CO$_2$
_MARKED_UP = re.compile(r"[\\${}%~#&^_]|``|''|--|[?!]`")
_SIGNS = {"textless": "<", "textgreater": ">", "textbar": "|", "textquotedbl": '"', "textquotesinglbase": "‚"}


def _bibtex(source: Source) -> Iterator[tuple[int, Record]]:
    """Yield the entries of a file with their first lines, as bibtexparser reads them, repeated fields and keys too."""
    import bibtexparser
    from bibtexparser.model import DuplicateBlockKeyBlock, DuplicateFieldKeyBlock, Entry, ImplicitComment

    library = bibtexparser.parse_string(_NO_COMMA.sub(r"\1,\2", read_text(source)))
    keys: Counter[str] = Counter()
    failed = set(map(id, library.failed_blocks))
    parents, strings = library.entries_dict, {key: string.value for key, string in library.strings_dict.items()}
    for block in library.blocks:
        line, raw = (block.start_line or 0) + 1, block.raw or ""
        entry = block
        while isinstance(entry, DuplicateBlockKeyBlock | DuplicateFieldKeyBlock):
            entry = entry.ignore_error_block
        if isinstance(entry, Entry):
            texts = {"ENTRYTYPE": [entry.entry_type.lower()]}
            for field in entry.fields:
                value = _joined(str(field.value).strip(), strings)
                is_enclosed = entry is not block and value[:1] + value[-1:] in ("{}", '""')  # the parser left it so
                texts.setdefault(field.key.lower(), []).append(value[1:-1] if is_enclosed else value)
            if parent := parents.get(texts.get("crossref", [""])[0]):
                for name, value in ((field.key.lower(), str(field.value)) for field in parent.fields):
                    if name in fields.INHERITED:
                        texts.setdefault("booktitle" if name == "title" else name, [value])
            keys[entry.key] += 1
            number = f"-{keys[entry.key]}" if keys[entry.key] > 1 else ""
            yield line, Record(f"{source.label}#{entry.key}{number}", texts, raw, entry.key) if entry.fields else EMPTY
        elif id(block) in failed:
            fault = "an entry that is not BibTeX: a brace or a quotation mark is missing"
            yield line, Record(source.label, {}, raw, fault=fault)
    if all(isinstance(block, ImplicitComment) for block in library.blocks):
        raise DamagedSourceError(source.name, 1, "no BibTeX entry in it")


def _joined(value: str, strings: Mapping[str, str]) -> str:
    """Return a value with the parts that `#` joins: texts, and names of strings."""
    if not _JOINED.fullmatch(value[:1000]):
        return value
    parts = re.findall(r'"([^"]*)"|([A-Za-z][\w-]*)', value)
    if any(name and name not in strings for _, name in parts):
        return value
    return "".join(text or strings[name].strip('{}"') for text, name in parts)


def parse_bibtex(record: Record) -> Snippet:
    """Return the snippet of an entry; raises `ValueError` if it cannot be read, or has no text."""
    raw: Mapping[str, list[str]] = record.check().content
    if longest := next((name for name, values in raw.items() if sum(map(len, values)) > LONGEST_TEXT), None):
        raise ValueError(f"{longest!r} is longer than {LONGEST_TEXT:,} characters: split it")

    def values(*names: str) -> list[str]:
        return [value for name in names for value in raw.get(name, ())]

    try:
        texts = {
            field: [text if field == "urls" else decoded(text) for text in values(*names.split())]
            for field, names in fields.BIBTEX.items()
        }
        texts["authors"] = [name for value in values("author") for name in _bibtex_names(value)]
        texts["keywords"] = [word for value in values("keywords", "author_keywords") for word in listed(decoded(value))]
        parts = (decoded(value) for name in ("year", "month", "day") for value in values(name)[:1])
        texts["year"] = [*texts["date"], " ".join(parts)]
    except RecursionError:
        raise ValueError("an entry whose braces or commands are nested too deeply") from None
    if {"pubmed", "pmid"} & {kind.lower() for kind in values("eprinttype", "archiveprefix")}:
        texts["pmid"] += values("eprint")
    return publication(record, texts)


@cache
def _latex() -> Any:
    """Return the reader of LaTeX, which names signs by their commands instead of dropping those it does not know."""
    from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db

    def sign(node: Any, **_: Any) -> str:
        name = node.macroname.removeprefix("text")
        try:
            return _SIGNS.get(node.macroname) or lookup(f"GREEK SMALL LETTER {name.upper()}")
        except KeyError:
            return ""

    database = get_default_latex_context_db()
    database.set_unknown_macro_spec(MacroTextSpec("", simplify_repl=sign))
    return LatexNodes2Text(database, keep_braced_groups=False)


def decoded(latex: str) -> str:
    """Return LaTeX as text in one line; what is none stays as it stands. Raises `RecursionError` at deep nesting."""
    if len(latex) > LONGEST_LATEX or not _MARKED_UP.search(latex):
        return _without_commands(latex)
    text = _BARE_SIGN.sub(r"\\\g<0>", _SHOWN.sub("", _EXPONENT.sub(r"^\1", latex)))
    text = _INDEX.sub(r"\2", text)
    if len(re.findall(r"(?<!\\)\$", text)) % 2:  # a sum of money
        text = re.sub(r"(?<!\\)\$", r"\\$", text)
    try:
        return " ".join(str(_latex().latex_to_text(text)).split())
    except RecursionError:
        raise
    except Exception:  # whatever pylatexenc raises at LaTeX that is none: the words stay
        return _without_commands(latex)


def _without_commands(latex: str) -> str:
    return " ".join(re.sub(r"\\[A-Za-z]{1,30}\*?|[{}]", "", latex).split())


def _bibtex_names(value: str) -> Iterator[str]:
    """Yield authors as "Family, Given"; a group in braces stays as it is."""
    from bibtexparser.middlewares import names

    for name in names.split_multiple_persons_names(" ".join(value.split())):
        if name.startswith("{") and name.endswith("}"):
            yield decoded(name).replace(",", " ").replace(";", " ")
            continue
        try:
            parts = names.parse_single_name_into_parts(name)
            name = ", ".join(filter(None, map(" ".join, ([*parts.von, *parts.last], parts.first, parts.jr))))
        except names.InvalidNameError:
            pass  # it stays as it is
        yield decoded(name)


# --- CSL-JSON


def _csl(source: Source) -> Iterator[tuple[int, Record]]:
    """Yield the references of a file with their numbers."""
    try:
        items = parse_json(read_text(source))
    except ValueError as error:
        raise DamagedSourceError(source.name, 1, f"not JSON ({error})") from None
    if not isinstance(items, list) or not items:
        raise DamagedSourceError(source.name, 1, "no list of references in it")
    for number, item in enumerate(items, 1):
        key = str(item.get("id") or "") if isinstance(item, dict) else ""
        yield number, EMPTY if item == {} else Record(f"{source.label}#record={number}", item, json.dumps(item), key)


def parse_csl(record: Record) -> Snippet:
    """Return the snippet of a reference in CSL-JSON; raises `ValueError` if it is not one, or has no text."""
    item = record.content
    if not isinstance(item, dict):
        raise ValueError(f"not a reference but {type(item).__name__}")
    texts = {**_csl_texts(item), "title": [csl_title(item)], "abstract": [csl_text(item, "abstract", LARGEST_TEXT)]}
    return publication(record, texts)


def csl_title(item: Mapping[str, Any]) -> str:
    """Return the title of a reference in CSL-JSON, or of a work as Crossref describes it, with its subtitle."""
    title, subtitle = plain(csl_text(item, "title")), plain(csl_text(item, "subtitle"))
    return f"{title.rstrip(':')}: {subtitle}" if title and subtitle and subtitle not in title else title


def csl_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a reference in CSL-JSON, or of a work as Crossref describes it, without empty ones."""
    return {name: value for name, value in described(_csl_texts(item)).items() if name != "pmid"}


def _csl_texts(item: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the texts of each field; Crossref's notices are those of a work's updates."""
    texts = {field: [csl_text(item, name) for name in names.split()] for field, names in fields.CSL.items()}
    texts["keywords"] = listed(csl_text(item, "keyword"))
    texts["authors"] = [_csl_name(author) for author in _objects(item.get("author"))]
    texts["date"] = [_csl_date(item.get("issued"))]
    for update in _objects(item.get("updated-by")):
        if kind := _UPDATES.get(csl_text(update, "type").lower().replace(" ", "_")):
            texts.setdefault(kind, []).append(csl_text(update, "DOI") or "Crossref")
    return texts


# Crossref's kinds of updates, and the fields of their notices.
_UPDATES = {
    **dict.fromkeys(("retraction", "withdrawal", "removal", "partial_retraction"), "retraction"),
    **dict.fromkeys(("correction", "erratum", "corrigendum"), "errata"),
    "expression_of_concern": "concern",
}


def csl_text(item: Mapping[str, Any], name: str, longest: int = LONGEST) -> str:
    """Return the text of a field, a number too, of a list its first, in one line."""
    value = item.get(name)
    value = value[0] if isinstance(value, list) and value else value
    is_text = isinstance(value, str | int) and not isinstance(value, bool)
    return " ".join(str(value).split())[:longest] if is_text else ""


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _csl_name(author: Mapping[str, Any]) -> str:
    """Return an author as "Family, Given, Suffix"; groups have a name alone."""
    parts = (csl_text(author, name) for name in ("dropping-particle", "non-dropping-particle", "family"))
    family = " ".join(filter(None, parts))
    name = ", ".join(filter(None, [family, csl_text(author, "given"), csl_text(author, "suffix")]))
    return name if family else csl_text(author, "literal") or csl_text(author, "name") or name


def _csl_date(issued: Any) -> str:
    """Return a date by its parts, else as it was written; "" where there is none."""
    if not isinstance(issued, dict):
        return ""
    match issued.get("date-parts"):
        case [[*parts], *_] if dated := date_of(*([str(part) for part in parts[:3] if part] or [""])):
            return dated
    return date_in(csl_text(issued, "raw") or csl_text(issued, "literal"))


# --- EndNote's XML

ENDNOTE = XmlFormat("EndNote", ("xml", "records"), ("record",))


def _endnote(source: Source) -> Iterator[tuple[int, Record]]:
    for number, element in enumerate(read_elements(source, ENDNOTE), 1):
        yield element.sourceline, Record(f"{source.label}#record={number}", element, "")


def parse_endnote(record: Record) -> Snippet:
    """Return the snippet of a record; raises `ValueError` if it has no text, or an undeclared entity."""
    element = record.content
    check_entities(element)
    texts = {
        field: [flat_text(one) for path in paths.split() for one in element.iterfind(path)]
        for field, paths in fields.ENDNOTE_XML.items()
    }
    texts["genre"] = [kind.get("name", "") for kind in element.iterfind("ref-type")]
    return publication(record, texts)


BIBTEX = FileReader(_bibtex, parse_bibtex)
CSL = FileReader(_csl, parse_csl)
ENDNOTE_XML = FileReader(_endnote, parse_endnote, lambda record: source_text(record.content))
