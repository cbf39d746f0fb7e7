"""What the formats of exports call the fields of a publication, by the tables of `fields.toml`, one a format."""

from __future__ import annotations

from collections.abc import Mapping

from biorag.utils.parsing import packaged_toml

Fields = Mapping[str, str]  # of each field the names, separated by spaces (of Ovid's: by bars)

_TABLES = packaged_toml(__file__, "fields.toml")
RIS, MEDLINE, WEB_OF_SCIENCE, ENDNOTE = (_TABLES[name] for name in ("ris", "medline", "web_of_science", "endnote"))
BIBTEX, CSL, ENDNOTE_XML = (_TABLES[name] for name in ("bibtex", "csl", "endnote_xml"))
OVID, WEB_PAGE, COLUMNS = (_TABLES[name] for name in ("ovid", "web_page", "columns"))
INHERITED = frozenset(_TABLES["bibtex_inherited"]["fields"].split())
TYPES = {name: kind for kind, names in _TABLES["types"].items() for name in names.split()}
_OF_TABLES = {"abstract": "content", "pmid": "PMID"}  # what tables call these fields
# Web of Science's tab-delimited export has a column for each of its tags.
_TAB_DELIMITED = {
    _OF_TABLES.get(field, field): tags.lower() for field, tags in WEB_OF_SCIENCE.items() if field != "date"
}
EXPORTS: tuple[tuple[str, Fields], ...] = (
    *((export["told_by"], export["fields"]) for export in _TABLES["exports"]),
    ("pt ti so", {**_TAB_DELIMITED, "issn": "sn"}),
)
