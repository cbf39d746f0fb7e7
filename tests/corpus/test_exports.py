"""Exports of databases and reference managers: one field of one record a row, by kind; and real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from biorag.references.reference import author_of, reference_of
from biorag.types import Snippet
from tests.corpus.samples import read


def ris(*lines: str) -> str:
    return "\n".join(["TY  - JOUR", *lines, "ER  - ", ""])


def bib(fields: str) -> str:
    return f"@article{{a, title={{T}}, {fields}}}\n"


def pubmed(abstract: str, title: str = "T") -> str:
    return (
        f"<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>7</PMID><Article><ArticleTitle>{title}</ArticleTitle>"
        f"<Abstract><AbstractText>{abstract}</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle>"
        "</PubmedArticleSet>"
    )


WOS = """FN Example
VR 1.0
PT J
AU Li, W
   Doe, J
AF Li, Wei
   Doe, Jane
TI Soil fauna
   in wetlands
SO J SOIL
PY 2020
DT Article; Retracted Publication
PM 33
ER

EF
"""
TEXT = """1. Lancet. 2019 Jan 3;393(1):1-9. doi: 10.1000/l.1.

Zinc for
colds.

Doe J(1), Roe P(1)(2).

Author information:
(1)A unit.

Zinc helped.

DOI: 10.1000/l.1
PMID: 31 [Indexed for MEDLINE]
"""
ENDNOTE = """<xml><records><record><ref-type name="Journal Article">17</ref-type><contributors><authors><author>
<style face="normal">Chapman, A.</style></author></authors></contributors><titles><title>
<style face="normal">Growth at 10</style><style face="superscript">6</style><style> cells</style></title>
<secondary-title>Ecology</secondary-title></titles><dates><year>1937</year></dates></record></records></xml>"""
OVID = "<3>\nAccession Number\n  1.\nAuthor\n  Doe, Jane 1;  Roe, Pat 2\nTitle\n  Zinc for colds.[Review]\nSource\n"
OVID += "  Lancet. 395(10223):497-506, 2020 Feb 15.\nAbstract\n  Zinc helped.\n"
DIMENSIONS = (
    '"About the data: Exported on 1 May, 2024"\nRank,DOI,PMID,Title,Abstract,Source title,PubYear,Pagination,Authors\n'
)
DIMENSIONS += '1,10.1000/d,9.0,T,Text,J Tea,2020,3-9,"Doe, Jane; Roe, Pat"\n'
WRAPPED = "Two kinds: ER - positive ones T1 - weighted"
IN_ORDER = ["Doe, Jane", "The Group", "Roe, Pat"]
RECORDS = [
    # Text that must not change its meaning
    (
        "a.bib",
        bib(r"abstract={p {\textless} 0.05, age \textgreater{} 65, 5{\%} of 10\textsuperscript{6}}"),
        "content",
        "p < 0.05, age > 65, 5% of 10^6",
    ),
    (
        "a.bib",
        bib(r"abstract={CO$_2$ and \mbox{HCO} at $10^{-8}$, 5% of $p < 0.05$}"),
        "content",
        "CO2 and HCO at 10^-8, 5% of p < 0.05",
    ),
    (
        "a.xml",
        pubmed("2×10<sup>6</sup> cells, 1.73 m<sup>2</sup>, <sup>18</sup>F, HCO<sub>3</sub><sup>-</sup>"),
        "content",
        "2×10^6 cells, 1.73 m2, 18F, HCO3-",
    ),
    (
        "a.ris",
        ris("TI  - T", "AB  - <jats:title>Abstract</jats:title><jats:p>p &lt; 0.05 &amp; x <y</jats:p>"),
        "content",
        "p < 0.05 & x <y",
    ),
    ("a.csv", "Title,Abstract\nT,10<sup>6</sup> <i>E. coli</i>\n", "content", "10^6 E. coli"),
    ("a.ris", ris("TI  - AKT&AMPK in <B and >A", "AB  - x"), "title", "AKT&AMPK in <B and >A"),
    ("a.ris", ris("TI  - T", "AB  - Two kinds:", "ER - positive ones", "T1 - weighted"), "content", WRAPPED),
    ("a.bib", bib("journal={C#Journal}, volume={10$^6$}"), "journal", "C#Journal"),
    # Abstracts that there are not
    ("a.ris", ris("TI  - T", "AB  - NA"), "abstract", False),
    ("a.ris", ris("TI  - T", "AB  - [No abstract available]"), "abstract", False),
    # Retractions, and what is none
    ("a.ris", ris("TI  - RETRACTED ARTICLE: Curcumin heals"), "retracted", True),
    ("a.ris", ris("TI  - Curcumin heals [Retracted]"), "retracted", True),
    ("a.ris", ris("TI  - T", "M3  - Retracted"), "retracted", True),
    ("a.ris", ris("TI  - T", "N1  - Retraction in: J 2020;4:1"), "retracted", True),
    ("a.ris", ris("TI  - Retraction notice to: Curcumin heals"), "retracted", None),
    ("a.ris", ris("TI  - Retracted articles: a survey"), "retracted", None),
    ("a.ris", ris("TI  - Expression of concern: Curcumin heals"), "concern", ["Expression of Concern"]),
    ("a.ris", ris("TI  - Reply to 'Curcumin heals' (Retracted)"), "retracted", None),
    ("a.ris", ris("TI  - Withdrawn: feeling alone in the ward"), "retracted", None),
    ("a.jsonl", '{"id": "a", "title": "Retracted: T", "retracted": false, "content": "Text"}\n', "retracted", False),
    ("a.xml", pubmed("Text", "WITHDRAWN: Curcumin heals"), "retracted", True),
    ("a.jsonl", '{"id": "a", "title": "Retracted: Curcumin heals", "content": "Text"}\n', "retracted", True),
    ("a.json", '[{"title": "T", "updated-by": [{"type": "retraction", "DOI": "10.1000/n"}]}]', "retracted", True),
    ("a.json", '[{"title": "T", "update-to": [{"type": "retraction", "DOI": "10.1000/n"}]}]', "retracted", None),
    ("a.txt", WOS, "retracted", True),
    # Authors
    (
        "a.nbib",
        "PMID- 5\nTI  - T\nFAU - Doe, Jane\nAU  - Doe J\nCN  - The Group\nFAU - Roe, Pat\n",
        "authors",
        IN_ORDER,
    ),
    (
        "a.bib",
        bib("author={Doe, J. and {Care and Home Council} and others}"),
        "authors",
        ["Doe, J.", "Care and Home Council"],
    ),
    ("a.csv", 'Title,Authors\nT,"Doe J, Roe P."\n', "authors", ["Doe J", "Roe P"]),
    ("a.csv", 'Title,Authors\nT,"Doe, John and Roe, Émilie"\n', "authors", ["Doe, John", "Roe, Émilie"]),
    ("a.csv", 'Title,Authors\nT,"Doe, J., Roe, P."\n', "authors", ["Doe, J.", "Roe, P."]),
    ("a.csv", "Title,Authors\nT,\"['Doe, Jane', 'Roe, Pat']\"\n", "authors", ["Doe, Jane", "Roe, Pat"]),
    ("a.csv", 'Title,Authors\nT,"Doe, Jane"\n', "authors", ["Doe, Jane"]),
    ("a.csv", "Title,Authors\nT,Food and Drug Administration\n", "authors", ["Food and Drug Administration"]),
    ("a.csv", 'Title,Authors\nT,"King, Martin, Jr"\n', "authors", ["King, Martin, Jr"]),
    ("a.csv", "Title,source,accession\nT,trial register,7\n", "source", "trial register"),
    ("a.txt", "1. Spin. 1000 g for 5 min; discard the rest.\n", "title", "a"),
    ("a.ris", ris("TI  - T", "AU  - Doe, null", "AU  - [No author name available]"), "authors", ["Doe"]),
    ("a.txt", OVID, "authors", ["Doe, Jane", "Roe, Pat"]),
    ("a.txt", TEXT, "authors", ["Doe J", "Roe P"]),
    ("a.txt", WOS, "authors", ["Li, Wei", "Doe, Jane"]),
    ("a.xml", ENDNOTE, "authors", ["Chapman, A."]),
    # Identifiers
    ("a.bib", bib("eprint={30}, eprinttype={pubmed}"), "pmid", 30),
    ("a.bib", bib("url={https://pubmed.ncbi.nlm.nih.gov/31/}"), "pmid", 31),
    ("a.ris", ris("TI  - T", "C5  - 15368318", "DB  - Embase"), "pmid", 15368318),
    ("a.ris", ris("TI  - T", "N1  - Database: Ovid MEDLINE 1946 to Present"), "pmid", None),
    ("a.ris", ris("TI  - T", "AN  - 2212345678", "DB  - Health & Medical Collection"), "pmid", None),
    ("a.ris", ris("TI  - T", "L2  - https://www.ncbi.nlm.nih.gov/pmc/articles/PMC33"), "pmcid", "PMC33"),
    ("a.ris", ris("TI  - T", "U1  - 34[pmid]"), "pmid", 34),
    ("a.ris", ris("TI  - T", "L3  - 10.1000/(x)1(2)."), "doi", "10.1000/(x)1(2)"),
    ("a.csv", "Title,PubMed ID\nT,PUBMED 35\n", "pmid", 35),
    ("a.csv", "Title,PMID\nT,NA\n", "pmid", None),
    ("a.csv", DIMENSIONS, "pmid", 9),
    ("a.txt", TEXT, "pmid", 31),
    # Where it was published
    ("a.ris", ris("TI  - T", "SP  - No", "EP  - Specified"), "pages", None),
    ("a.ris", ris("TI  - T", "SP  - 123-130"), "pages", "123-130"),
    ("a.ris", ris("TI  - T", "DA  - 2014/July//"), "date", "2014-07"),
    ("a.ris", ris("TI  - T", "M3  - Health & Treatment [3300]"), "type", ["Journal Article"]),
    ("a.csv", "Title,Publication Year\nT,2014//\n", "year", 2014),
    ("a.csv", "Author Names,Title,Source\nDoe J.,T,Gut (2014) 3:2 (5-9). Date of Publication: 2014\n", "pages", "5-9"),
    ("a.txt", OVID, "volume", "395"),
    ("a.txt", TEXT, "date", "2019-01-03"),
    ("a.xml", ENDNOTE, "title", "Growth at 10^6 cells"),
    # Forms
    ("a.ris", "TY - JOUR\nTI - Spaced\nER - \n", "title", "Spaced"),
    ("a.ris", "ty  - JOUR\nti  - Small\ner  - \n", "title", "Small"),
    ("a.ris", "TY  - JOUR\rTI  - Old lines\rER  - \r", "title", "Old lines"),
    ("a.ris", ris("TI  - Wide").encode("utf-16"), "title", "Wide"),
    ("a.tsv", "Title\tAuthors\nWide\tDoe, J\n".encode("utf-16"), "title", "Wide"),
    ("a.bib", '@string{b = {Black}}\n@article{a, title = b # " tea"}\n', "title", "Black tea"),
    ("a.bib", "@article{a, title={T}\n  file={x}}\n", "title", "T"),
    ("a.bib", "@article{a, title={T}, note={x}, note={PMID: 5}}\n", "pmid", 5),
    ("a.enw", "%0 Journal Article\n%T Refer\n%D 2001\n", "year", 2001),
    ("a.txt", WOS, "title", "Soil fauna in wetlands"),
]


@pytest.mark.parametrize(("name", "content", "field", "value"), RECORDS)
def test_a_record(tmp_path, name, content, field, value):
    found, rejects = read(tmp_path / name, content if isinstance(content, bytes) else content.encode())
    assert rejects == [], found
    fields = {"title": found[0].title, "content": found[0].content, "pmid": found[0].pmid, **found[0].metadata}
    assert fields.get(field) == value


PLAIN = {
    "a.ris": "TY  - JOUR\nTI  - Wide\nER  - \n",
    "a.csv": "Title,Authors\nWide,Doe\n",
    "a.nbib": "PMID- 1\nTI  - Wide\n",
    "a.bib": "@article{a, title={Wide}}\n",
    "a.json": '[{"id": "a", "title": "Wide"}]',
    "a.jsonl": '{"id": "a", "title": "Wide", "content": "Wide"}\n',
    "a.md": "# Wide\n\nText.\n",
    "a.html": "<title>Wide</title><p>Text.",
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read_by_its_mark_and_refused_without(tmp_path, name, encoding):
    found, rejects = read(tmp_path / name, f"\ufeff{PLAIN[name]}".encode(encoding))
    assert ([one.title for one in found], rejects) == (["Wide"], [])
    found, (reject,) = read(tmp_path / name, PLAIN[name].encode(encoding))
    is_named = reject.reason == "UTF-16 without its byte order mark, or no text: save it as UTF-8"
    assert (found, reject.damaged) == ([], True) and (is_named or name == "a.html")


def test_records_of_one_key_stay_two(tmp_path):
    found, _ = read(tmp_path / "a.bib", b"@misc{a, title={One}, year={2000}}\n@misc{a, title={Two}, author={Doe, J}}\n")
    assert [(one.id, one.title) for one in found] == [("a.bib#a", "One"), ("a.bib#a-2", "Two")]
    assert found[1].metadata["authors"] == ["Doe, J"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Eloubeidi M.A.", "Eloubeidi MA"),
        ("van der Berg J-P Jr", "van der Berg JP Jr"),
        ("O'Byrne PM", "O'Byrne PM"),
        ("CDC USA", "CDC USA"),
        ("World Health Organization WHO", "World Health Organization WHO"),
        ("ZUMA Study Group", "ZUMA Study Group"),
    ],
)
def test_names_without_a_comma(name, shown):
    assert author_of(name).name == shown


def cases(folder: Path, name: str) -> list[Snippet]:
    return list(read_snippets(Source(name, folder / "cases" / name)))


def test_cases_of_public_reports(shared_data):
    """What each file of the set should give, as its EXPECTED has it."""

    def fields(name: str, field: str) -> list:
        return [getattr(one, field, None) or one.metadata.get(field) for one in cases(shared_data, name)]

    if not (shared_data / "cases").is_dir():
        pytest.skip("no cases in the shared data")
    (dialysis,) = cases(shared_data, "C05.zotero_textless.bib")
    assert dialysis.title.endswith("eGFR < 10")
    assert all(text in dialysis.content for text in ("eGFR < 10", "p < 0.05", "> 65 years"))
    assert fields("C07.group_author.nbib", "authors") == [
        ["DCCT/EDIC Research Group"],
        ["Nathan, David M", "DCCT/EDIC Research Group"],
    ]
    (cells,) = cases(shared_data, "C08.superscript.xml")
    assert "2×10^6" in cells.content and "3×10^-8" in cells.content
    assert fields("C11.wos_plain.txt", "pmid") == [33444444, None]
    assert fields("C11.wos_tab.txt", "pmid") == [25555551]
    assert fields("C11.pubmed_abstract_set.txt", "pmid") == [29768149, 30000001]
    for name, count in (("pubmed", 3), ("rayyan", 2), ("central", 2)):
        assert [len(authors) for authors in fields(f"C12.{name}.csv", "authors")] == [count]
    assert len(cases(shared_data, "C13.scopus_duplicate_field.bib")) == 3
    assert len({one.id for one in cases(shared_data, "C13.scopus_duplicate_key.bib")}) == 2
    (authors,) = fields("C14.group_with_and.bib", "authors")
    assert (
        len(authors) == 20 and "American Heart Association Council on Quality of Care and Outcomes Research" in authors
    )
    assert fields("C18.retracted_title.ris", "retracted") == [True, True]
    assert fields("C21.biblatex_eprint_pubmed.bib", "pmid") == [30811111, 32000001, 33000001]
    assert not any("others" in authors for authors in fields("C22.and_others.bib", "authors"))
    lens, chapter = cases(shared_data, "C23.lens.ris")
    assert (lens.pmid, lens.metadata["pmcid"]) == (32789069, "PMC7417126") and "jats" not in chapter.content
    assert fields("C23.embase_c5.ris", "pmid") == [15368318]
    assert fields("C23.ebsco_l3.ris", "doi") == ["10.1016/j.agee.2016.06.041"]
    assert [one.content for one in cases(shared_data, "C24.abstract_NA.ris")] == [""] * 12
    assert fields("C26.ovid_pages.ris", "pages") == [None]
    assert fields("C26.ovid_pages.ris", "type") == [["Journal Article"]]
    assert len(cases(shared_data, "C29.single_space_tags.ris")) == 1
    assert fields("C30.asreview_generic.csv", "year") == [2014, 2006]
    assert "Mendeley: escaped characters" in fields("C31.escaped_braces.bib", "title")
    (embase,) = cases(shared_data, "C23.embase_c5.ris")
    assert [author.name for author in reference_of(embase).authors[:2]] == ["Eloubeidi MA", "Cohn M"]


def test_real_exports_have_the_counts_that_patterns_find(shared_data):
    """Counts as EXPECTED says of each file that it names: records, titles, abstracts, DOIs and PMIDs."""
    expected = shared_data / "files" / "EXPECTED.md"
    if not expected.is_file():
        pytest.skip("no real exports in the shared data")
    checked = 0
    for name, lines in re.findall(
        r"- `((?:ris|medline|other)/[^`]+)`[^\n]*\n((?:  - [^\n]*\n)+)", expected.read_text()
    ):
        records = list(read_snippets(Source(name, shared_data / "files" / name), lambda reject: None))
        if tagged := re.search(r"TY (\d+), ER .*abstracts \(AB/N2\) (\d+)", lines):
            assert [len(records), sum(map(bool, (one.content for one in records)))] == list(
                map(int, tagged.groups())
            ), name
        if title := re.search(r"first title: (.*)", lines):
            assert records[0].title.rstrip(".") == title[1].rstrip("."), name
        if pmids := re.search(r"PMIDs ([\d, ]+)", lines):
            assert [str(one.pmid) for one in records] == pmids[1].split(", ")[: len(records)], name
        checked += 1
    assert checked >= 12


def test_chapters_inherit_a_book_but_not_its_identifiers(tmp_path):
    child, parent = (
        "@incollection{c, title={Chapter}, crossref={p}}\n",
        "@book{p, title={Book}, year={2001}, doi={10.1000/b}}\n",
    )
    found, _ = read(tmp_path / "a.bib", (child + parent).encode())
    assert [(one.id, one.metadata.get("journal"), one.metadata["year"]) for one in found] == [
        ("a.bib#c", "Book", 2001),
        ("10.1000/b", None, 2001),
    ]
