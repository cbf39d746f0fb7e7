"""Text, Markdown, Word, web pages, EPUB and JATS: records beside them, how they cite themselves, hostile files.

What a good file of each gives stands in `tests/corpus/golden.json`.
"""

from __future__ import annotations

import io
import zipfile

import pytest
from docx import Document
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from biorag.corpus.readers import read_changes
from biorag.corpus.sources import Source
from biorag.papers.files.documents import _text
from biorag.papers.files.facts import MOST_AUTHORS, own_authors
from tests.corpus.samples import EPUB, PAGE, PMC, packed_epub, read, word

FIELDS = ["TY  - JOUR", "TI  - Gout on the ward", "AU  - Silva, Ana", "PY  - 2021", "AN  - 77", "DB  - PubMed", "ER  -"]
RECORD = "\n".join([*FIELDS, ""]).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [("notes.docx", word()), ("notes.epub", packed_epub()), ("notes.html", PAGE)],
)
def test_a_document_is_joined_with_the_record_of_its_name(tmp_path, name, content):
    path, record = tmp_path / name, tmp_path / "notes.ris"
    record.write_bytes(RECORD)
    path.write_bytes(content)
    for snippet in read_changes(Source(name, path, beside=(record,))):
        assert (snippet.title, snippet.pmid, snippet.metadata["year"]) == ("Gout on the ward", 77, 2021)


# --- text and Markdown


@pytest.mark.parametrize("start", ["---\ntitle: [\n---\n", "---\nno field\n---\n", "---\ntitle: never ends\n"])
def test_what_is_no_front_matter_is_text(tmp_path, start):
    found, rejects = read(tmp_path / "a.md", (start + "Some text.\n").encode())
    assert rejects == [] and start.splitlines()[1] in found[0].content


ALIASES = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    "front",
    [
        f"a0: &a0 x\n{ALIASES}title: *a39",
        "year: 0x" + "f" * 5000,
        "title: 0b" + "1" * 20_000,
        "a: " + "[" * 30_000,
        "a: " + "{a: " * 10_000,
        'title: "\\ud800"',
    ],
)
def test_hostile_front_matter_is_no_traceback(tmp_path, front):
    found, rejects = read(tmp_path / "a.md", f"---\n{front}\n---\n# T\nMetformin lowers glucose.\n".encode())
    assert found or rejects
    assert all(one.content.encode() and one.title.encode() is not None for one in found)


def test_text_is_cut_where_sentences_end(tmp_path):
    sentence = "Isoniazid lowers the concentration of pyridoxine in the blood of patients. "
    found, _ = read(tmp_path / "long.txt", (sentence * 100).encode())
    assert [one.id for one in found] == [f"long.txt#p{number}" for number in range(1, len(found) + 1)]
    assert all(one.content.endswith("patients.") and len(one.content.split()) <= 300 for one in found)
    assert " ".join(one.content for one in found) == (sentence * 100).strip()
    assert {one.title for one in found} == {"long"}


# --- lists of references

LISTED = ["1. Roe P. Baldness: a randomised trial. BMJ. 2011;342:c1.", "2. Poe Q. Diabetes. JAMA. 2019;321:55-63."]
CHAPTER = f"<h1>Statins</h1><p>Pain was rare.</p><h2>References</h2><p>{LISTED[0]}</p><p>{LISTED[1]}</p>"


