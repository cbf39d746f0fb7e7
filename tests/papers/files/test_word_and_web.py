"""Word documents, web pages and EPUB books."""

from __future__ import annotations

import io
import zipfile

import pytest
from docx import Document

from biorag.corpus.readers import read_snippets
from biorag.corpus.sentences import sentences
from biorag.corpus.sources import Source
from biorag.references.formats import vancouver
from biorag.types import Hit
from tests.corpus.samples import EPUB, packed_epub, read

PAGE = b"""<!DOCTYPE html><html><head><title>Gout - Journal of Ward Medicine</title>
<meta name="citation_title" content="Colchicine in gout"><meta name="citation_author" content="Smith, John A.">
<meta name="citation_author" content="Mary Jones"><meta name="citation_publication_date" content="2019/05/03">
<meta name="citation_doi" content="10.5555/gout.1"><meta name="citation_journal_title" content="J Ward Med">
<script>var x = "not text";</script></head><body><nav><p>Menu</p></nav><h1>Colchicine in gout</h1>
<p>Colchicine eases <b>acute</b> gout.</p><h2>Doses</h2><ul><li>0.5 mg twice a day.</li></ul>
<table><tr><td>Renal failure</td><td>0.5 mg once</td></tr></table><footer><p>Cookies</p></footer></body></html>"""


def word() -> bytes:
    document = Document()
    document.core_properties.title, document.core_properties.author = "Ward notes", "Ana Silva"
    document.add_heading("Gout", 1)
    document.add_paragraph("Colchicine eases gout.")
    document.add_heading("Doses", 2)
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Renal failure", "0.5 mg once"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


RECORD = b"""TY  - JOUR
TI  - Gout on the ward
AU  - Silva, Ana
PY  - 2021
DO  - 10.5555/ward.1
AN  - 77
DB  - PubMed
ER  -
"""


def test_a_word_document_is_joined_with_the_record_beside_it(tmp_path):
    record = tmp_path / "notes.ris"
    record.write_bytes(RECORD)
    path = tmp_path / "notes.docx"
    path.write_bytes(word())
    for one in read_snippets(Source("notes.docx", path, beside=(record,))):
        assert (one.title, one.pmid) == ("Gout on the ward", 77)
        assert (one.metadata["year"], one.metadata["doi"]) == (2021, "10.5555/ward.1")


def test_a_web_page_has_its_text_sections_and_citation(tmp_path):
    found, rejects = read(tmp_path / "gout.html", PAGE)
    assert rejects == []
    assert [(one.id, one.title, one.content) for one in found] == [
        ("gout.html#s1p1", "Colchicine in gout", "Colchicine eases acute gout."),
        ("gout.html#s2p1", "Colchicine in gout", "0.5 mg twice a day.\n\nRenal failure\n\n0.5 mg once"),
    ]
    fields = found[1].metadata
    assert fields["authors"] == ["Smith, John A.", "Jones, Mary"]
    assert (fields["year"], fields["doi"], fields["journal"], fields["section"]) == (
        2019,
        "10.5555/gout.1",
        "J Ward Med",
        "Doses",
    )
    assert read(tmp_path / "page", PAGE)[0] != [], "it is known by its beginning"


def test_a_word_document_has_its_text_sections_and_tables(tmp_path):
    found, rejects = read(tmp_path / "notes.docx", word())
    assert rejects == []
    assert [(one.content, one.metadata.get("section")) for one in found] == [
        ("Colchicine eases gout.", "Gout"),
        ("Renal failure | 0.5 mg once", "Gout > Doses"),
    ]
    assert found[0].title == "Ward notes"
    assert found[0].metadata["authors"] == ["Silva, Ana"]


def test_a_word_document_is_what_it_says_of_itself(tmp_path):
    document = Document()
    document.core_properties.title, document.core_properties.author = "Word Document", "Ward 5"
    document.add_heading("Amiodarone: what to watch", 0)
    document.add_heading("Before treatment", 1)
    document.add_paragraph("Measure TSH.")
    document.add_heading("During treatment", 1)
    for text in ("halos", "cough"):
        document.add_paragraph(text, style="List Bullet")
    document.save(str(tmp_path / "x.docx"))
    first, second = read_snippets(Source("x.docx", tmp_path / "x.docx"))
    assert {first.title, second.title} == {"Amiodarone: what to watch"}
    assert (first.metadata["section"], second.metadata["section"]) == ("Before treatment", "During treatment")
    assert sentences(second.content) == ["- halos", "- cough"]
    assert vancouver([Hit(1, first, 1.0)]) == "1. Ward 5. Amiodarone: what to watch.\n", "no date of a template"


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * (257 << 20))
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(lambda: b"PK\x03\x04 broken", "cannot be read"), (bomb, "unpacks to more"), (bytes, "cannot be read")],
)
def test_a_damaged_word_document_is_a_reject(tmp_path, content, reason):
    found, (reject,) = read(tmp_path / "x.docx", content())
    assert found == []
    assert reason in reject.reason


