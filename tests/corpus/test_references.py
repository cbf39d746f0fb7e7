"""RIS, CSL-JSON and MEDLINE: golden records, records that rispy writes, bad ones."""

from __future__ import annotations

import json

import pytest
import rispy
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.readers import read_snippets
from biorag.corpus.references import nbib_fields
from biorag.corpus.sources import find_sources
from biorag.references.formats import bibtex
from biorag.references.formats import ris
from biorag.types import Hit, Snippet
from tests.corpus.samples import CSL, MEDLINE, RIS, read


def test_a_ris_record_keeps_its_bibliography(tmp_path):
    (found,), rejects = read(tmp_path / "a.ris", b"Record #1 of 1\r\n" + RIS.replace(b"\n", b"\r\n"))
    metadata = {
        "authors": ["Smith, John A.", "Doe, Jane"],
        "journal": "The Lancet",
        "year": 2019,
        "date": "2019-03-04",
        "volume": "3",
        "issue": "2",
        "pages": "10-20",
        "doi": "10.1000/xyz123",
        "issn": "0140-6736",
        "type": ["Journal Article"],
        "abstract": True,
    }
    text = "Reference managers keep abstracts, too."
    assert rejects == []
    assert found == Snippet("30000001", "Pyridoxine in practice", text, 30000001, metadata)


@pytest.mark.parametrize(("kind", "again"), [("BOOK", "BOOK"), ("CHAP", "CHAP"), ("THES", "THES"), ("JOUR", "JOUR")])
def test_a_ris_record_keeps_its_kind(tmp_path, kind, again):
    (found,), _ = read(tmp_path / "a.ris", f"TY  - {kind}\nTI  - Heart failure\nPY  - 2019\nER  - \n".encode())
    assert ris([Hit(1, found, 1.0)]).startswith(f"TY  - {again}")


@pytest.mark.parametrize(("kind", "name"), [("article", "Journal Article"), ("incollection", "Book Chapter")])
def test_an_entry_of_bibtex_has_the_types_of_ris_and_its_month(tmp_path, kind, name):
    entry = f"@{kind}{{a, title={{Gout}}, month = jun, year = 2014, note={{PMID: 77}}}}"
    (found,), _ = read(tmp_path / "a.bib", entry.encode())
    assert (found.metadata["type"], found.metadata["date"], found.pmid) == ([name], "2014-06", 77)


@pytest.mark.parametrize(
    ("lines", "id"),
    [
        (["AN  - 123", "DB  - PubMed"], "123"),
        (["AN  - 123", "DB  - Embase"], "a.ris#record=1"),
        (["AN  - 123", "DO  - https://doi.org/10.1000/a.b."], "10.1000/a.b"),
        (["N1  - Cited often. PMID: 77"], "77"),
        (["UR  - https://www.ncbi.nlm.nih.gov/pubmed/88"], "88"),
        ([], "a.ris#record=1"),
    ],
)
def test_the_id_is_the_pmid_else_the_doi_else_the_number(tmp_path, lines, id):
    (found,), _ = read(tmp_path / "a.ris", "\n".join(["TY  - JOUR", "TI  - T", *lines, "ER  - ", ""]).encode())
    assert (found.id, found.pmid) == (id, int(id) if id.isdigit() else None)
    assert (found.contents, found.metadata["abstract"]) == ("T", False)


def test_a_medline_record_has_the_fields_of_pubmeds_xml(tmp_path):
    (found,), rejects = read(tmp_path / "a.nbib", MEDLINE)
    title = "Isoniazid and the peripheral nerves: a study of patients who were given vitamin B6."
    assert rejects == []
    assert (found.id, found.pmid, found.title) == ("20137807", 20137807, title)
    assert found.content == "PubMed exports its records in this form."
    types = ["Journal Article", "Retracted Publication"]
    assert found.metadata == {
        "version": 1,
        "revised": "2010-03-01",
        "authors": ["Smith, John A"],
        "group_authors": ["Nerve Group"],
        "journal": "Lancet (London, England)",
        "year": 2010,
        "date": "2010-02-06",
        "volume": "375",
        "issue": "9713",
        "pages": "445-8",
        "doi": "10.1016/S0140-6736(10)60175-4",
        "pmcid": "PMC123456",
        "issn": "1474-547X",
        "language": ["eng"],
        "mesh": ["Isoniazid", "Vitamin B 6"],
        "type": types,
        "retraction": [20137808],
        "errata": ["Lancet. 2010 Mar 6;375(9717):818"],
        "concern": [20137809],
        "retracted": True,
        "abstract": True,
    }
    assert found.retracted


