"""A small file of each kind that biorag indexes, all about one subject."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from biorag.corpus.readers import Reject, read_changes
from biorag.corpus.sources import Columns, Source
from biorag.types import Snippet

RIS = b"""TY  - JOUR
AU  - Smith, John A.
AU  - Doe, Jane
TI  - Pyridoxine in practice
AB  - Reference managers keep abstracts, too.
JF  - The Lancet
PY  - 2019/03/04/
VL  - 3
IS  - 2
SP  - 10
EP  - 20
DO  - 10.1000/xyz123
SN  - 0140-6736
UR  - https://pubmed.ncbi.nlm.nih.gov/30000001/
ER  -
"""
MEDLINE = b"""
PMID- 20137807
OWN - NLM
LR  - 20100301
IS  - 1474-547X (Electronic)
VI  - 375
IP  - 9713
DP  - 2010 Feb 6
TI  - Isoniazid and the peripheral nerves: a study of patients who were given vitamin
      B6.
PG  - 445-8
LID - 10.1016/S0140-6736(10)60175-4 [doi]
AB  - PubMed exports its records in this form.
FAU - Smith, John A
AU  - Smith JA
CN  - Nerve Group
LA  - eng
PT  - Journal Article
PT  - Retracted Publication
EIN - Lancet. 2010 Mar 6;375(9717):818
RIN - Lancet. 2011;377:9. PMID:
      20137808
ECI - Lancet. 2010;1:1. PMID: 20137809
JT  - Lancet (London, England)
MH  - *Isoniazid/adverse effects
MH  - Vitamin B 6
PMC - PMC123456

"""
PMC = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Archiving and Interchange DTD v1.2 20190208//EN" "J.dtd">
<article article-type="research-article"><front><journal-meta><journal-title-group>
<journal-title>PLoS ONE</journal-title></journal-title-group><issn pub-type="epub">1932-6203</issn></journal-meta>
<article-meta><article-id pub-id-type="pmid">123</article-id><article-id pub-id-type="pmc">456</article-id>
<article-id pub-id-type="doi">10.1371/x</article-id>
<title-group><article-title>Nerves and <italic>isoniazid</italic></article-title></title-group>
<contrib-group>
<contrib contrib-type="author"><name><surname>Doe</surname><given-names>Jane</given-names></name></contrib>
<contrib contrib-type="author"><collab>Nerve Group</collab></contrib>
<contrib contrib-type="editor"><name><surname>No</surname></name></contrib></contrib-group>
<pub-date pub-type="epub"><day>1</day><month>2</month><year>2019</year></pub-date>
<pub-date pub-type="collection"><year>2018</year></pub-date>
<volume>1</volume><issue>4</issue><fpage>3</fpage><lpage>9</lpage>
<abstract><sec><title>Background</title><p>Why.</p></sec><sec><title>Results:</title><p>What.</p></sec></abstract>
</article-meta></front>
<body><p>A paragraph before all sections.</p>
<sec id="s1"><title>Methods</title>
<p id="p1">We gave it [<xref ref-type="bibr" rid="b1">1</xref>, <xref ref-type="bibr" rid="b2">2</xref>] to
patients<sup><xref ref-type="bibr" rid="b3">3</xref>,<xref ref-type="bibr" rid="b4">4</xref></sup>
with H<sub>2</sub>O.<fig id="f1"><label>Figure 1</label><caption><p>Doses by week.</p></caption></fig></p>
<sec id="s1a"><title>Statistics</title><p>By regression.</p>
<list><list-item><p>one</p></list-item><list-item><p>two</p></list-item></list></sec></sec></body>
<back><ref-list><ref id="b1"><mixed-citation>Not read.</mixed-citation></ref></ref-list></back></article>
"""
PUBMED = b"""<?xml version="1.0"?><PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">7</PMID><Article>
<ArticleTitle>Seven</ArticleTitle><Abstract><AbstractText>A record of PubMed.</AbstractText></Abstract></Article>
</MedlineCitation></PubmedArticle></PubmedArticleSet>"""
CSV = (
    b'PMID,Title,Abstract,Publication Year,Authors\n11,"Doses, weekly","A table\nhas cells.",2019,"Smith, A; Doe, B"\n'
)
TSV = b"id\ttext\nt1\tTabs separate these.\n"
MARKDOWN = b"# Isoniazid\n\nIntroduction.\n\n## Dosage\n\nGive 5 mg/kg.\n\n```\n# no heading\n```\n"


CSL = """[
  {"id": "smith2019", "type": "article-journal", "title": "Pyridoxine: when to give it", "DOI": "10.1000/csl1",
   "container-title": "The New England Journal", "container-title-short": "N Engl J", "ISSN": "0140-6736",
   "author": [{"family": "Berg", "given": "Ana", "non-dropping-particle": "van den"}, {"literal": "Nerve Group"}],
   "issued": {"date-parts": [["2019", 3, 4]]}, "volume": 3, "issue": "2", "page": "10–20", "note": "PMID: 30000002",
   "abstract": "<p>B<sub>6</sub> is given early.</p>"}
]
""".encode()


