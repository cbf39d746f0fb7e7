"""PDFs: whose each is, wherever publishers print it; its text without what surrounds it; hostile ones."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, StreamObject

from biorag.corpus.readers import read_changes
from biorag.corpus.sentences import sentences
from biorag.corpus.sources import Source, find_sources
from biorag.errors import BadInputError
from biorag.papers.files.facts import facts_of
from biorag.papers.files.pdf import read_pdf
from biorag.papers.files.pdf_layout import Line, composed, laid_out, plain
from biorag.papers.manuscripts.reading import read_manuscript
from biorag.references.formats import bibtex, vancouver
from biorag.types import Hit, Snippet
from tests.corpus.samples import RIS, read, searchable_pdf
from tests.papers.files.papers import BODY as PROSE
from tests.papers.files.papers import PAPERS, Layout, paper

TITLE = ["Metformin or gliclazide for adults older", "than 75 years: a trial of falls"]
BODY = [
    "Metformin lowers hepatic glucose production and has been",
    "the first choice in type 2 diabetes for decades. Whether it",
    "prevents falls in older adults was not known. We compared",
    "it with gliclazide in adults who were older than 75 years.",
]
REFERENCES = ["1. Kelly P. Falls and frailty. N Engl J Med 2011;383:1838-47.", "https://doi.org/10.1056/cited.2011"]


class Sheet(FPDF):
    """Pages on which each line is put where it stands, as typesetters do."""

    def put(self, x: float, y: float, size: float, *lines: str, style: str = "") -> float:
        """Put lines below each other, raised letters between "^", and return where the next one would stand."""
        for line in lines:
            for number, part in enumerate(line.split("^")):
                self.set_font("helvetica", style, size * (0.65 if number % 2 else 1))
                self.text(x, y - (size * 0.35 if number % 2 else 0), part)
                x += self.get_string_width(part)
            x -= self.get_string_width(line) if "^" not in line else 0
            y += 1.2 * size
        return y


def sheet(**metadata: str) -> Sheet:
    pdf = Sheet(unit="pt")
    pdf.set_title(metadata.get("title", ""))
    pdf.add_page()
    return pdf


def end(pdf: Sheet, y: float) -> None:
    pdf.put(50, y, 10, "References", style="B")
    pdf.put(50, y + 14, 8, *REFERENCES)


def elsevier(pdf: Sheet) -> None:
    pdf.put(180, 30, 8, "Diabetes Research Letters 44 (2018) 109876")
    pdf.put(150, 60, 9, "Contents lists available at ScienceDirect")
    pdf.put(150, 85, 16, "Diabetes Research Letters")
    y = pdf.put(50, 140, 13, *TITLE)
    pdf.put(50, y, 11, "Claire Dubois^a,b,*^, Anil K. Raman^b^, Yuki Sato^c")
    pdf.put(50, y + 14, 7, "^a^ Institut du Diabete, Lyon, France", "^b^ Tata Memorial Centre, Mumbai, India")
    pdf.put(50, 240, 7, "Article history:", "Received 3 March 2017", "Accepted 9 December 2017")
    pdf.put(220, 240, 9, "A B S T R A C T")
    pdf.put(220, 255, 8, *BODY)
    pdf.put(50, 320, 9, "1. Introduction", style="B")
    pdf.put(50, 335, 9, *BODY, *BODY)
    pdf.put(50, 770, 7, "* Corresponding author at: Institut du Diabete,", "Lyon, France.", "E-mail: c@example.org.")
    pdf.put(50, 800, 7, "https://doi.org/10.5555/drl.2018.109876", "© 2018 Elsevier B.V. All rights reserved.")
    end(pdf, 500)


def springer(pdf: Sheet) -> None:
    pdf.put(50, 30, 8, "Diabetes Research Letters (2018) 44:123-134", "https://doi.org/10.5555/drl.2018.109876")
    y = pdf.put(50, 100, 17, *TITLE, style="B")
    pdf.put(50, y, 10, "Claire Dubois^1,2^ · Anil K. Raman^2^ · Yuki Sato^3", style="B")
    pdf.put(50, y + 14, 8, "Received: 3 March 2017 / Accepted: 9 December 2017", "© Springer Nature 2018")
    pdf.put(50, 200, 11, "Abstract", style="B")
    y = pdf.put(50, 214, 10, *BODY)
    pdf.put(50, y + 8, 10, "Keywords Metformin · Falls")
    pdf.put(50, 300, 12, "Introduction", style="B")
    pdf.put(50, 316, 10, *BODY, *BODY)
    pdf.put(50, 740, 8, "* Claire Dubois", "c.dubois@example.org", "^1^ Institut du Diabete, Lyon, France")
    end(pdf, 500)


def plos(pdf: Sheet) -> None:
    pdf.put(50, 30, 20, "PLOS ONE", style="B")
    pdf.put(
        40,
        150,
        7,
        "Citation: Dubois C, Raman AK (2018) Metformin or",
        "gliclazide for adults older than 75 years: a trial",
    )
    pdf.put(40, 167, 7, "of falls. Diabetes Research Letters 44(3): e0213.", "https://doi.org/10.5555/drl.2018.109876")
    pdf.put(
        40, 200, 7, "Copyright: © 2018 Dubois et al. This is an open", "access article, which permits unrestricted use."
    )
    y = pdf.put(200, 80, 18, *TITLE, style="B")
    pdf.put(200, y, 10, "Claire Dubois^1,2^, Anil K. Raman^2*^, Yuki Sato^3", style="B")
    pdf.put(200, y + 14, 8, "1 Institut du Diabete, Lyon, France, 2 Tata Memorial Centre", "* a.raman@example.org")
    pdf.put(200, 200, 14, "Abstract", style="B")
    pdf.put(200, 216, 10, *BODY)
    pdf.put(200, 300, 12, "Introduction", style="B")
    pdf.put(200, 316, 10, *BODY, *BODY)
    pdf.put(40, 810, 7, "PLOS ONE | https://doi.org/10.5555/drl.2018.109876   January 12, 2018")
    end(pdf, 500)


def bmj(pdf: Sheet) -> None:
    pdf.put(50, 30, 22, "RESEARCH", style="B")
    y = pdf.put(50, 80, 18, *TITLE, style="B")
    pdf.put(50, y, 10, "Claire Dubois,^1,2^ Anil K Raman,^2^ Yuki Sato,^3^ for the METFALL Study Group")
    pdf.put(40, 200, 7, "^1^Institut du Diabete, Lyon, France", "Correspondence to: C Dubois", "c.dubois@example.org")
    pdf.put(40, 240, 7, "Cite this as: Diabetes Research Letters 2018;44:l1245", "doi:10.5555/drl.2018.109876")
    pdf.put(200, 200, 9, "ABSTRACT", "OBJECTIVE", style="B")
    pdf.put(200, 226, 9, *BODY)
    pdf.put(200, 300, 9, "Introduction", style="B")
    pdf.put(200, 314, 9, *BODY, *BODY)
    end(pdf, 500)


def mdpi(pdf: Sheet) -> None:
    y = pdf.put(50, 80, 18, *TITLE, style="B")
    pdf.put(50, y, 10, "Claire Dubois ^1,2,*^, Anil K. Raman ^2^ and Yuki Sato ^3", style="B")
    pdf.put(
        180, y + 20, 8, "^1^ Institut du Diabete, Lyon, France; c.dubois@example.org", "* Correspondence: c@example.org"
    )
    pdf.put(180, 200, 10, f"Abstract: {BODY[0]}", *BODY[1:])
    pdf.put(180, 270, 10, "Keywords: metformin; falls")
    pdf.put(180, 300, 10, "1. Introduction", style="B")
    pdf.put(190, 314, 10, *BODY, *BODY)
    pdf.put(40, 300, 7, "Received: 3 March 2017", "Published: 12 January 2018", "Licensee MDPI, Basel, Switzerland.")
    pdf.put(50, 810, 8, "Diabetes Research Letters 2018, 44, 1234; doi:10.5555/drl.2018.109876")
    end(pdf, 500)


def pages(folder: Path, pdf: FPDF) -> list[Snippet]:
    return read(folder / "x.pdf", bytes(pdf.output()))[0]


LAYOUTS = [elsevier, springer, plos, bmj, mdpi]


def manuscript(pdf: Sheet) -> None:
    """Lay out a preprint: every line has a number, and letters of one size."""
    pdf.put(
        40, 15, 7, "bioRxiv preprint doi: https://doi.org/10.1101/2020.03.03.975219; this version posted March 5, 2020"
    )
    authors = ["Claire Dubois^1^, Anil K. Raman^2,*^ and", "Yuki Sato^3", "", "^1^Institut du Diabete, Lyon, France"]
    lines = [*TITLE, "", *authors, "", "Abstract", *BODY, *BODY, *BODY]
    for number, line in enumerate(lines, 1):
        pdf.put(30, 40 + 24 * number, 9, str(number))
        pdf.put(70, 40 + 24 * number, 12, line, style="B" if line in TITLE else "")


def tex(pdf: Sheet) -> None:
    """Lay out an article of TeX: each author above an affiliation, beside the others."""
    pdf.put(120, 120, 17, *TITLE)
    for x, name in ((80, "Claire Dubois"), (250, "Anil K. Raman"), (420, "Yuki Sato")):
        pdf.put(x, 180, 12, name)
        pdf.put(x, 194, 10, "Institut du Diabete", "Lyon, France")
    pdf.put(280, 270, 9, "Abstract", style="B")
    pdf.put(120, 285, 9, *BODY, *BODY)


def authors_above(pdf: Sheet) -> None:
    pdf.put(50, 30, 8, "Diabetologia (2005) 48: 123-134", "DOI 10.5555/s00125-004-1234-5")
    pdf.put(50, 70, 9, "ARTICLE")
    pdf.put(50, 100, 10, "Claire Dubois . Anil K. Raman . Yuki Sato")
    pdf.put(50, 130, 17, *TITLE, style="B")
    pdf.put(50, 190, 8, "Received: 3 March 2004 / Accepted: 9 September 2004")
    pdf.put(50, 230, 10, "Abstract Aims/hypothesis: Metformin", *BODY, *BODY)


def title_last(pdf: Sheet) -> None:
    pdf.put(50, 30, 8, "Journal of Ward Medicine")
    pdf.put(50, 400, 11, "INTRODUCTION", style="B")
    pdf.put(50, 420, 10, *BODY, *BODY)
    pdf.put(50, 100, 24, *TITLE, style="B")
    pdf.put(50, 160, 12, "Claire Dubois^1,2^, Anil K. Raman^3^, Yuki Sato^1")
    pdf.put(50, 180, 9, "^1^Department of Medicine, Lyon, France")
    pdf.put(50, 250, 9, "ABSTRACT", *BODY)


def cover(pdf: Sheet) -> None:
    pdf.put(50, 100, 14, "Since January 2020 a publisher has created a resource centre with", "free information.")
    pdf.add_page()
    springer(pdf)


def kind_above(pdf: Sheet) -> None:
    """Lay out a title below the kind of paper in letters of its size, and above a subtitle."""
    pdf.put(50, 30, 8, "Case Reports in Endocrinology", "Volume 2018, Article ID 65458, 5 pages")
    pdf.put(50, 80, 18, "Clinical Study")
    pdf.put(50, 104, 18, TITLE[0], TITLE[1].split(":")[0], style="B")
    pdf.put(50, 150, 14, "a trial of falls")
    pdf.put(50, 180, 11, "Claire Dubois, MD, PhD; Anil K. Raman, MBBS, MPH; Yuki Sato, RDH")
    pdf.put(50, 230, 10, "Abstract", *BODY, *BODY)


@pytest.mark.parametrize("layout", [manuscript, tex, authors_above, title_last, cover, kind_above])
def test_a_first_page_of_other_order(layout, tmp_path):
    pdf = sheet()
    layout(pdf)
    page = pages(tmp_path, pdf)[-1]
    assert page.title == " ".join(TITLE)
    assert page.metadata["authors"] == ["Dubois, Claire", "Raman, Anil K.", "Sato, Yuki"]
    if layout is kind_above:
        assert page.metadata["journal"] == "Case Reports in Endocrinology"
    if layout is manuscript:
        assert page.content.endswith(" ".join(BODY)) and "14" not in page.content


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_first_page(layout, tmp_path):
    pdf = sheet()
    layout(pdf)
    (page,) = pages(tmp_path, pdf)
    facts: dict[str, Any] = page.metadata
    assert page.title == " ".join(TITLE)
    assert [name.replace(".", "") for name in facts["authors"][:3]] == ["Dubois, Claire", "Raman, Anil K", "Sato, Yuki"]
    assert (facts["journal"], facts["volume"], facts["year"]) == ("Diabetes Research Letters", "44", 2018)
    assert facts["doi"] == "10.5555/drl.2018.109876"
    assert ("METFALL Study Group" in facts["authors"]) is (layout is bmj)
    text = page.content.removeprefix("Abstract: ")
    known = {"A B S T R A C T", "Abstract", "ABSTRACT", "OBJECTIVE", "1.", "Introduction"}
    said = sentences(" ".join(BODY))
    assert set(sentences(text)) - known == set(said)
    assert [sentence for sentence in sentences(text) if sentence not in known] == said * 3


@pytest.mark.parametrize(
    ("printed", "facts"),
    [
        (
            "Pediatric Letters, Volume 7, Issue 2, 2019, pages 88-95",
            {"journal": "Pediatric Letters", "volume": "7", "issue": "2", "year": 2019, "pages": "88-95"},
        ),
        ("Gut Reports (2021) 9:410-422", {"journal": "Gut Reports", "volume": "9", "year": 2021, "pages": "410-422"}),
        ("Nephron, 2024, 3(1), 1-11", {"journal": "Nephron", "volume": "3", "issue": "1", "year": 2024}),
        ("Stroke Care 2022 Mar;14(2):e7", {"journal": "Stroke Care", "volume": "14", "year": 2022, "pages": "e7"}),
        ("Front. Immunol. 11:1234. doi: 10.5555/fi.1", {"journal": "Front. Immunol", "pages": "1234"}),
        ("Age and Care 31 (2017)", {"journal": "Age and Care", "volume": "31", "year": 2017}),
        ("Heart Letters 2019", {"year": 2019}),
        ("Received 4 March 2021", {"year": None}),
    ],
)
def test_what_a_line_says_of_journal_volume_and_pages(printed, facts, tmp_path):
    pdf = sheet(title=" ".join(TITLE))
    pdf.put(50, 60, 18, *TITLE)
    pdf.put(50, 110, 10, "L. Fernandes, M. Haugen, and the SEMA-KID investigators", printed)
    pdf.put(50, 160, 11, "Summary", style="B")
    pdf.put(50, 180, 10, *BODY, *BODY)
    end(pdf, 500)
    (page,) = pages(tmp_path, pdf)
    assert {name: page.metadata.get(name) for name in facts} == facts
    assert page.metadata["authors"] == ["Fernandes, L.", "Haugen, M.", "SEMA-KID investigators"]
    assert "Fernandes" not in page.content


def test_headings_tables_and_ends_of_pages_cut_no_sentence(tmp_path):
    pdf = sheet()
    pdf.put(50, 60, 18, *TITLE)
    pdf.put(50, 110, 10, "Claire Dubois and Anil Raman")
    pdf.put(50, 150, 10, *BODY, *BODY)
    pdf.put(50, 260, 10, "Adverse effects of metformin", style="I")
    pdf.put(50, 274, 10, "Nausea was reported by 31 participants and")
    pdf.put(50, 300, 8, "Dose   Nausea, RR", "1 g   1.04 (0.66-1.63)")
    pdf.put(50, 330, 10, "diarrhoea by 12. The trial ended when 412 of the")
    pdf.put(50, 810, 8, "Age and Care 31 (2017)")
    pdf.put(500, 810, 8, "12")
    pdf.add_page()
    pdf.put(50, 30, 8, "Dubois and Raman")
    pdf.put(50, 60, 10, "participants had been followed. It went well.")
    pdf.put(50, 90, 12, "Conclusion", style="B")
    pdf.put(50, 110, 10, "Metformin lowered the rate of falls.")
    pdf.put(50, 810, 8, "Age and Care 31 (2017)")
    pdf.put(500, 810, 8, "13")
    first, second = pages(tmp_path, pdf)
    assert sentences(first.content)[-4:] == [
        "Adverse effects of metformin",
        "Nausea was reported by 31 participants and diarrhoea by 12.",
        "The trial ended when 412 of the participants had been followed.",
        "Dose Nausea, RR 1 g 1.04 (0.66-1.63)",
    ]
    assert sentences(second.content) == ["It went well.", "Conclusion", "Metformin lowered the rate of falls."]


def test_a_foot_that_is_set_wide_is_one(tmp_path):
    pdf = Layout()
    pdf.add_page()
    pdf.write_lines(18, "A study of gout in men")
    pdf.write_lines(10, "Eva Horvath", "Abstract", PROSE)
    pdf.set_y(-25)
    pdf.write_lines(7, f"Gout Care. 2019;74:1-9.{' ' * 60}gout.example{' ' * 60}1")
    (page,) = pages(tmp_path, pdf)
    assert "Gout Care" not in page.content
    assert (page.metadata["journal"], page.metadata["pages"]) == ("Gout Care", "1-9")


GOUT, GOUT_LARGE = [Line("A study of gout in men", 14.0)], [Line("A study of gout in men", 16.0)]


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
        ({"journal": "???"}, [], "journal", ""),
        ({"title": "Gout &#x02013; a study"}, [], "title", "Gout – a study"),
        ({"title": "Gout#_#x2014;a study of men"}, [Line("Gout—a study of men", 14.0)], "title", "Gout—a study of men"),
        ({}, [Line("The Gout Journal", 18.0), *GOUT_LARGE], "title", "A study of gout in men"),
        (
            {},
            [Line("Metabolic Syndrome and Heart Disease", 18.0), Line("Ann Bo, Cy Do", 9.0)],
            "title",
            "Metabolic Syndrome and Heart Disease",
        ),
        ({"title": "A study of gout"}, [Line("A study of gout in men", 14.0)], "title", "A study of gout in men"),
        ({"author": "Ann Bo"}, [*GOUT, Line("Ann Bo, Cy Do", 9.0)], "authors", ["Bo, Ann", "Do, Cy"]),
        ({"author": "Type Setter"}, [*GOUT, Line("Ann Bo, Cy Do", 9.0)], "authors", ["Bo, Ann", "Do, Cy"]),
        ({"author": "Ann Bø; Cy Do"}, [*GOUT, Line("Ann B?, Cy Do", 9.0)], "authors", ["Bø, Ann", "Do, Cy"]),
        ({}, [*GOUT, Line("ANN BO and M.K.KHOSLA", 9.0)], "authors", ["BO, ANN", "KHOSLA, M.K."]),
        ({}, [Line("doi:10.5555/a\u2011b.1", 9.0)], "doi", "10.5555/a-b.1"),
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


def test_an_imprint_after_the_references_is_the_papers_with_the_doi_above_it():
    last = "The end.\nReferences\n1. A list. 2011;6:2.\ndoi:10.5555/gout.1\nCite this article as: Bo: Gout. 2015, 16:1."
    layout = laid_out([lines(last)])
    assert layout.notices == ["doi:10.5555/gout.1", "Cite this article as: Bo: Gout. 2015, 16:1."]
    assert [[line.text for line in page] for page in layout.references] == [["1. A list. 2011;6:2."]]


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
        ("EXPERIMENTAL MEDICINE 11: 832-840, 2016", ("EXPERIMENTAL MEDICINE", 2016, "11", "832-840", "")),
        ("Bioinformatics, 34(12), 2018, 2077-2085", ("Bioinformatics", 2018, "34", "2077-2085", "")),
        ("Access Publication 4 April 2007 eCAM 2008;5(1)95–101", ("eCAM", 2008, "5", "95-101", "")),
        ("Drug Therapy 2015:9 123–131", ("Drug Therapy", 2015, "9", "123-131", "")),
        ("J Gout Care 2019;3:4-9\nThe Journal of Gouty Care", ("The Journal of Gouty Care", 2019, "3", "4-9", "")),
        ("2 Author Manuscript\n4 Author Manuscript\nOn gout in men 3\nOn gout in men 5", ("", None, "", "", "")),
        ("Bo et al. 1919\nBo et al. 1920\nBo et al. 1921", ("", None, "", "", "")),
    ],
)
def test_where_a_paper_stands(notices, expected):
    title = "Skin-Resident T Cells Predict Relapse of Dermatitis" if notices == FRONTIERS else "A study of gout in men"
    facts = facts_of({}, [Line(title, 14.0)], notices.split("\n"))
    assert tuple(facts[name] for name in ("journal", "year", "volume", "pages", "doi")) == expected


# --- whole papers


@pytest.fixture(scope="module")
def papers(tmp_path_factory) -> dict[str, list[Snippet]]:
    folder = tmp_path_factory.mktemp("papers")
    return {
        name: read(folder / f"{name}.pdf", paper(sample.title, sample.authors, **sample.others))[0]
        for name, sample in PAPERS.items()
    }


@pytest.mark.parametrize("name", PAPERS)
def test_what_a_paper_is(papers, name):
    sample = PAPERS[name]
    assert len(papers[name]) == 4
    for page in papers[name]:
        fields = page.metadata
        assert (page.title, fields["authors"][0]) == (" ".join(sample.title), sample.author)
        assert (fields.get("year"), fields.get("doi", "")) == (sample.year, sample.doi)
    text = " ".join(page.content for page in papers[name])
    assert text.count("Gout is treated with colchicine in low doses") >= 13
    assert not any(left in text for left in ("Walker T", "10.9999", "References", "Smith et al.", "Annals of Crystals"))


def test_a_paper_is_one_reference(papers):
    hits = [Hit(rank, page, 1.0) for rank, page in enumerate((p for found in papers.values() for p in found), 1)]
    assert (vancouver(hits).count("\n"), bibtex(hits).count("@")) == (len(PAPERS), len(PAPERS))
    assert "Silva A, Chen J, Adeyemi O. Febuxostat or allopurinol for tophaceous gout" in vancouver(hits)


def test_a_record_counts_that_lies_beside_a_paper(tmp_path):
    (tmp_path / "x.pdf").write_bytes(paper(["Pyridoxine in practice"], ""))
    for record, name in (("other.ris", tmp_path), ("x.ris", tmp_path / "x.pdf")):
        (tmp_path / record).write_bytes(RIS)
        source = next(one for one in find_sources([str(name)], tmp_path / "spool") if one.path.suffix == ".pdf")
        (page, *_) = read_changes(source)
        assert (page.title, page.metadata.get("year")) == ("Pyridoxine in practice", 2019)
        (tmp_path / record).unlink()


# Of real papers (shared/data/files): title, authors, year, DOI as their article XML has them, as far as they are read.
GOLD = [
    ("trials_16_1", "Lessons learned from recruiting", 12, 2015, "10.1186/1745-6215-16-1"),
    ("PMC4521097", "Conspecific recognition and aggression reduction", 6, 2015, "10.1007/s00265-015-1952-7"),
    ("bmc_1471-2148-14-70", "Revealing the maternal demographic history", 9, 2014, "10.1186/1471-2148-14-70"),
    ("plosone_0115884", "A Novel Reproductive Mode in Frogs", 3, 2014, "10.1371/journal.pone.0115884"),
    ("mdpi_metabolites_04-00932", "Volatile Metabolite Profiling of Durum", 7, 2014, "10.3390/metabo4040932"),
]


@pytest.mark.parametrize(("name", "title", "authors", "year", "doi"), GOLD)
def test_a_real_paper(shared_data, name, title, authors, year, doi):
    path = shared_data / "files" / "pdf" / f"{name}.pdf"
    page = next(read_changes(Source(path.name, path)))
    assert page.title.startswith(title) and len(page.metadata.get("authors", ())) >= authors
    assert (page.metadata["year"], page.metadata.get("doi", "")) == (year, doi)


# --- damaged and hostile files


@pytest.mark.parametrize(
    ("apart", "together"),
    [
        ("M¨uller and Garc´ıa L´opez", "Müller and García López"),
        ("Ju¨rges and Garcı´a, Jose´ Alvarez", "Jürges and García, José Alvarez"),
        ("Gonza´ lez and Go¨ ker", "González and Göker"),
        ("M¨ uller, A˚berg, ˇSt, Franc¸ois", "Müller, Åberg, Št, François"),
        ("5´-ATG, the point A´ and `quoted'", "5´-ATG, the point A´ and `quoted'"),
    ],
)
def test_accents_are_on_their_letters(apart, together):
    assert composed(apart) == together


def test_words_are_parted_by_gaps_and_letters_of_one_size_from_others(tmp_path):
    shown = b"[(Case) -130 (R) 4 (eport) -250 (of) -240 (gout)] TJ 7 0 0 7 300 704 Tm (1,2) Tj"
    spaced = b" 12 0 0 12 50 600 Tm [(G) -150 (O) -150 (U) -150 (T)] TJ"
    (tmp_path / "a.pdf").write_bytes(bomb(b"BT /F1 1 Tf 12 0 0 12 50 700 Tm " + shown + spaced + b" ET"))
    (first, second), *_ = read_pdf(Source("a.pdf", tmp_path / "a.pdf")).lines
    assert (first.text, first.level.strip(" ,")) == ("Case Report of gout 1,2", "Case Report of gout")
    assert second.text.replace(" ", "") == "GOUT"


def test_lines_of_a_page_are_joined_and_broken_words_mended():
    assert plain("neuro-\npathy of IL-\n6 and\ndose \u00ad\nx\0y \ud800", {}) == "neuropathy of IL- 6 and dose xy ?"


@pytest.mark.parametrize(
    ("words", "broken", "whole"),
    [
        ({}, "placebo-\ntreated and open-\nlabel", "placebo-treated and open-label"),  # two words of abstracts
        ({}, "gliflo-\nzin, met-\nformin, human-to-\nhuman", "gliflozin, metformin, human-to-human"),
        ({}, "dose-\nand time-\ndependent, hepato\u00ad\nlogy", "dose- and time-dependent, hepatology"),
        ({"feto-maternal": 1}, "feto-\nmaternal", "feto-maternal"),
        ({"cotransporter": 2, "co-transporter": 1}, "co-\ntransporter", "cotransporter"),
        ({"anti-viral": 2, "antiviral": 1}, "anti-\nviral", "anti-viral"),
    ],
)
def test_a_hyphen_at_a_lines_end_stays_where_the_paper_has_it(words, broken, whole):
    assert plain(broken, words) == whole


NARROW = """In December 2019, a novel coronavirus
(2019-nCoV) caused an outbreak in Wuhan,
China, and soon spread to other parts of the
world. Data from three trials (registered at
http://www.example.org/trials under
UMIN000003951) were analysed.
AIMS/HYPOTHESIS: In rodent models of
diabetes, treatment with metformin improves
beta cell function in many animals."""


def test_text_in_narrow_columns_without_a_heading_is_kept_and_its_years_are_not_the_papers():
    front = [Line("Falls during Coronavirus Disease 2019", 20.0, 850.0), Line("Ann Bo, Cy Do", 10.0, 830.0)]
    layout = laid_out([[*front, *lines(NARROW)], lines(NARROW)])
    assert [text.split() for text in layout.texts] == [NARROW.split()] * 2
    assert layout.front == front
    assert facts_of({}, layout.front, layout.notices)["year"] is None


def test_rows_of_a_table_at_the_top_of_a_page_are_no_head():
    rows = [Line(f"Stranger   {n}.4   80.9", 8.0, 850.0 - 10 * n) for n in range(3)]
    page = [Line("Ann Bo", 8.0, 880.0), *lines(NARROW)]
    texts = laid_out([page, [*rows, *lines(NARROW)], page]).texts
    assert texts[1].startswith("Stranger 0.4 80.9 Stranger 1.4") and texts[2].startswith("In December")


def encrypted(password: str) -> bytes:
    writer, out = PdfWriter(clone_from=PdfReader(BytesIO(searchable_pdf(["Secret."])))), BytesIO()
    writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def test_an_encrypted_pdf_is_read_if_it_opens_without_a_password(tmp_path):
    (found,), _ = read(tmp_path / "a.pdf", encrypted(""))
    assert found.content == "Secret."
    found, (reject,) = read(tmp_path / "b.pdf", encrypted("x"))
    assert found == [] and reject.damaged and "encrypted" in reject.reason


def bomb(content: bytes) -> bytes:
    """A PDF whose only page has this as its content, deflated."""
    writer, stream, out = PdfWriter(clone_from=PdfReader(BytesIO(searchable_pdf(["Text."])))), StreamObject(), BytesIO()
    stream.set_data(content)
    writer.pages[0][NameObject("/Contents")] = writer._add_object(stream.flate_encode(level=9))
    writer.write(out)
    return out.getvalue()


def test_pages_that_share_a_slow_content_end_the_file(tmp_path):
    writer = PdfWriter(clone_from=PdfReader(BytesIO(bomb(b"BT /F1 9 Tf " + b"(x) Tj 1 0 0 1 5 5 Tm " * 100_000))))
    for _ in range(19):
        writer.add_page(writer.pages[0])
    writer.write(tmp_path / "a.pdf")
    code = (
        "import sys; from pathlib import Path; from biorag.papers.files import pdf_pages; "
        "pdf_pages.PAGE_SECONDS, pdf_pages.AVERAGE_SECONDS = 2, 0.0; pdf_pages.write_pages(Path(sys.argv[1]))"
    )
    read = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.pdf")], capture_output=True, check=False)
    head, *lines = map(json.loads, read.stdout.splitlines())
    assert head["pages"] == 20 and len(lines) < 20


@pytest.mark.long
def test_a_page_that_takes_too_long_ends_the_file(tmp_path):
    slow = bomb(b"BT /F1 9 Tf " + b"(x) Tj 1 0 0 1 5 5 Tm " * 3_000_000)
    assert len(slow) < 1 << 20
    _, (reject,) = read(tmp_path / "b.pdf", slow)
    assert "as a bomb does" in reject.reason or "cannot be read" in reject.reason, reject.reason
    with pytest.raises(BadInputError, match=r"as a bomb does|cannot be read"):
        read_manuscript(tmp_path / "b.pdf")


@pytest.mark.parametrize("cut", [0, 5, 300])
def test_a_broken_pdf_is_damaged_or_read(tmp_path, cut):
    content = searchable_pdf(["Text."])
    found, rejects = read(tmp_path / "a.pdf", content[:cut])
    assert found == [] and len(rejects) == 1
    middle = bytearray(content)
    middle[cut + 20 : cut + 60] = b"\xff" * 40
    found, rejects = read(tmp_path / "b.pdf", bytes(middle))
    assert len(found) + len(rejects) == 1
    assert all("Traceback" not in reject.reason and "\n" not in reject.reason for reject in rejects)