BAD_RIS = {
    b"TY  - JOUR\nTI  - No end\n": "without its last line",
    b"TY  - JOUR\nAU  - A\nER  - \n": "neither title nor abstract",
    b"TY  - JOUR\nTI  - na\xefve\nER  - \n": "not UTF-8",
    b"TY  - JOUR\nTI  - a\0b\nER  - \n": "NUL",
}


@pytest.mark.parametrize("bad", BAD_RIS, ids=BAD_RIS.values())
def test_a_bad_ris_record_is_one_reject(tmp_path, bad):
    found, (reject,) = read(tmp_path / "a.ris", b"\n" + bad + b"TY  - JOUR\nTI  - Good\nER  - \n")
    assert [one.contents for one in found] == ["Good"]
    assert (reject.line, reject.damaged) == (2, False) and BAD_RIS[bad] in reject.reason


def test_bad_medline_records_are_rejects(tmp_path):
    content = b"PMID- 0\nTI  - T\n\nPMID- 5\nAB  - \nPMID- 6\nTI  - Good\nXX\n      continued\n"
    found, rejects = read(tmp_path / "a.nbib", content)
    assert [(one.id, one.contents) for one in found] == [("6", "Good continued")]
    assert [(reject.line, reject.reason) for reject in rejects] == [
        (1, "PMID '0' is not a positive whole number"),
        (4, "a record with neither title nor abstract"),
    ]


@pytest.mark.parametrize("name", ["a.ris", "a.nbib"])
def test_a_file_without_a_record_is_damaged(tmp_path, name):
    _, (reject,) = read(tmp_path / name, b"just text\n")
    assert reject.damaged and "record in it" in reject.reason


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
phrases = st.lists(words, min_size=1, max_size=5).map(" ".join)


@given(
    entries=st.lists(
        st.fixed_dictionaries(
            {"title": phrases, "abstract": phrases, "authors": st.lists(phrases, max_size=3, unique=True)}
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_rispy_writes_is_read_back(tmp_path_factory, entries):
    text = rispy.dumps([{"type_of_reference": "JOUR", **entry} for entry in entries])
    found, rejects = read(tmp_path_factory.mktemp("r") / "a.ris", text.encode())
    assert rejects == []
    for snippet, entry in zip(found, entries, strict=True):
        assert (snippet.title, snippet.content) == (entry["title"], entry["abstract"])
        assert snippet.metadata.get("authors", []) == entry["authors"]


# --- journals and their abbreviations


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.ris", "TY  - JOUR\nTI  - T\nT2  - The Lancet\nJ2  - Lancet\nER  - \n", ("The Lancet", "Lancet")),
        ("a.ris", "TY  - JOUR\nTI  - T\nJF  - The Lancet\nJA  - Lancet\nER  - \n", ("The Lancet", "Lancet")),
        ("a.ris", "TY  - JOUR\nTI  - T\nJO  - Nat Rev\nT2  - Nature Reviews\nER  - \n", ("Nature Reviews", "Nat Rev")),
        ("a.ris", "TY  - JOUR\nTI  - T\nJO  - Gut\nJA  - Gut\nER  - \n", ("Gut", None)),
        ("a.ris", "TY  - JOUR\nTI  - T\nJ2  - Lancet\nER  - \n", ("Lancet", None)),
        (
            "a.nbib",
            "PMID- 5\nTI  - T\nTA  - Lancet\nJT  - The Lancet\n",
            ("The Lancet", "Lancet"),
        ),
        ("a.nbib", "PMID- 5\nTI  - T\nTA  - Lancet\n", ("Lancet", None)),
        ("a.bib", "@article{a, title={T}, journaltitle={The Lancet}, shortjournal={Lancet}}", ("The Lancet", "Lancet")),
        ("a.bib", "@article{a, title={T}, journal={The Lancet}}", ("The Lancet", None)),
        (
            "a.json",
            '[{"title": "T", "container-title": "The Lancet", "journalAbbreviation": "Lancet"}]',
            ("The Lancet", "Lancet"),
        ),
        ("a.json", '[{"title": ["T"], "container-title": [], "short-container-title": ["Lancet"]}]', ("Lancet", None)),
        ("a.csv", "Title,Publication Title,Journal Abbreviation\nT,The Lancet,Lancet\n", ("The Lancet", "Lancet")),
    ],
)
def test_a_journal_keeps_its_abbreviation(tmp_path, name, content, expected):
    (found,), rejects = read(tmp_path / name, content.encode())
    assert rejects == []
    assert (found.metadata["journal"], found.metadata.get("journal_abbreviation")) == expected


def test_an_abbreviation_is_written_and_read_back(tmp_path):
    fields = {"journal": "The Lancet", "journal_abbreviation": "Lancet", "doi": "10.1000/a"}
    hits = [Hit(1, Snippet("a", "Title", "Text.", None, fields), 1.0)]
    assert "J2  - Lancet\n" in ris(hits) and "  shortjournal = {Lancet},\n" in bibtex(hits)
    for name, text in (("a.ris", ris(hits)), ("a.bib", bibtex(hits))):
        (found,), _ = read(tmp_path / name, text.encode())
        assert fields.items() <= found.metadata.items()


# --- CSL-JSON


def test_a_reference_in_csl_json_keeps_its_bibliography(tmp_path):
    (found,), rejects = read(tmp_path / "library.json", CSL)
    metadata = {
        "authors": ["van den Berg, Ana", "Nerve Group"],
        "journal": "The New England Journal",
        "journal_abbreviation": "N Engl J",
        "year": 2019,
        "date": "2019-03-04",
        "volume": "3",
        "issue": "2",
        "pages": "10-20",
        "doi": "10.1000/csl1",
        "issn": "0140-6736",
        "type": ["Journal Article"],
        "abstract": True,
    }
    assert rejects == []
    assert found == Snippet("30000002", "Pyridoxine: when to give it", "B 6 is given early.", 30000002, metadata)


def test_bad_references_in_csl_json_are_rejects(tmp_path):
    found, rejects = read(
        tmp_path / "a.json", b'[3, {"title": "T", "issued": {"raw": "May 2019"}}, {"DOI": "10.1000/a"}]'
    )
    assert [(one.id, one.metadata["year"]) for one in found] == [("a.json#record=2", 2019)]
    assert [(reject.line, reject.unit, reject.reason) for reject in rejects] == [
        (1, "record", "not a reference but int"),
        (3, "record", "a record with neither title nor abstract"),
    ]
    for content, reason in ((b'[{"title": "T"}', "not JSON"), (b"[]", "no list of references")):
        found, (reject,) = read(tmp_path / "b.json", content)
        assert found == [] and reject.damaged and reason in reject.reason


csl_names = ["title", "author", "issued", "page", "DOI", "PMID", "abstract", "ISSN", "type", "container-title", "note"]
csl_names += ["family", "given", "date-parts", "raw"]
some_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["family", "date-parts", "raw"]), inner)
    ),
    max_leaves=6,
)


