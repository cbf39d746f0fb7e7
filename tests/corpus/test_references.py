"""RIS, CSL-JSON and MEDLINE: golden records, records that rispy writes, bad ones."""

from __future__ import annotations

import json

import pytest
import rispy
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.readers import read_snippets
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import Source, find_sources
from biorag.errors import BadInputError
from tests.corpus.samples import CSL, read


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


# A file of bad records and, last, a good one, with line, reason of each reject.
GOOD_RIS, GOOD_BIB = "TY  - JOUR\nTI  - Good\nER  - \n", "@article{l, title = {Good}}\n"
NO_TEXT = "a record with neither title nor abstract"
BOLD, DEEP = r"\textbf{" * 1500, "an entry whose braces or commands are nested too deeply"
BAD = [
    ("a.ris", GOOD_RIS.encode() + b"\nTY  - JOUR\nTI  - No end\n", [(5, "a record without its last line, 'ER  -'")]),
    ("a.ris", b"\nTY  - JOUR\nAU  - A\nER  - \n" + GOOD_RIS.encode(), [(2, NO_TEXT)]),
    ("a.ris", b"TY  - JOUR\nTI  - na\xefve\nER  - \n" + GOOD_RIS.encode(), [(1, "not UTF-8 (byte 19): convert it")]),
    ("a.ris", b"TY  - JOUR\nTI  - a\0b\nER  - \n" + GOOD_RIS.encode(), [(1, "a NUL character: it is not text")]),
    (
        "a.nbib",
        b"PMID- 0\nTI  - T\n\nPMID- 5\nAB  - \nPMID- 6\nTI  - Good\n",
        [(1, "PMID '0' is not a positive whole number"), (4, NO_TEXT)],
    ),
    ("a.json", b'[3, {"DOI": "10.1000/a"}, {"title": "Good"}]', [(1, "not a reference but int"), (2, NO_TEXT)]),
    ("a.bib", f"@article{{k, title = {{{'{' * 3000}x{'}' * 3000}}}}}\n{GOOD_BIB}".encode(), [(1, DEEP)]),
    ("a.bib", f"@article{{k, title = {{{BOLD}x{'}' * 1500}}}}}\n{GOOD_BIB}".encode(), [(1, DEEP)]),
    (
        "a.bib",
        f"{GOOD_BIB}@misc{{c, title={{broken".encode(),
        [(2, "an entry that is not BibTeX: a brace or a quotation mark is missing")],
    ),
]


@pytest.mark.parametrize(("name", "content", "expected"), BAD)
def test_bad_records_are_rejects_and_the_others_are_read(tmp_path, name, content, expected):
    found, rejects = read(tmp_path / name, content)
    assert [one.contents for one in found] == ["Good"]
    assert [(reject.line, reject.reason) for reject in rejects] == expected
    assert not any(reject.damaged for reject in rejects)


@pytest.mark.parametrize(
    ("name", "hollow", "good"),
    [
        ("a.ris", "TY  - JOUR\nER  - \n", GOOD_RIS),
        ("a.ris", "TY  - JOUR\n", GOOD_RIS),
        ("a.nbib", "PMID- \n\n", "PMID- 7\nTI  - Good\n\n"),
        ("a.enw", "%0 Book\n\n", "%T Good\n\n"),
        ("a.bib", "@article{a,}\n", GOOD_BIB),
        ("a.jsonl", "{}\n", '{"id": "7", "contents": "Good"}\n'),
    ],
)
def test_empty_records_of_a_file_are_one_reject_that_counts_them(tmp_path, name, hollow, good):
    rejects = RejectsFile(tmp_path / "rejects.jsonl")
    (tmp_path / name).write_text(hollow * 1200 + good + hollow * 34 + good.replace("7", "8"))
    with rejects.written([]):
        found = list(read_snippets(Source(name, tmp_path / name), rejects))
    assert [one.contents for one in found] == ["Good"] * 2 and rejects.count == 1234
    assert [json.loads(row)["reason"] for row in rejects.path.open()] == [f"{NO_TEXT}, the first of 1,234 such"]
    with pytest.raises(BadInputError, match=f"line 1: {NO_TEXT}; fix it"):
        list(read_snippets(Source(name, tmp_path / name)))


def test_empty_references_of_csl_are_one_reject(tmp_path):
    found, (reject,) = read(tmp_path / "a.json", json.dumps([*[{}] * 99, {"title": "Good"}]).encode())
    assert ([one.contents for one in found], reject.records) == (["Good"], 99)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.ris", b"just text\n", "no RIS record in it"),
        ("a.nbib", b"just text\n", "no MEDLINE record in it"),
        ("a.bib", b"", "no BibTeX entry in it"),
        ("a.json", b'[{"title": "T"}', "not JSON"),
        ("a.json", b"[]", "no list of references"),
    ],
)
def test_a_file_without_records_is_damaged(tmp_path, name, content, reason):
    found, (reject,) = read(tmp_path / name, content)
    assert found == [] and reject.damaged and reason in reject.reason


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
phrases = st.lists(words, min_size=1, max_size=5).map(" ".join)


@given(
    entries=st.lists(
        st.fixed_dictionaries(
            {
                "title": phrases,
                "abstract": phrases.map("Of {}".format),
                "authors": st.lists(phrases, max_size=3, unique=True),
            }
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


@pytest.mark.parametrize(
    ("name", "content", "field", "value"),
    [
        ("a.bib", '@article{a, title={The {DNA} of M{\\"u}ller}}', "title", "The DNA of Müller"),
        ("a.bib", "@article{a, title={T}, abstract={Text of 5\\% here.}}", "content", "Text of 5% here."),
        (
            "a.bib",
            '@article{a, title={T}, author={M{\\"u}ller, Hans and Jane A. Doe and {WHO Group}}}',
            "authors",
            ["Müller, Hans", "Doe, Jane A.", "WHO Group"],
        ),
        ("a.bib", f"@article{{a, title={{T}}, author = {{a{' ' * 100_000}b}}}}", "authors", ["b, a"]),
        ("a.bib", "@article{a, title={T}, month = jun, year = 2014}", "date", "2014-06"),
        ("a.bib", "@misc{a, title={T}, year={in press}}", "year", None),
        ("a.bib", "@article{a, title={T}, pages={1--9}}", "pages", "1-9"),
        ("a.bib", "@article{a, title={T}, note={PMID: 77}}", "pmid", 77),
        ("a.bib", "@incollection{a, title={T}}", "type", ["Book Chapter"]),
        ("a.ris", "Record #1\r\nTY  - CHAP\r\nTI  - T\r\nER  - \r\n", "type", ["Book Chapter"]),
        ("a.ris", "TY  - THES\nTI  - T\nER  - \n", "type", ["Academic Dissertation"]),
        ("a.json", '[{"title": "T", "issued": {"raw": "May 2019"}}]', "year", 2019),
        ("a.nbib", "PMID- 6\nTI  - T\nXX\n      continued\n", "title", "T continued"),
    ],
)
def test_a_field(tmp_path, name, content, field, value):
    (found,), rejects = read(tmp_path / name, content.encode())
    assert rejects == []
    assert getattr(found, field, found.metadata.get(field)) == value