@pytest.mark.parametrize("kind", ["md", "html", "docx", "epub"])
def test_a_list_of_references_is_no_text_up_to_the_next_heading(tmp_path, kind):
    path, after = tmp_path / f"paper.{kind}", "Sera were frozen."
    texts = [("#", "Statins"), ("", "Pain was rare."), ("##", "References"), ("###", "Trials"), ("", LISTED[0])]
    texts += [("", LISTED[1]), ("##", "Methods"), ("", after)]
    if kind == "docx":
        document = Document()
        for level, text in texts:
            document.add_heading(text, len(level)) if level else document.add_paragraph(text)
        document.save(path)
        found, _ = read(path, path.read_bytes())
    elif kind == "md":
        found, _ = read(path, "\n\n".join(f"{level} {text}".strip() for level, text in texts).encode())
    else:
        page = "".join(f"<h{len(level)}>{text}</h{len(level)}>" if level else f"<p>{text}</p>" for level, text in texts)
        chapters = {"OEBPS/one.xhtml": CHAPTER.encode(), "OEBPS/two.xhtml": f"<p>{after}</p>".encode()}
        found, _ = read(path, page.encode() if kind == "html" else packed_epub({**EPUB, **chapters}))
    assert [one.content for one in found] == ["Pain was rare.", after]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Pain was rare.\n\n**References**\n\n{0}\n\n\n\n{1}\n", "Pain was rare."),
        ("Pain was rare.\nReferences\n{0}\n{1}\n", "Pain was rare."),
        ("Pain was rare.\n\nReferences\n\n{0}\n\nAppendix 1\n\nDoses.", "Pain was rare.\n\nAppendix 1\n\nDoses."),
        ("Contents\n\nReferences\n\nPain was rare.\n\nIn 2011 less so.", None),
        ("References\n\n{0}\n\n{1}", None),
        ("This was 2011, as of the\nreferences.\n{0}", None),
    ],
)
def test_a_line_heads_references_if_most_of_what_follows_has_a_year(tmp_path, text, kept):
    text = text.format(*LISTED)
    found, _ = read(tmp_path / "paper.txt", text.encode())
    assert [one.content for one in found] == [kept or text.strip()]


# --- how a text cites itself

CITED = (
    "Citation: Bos J, García López MJ, Tanaka JRR III and Gräfe A-L (2020) Caffeine for preterm infants. "
    "Front. Pediatr. 8:123. doi: 10.5555/fp.2020.123"
)


PIECES = "<w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:br w:type='page'/><w:cr/><w:noBreakHyphen/><w:ptab/><w:t/>"
RUN = f"<w:r><w:rPr><w:b/></w:rPr>{PIECES}<w:instrText>no</w:instrText></w:r>"


def test_text_of_a_word_paragraph_is_that_of_python_docx():
    inner = f"{RUN}<w:hyperlink>{RUN}<w:ins>{RUN}</w:ins></w:hyperlink><w:del>{RUN}</w:del><w:sdt>{RUN}</w:sdt>{RUN}"
    paragraph = parse_xml(f"<w:p {nsdecls('w')}><w:pPr/>{inner}</w:p>")
    assert _text(paragraph) == paragraph.text == "a\tb\n\n-\t" * 3


@pytest.mark.parametrize("kind", ["md", "txt", "html", "docx"])
def test_how_a_text_cites_itself_is_a_fact_and_no_text(tmp_path, kind):
    path, text = tmp_path / f"note.{kind}", "Caffeine is given. Tachycardia is common."
    if kind == "docx":
        document = Document()
        for paragraph in ("Caffeine for preterm infants", CITED, text):
            document.add_paragraph(paragraph)
        document.save(str(path))
    elif kind == "html":
        path.write_text(f"<title>Caffeine for preterm infants</title><p>{CITED}</p><p>{text}</p>", encoding="utf-8")
    else:
        path.write_text(f"{CITED.replace(' doi:', chr(10) + 'doi:')}\n{text}\n", encoding="utf-8")
    snippets = list(read_changes(Source(path.name, path)))
    content = " ".join(snippet.content for snippet in snippets)
    assert text in content and "Citation" not in content
    facts = snippets[0].metadata
    assert facts["authors"] == ["Bos, J", "García López, MJ", "Tanaka, JRR, III", "Gräfe, A-L"]
    assert (facts["journal"], facts["year"], facts["volume"]) == ("Front. Pediatr", 2020, "8")
    assert facts["doi"] == "10.5555/fp.2020.123"


def test_the_last_initials_of_a_citation_end_its_authors(tmp_path):
    text = b"Citation: Bos J, Lopez MJ. Caffeine in infants. Lancet. 2020;3(4):5-9.\n\nGout hurts."
    (snippet,), _ = read(tmp_path / "note.txt", text)
    assert snippet.metadata["authors"] == ["Bos, J", "Lopez, MJ"]
    assert (snippet.metadata["journal"], snippet.metadata["pages"]) == ("Lancet", "5-9")