FRONT = b"""---
title: "Colchicine: when"
author: [Ana Silva, "Jones, Mary"]
date: 2021-05-03
doi: 10.5555/x
tags: &a [gout, *a]
---
# Doses

0.5 mg.
"""
PAGE = b"""<!DOCTYPE html><html><head><title>Gout - Journal of Ward Medicine</title>
<meta name="citation_title" content="Colchicine in gout"><meta name="citation_author" content="Smith, John A.">
<meta name="citation_author" content="Mary Jones"><meta name="citation_publication_date" content="2019/05/03">
<meta name="citation_doi" content="10.5555/gout.1"><meta name="citation_journal_title" content="J Ward Med">
<script>var x = "not text";</script></head><body><nav><p>Menu</p></nav><h1>Colchicine in gout</h1>
<p>Colchicine eases <b>acute</b> gout.</p><h2>Doses</h2><ul><li>0.5 mg twice a day.</li></ul>
<table><tr><td>Renal failure</td><td>0.5 mg once</td></tr></table><footer><p>Cookies</p></footer></body></html>"""
EPUB = {
    "mimetype": b"application/epub+zip",
    "META-INF/container.xml": b"""<?xml version="1.0"?><container version="1.0"
xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>""",
    "OEBPS/content.opf": b"""<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Gout for the ward</dc:title>
<dc:creator>Ana Silva</dc:creator><dc:creator>Jones, Mary</dc:creator><dc:date>2021-05-03</dc:date>
<dc:identifier>urn:isbn:9780000000000</dc:identifier><dc:identifier>doi:10.5555/book.1</dc:identifier></metadata>
<manifest><item id="two" href="two.xhtml" media-type="application/xhtml+xml"/>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="one.xhtml" media-type="application/xhtml+xml"/>
<item id="cover" href="cover.jpg" media-type="image/jpeg"/></manifest>
<spine><itemref idref="cover"/><itemref idref="nav"/><itemref idref="one"/><itemref idref="two"/></spine></package>""",
    "OEBPS/nav.xhtml": b"<html><body><nav><h1>Contents</h1><p>Acute gout</p></nav></body></html>",
    "OEBPS/one.xhtml": b"<html><body><h1>Acute gout</h1><p>Colchicine eases <b>gout</b>.</p></body></html>",
    "OEBPS/two.xhtml": b"<html><body><h1>Doses</h1><p>Half of it in renal failure.</p></body></html>",
}


def packed_epub(files: Mapping[str, bytes | None] = EPUB) -> bytes:
    """Return a book of these files, of which None are left out."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            if content is not None:
                archive.writestr(name, content)
    return stream.getvalue()


def read(path: Path, content: bytes, columns: Columns = ()) -> tuple[list[Snippet], list[Reject]]:
    """Return the snippets and the rejects of a file with this content."""
    path.write_bytes(content)
    rejects: list[Reject] = []
    return list(read_changes(Source(path.name, path, columns=columns), rejects.append)), rejects


def word() -> bytes:
    """Return a Word document with a title of its own, sections and a table that has merged cells."""
    from docx import Document

    document = Document()
    document.core_properties.title, document.core_properties.author = "Word Document", "Ana Silva"
    document.add_heading("Amiodarone: what to watch", 0)
    document.add_heading("Before treatment", 1)
    document.add_paragraph("Measure TSH.")
    document.add_heading("During treatment", 1)
    for text in ("halos", "cough"):
        document.add_paragraph(text, style="List Bullet")
    document.add_heading("Doses", 2)
    table = document.add_table(3, 3)
    for row, texts in enumerate((("Renal failure", "mild", "0.5 mg"), ("", "severe", "none"), ("Others", "", "1 mg"))):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(2, 0).merge(table.cell(2, 1))
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def searchable_pdf(pages: Sequence[str], title: str = "") -> bytes:
    """Return a PDF with a line of text a page; an empty one has a drawing alone."""
    from fpdf import FPDF

    pdf = FPDF()
    pdf.set_font("helvetica", size=12)
    if title:
        pdf.set_title(title)
    for text in pages:
        pdf.add_page()
        pdf.multi_cell(0, text=text) if text else pdf.rect(10, 10, 50, 50)
    return bytes(pdf.output())


PAGES = ["Isoniazid lowers pyridoxine.", "This second page: pyridoxine prevents neuropathy, a prevention of harm."]


def samples() -> dict[str, bytes]:
    """Return a file of each kind by name: 20 snippets, and a scan."""
    return {
        "lines.jsonl": b'{"id": "j1", "title": "Lines", "content": "A jsonlines corpus."}\n',
        "pubmed.xml": PUBMED,
        "pmc.xml": PMC,
        "table.csv": CSV,
        "table.tsv": TSV,
        "notes.md": MARKDOWN,
        "notes.txt": b"Plain text is cut into passages.\n",
        "paper.pdf": searchable_pdf(PAGES, "Pyridoxine"),
        "scan.pdf": searchable_pdf([""]),
        "zotero.ris": RIS,
        "library.json": CSL,
        "book.epub": packed_epub(),
        "pubmed.nbib": MEDLINE,
    }


def write_samples(folder: Path) -> None:
    """Write a file of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in samples().items():
        (folder / name).write_bytes(content)
