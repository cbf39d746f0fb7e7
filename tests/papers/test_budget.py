"""The budget of a document: each loop over one draws on it, and beyond it stands one sentence with file and limit."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from biorag.corpus import budget
from biorag.corpus.budget import LIMITS, Budget, draw, within
from biorag.corpus.sources import DamagedSourceError
from biorag.errors import BadInputError
from biorag.indexing import SnippetEncoders
from biorag.papers.manuscripts.reading import read_manuscript
from biorag.types import Snippet
from tests.cli import failed, invoke, succeeded
from tests.corpus.samples import EPUB, packed_epub, read, word

CHAPTER = "OEBPS/one.xhtml"
ROW = "<w:tr><w:tc><w:p><w:r><w:t>Doses of [1]</w:t></w:r></w:p></w:tc></w:tr>"
REFERENCE = "Smith J. A title of it. Lancet. 2011;1:2."


def docx(body: str, name: str = "word/document.xml") -> bytes:
    """A Word document with more in its body, or in another part."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as changed:
        for part in {*archive.namelist(), name}:
            content = archive.read(part) if part in archive.namelist() else b"<w:body>"
            changed.writestr(part, content.replace(b"<w:body>", f"<w:body>{body if part == name else ''}".encode()))
    return out.getvalue()


HOSTILE = [
    ("a.html", b"<p>x [1]</p>" * 100, "bytes", 1000),
    ("a.docx", docx(""), "bytes", 1000),
    ("a.docx", docx("0" * 10**6, "word/media/a.bin"), "unpacked_bytes", 10**6),
    ("a.epub", packed_epub({**EPUB, CHAPTER: b"0" * 10**6}), "unpacked_bytes", 10**6),
    ("a.docx", docx("<w:p/>" * 20_000), "tags", 20_000),
    ("a.docx", docx("<w:p/>" * 20_000, "word/body.bin"), "tags", 20_000),
    ("a.epub", packed_epub({**EPUB, CHAPTER: b"<p>" * 1000}), "tags", 1000),
    ("a.html", b"<p a=1>x" * 500, "tags", 999),
    ("a.html", b"<p " + b"a='<i' b " * 600 + b">x", "attributes", 1000),
    ("a.md", b"a b [1].\n" * 200, "characters", 1000),
    ("a.html", b"<div><p>a b [1]" * 200, "characters", 1000),
    ("a.epub", packed_epub({**EPUB, CHAPTER: b"<p>a" * 99}), "characters", 99),
    ("a.docx", docx(f"<w:tbl>{ROW * 99}</w:tbl>"), "characters", 1000),
    ("a.json", b'{"sentences": []}'.ljust(1001), "characters", 1000),
    ("a.txt", b"\n" * 1001, "lines", 1000),
    ("a.html", b"<p>x [1]" * 501, "lines", 1000),
    ("a.tex", b"a \\cite{a}\n" * 1001, "lines", 1000),
    ("a.tex", b"a \\cite{a,b,c}\n\n\\bibitem{a} Smith J. A title of it. 2011.\n\n" * 50, "citations", 99),
    ("a.tex", b"a \\cite{a,b}\n\n\\bibitem{a} Ng J. A title. 2011.\n\n\\bibitem{b} Ng J. B. 2011.\n", "references", 1),
    *((f"a.{suffix}", content, "seconds", -1) for suffix, content in (
        ("md", b"a b [1]."), ("tex", b"a \\cite{a}"), ("html", b"<p>x [1]</p>"), ("docx", docx("")),
        ("epub", packed_epub()),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "limit", "most"), HOSTILE)
def test_beyond_its_budget_a_document_is_one_sentence(tmp_path, monkeypatch, name, content, limit, most):
    monkeypatch.setitem(LIMITS, limit, most)
    said = f"beyond the {most:,} {limit.replace('_', ' ')} that one document may take: split it"
    if not name.endswith((".tex", ".json")):
        found, (reject,) = read(tmp_path / name, content)
        assert (found, reject.damaged, reject.reason) == ([], True, said)
    (tmp_path / name).write_bytes(content)
    if not name.endswith(".epub"):
        with pytest.raises(BadInputError) as raised:
            read_manuscript(tmp_path / name)
        assert str(raised.value) == f"{tmp_path / name}, line 1: {said}"


@pytest.mark.parametrize("suffix", ["md", "txt", "html", "docx", "epub"])
def test_a_document_has_no_more_passages_than_its_budget(tmp_path, monkeypatch, suffix):
    words = f"{'<p>' * (suffix == 'html')}{'a ' * 400}"  # more than a passage
    content = docx(f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>") if suffix == "docx" else words.encode()
    content = packed_epub({**EPUB, CHAPTER: f"<p>{words}</p>".encode()}) if suffix == "epub" else content
    found, _ = read(tmp_path / f"a.{suffix}", content)
    monkeypatch.setitem(LIMITS, "passages", len(found) - 1)
    rest, (reject,) = read(tmp_path / f"a.{suffix}", content)
    assert (len(rest) < len(found), reject.damaged) == (True, True)
    assert reject.reason == f"beyond the {len(found) - 1} passages that one document may take: split it"


def test_a_text_that_snippets_share_is_encoded_once():
    encoded: list[str] = []

    def vectors(texts):
        encoded.extend(texts)
        return np.array([[len(text)] for text in texts], np.float32)

    encoder = SimpleNamespace(
        encode_snippets=vectors,
        encode_snippets_with_tokens=lambda texts: (
            vectors(texts),
            [np.full((2, 1), len(text)) for text in texts],
            None,
        ),
    )
    snippets = [Snippet(str(number), "", "a" * (number % 3 + 1)) for number in range(9)]
    lengths = [len(snippet.contents) for snippet in snippets]
    for tokens, parameters in ((None, None), (encoder, SimpleNamespace(matrix=None, pooling=1))):
        result = SnippetEncoders(encoder, tokens, parameters)(snippets)
        assert result.vectors[:, 0].tolist() == lengths
        assert [rows[0, 0] for rows in result.tokens] == (lengths if tokens else [])
        assert sorted(encoded) == ["a", "aa", "aaa"]
        encoded.clear()


def test_a_document_beyond_its_budget_is_exit_code_3(tmp_path, monkeypatch, tiny_encoder):
    (tmp_path / "good.md").write_text("Aspirin lowers fever.\n")
    (tmp_path / "draft.md").write_text("a b [1].\n" * 200)
    options = ("--name", "mine", "--encoder", tiny_encoder)
    succeeded(invoke("index", tmp_path / "good.md", *options, home=tmp_path / "home"))
    monkeypatch.setitem(LIMITS, "characters", 1000)
    for arguments in (["index", *options], ["check", "--name", "mine"]):
        result = invoke(*arguments, tmp_path / "draft.md", home=tmp_path / "home")
        failed(result, 3, "draft.md, line 1: beyond the 1,000 characters that one document may take: split it")


MANY = 60
LOOPS = {
    "lines.md": "a b [1].\n" * MANY,
    "marks.md": "It is so" + ", as is it [1]" * MANY + ".",
    "tight.md": "It is so" + "[1]" * MANY + f".\n\n# References\n\n1. {REFERENCE}\n",
    "list.md": "It is so [1].\n\n# References\n\n" + "".join(f"{n}. {REFERENCE}\n" for n in range(MANY)),
    "sections.md": "# a [1]\nb\n" * MANY,
    "cited.txt": "Citation: [1] a\n\n" * MANY,
    "paragraphs.tex": "a $x$ b \\cite{a}\n\n" * MANY,
    "bibitems.tex": "a \\cite{a}\n\n" + f"\\bibitem{{a}} {REFERENCE}\n" * MANY,
    "blocks.html": "<p>x [1]" * MANY,
    "chapters.epub": packed_epub({**EPUB, CHAPTER: b"<p>x" * MANY}),
    "paragraphs.docx": docx("<w:p><w:r><w:t>x [1]</w:t></w:r></w:p>" * MANY),
    "rows.docx": docx(f"<w:tbl>{ROW * MANY}</w:tbl>"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_over_a_document_draws_on_its_budget(tmp_path, monkeypatch, name):
    draws: list[dict[str, float]] = []
    monkeypatch.setattr(Budget, "draw", lambda self, amounts: draws.append(amounts))
    content = LOOPS[name] if isinstance(LOOPS[name], bytes) else LOOPS[name].encode()
    (tmp_path / name).write_bytes(content)
    if not name.endswith(".epub"):
        with suppress(BadInputError):  # "no references in it"
            read_manuscript(tmp_path / name)
        assert len(draws) >= MANY
    if not name.endswith(".tex"):
        draws.clear()
        read(tmp_path / name, content)
        assert len(draws) >= (1 if name in ("marks.md", "tight.md") else MANY)


def test_a_document_pays_for_its_own_time_alone(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(budget, "thread_time", lambda: now[0])

    def parts(seconds):
        for part in range(3):
            now[0] += seconds
            draw(characters=1)
            yield part

    for _ in within("a.md", parts(5)):
        now[0] += 100  # of whoever takes the parts
    with Budget("draft.md"):
        list(within("library.bib", parts(5)))
        now[0] += 10
        draw()
        with pytest.raises(DamagedSourceError, match=r"library.bib, line 1: beyond the 15 seconds that one"):
            list(within("library.bib", parts(6)))
        now[0] += 10
        with pytest.raises(DamagedSourceError, match=r"draft.md, line 1: beyond the 15 seconds that one"):
            draw()
    draw(characters=10**9)
