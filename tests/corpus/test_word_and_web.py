"""Word documents and web pages."""

from __future__ import annotations

import io
import zipfile

import pytest
from docx import Document

from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from tests.corpus.samples import read

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
        ("Colchicine eases gout.", None),
        ("Renal failure | 0.5 mg once", "Doses"),
    ]
    assert found[0].title == "Gout"
    assert found[0].metadata["authors"] == ["Silva, Ana"]


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * (257 << 20))
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PK\x03\x04 broken", "cannot be read"), (bomb(), "unpacks to more"), (b"", "cannot be read")],
)
def test_a_damaged_word_document_is_a_reject(tmp_path, content, reason):
    found, (reject,) = read(tmp_path / "x.docx", content)
    assert found == []
    assert reason in reject.reason
