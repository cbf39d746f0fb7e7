"""Manuscripts of each format give the same references and citing sentences; hostile ones one sentence."""

import json
import zipfile

import pytest
from docx import Document
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from fpdf import FPDF

from biorag.errors import BadInputError
from biorag.papers.manuscripts import reading, word
from biorag.papers.manuscripts.manuscript import CLOSE, OPEN
from biorag.papers.manuscripts.reading import _with_signs, read_manuscript

SMITH = "Smith J, Doe A. Aspirin in the prevention of fever. Lancet. 2011;12(3):45-50."
JONES = "Jones K. Ibuprofen in the relief of pain. BMJ. 2012;4:5-9. PMID: 77"
TEXT = "Aspirin lowers fever in adults"
BIB = """@article{smith, author={Smith, J. and Doe, A.}, title={Aspirin in the prevention of fever}, journal={Lancet},
  year={2011}, volume={12}, pages={45--50}, doi={10.1000/AB}}
@article{never, title={Not cited at all}, year={2000}}
"""


def docx(path, raised=False):
    document = Document()
    document.add_heading("Aspirin", 1)
    paragraph = document.add_paragraph(f"{TEXT}{'.' * raised}")
    paragraph.add_run("1,2" if raised else " [1,2].").font.superscript = raised or None
    document.add_heading("References", 1)
    for reference in (SMITH, JONES):
        document.add_paragraph(reference, style="List Number")
    document.save(path)


def pdf(path):
    page = FPDF()
    page.add_page()
    page.set_font("Helvetica", size=11)
    lines = [
        "Introduction",
        f"{TEXT} [1,2]. " + "Fever is common in adults and children of all ages and was so before. " * 6,
    ]
    for text in (*lines, "References", f"1. {SMITH}", f"2. {JONES}"):
        page.multi_cell(0, 6, text, new_x="LMARGIN", new_y="NEXT")
    page.output(str(path))


