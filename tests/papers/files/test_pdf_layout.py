"""First pages as publishers print them: whose the paper is, and that nothing around its text is text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fpdf import FPDF

from biorag.corpus.readers import read_snippets
from biorag.corpus.sentences import sentences
from biorag.corpus.sources import Source
from biorag.types import Snippet

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


def read(pdf: Sheet, folder: Path) -> list[Snippet]:
    path = folder / "x.pdf"
    path.write_bytes(bytes(pdf.output()))
    return list(read_snippets(Source("x.pdf", path), lambda reject: None))


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


LAYOUTS = [elsevier, springer, plos, bmj, mdpi]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_first_page(layout, tmp_path):
    pdf = sheet()
    layout(pdf)
    (page,) = read(pdf, tmp_path)
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
def test_where_a_paper_stands(printed, facts, tmp_path):
    pdf = sheet(title=" ".join(TITLE))
    pdf.put(50, 60, 18, *TITLE)
    pdf.put(50, 110, 10, "L. Fernandes, M. Haugen, and the SEMA-KID investigators", printed)
    pdf.put(50, 160, 11, "Summary", style="B")
    pdf.put(50, 180, 10, *BODY, *BODY)
    end(pdf, 500)
    (page,) = read(pdf, tmp_path)
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
    first, second = read(pdf, tmp_path)
    assert sentences(first.content)[-4:] == [
        "Adverse effects of metformin",
        "Nausea was reported by 31 participants and diarrhoea by 12.",
        "The trial ended when 412 of the participants had been followed.",
        "Dose Nausea, RR 1 g 1.04 (0.66-1.63)",
    ]
    assert sentences(second.content) == ["It went well.", "Conclusion", "Metformin lowered the rate of falls."]
