"""Text, Markdown, PDF and full text in JATS: passages, pages, sections; hostile files."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, StreamObject

from biorag.corpus.readers import read_changes
from biorag.corpus.sources import Source
from biorag.papers.files.facts import MOST_AUTHORS, own_authors
from biorag.papers.files.pdf import plain
from tests.corpus.samples import MARKDOWN, PMC, read, searchable_pdf


def damage(path: Path, content: bytes) -> str:
    found, (reject,) = read(path, content)
    assert found == [] and reject.damaged
    return reject.reason


# --- text and Markdown


FRONT = """---
title: "Colchicine: when"
author: [Ana Silva, "Jones, Mary"]
date: 2021-05-03
doi: 10.5555/x
tags: &a [gout, *a]
---
"""


def test_front_matter_is_of_the_paper_and_no_text(tmp_path):
    (found,), rejects = read(tmp_path / "a.md", (FRONT + "# Doses\n\n0.5 mg.\n").encode())
    assert rejects == []
    assert (found.title, found.content) == ("Colchicine: when", "0.5 mg.")
    facts = {"authors": ["Silva, Ana", "Jones, Mary"], "year": 2021, "doi": "10.5555/x", "section": "Doses"}
    assert facts.items() <= found.metadata.items()


@pytest.mark.parametrize("start", ["---\ntitle: [\n---\n", "---\nno field\n---\n", "---\ntitle: never ends\n"])
def test_what_is_no_front_matter_is_text(tmp_path, start):
    found, rejects = read(tmp_path / "a.md", (start + "Some text.\n").encode())
    assert rejects == [] and start.splitlines()[1] in found[0].content


def test_front_matter_of_aliases_is_no_bomb(tmp_path):
    layers = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    (found,), _ = read(tmp_path / "a.md", f"---\na0: &a0 x\n{layers}title: *a39\n---\nText.\n".encode())
    assert (found.title, found.content) == ("a", "Text.")


def test_markdown_gives_a_passage_a_section(tmp_path):
    found, rejects = read(
        tmp_path / "notes.md", MARKDOWN + b"\n### Renal *failure*\n\nHalf of it.\n## Risks ##\nFew.\n"
    )
    assert rejects == []
    assert [(one.id, one.title, one.content, one.location) for one in found] == [
        ("notes.md#s1p1", "Isoniazid", "Introduction.", ""),
        ("notes.md#s2p1", "Isoniazid", "Give 5 mg/kg.\n\n```\n# no heading\n```", "Dosage"),
        ("notes.md#s3p1", "Isoniazid", "Half of it.", "Dosage > Renal *failure*"),
        ("notes.md#s4p1", "Isoniazid", "Few.", "Risks"),
    ]


def test_text_is_cut_where_sentences_end(tmp_path):
    sentence = "Isoniazid lowers the concentration of pyridoxine in the blood of patients. "
    found, _ = read(tmp_path / "long.txt", (sentence * 100).encode())
    assert [one.id for one in found] == [f"long.txt#p{number}" for number in range(1, len(found) + 1)]
    assert all(one.content.endswith("patients.") and len(one.content.split()) <= 300 for one in found)
    assert " ".join(one.content for one in found) == (sentence * 100).strip()
    assert {one.title for one in found} == {"long"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("naïve".encode("latin-1"), "not UTF-8 (byte 2)"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"one\nt\0wo", "NUL"),
        (b"x " * (9 << 20), "longer than 16 MiB"),
        ((b"x " * 500 + b"\n") * (18 << 10), "text of more than 16 MiB"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path, content, reason):
    assert reason in damage(tmp_path / "a.txt", content)


# --- PDF


def test_a_page_is_a_snippet_with_its_number(tmp_path):
    content = searchable_pdf(["First page.", "", "Third page."], "A title")
    found, rejects = read(tmp_path / "a.pdf", content)
    assert rejects == []
    assert [(one.id, one.title, one.content, one.location) for one in found] == [
        ("a.pdf#page=1", "A title", "First page.", "p. 1"),
        ("a.pdf#page=3", "A title", "Third page.", "p. 3"),
    ]
    assert {one.metadata["pages_of_file"] for one in found} == {3}
    (untitled,), _ = read(tmp_path / "b.PDF", searchable_pdf(["Text."]))
    assert (untitled.id, untitled.title) == ("b.PDF#page=1", "b")


def test_lines_of_a_page_are_joined_and_broken_words_mended():
    assert plain("neuro-\npathy of IL-\n6 and\ndose \u00ad\nx\0y \ud800") == "neuropathy of IL- 6 and dose xy ?"


def encrypted(password: str) -> bytes:
    writer, out = PdfWriter(clone_from=PdfReader(BytesIO(searchable_pdf(["Secret."])))), BytesIO()
    writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def test_an_encrypted_pdf_is_read_if_it_opens_without_a_password(tmp_path):
    (found,), _ = read(tmp_path / "a.pdf", encrypted(""))
    assert found.content == "Secret."
    assert "encrypted" in damage(tmp_path / "b.pdf", encrypted("x"))


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
    head, *pages = map(json.loads, read.stdout.splitlines())
    assert head["pages"] == 20 and len(pages) < 20


@pytest.mark.long
def test_a_page_that_takes_too_long_ends_the_file(tmp_path):
    (found,), _ = read(tmp_path / "a.pdf", bomb(b"BT /F1 9 Tf (Harmless.) Tj ET"))
    assert found.content == "Harmless."
    slow = bomb(b"BT /F1 9 Tf " + b"(x) Tj 1 0 0 1 5 5 Tm " * 3_000_000)
    assert len(slow) < 1 << 20
    _, (reject,) = read(tmp_path / "b.pdf", slow)
    assert "as a bomb does" in reject.reason or "cannot be read" in reject.reason, reject.reason


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


# --- JATS


def test_an_article_gives_its_abstract_and_each_block_with_section_and_anchor(tmp_path):
    found, rejects = read(tmp_path / "a.nxml", PMC)
    assert rejects == []
    assert [(one.id, one.content, one.location, one.metadata.get("anchor")) for one in found] == [
        ("PMC456#abstract", "Background: Why. Results: What.", "Abstract", None),
        ("PMC456#s0p1", "A paragraph before all sections.", "", None),
        ("PMC456#s1p1", "We gave it to patients with H2O.", "Methods", "p1"),
        ("PMC456#s1p2", "Figure 1. Doses by week.", "Methods > Figure 1", "f1"),
        ("PMC456#s1p3", "By regression.", "Methods > Statistics", "s1a"),
        ("PMC456#s1p4", "one two", "Methods > Statistics", "s1a"),
    ]
    assert {(one.pmid, one.title) for one in found} == {(123, "Nerves and isoniazid")}
    shared = {name: value for name, value in found[1].metadata.items() if name != "part"}
    assert shared == {
        "authors": ["Doe, Jane", "Nerve Group"],
        "journal": "PLoS ONE",
        "issn": "1932-6203",
        "year": 2018,
        "date": "2018",
        "volume": "1",
        "issue": "4",
        "pages": "3-9",
        "doi": "10.1371/x",
        "pmcid": "PMC456",
        "article_type": "research-article",
    }


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


@pytest.mark.parametrize(
    "front",
    [
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


CITED = (
    "Citation: Bos J, García López MJ, Tanaka JRR III and Gräfe A-L (2020) Caffeine for preterm infants. "
    "Front. Pediatr. 8:123. doi: 10.5555/fp.2020.123"
)


@pytest.mark.parametrize("kind", ["md", "txt", "html", "docx"])
def test_how_a_text_cites_itself_is_a_fact_and_no_text(tmp_path, kind):
    path, text = tmp_path / f"note.{kind}", "Caffeine is given. Tachycardia is common."
    if kind == "docx":
        from docx import Document

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
    assert text in content
    assert "Citation" not in content
    facts = snippets[0].metadata
    assert facts["authors"] == ["Bos, J", "García López, MJ", "Tanaka, JRR, III", "Gräfe, A-L"]
    assert (facts["year"], facts["volume"], facts["doi"]) == (2020, "8", "10.5555/fp.2020.123")
    assert facts["journal"] == "Front. Pediatr"


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
    path = tmp_path / "note.txt"
    path.write_text(text)
    (snippet,) = read_changes(Source(path.name, path))
    assert snippet.content == text
    assert "doi" not in snippet.metadata


def test_the_last_initials_of_a_citation_end_its_authors(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("Citation: Bos J, García López MJ. Caffeine in infants. Lancet. 2020;3(4):5-9.\n\nGout hurts.")
    (snippet,) = read_changes(Source(path.name, path))
    assert snippet.metadata["authors"] == ["Bos, J", "García López, MJ"]
    assert (snippet.metadata["journal"], snippet.metadata["pages"]) == ("Lancet", "5-9")


@pytest.mark.parametrize(
    "text",
    [
        "Citation: " + "x" * 200_000 + " 12 (2020): 3",
        "Citation: " + "10.1234/" * 20_000,
        "Citation: Bos" + " " * 100_000 + "J. Lancet 2020;3:5",
    ],
)
def test_a_hostile_citation_takes_no_minutes(tmp_path, text):
    found, _ = read(tmp_path / "note.txt", f"{text}\n\nGout hurts.".encode())
    assert "Gout hurts." in " ".join(one.content for one in found)


def test_a_hostile_field_of_authors_takes_no_minutes():
    assert own_authors("Ann Bo" + " " * 100_000 + "Cole") == ["Cole, Ann Bo"]
    assert len(own_authors("; ".join(f"Ann Bo Co{'o' * n}" for n in range(1000)), "Bo Co, " * 800)) == MOST_AUTHORS
