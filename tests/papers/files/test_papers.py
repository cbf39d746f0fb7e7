"""PDFs of papers: what they are, whatever their layout, and the text without what only surrounds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from biorag.corpus.readers import read_changes
from biorag.corpus.sources import Source, find_sources
from biorag.papers.files.facts import facts_of
from biorag.papers.files.pdf_layout import Line, laid_out
from biorag.references.formats import bibtex, vancouver
from biorag.types import Hit
from tests.papers.files.papers import BODY, RIS, Layout, write_papers


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("papers") / "papers"


@pytest.fixture(scope="module")
def expected(folder):
    return write_papers(folder)


@pytest.fixture(scope="module")
def pages(folder, expected):
    """The snippets of each file."""
    found = {}
    for source in find_sources([str(folder)], folder.parent / "spool"):
        found[source.path.name] = list(read_changes(source, lambda reject: None))
    return found


def test_what_a_paper_is(pages, expected):
    for name, paper in expected.items():
        if paper is None:
            assert pages[name] == []
            continue
        assert len(pages[name]) == 4
        for page in pages[name]:
            fields = page.metadata
            assert (page.title, fields["authors"][0], fields.get("doi", "")) == (paper.title, paper.author, paper.doi)
            assert fields.get("year") == paper.year


def test_running_heads_and_references_are_no_text(pages):
    for name in ("smith2019.pdf", "two_columns.pdf", "subject.pdf"):
        text = " ".join(page.content for page in pages[name])
        assert text.count("Gout is treated with colchicine in low doses") >= 13
        for left in ("Walker T", "10.9999", "References", "Smith et al.", "Annals of Crystals"):
            assert left not in text


def test_a_paper_is_one_reference_and_so_is_its_record(pages, expected):
    snippets = [snippet for found in pages.values() for snippet in found]
    hits = [Hit(rank, snippet, 1.0) for rank, snippet in enumerate(snippets, 1)]
    readable = sum(paper is not None for paper in expected.values())
    assert vancouver(hits).count("\n") == readable
    assert bibtex(hits).count("@") == readable
    assert "Silva A, Chen J, Adeyemi O. Febuxostat or allopurinol for tophaceous gout" in vancouver(hits)


def test_a_record_counts_that_lies_beside_a_single_file(folder, expected, tmp_path):
    paper = tmp_path / "x.pdf"
    paper.write_bytes((folder / "plain.pdf").read_bytes())
    (alone, *_) = read_changes(find_sources([str(paper)], tmp_path / "spool")[0])
    assert alone.metadata["authors"] == ["Horvath, Eva"]
    (tmp_path / "x.ris").write_bytes(RIS)
    (joined, *_) = read_changes(find_sources([str(paper)], tmp_path / "spool")[0])
    assert (joined.title, joined.metadata["year"]) == ("Losartan lowers urate in people with hypertension", 2011)


@pytest.mark.parametrize(
    ("metadata", "front", "fact", "value"),
    [
        (
            {"title": "untitled"},
            [Line("A study of gout in men", 14.0), Line("text", 9.0)],
            "title",
            "A study of gout in men",
        ),
        ({"title": "10.1016/j.x.2010.01.001"}, [], "title", ""),
        ({"author": "Smith, John; Doe, Jane"}, [], "authors", ["Smith, John", "Doe, Jane"]),
        ({"author": "John Smith, Jane Doe"}, [], "authors", ["Smith, John", "Doe, Jane"]),
        ({"author": "admin"}, [], "authors", []),
        ({"author": "King, Martin, Jr; van der Berg, Jan"}, [], "authors", ["King, Martin, Jr", "van der Berg, Jan"]),
        ({"doi": "10.1/short"}, [], "doi", ""),
        ({"doi": "10.1000/xyz.(2)."}, [], "doi", "10.1000/xyz.(2"),
        ({"created": "D:20150102"}, [], "year", None),
        ({"created": "D:20150102", "published": "2014-12-01"}, [], "year", 2014),
        ({"journal": "The  Lancet"}, [], "journal", "The Lancet"),
    ],
)
def test_a_fact(metadata, front, fact, value):
    assert facts_of(metadata, front, ["text"])[fact] == value


def lines(text: str, size: float = 10.0) -> list[Line]:
    """Return a page of lines of one size, the first the highest."""
    return [Line(line, size, 800.0 - 12 * n) for n, line in enumerate(text.split("\n"))]


def test_a_word_that_heads_no_references_stays():
    pages = ["Gout.\nReferences\nto gout are many.", "More on gout."]
    last = "The end.\nReferences\n1. A list.\nAppendix\nDoses."
    texts = laid_out([*map(lines, pages), lines(last)]).texts
    assert texts == ["Gout. References to gout are many.", "More on gout.", "The end.\n\nAppendix Doses."]


def test_bibtex_is_read(tmp_path):
    path = tmp_path / "x.bib"
    path.write_text(
        '@article{a, title={The {DNA} of M{\\"u}ller}, author={M{\\"u}ller, Hans and Jane A. Doe and {WHO Group}}, '
        "journal={Lancet}, year=2019, doi={10.1234/x}, abstract={Text of 5\\% here.}, pages={1--9}}\n"
        "@misc{b, title={No more}, year={in press}}\n@misc{c, title={broken",
        encoding="utf-8",
    )
    rejects = []
    article, other = read_changes(Source("x.bib", path), rejects.append)
    assert (article.id, article.title, article.content) == ("10.1234/x", "The DNA of Müller", "Text of 5% here.")
    assert article.metadata["authors"] == ["Müller, Hans", "Doe, Jane A.", "WHO Group"]
    assert (article.metadata["year"], article.metadata["pages"]) == (2019, "1-9")
    assert (other.id, "year" in other.metadata) == ("x.bib#b", False)
    assert [reject.reason for reject in rejects] == [
        "an entry that is not BibTeX: a brace or a quotation mark is missing"
    ]


FRONTIERS = """Citation:
Bos J, García López MJ, Tanaka JRR III
and Gräfe A-L (2021) Skin-Resident T Cells
Predict Relapse of Dermatitis.
Front. Immunol. 12:634512.
doi: 10.5555/fimmu.2021.634512"""


@pytest.mark.parametrize(
    ("authors", "notices", "expected"),
    [
        (
            "J. Bos, María José García López, J. R. R. Tanaka III and\nAnna-Lena Gräfe",
            FRONTIERS,
            ["Bos, J.", "García López, María José", "Tanaka, J. R. R., III", "Gräfe, Anna-Lena"],
        ),
        (
            "Anneke J van der Berg associate professor 1, Samuel Okonkwo lecturer in public health 2,\n"
            "Tom W St John Jr 1, Vera van’t Hoff 2, Katharina von und zu Stein, Stefano D'Angelo",
            "",
            [
                "van der Berg, Anneke J",
                "Okonkwo, Samuel",
                "St John, Tom W, Jr",
                "van't Hoff, Vera",
                "von und zu Stein, Katharina",
                "D'Angelo, Stefano",
            ],
        ),
        (
            "Robert J. MacAllister, M.D., Ph.D., Yuki\nSato, B.Ch., and William H. Grant, Jr., M.D.",
            "",
            ["MacAllister, Robert J.", "Sato, Yuki", "Grant, William H., Jr"],
        ),
        ("Luis Pérez Gil\nEva Horvath", "Pérez Gil et al.", ["Pérez Gil, Luis", "Horvath, Eva"]),
    ],
)
def test_the_names_of_authors(authors, notices, expected):
    front = [Line("A study of gout in men", 14.0), *(Line(line, 10.0) for line in authors.split("\n"))]
    assert facts_of({}, front, notices.split("\n"))["authors"] == expected


@pytest.mark.parametrize(
    ("notices", "expected"),
    [
        (FRONTIERS, ("Front. Immunol", 2021, "12", "634512", "10.5555/fimmu.2021.634512")),
        (
            "Frontiers in Nutrition | www.frontiersin.org   1   March 2020 | Volume 7 | Article 9",
            ("Frontiers in Nutrition", 2020, "7", "9", ""),
        ),
        (
            "Cite this as: BMJ 2020;368:m1190\nhttp://dx.doi.org/10.5555/bmj.m1190",
            ("BMJ", 2020, "368", "m1190", "10.5555/bmj.m1190"),
        ),
        (
            "To cite: Bos J, Okonkwo S. A study of gout\nin men. BMJ Open 2019;9:e012345. doi:\n10.5555/bo-2018-012345",
            ("BMJ Open", 2019, "9", "e012345", "10.5555/bo-2018-012345"),
        ),
        ("Nature | Vol 589 | 14 January 2021 | 281", ("Nature", 2021, "589", "281", "")),
        (
            "https://doi.org/10.5555/s41586-020-030\n67-x\nReceived: 3 April 2020\n12",
            ("", None, "", "", "10.5555/s41586-020-03067-x"),
        ),
        (
            "jama.com   (Reprinted)   JAMA   October 6, 2020   Volume 324, Number 13   1307",
            ("JAMA", 2020, "324", "", ""),
        ),
        ("The SMALL JOURNAL of GOUT\n© 2018", ("The Small Journal of Gout", 2018, "", "", "")),
        ("bioRxiv preprint; posted March 9, 2021", ("bioRxiv", 2021, "", "", "")),
    ],
)
def test_where_a_paper_stands(notices, expected):
    title = "Skin-Resident T Cells Predict Relapse of Dermatitis" if notices == FRONTIERS else "A study of gout in men"
    facts = facts_of({}, [Line(title, 14.0)], notices.split("\n"))
    assert tuple(facts[name] for name in ("journal", "year", "volume", "pages", "doi")) == expected


def test_a_foot_that_is_set_wide_is_one(tmp_path):
    pdf = Layout()
    pdf.add_page()
    pdf.write_lines(18, "A study of gout in men")
    pdf.write_lines(10, "Eva Horvath", "Abstract", BODY)
    pdf.set_y(-25)
    pdf.write_lines(7, f"Gout Care. 2019;74:1-9.{' ' * 60}gout.example{' ' * 60}1")
    (tmp_path / "x.pdf").write_bytes(bytes(pdf.output()))
    (page,) = read_changes(find_sources([str(tmp_path / "x.pdf")], tmp_path / "spool")[0])
    assert "Gout Care" not in page.content
    assert (page.metadata["journal"], page.metadata["pages"]) == ("Gout Care", "1-9")