@pytest.mark.parametrize(
    "text",
    [
        "Citation: none is known.\nGout hurts.",
        "Citations rose in each group (doi:10.5555/rose).\nGout hurts.",
        "Citation counts rose in each group (doi:10.5555/rose).\nGout hurts.",
        "To cite one example, Smith (doi:10.5555/one) found nothing.\nGout hurts.",
    ],
)
def test_a_sentence_on_citations_is_text(tmp_path, text):
    (snippet,), _ = read(tmp_path / "note.txt", text.encode())
    assert snippet.content == text and "doi" not in snippet.metadata


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        (
            {
                "DC.Title": "Gout",
                "DC.Creator": "Bo, Ann; Do, Cy",
                "dcterms.issued": "2019-03-01",
                "DC.Identifier": "doi:10.5555/g.1",
                "prism.publicationName": "Gut Reports",
            },
            {"authors": ["Bo, Ann", "Do, Cy"], "year": 2019, "doi": "10.5555/g.1", "journal": "Gut Reports"},
        ),
        (
            {"citation_doi": "https://doi.org/10.5555/g.2", "citation_pmid": "12", "citation_author": "Ann Bo"},
            {"authors": ["Bo, Ann"], "doi": "10.5555/g.2"},
        ),
        ({"author": "Ann Bo, Cy Do"}, {"authors": ["Bo, Ann", "Do, Cy"]}),
        ({"author": "admin", "citation_pmid": "9" * 5000}, {}),
    ],
)
def test_what_the_fields_of_a_web_page_say(tmp_path, fields, facts):
    metas = "".join(f'<meta name="{name}" content="{content}">' for name, content in fields.items())
    (page,), _ = read(tmp_path / "a.html", f"<title>Gout</title>{metas}<p>Gout hurts.</p>".encode())
    known = ("authors", "year", "doi", "journal")
    assert (page.title, {name: page.metadata[name] for name in known if name in page.metadata}) == ("Gout", facts)
    assert page.pmid == (12 if fields.get("citation_pmid") == "12" else None)


# --- hostile and damaged files


def test_hostile_repetition_takes_no_minutes(tmp_path):
    starts = ("x" * 200_000 + " 12 (2020): 3", "10.1234/" * 20_000, "Bos" + " " * 100_000 + "J. Lancet 2020;3:5")
    for start in starts:
        found, _ = read(tmp_path / "note.txt", f"Citation: {start}\n\nGout hurts.".encode())
        assert "Gout hurts." in " ".join(one.content for one in found)
    page = b"<p>Gout.</p>" + b"<svg></svg>x" * 100_000 + b"<p>Colchicine.</p>"
    found, _ = read(tmp_path / "gout.html", page)
    assert found[0].content.startswith("Gout.") and "Colchicine." in found[-1].content
    assert own_authors("Ann Bo" + " " * 100_000 + "Cole") == ["Cole, Ann Bo"]
    assert len(own_authors("; ".join(f"Ann Bo Co{'o' * n}" for n in range(1000)), "Bo Co, " * 800)) == MOST_AUTHORS


def changed_word(change) -> bytes:
    """A Word document whose main part is changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as changed:
        for name in archive.namelist():
            content = archive.read(name)
            changed.writestr(name, change(content) if name == "word/document.xml" else content)
    return out.getvalue()


def without_body(instead: bytes = b"") -> bytes:
    """A Word document without the part that its relations name, or with another one in its bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as archive, zipfile.ZipFile(out, "w") as changed:
        for name in archive.namelist():
            if instead or name != "word/document.xml":
                changed.writestr(name, archive.read(name))
    return out.getvalue().replace(b"<w:body>", instead)


