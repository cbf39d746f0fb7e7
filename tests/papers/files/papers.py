"""Papers as publishers lay them out: columns, running heads, references, facts in different places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fpdf import FPDF

BODY = (
    "Gout is treated with colchicine in low doses. The trial enrolled adults with an acute attack of gout. "
    "Pain fell within a day in the group that took colchicine, and diarrhoea was the commonest adverse effect. "
)
REFERENCES = [
    "1. Walker T, Okafor A. Allopurinol in renal failure. J Ward Med. 2001;3:4-9. doi:10.9999/cited.2001",
    "2. Lindqvist P. Febuxostat and the heart. Heart. 1999;1:1-2. doi:10.9999/cited.1999",
]


class Expected(NamedTuple):
    """What a paper is: title, first author, year, DOI."""

    title: str
    author: str
    year: int | None
    doi: str


class Layout(FPDF):
    """A document whose pages have a running head and a number."""

    head = ""

    def header(self) -> None:
        """Write the running head."""
        if self.head:
            self.set_font("helvetica", size=8)
            self.cell(0, 5, f"{self.head}   {self.page_no()}", new_x="LMARGIN", new_y="NEXT")

    def write_lines(self, size: float, *lines: str, style: str = "") -> None:
        """Write paragraphs in letters of a size."""
        self.set_font("helvetica", style, size)
        for line in lines:
            self.multi_cell(0, size / 2, line, new_x="LMARGIN", new_y="NEXT")

    def columns(self, text: str) -> None:
        """Write a text in two columns."""
        self.set_font("helvetica", size=9)
        with self.text_columns(ncols=2, gutter=8) as columns:
            columns.write(text=text)


def paper(
    title: Sequence[str],
    authors: str,
    *,
    above: Sequence[str] = (),
    below: Sequence[str] = (),
    end: Sequence[str] = (),
    head: str = "",
    two_columns: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return a paper of four pages with references on the last."""
    pdf = Layout()
    pdf.head = head
    for name, value in (metadata or {}).items():
        getattr(pdf, f"set_{name}")(value)
    pdf.add_page()
    pdf.write_lines(8, *above)
    pdf.write_lines(18, *title, style="B")
    pdf.write_lines(11, authors)
    pdf.write_lines(8, "Department of Medicine, University of Somewhere", *below)
    pdf.write_lines(10, "Abstract", BODY)
    for number in range(3):
        if two_columns:
            pdf.columns(BODY * 4)
        else:
            pdf.write_lines(10, f"Section {number + 1}", BODY * 4)
        pdf.add_page()
    pdf.write_lines(10, BODY)
    pdf.write_lines(12, "References", style="B")
    pdf.write_lines(9, *REFERENCES)
    pdf.write_lines(8, *end)
    return bytes(pdf.output())


RIS = b"""TY  - JOUR
TI  - Losartan lowers urate in people with hypertension
AU  - Novak, Jana
AU  - Reyes, Luis
PY  - 2011
JO  - Hypertension Reports
DO  - 10.5555/hyp.2011.4
ER  -
"""


def write_papers(folder: Path) -> dict[str, Expected | None]:
    """Write ten files and the references of one, and return what each is; None of those that cannot be read."""
    from io import BytesIO

    from pypdf import PdfReader, PdfWriter

    folder.mkdir(parents=True)
    files = {
        "smith2019.pdf": paper(
            ["Low-dose colchicine in acute gout"],
            "John A. Smith1, Mary Jones2* and Piet van der Berg1",
            below=["doi:10.5555/gout.2019.11", "Received 3 May 2018. Accepted 1 February 2019"],
            head="Smith et al. Low-dose colchicine",
        ),
        "two_columns.pdf": paper(
            ["Febuxostat or allopurinol for", "tophaceous gout: a randomised trial"],
            "Ana Silva, MD, PhD; Jun Chen, MD; Olu Adeyemi, MSc",
            above=["Journal of Ward Medicine 2021;12(3):34-41", "https://doi.org/10.5555/jwm.2021.7"],
            two_columns=True,
        ),
        "metadata.pdf": paper(
            ["Canakinumab prevents attacks of gout"],
            "",
            metadata={
                "title": "Canakinumab prevents attacks of gout",
                "author": "Maria Rossi; Karl Weber",
                "subject": "Journal of Rheumatic Care, 8 (2016) 112-119. doi:10.5555/jrc.2016.112",
            },
        ),
        "word.pdf": paper(
            ["Diet and the risk of gout in men"],
            "Hana Suzuki and Tom Brown",
            metadata={"title": "Microsoft Word - ICU notes (final) v2.docx", "author": "user"},
            end=["Copyright 2014 The Authors. doi: 10.5555/diet.2014.2"],
        ),
        "preprint.pdf": paper(
            ["Uricase fusion proteins clear urate crystals"],
            "Lea Martin, Noah Klein",
            above=["arXiv:2203.01234v2 [q-bio.BM] 4 Mar 2022"],
            below=["Copyright (c) 2022 the authors"],
        ),
        "subject.pdf": paper(
            ["Interleukin-1 blockade in refractory gout"],
            "A. B. Petrov, C. Dubois",
            metadata={"subject": "doi:10.5555/il1.2017.3"},
            below=["Published online: 12 June 2017"],
            head="Annals of Crystals",
        ),
        "scan_with_record.pdf": paper(
            ["Losartan lowers urate in people with hypertension"], "", below=["no date is printed here"]
        ),
        "plain.pdf": paper(["Genetics of renal urate transport"], "Eva Horvath"),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "library.ris").write_bytes(RIS)
    pdf = FPDF()
    pdf.add_page()
    pdf.rect(10, 10, 50, 50)
    (folder / "scan.pdf").write_bytes(bytes(pdf.output()))
    writer, out = PdfWriter(clone_from=PdfReader(BytesIO(files["plain.pdf"]))), BytesIO()
    writer.encrypt(user_password="secret", owner_password="owner", algorithm="RC4-128")
    writer.write(out)
    (folder / "locked.pdf").write_bytes(out.getvalue())
    return {
        "smith2019.pdf": Expected("Low-dose colchicine in acute gout", "Smith, John A.", 2019, "10.5555/gout.2019.11"),
        "two_columns.pdf": Expected(
            "Febuxostat or allopurinol for tophaceous gout: a randomised trial",
            "Silva, Ana",
            2021,
            "10.5555/jwm.2021.7",
        ),
        "metadata.pdf": Expected("Canakinumab prevents attacks of gout", "Rossi, Maria", 2016, "10.5555/jrc.2016.112"),
        "word.pdf": Expected("Diet and the risk of gout in men", "Suzuki, Hana", 2014, "10.5555/diet.2014.2"),
        "preprint.pdf": Expected(
            "Uricase fusion proteins clear urate crystals", "Martin, Lea", 2022, "10.48550/arXiv.2203.01234"
        ),
        "subject.pdf": Expected(
            "Interleukin-1 blockade in refractory gout", "Petrov, A. B.", 2017, "10.5555/il1.2017.3"
        ),
        "scan_with_record.pdf": Expected(
            "Losartan lowers urate in people with hypertension", "Novak, Jana", 2011, "10.5555/hyp.2011.4"
        ),
        "plain.pdf": Expected("Genetics of renal urate transport", "Horvath, Eva", None, ""),
        "scan.pdf": None,
        "locked.pdf": None,
    }