WRITERS = {
    "a.docx": docx,
    "raised.docx": lambda path: docx(path, raised=True),
    "a.md": lambda path: path.write_text(f"# Aspirin\n\n{TEXT} [1,2].\n\n## References\n\n1. {SMITH}\n2. {JONES}\n"),
    "notes.md": lambda path: path.write_text(f"{TEXT}[^a][^b].\n\n[^a]: {SMITH}\n[^b]: {JONES}\n"),
    "a.html": lambda path: path.write_text(
        f"<h1>Aspirin</h1><p>{TEXT}<sup>1,2</sup>.</p><h2>References</h2><ol><li>{SMITH}</li><li>{JONES}</li></ol>"
    ),
    "a.tex": lambda path: path.write_text(
        f"\\begin{{document}}\n\\section{{Aspirin}}\n{TEXT} \\cite{{a,b}}. % no [3]\n\n"
        f"\\begin{{thebibliography}}{{9}}\n\\bibitem{{a}} {SMITH}\n\\bibitem{{b}} {JONES}\n\\end{{thebibliography}}\n"
    ),
    "a.pdf": pdf,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_references_and_claims(name, tmp_path):
    WRITERS[name](tmp_path / name)
    manuscript = read_manuscript(tmp_path / name)
    smith, jones = (reference.read for reference in manuscript.references)
    assert (smith.title, smith.date, smith.journal) == ("Aspirin in the prevention of fever", (2011,), "Lancet")
    assert (smith.authors[0].family, smith.volume, smith.pages, jones.pmid) == ("Smith", "12", "45-50", 77)
    (sentence,) = manuscript.sentences
    assert {claim.claim for claim in sentence.claims} == {f"{TEXT}."}
    assert [claim.key for claim in sentence.claims] == [one.key for one in manuscript.references]


def test_numbers_of_names_in_a_pdf_are_no_marks():
    assert (
        _with_signs("as Kip3 did.2,3 Tet1  fell", "as  Kip3 did.,  Tet1 fell")
        == f"as Kip3 did.{OPEN}2,3{CLOSE} Tet1  fell"
    )


@pytest.mark.parametrize(("name", "mark"), [("a.tex", r"\citep[see][p. 2]{smith}"), ("a.md", "[see @smith, p. 2]")])
def test_a_bib_beside_a_manuscript_has_what_it_cites(name, mark, tmp_path):
    (tmp_path / name).write_text(f"{TEXT} {mark}. It is cheap {mark.replace('smith', 'gone')}.\n")
    (tmp_path / "library.bib").write_text(BIB)
    manuscript = read_manuscript(tmp_path / name)
    (reference,) = manuscript.references
    assert (reference.key, reference.read.doi, reference.read.volume) == ("smith", "10.1000/ab", "12")
    assert [sentence.unlisted for sentence in manuscript.sentences] == [(), ("gone" if name == "a.tex" else "@gone",)]


RIS = "TY  - JOUR\nAU  - Roe, P\nTI  - A title of a file\nPY  - 2011\nER  - \n"


@pytest.mark.parametrize(
    ("front", "own_list", "titles"),
    [
        ("", True, ["Aspirin in the prevention of fever"]),
        ("---\nbibliography: [library.ris]\n---\n", True, ["Aspirin in the prevention of fever", "A title of a file"]),
        ("", False, ["A title of a file"]),
    ],
)
def test_a_manuscripts_own_list_comes_before_a_file_beside_it(front, own_list, titles, tmp_path):
    listed = f"# References\n\n1. {SMITH}\n" if own_list else ""
    (tmp_path / "draft.md").write_text(f"{front}{TEXT} [1] (Roe, 2011).\n\n{listed}")
    (tmp_path / "library.ris").write_text(RIS)
    manuscript = read_manuscript(tmp_path / "draft.md")
    assert [one.read.title for one in manuscript.references] == titles
    claims = [claim.key for sentence in manuscript.sentences for claim in sentence.claims]
    assert claims == ["1"] * own_list + ["library.ris 1"] * bool(front or not own_list)


def test_a_long_paragraph_of_latex_loses_its_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LATEX", 50)
    paragraphs = f"\\emph{{{TEXT}}} \\cite{{a}}.\n\n\\emph{{{TEXT}}} \\cite{{a}}. \\textbf{{It}} is cheap.\n\n"
    (tmp_path / "a.tex").write_text(f"{paragraphs}\\bibitem{{a}} {SMITH}\n\n\\bibitem{{b}} x\n")
    manuscript = read_manuscript(tmp_path / "a.tex")
    assert {claim.claim for sentence in manuscript.sentences for claim in sentence.claims} == {f"{TEXT}."}


def test_references_in_front_matter(tmp_path):
    (tmp_path / "a.bib").write_text(BIB)
    (tmp_path / "b.bib").write_text("@article{old, title={Old and new fevers}, year={1999}}")
    (tmp_path / "draft.md").write_text(
        "---\nbibliography:\n- a.bib\n- b.bib\nreferences:\n- id: roe\n  title: Fevers of old\n  issued:\n"
        f"  - year: 2016\n- nonsense\n---\n{TEXT} [@roe; @smith; @old].\n"
    )
    manuscript = read_manuscript(tmp_path / "draft.md")
    assert [(one.key, one.read.date) for one in manuscript.references] == [
        ("roe", (2016,)), ("smith", (2011,)), ("old", (1999,))
    ]  # fmt: skip
    assert "front matter, reference 2" in manuscript.notes[0]


@pytest.mark.parametrize(
    "heading",
    [
        "References", "5. Works Cited", "Literaturverzeichnis", "Références bibliographiques", "Bibliografía",
        "Riferimenti bibliografici", "Referências", "Список литературы", "Литература", "参考文献", "引用文献",
        "Piśmiennictwo", "참고문헌", "Kaynaklar", "Literatuur",
    ],
)  # fmt: skip
def test_headings_of_lists_in_many_languages(heading, tmp_path):
    (tmp_path / "draft.md").write_text(f"{TEXT} [1].\n\n{heading}\n\n1. {SMITH}\n\nFunding\n\nNone [1].\n")
    assert [one.key for one in read_manuscript(tmp_path / "draft.md").references] == ["1"]


def test_answers_in_json(tmp_path):
    hit = {"rank": 1, "id": "x", "pmid": 5, "title": "Aspirin and fever", "metadata": {"year": 2011}}
    own = {"answer": "…", "hits": [hit], "sentences": [{"text": f"{TEXT}.", "citations": [1]}], "citations": [{"n": 1}]}
    biogen = {
        "metadata": {"topic_id": 1},
        "answer": [{"text": f"{TEXT}.", "citations": ["5"]}, {"text": "No.", "citations": []}],
    }
    for values, key in ((own, "1"), (biogen, "PMID 5")):
        (tmp_path / "a.json").write_text(json.dumps(values))
        manuscript = read_manuscript(tmp_path / "a.json")
        assert [(one.key, one.read.pmid) for one in manuscript.references] == [(key, 5)]
        assert [claim for one in manuscript.sentences for claim in one.claims] == [(key, f"{TEXT}.")]


def test_text_in_fields_controls_and_links_is_read_and_deleted_text_is_not(tmp_path):
    docx(tmp_path / "a.docx")
    part = "word/document.xml"
    with zipfile.ZipFile(tmp_path / "a.docx") as archive, zipfile.ZipFile(tmp_path / "b.docx", "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            if name == part:
                run = b"<w:r><w:t xml:space='preserve"
                mark = b" [2].</w:t></w:r>"
                inserted = (
                    b"<w:sdt><w:sdtContent>" + run + b"'> It is cheap" + mark + b"</w:sdtContent></w:sdt>"
                    b"<w:del><w:r><w:delText>Deleted [1].</w:delText></w:r></w:del>"
                    b"<w:hyperlink>" + run + b"'> It is old" + mark + b"</w:hyperlink>"
                )
                content = content.replace(b"[1,2].</w:t></w:r>", b"[1,2].</w:t></w:r>" + inserted)
            changed.writestr(name, content)
    assert [one.text for one in read_manuscript(tmp_path / "b.docx").sentences] == [
        f"{TEXT} [1,2].", "It is cheap [2].", "It is old [2]."
    ]  # fmt: skip


def unreadable(path):
    page = FPDF()
    page.add_page()
    path.write_bytes(bytes(page.output()).replace(b"/FlateDecode", b"/FlateDecodX"))


HOSTILE = {
    "macros.docm": (docx, "macros"),
    "cut.docx": (lambda path: path.write_bytes(b"PK\x03\x04"), "cannot be read"),
    "none.md": (lambda path: path.write_text("Nothing is cited.\n"), "no references and no citations"),
    "scan.pdf": (lambda path: (page := FPDF(), page.add_page(), page.rect(1, 1, 9, 9), page.output(str(path))), "OCR"),
    "filter.pdf": (unreadable, "page 1: a page that cannot be read .*FlateDecodX"),
    "latin.md": (lambda path: path.write_bytes(b"Caf\xe9 [1]"), "not UTF-8"),
    "torn.json": (lambda path: path.write_text('{"a":'), "not JSON"),
    "a.xyz": (lambda path: path.write_text("[1]"), ".docx, .md"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence(name, tmp_path):
    write, part = HOSTILE[name]
    write(tmp_path / name)
    with pytest.raises(BadInputError, match=part) as raised:
        read_manuscript(tmp_path / name)
    assert name in str(raised.value)


OLDER = "<w:p><w:r><w:t>older</w:t></w:r></w:p>"
BOX = (  # a text box within a paragraph, between two runs of it, and the same text for older programs
    "<w:p><w:r><w:t>a{n} </w:t><w:pict><w:txbxContent>{inner}</w:txbxContent></w:pict></w:r><w:r><mc:Fallback>"
    f"{OLDER}</mc:Fallback></w:r><w:r><w:t>b{{n}}</w:t></w:r></w:p>"
)


def test_each_run_of_nested_text_boxes_is_read_once(monkeypatch):
    depth, runs = 30, []
    inner = "<w:p><w:r><w:t>innermost</w:t></w:r></w:p>"
    for n in range(depth):
        inner = BOX.format(n=n, inner=inner)
    document = Document()
    fallback = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    document.element.body.append(parse_xml(inner.replace("<w:p>", f"<w:p {nsdecls('w')} {fallback}>", 1)))
    read = word._read_runs
    monkeypatch.setattr(word, "_read_runs", lambda one, own, *rest: read(one, runs.extend(own) or own, *rest))
    texts = [paragraph.text for paragraph in word.word_paragraphs(document)]
    assert texts == [*(f"a{n} b{n}" for n in reversed(range(depth))), "innermost"]
    assert len(runs) == 3 * depth + 1
