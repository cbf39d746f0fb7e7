"""Papers as publishers lay them out: columns, running heads, references, facts in different places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fpdf import FPDF

BODY = (
    "Gout is treated with colchicine in low doses. The trial enrolled adults with an acute attack of gout. "
    "Pain fell within a day in the group that took colchicine, and diarrhoea was the commonest adverse effect. "
)
REFERENCES = [
    "1. Walker T, Okafor A. Allopurinol in renal failure. J Ward Med. 2001;3:4-9. doi:10.9999/cited.2001",
    "2. Lindqvist P. Febuxostat and the heart. Heart. 1999;1:1-2. doi:10.9999/cited.1999",
]


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


class Sample(NamedTuple):
    """What `paper` is given, and first author, year and DOI that are to be read."""

    title: list[str]
    authors: str
    others: dict[str, Any]
    author: str
    year: int | None
    doi: str


PAPERS = {
    "head": Sample(
        ["Low-dose colchicine in acute gout"], "John A. Smith1, Mary Jones2* and Piet van der Berg1",
        {"below": ["doi:10.5555/gout.2019.11", "Received 3 May 2018. Accepted 1 February 2019"],
         "head": "Smith et al. Low-dose colchicine"},
        "Smith, John A.", 2019, "10.5555/gout.2019.11",
    ),
    "columns": Sample(
        ["Febuxostat or allopurinol for", "tophaceous gout: a randomised trial"],
        "Ana Silva, MD, PhD; Jun Chen, MD; Olu Adeyemi, MSc",
        {"above": ["Journal of Ward Medicine 2021;12(3):34-41", "https://doi.org/10.5555/jwm.2021.7"],
         "two_columns": True},
        "Silva, Ana", 2021, "10.5555/jwm.2021.7",
    ),
    "metadata": Sample(
        ["Canakinumab prevents attacks of gout"], "",
        {"metadata": {"title": "Canakinumab prevents attacks of gout", "author": "Maria Rossi; Karl Weber",
                      "subject": "Journal of Rheumatic Care, 8 (2016) 112-119. doi:10.5555/jrc.2016.112"}},
        "Rossi, Maria", 2016, "10.5555/jrc.2016.112",
    ),
    "word": Sample(
        ["Diet and the risk of gout in men"], "Hana Suzuki and Tom Brown",
        {"metadata": {"title": "Microsoft Word - ICU notes (final) v2.docx", "author": "user"},
         "end": ["Copyright 2014 The Authors. doi: 10.5555/diet.2014.2"]},
        "Suzuki, Hana", 2014, "10.5555/diet.2014.2",
    ),
    "preprint": Sample(
        ["Uricase fusion proteins clear urate crystals"], "Lea Martin, Noah Klein",
        {"above": ["arXiv:2203.01234v2 [q-bio.BM] 4 Mar 2022"], "below": ["Copyright (c) 2022 the authors"]},
        "Martin, Lea", 2022, "10.48550/arXiv.2203.01234",
    ),
    "subject": Sample(
        ["Interleukin-1 blockade in refractory gout"], "A. B. Petrov, C. Dubois",
        {"metadata": {"subject": "doi:10.5555/il1.2017.3"}, "below": ["Published online: 12 June 2017"],
         "head": "Annals of Crystals"},
        "Petrov, A. B.", 2017, "10.5555/il1.2017.3",
    ),
    "plain": Sample(["Genetics of renal urate transport"], "Eva Horvath", {}, "Horvath, Eva", None, ""),
}  # fmt: skip