# --- EPUB


def test_an_epub_has_its_chapters_in_order_and_the_facts_of_its_package(tmp_path):
    found, rejects = read(tmp_path / "book.epub", packed_epub())
    assert rejects == []
    assert [(one.id, one.title, one.content, one.metadata.get("section")) for one in found] == [
        ("book.epub#s1p1", "Gout for the ward", "Colchicine eases gout.", "Acute gout"),
        ("book.epub#s2p1", "Gout for the ward", "Half of it in renal failure.", "Doses"),
    ]
    facts = {"authors": ["Silva, Ana", "Jones, Mary"], "year": 2021, "doi": "10.5555/book.1"}
    assert facts.items() <= found[0].metadata.items()


def test_an_epub_is_joined_with_the_record_beside_it(tmp_path):
    record = tmp_path / "mine.ris"
    record.write_bytes(RECORD.replace(b"Gout on the ward", b"Gout for the ward"))
    path = tmp_path / "book.epub"
    path.write_bytes(packed_epub())
    assert {one.pmid for one in read_snippets(Source("book.epub", path, beside=(record,)))} == {77}


ENCRYPTED = b"""<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData><CipherData>
<CipherReference URI="OEBPS/%s"/></CipherData></EncryptedData></encryption>"""
ENTITIES = b"""<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><a>&b;</a>"""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"META-INF/encryption.xml": ENCRYPTED % b"one.xhtml"}, "under copy protection"),
        ({"META-INF/container.xml": b"<container/>"}, "cannot be read (StopIteration)"),
        ({"META-INF/container.xml": b"no XML"}, "cannot be read (XMLSyntaxError)"),
        ({"META-INF/container.xml": ENTITIES}, "cannot be read (StopIteration)"),
        ({"OEBPS/one.xhtml": None}, "cannot be read (KeyError)"),
        ({"OEBPS/one.xhtml": b"<p>a</p>" * (9 << 20)}, "unpacks to more than 64 MiB"),
    ],
)
def test_an_epub_that_cannot_be_read_is_one_reject(tmp_path, changes, reason):
    found, (reject,) = read(tmp_path / "book.epub", packed_epub({**EPUB, **changes}))
    assert found == [] and reject.damaged and reason in reject.reason


def test_fonts_may_be_encrypted_and_a_cut_file_is_a_reject(tmp_path):
    fonts = {**EPUB, "META-INF/encryption.xml": ENCRYPTED % b"font.otf"}
    assert len(read(tmp_path / "book.epub", packed_epub(fonts))[0]) == 2
    for length in (0, 30, 600, len(packed_epub()) - 1):
        found, (reject,) = read(tmp_path / "cut.epub", packed_epub()[:length])
        assert found == [] and reject.damaged


def test_merged_cells_of_a_table_have_their_text_in_each_row(tmp_path):
    document = Document()
    table = document.add_table(3, 3)
    for row, texts in enumerate((("Renal failure", "mild", "0.5 mg"), ("", "severe", "none"), ("Others", "", "1 mg"))):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(2, 0).merge(table.cell(2, 1))
    out = io.BytesIO()
    document.save(out)
    found, _ = read(tmp_path / "notes.docx", out.getvalue())
    assert found[0].content.split("\n\n") == [
        "Renal failure | mild | 0.5 mg",
        "Renal failure | severe | none",
        "Others | 1 mg",
    ]


def test_cells_that_say_to_span_millions_of_columns_and_many_rows_are_read_at_once(tmp_path):
    document = Document()
    table = document.add_table(1500, 1)
    for number, row in enumerate(table._tbl.tr_lst):
        properties = row.tc_lst[0].get_or_add_tcPr()
        properties.grid_span = 10**8
        properties.vMerge_val = "continue" if number else "restart"
    table._tbl.tr_lst[0].tc_lst[0].p_lst[0].add_r().text = "Doses"
    out = io.BytesIO()
    document.save(out)
    found, _ = read(tmp_path / "notes.docx", out.getvalue())
    assert "Doses" in found[0].content


def test_a_word_document_of_millions_of_tags_is_one_reject(tmp_path):
    content, out = io.BytesIO(word()), io.BytesIO()
    with zipfile.ZipFile(content) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as changed:
        for name in archive.namelist():
            text = archive.read(name)
            if name == "word/document.xml":
                text = text.replace(b"<w:body>", b"<w:body>" + b"<w:p/>" * 1_000_001)
            changed.writestr(name, text)
    found, rejects = read(tmp_path / "notes.docx", out.getvalue())
    assert (found, "more than 1,000,000 tags" in rejects[0].reason) == ([], True)


def test_a_page_of_many_asides_is_read_at_once(tmp_path):
    found, rejects = read(tmp_path / "gout.html", b"<p>Gout.</p>" + b"<svg></svg>x" * 100_000 + b"<p>Colchicine.</p>")
    assert rejects == []
    assert found[0].content.startswith("Gout.") and "Colchicine." in found[-1].content