@given(item=st.dictionaries(st.sampled_from(csl_names), some_json))
def test_whatever_csl_json_holds_is_a_snippet_or_a_reject(tmp_path_factory, item):
    found, rejects = read(tmp_path_factory.mktemp("csl") / "a.json", json.dumps([item]).encode())
    assert len(found) + len(rejects) == 1


def test_records_beside_papers_are_told_from_other_json(tmp_path):
    (tmp_path / "lines.json").write_text(
        '{"id": "j1", "title": "Pyridoxine: when to give it", "content": "Not a reference."}\n'
    )
    (tmp_path / "library.json").write_bytes(CSL)
    (tmp_path / "notes.html").write_text("<html><title>Pyridoxine, when to give it</title><p>Early.</p></html>")
    sources = {source.label: source for source in find_sources([str(tmp_path)], tmp_path / "spool")}
    assert [path.name for path in sources["notes.html"].beside] == ["library.json"]
    (found,) = read_snippets(sources["notes.html"])
    assert (found.title, found.pmid) == ("Pyridoxine: when to give it", 30000002)
    assert found.metadata["journal_abbreviation"] == "N Engl J"


@given(fields=st.lists(st.tuples(st.sampled_from(["TI", "AB", "FAU", "MH", "PHST"]), phrases), max_size=8))
def test_medline_lines_are_unfolded(fields):
    text = "".join(f"{tag:<4}- {value.replace(' ', chr(10) + '      ')}\n" for tag, value in fields)
    expected: dict[str, list[str]] = {}
    for tag, value in fields:
        expected.setdefault(tag, []).append(value)
    assert nbib_fields(text) == expected


@pytest.mark.parametrize("title", ["{" * 3000 + "x" + "}" * 3000, r"\textbf{" * 1500 + "x" + "}" * 1500])
def test_an_entry_nested_too_deeply_is_one_reject(tmp_path, title):
    entry = f"@article{{k, title = {{{title}}}, abstract = {{Gout.}}}}\n"
    found, rejects = read(tmp_path / "a.bib", (entry + "@article{l, title = {Y}, abstract = {Z}}\n").encode())
    assert [one.content for one in found] == ["Z"]
    assert len(rejects) == 1


def test_blanks_in_an_author_take_no_time(tmp_path):
    entry = f"@article{{k, title = {{x}}, author = {{a{' ' * 100_000}b}}, abstract = {{Gout.}}}}\n"
    found, _ = read(tmp_path / "a.bib", entry.encode())
    assert found[0].metadata["authors"] == ["b, a"]