ENCRYPTED = b"""<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData><CipherData>
<CipherReference URI="OEBPS/%s"/></CipherData></EncryptedData></encryption>"""
ENTITIES = b"""<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><a>&b;</a>"""
PART = "cannot be read (a part is missing, damaged or encrypted)"
DAMAGED = [
    ("a.txt", "naïve".encode("latin-1"), "not UTF-8 (byte 2)"),
    ("a.txt", b"one\nt\0wo", "NUL"),
    ("a.txt", b"x " * (9 << 20), "longer than 16 MiB"),
    ("a.docx", b"PK\x03\x04 broken", "cannot be read (its end is missing, or it is of another format)"),
    ("a.docx", b"", "cannot be read"),
    ("a.docx", lambda: changed_word(lambda xml: xml.replace(b"?>", b"?><!DOCTYPE x [<!ENTITY e 'f'>]>", 1)),
     "declares entities"),
    ("a.docx", lambda: changed_word(lambda xml: xml[:-20]), f"a Word document that {PART}"),
    ("a.docx", lambda: without_body(b"<w:bodx>"), f"a Word document that {PART}"),  # not of its checksum
    ("a.docx", without_body, f"a Word document that {PART}"),
    ("a.epub", {"META-INF/encryption.xml": ENCRYPTED % b"one.xhtml"}, "under copy protection"),
    ("a.epub", {"META-INF/container.xml": b"<container/>"}, PART),
    ("a.epub", {"META-INF/container.xml": b"no XML"}, PART),
    ("a.epub", {"META-INF/container.xml": ENTITIES}, PART),
    ("a.epub", {"OEBPS/one.xhtml": None}, PART),
    ("a.epub", lambda: packed_epub()[:600], "cannot be read (its end is missing, or it is of another format)"),
    ("a.epub", {"OEBPS/one.xhtml": b"<p>a</p>" + b"<div>" * 300}, "tags 256 deep"),
    ("a.html", b"<p>Gout.</p><p>" + b"gout " * (2 << 20), "10 MB of text without one"),
    ("a.html", "<meta charset=utf-8><p>naïve</p>".encode("latin-1"), "not UTF-8 (byte 25)"),
    ("a.html", b"<meta charset=iso-8859-1><p>a\0\xef</p>", "not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "reason"), DAMAGED)
def test_a_damaged_or_hostile_file_is_one_reject(tmp_path, name, content, reason):
    made = content() if callable(content) else packed_epub({**EPUB, **content}) if name == "a.epub" else content
    found, (reject,) = read(tmp_path / name, made)
    assert found == [] and reject.damaged and reason in reject.reason


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-15", "windows-1252", "shift_jis"])
def test_a_page_is_read_in_the_encoding_that_it_declares(tmp_path, encoding):
    text = "胃がん" if encoding == "shift_jis" else "Gräfe saw it."
    page = f"<html><head><meta http-equiv=Content-Type content='text/html; charset={encoding}'></head><p>{text}</p>"
    (snippet,), rejects = read(tmp_path / "a.html", page.encode(encoding))
    assert (snippet.content, rejects) == (text, [])


def test_fonts_of_a_book_may_be_encrypted(tmp_path):
    fonts = {**EPUB, "META-INF/encryption.xml": ENCRYPTED % b"font.otf"}
    assert len(read(tmp_path / "book.epub", packed_epub(fonts))[0]) == 2


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


# --- JATS


@pytest.mark.parametrize("field", ["article-title", "surname", "title"])
def test_an_article_whose_blocks_repeat_too_much_is_refused(tmp_path, monkeypatch, field):
    monkeypatch.setattr("biorag.corpus.jats.MOST_REPEATED", 100_000)
    long = {name: "long " * 1000 if name == field else "short" for name in ("article-title", "surname", "title")}
    meta = "<title-group><article-title>{article-title}</article-title></title-group><contrib-group>"
    meta += "<contrib contrib-type='author'><name><surname>{surname}</surname></name></contrib></contrib-group>"
    body = f"<sec><title>{{title}}</title>{'<p>a</p>' * 99}</sec>"
    text = f"<article><front><article-meta>{meta}</article-meta></front><body>{body}</body></article>"
    found, (reject,) = read(tmp_path / "a.xml", text.format_map(long).encode())
    assert len(found) == 19 and reject.damaged and "as of a bomb" in reject.reason
    found, rejects = read(tmp_path / "b.xml", text.format_map(dict.fromkeys(long, "short")).encode())
    assert (len(found), rejects) == (99, [])


def test_an_undeclared_entity_is_one_reject(tmp_path):
    found, (reject,) = read(tmp_path / "a.nxml", PMC.replace(b"By regression", b"By&nbsp;regression"))
    assert len(found) == 5 and "'&nbsp;' is not declared" in reject.reason and not reject.damaged


paragraphs = st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=9), max_size=4)


@given(sections=st.lists(paragraphs, max_size=4), lead=paragraphs)
def test_every_paragraph_is_found_once_as_by_xpath(tmp_path_factory, sections, lead):
    body = "".join(f"<p>{text}</p>" for text in lead)
    body += "".join(f"<sec><title>T</title>{''.join(f'<p>{text}</p>' for text in texts)}</sec>" for texts in sections)
    content = f"<article><front/><body>{body}</body></article>".encode()
    found, rejects = read(tmp_path_factory.mktemp("j") / "a.nxml", content)
    expected = etree.fromstring(content).xpath("//body//p/text()")
    assert [one.content for one in found] == expected
    assert len(rejects) == (not expected)
    assert len({one.id for one in found}) == len(found)
