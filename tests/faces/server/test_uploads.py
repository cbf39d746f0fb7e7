"""Papers that are sent into an index, opened at their page, and manuscripts that are checked, through the real app."""

from __future__ import annotations

import re
import shutil
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from urllib.parse import unquote

import pytest

pytest.importorskip("multipart", reason="the extra 'serve' is not installed")

import anyio
import httpx
from docx import Document
from starlette.testclient import TestClient

from biorag.api.session import Session
from biorag.errors import ServiceError
from biorag.faces.server.app import create_app
from biorag.faces.server.options import ServeOptions
from biorag.faces.server.uploads import file_name
from biorag.indexes.store import Store
from biorag.settings.sources import load_settings
from biorag.types import Snippet
from tests.cli import invoke, succeeded
from tests.conftest import write_medrag
from tests.corpus.samples import PAGE, RIS, searchable_pdf, word
from tests.faces.server.conftest import BASE, client_of

SECONDS = 120
FORM = {"content-type": "multipart/form-data; boundary=b"}
PAPER = ["Isoniazid lowers pyridoxine in the blood.", "Pyridoxine prevents the neuropathy of isoniazid, 25 mg a day."]
QUESTION = {"question": "Which dose of pyridoxine prevents neuropathy?", "answer_anyway": "1"}
RECORD = Snippet("r1", "Pyridoxine and isoniazid", "Pyridoxine prevented neuropathy.", 123)
MANUSCRIPT = """Pyridoxine prevented neuropathy [1]. Nobody knows gout [2].
References
1. Pyridoxine and isoniazid. PMID: 123
2. Gout. PMID: 999"""


@pytest.fixture
def session(tmp_path, tiny_encoder) -> Iterator[Session]:
    """An open index `first` in a home of its own, where more indexes may be made."""
    home = tmp_path / "home"
    corpus = write_medrag(tmp_path / "corpus.jsonl", [RECORD])
    succeeded(invoke("index", corpus, "--name", "first", "--encoder", tiny_encoder, home=home))
    with Session(load_settings({"home": home, "name": "first", "encoder": str(tiny_encoder)}, None)) as opened:
        yield opened


@pytest.fixture
def client(session) -> Iterator[TestClient]:
    with client_of(session, uploads=True, others=True) as made:
        yield made


def sent(client: TestClient, index: str, **files: bytes) -> str:
    """Send papers, whose names have "__" for a dot, and return the page of the job once it has ended."""
    return ended(client, client.post("/papers", data={"index": index}, files=parts(files)))


def parts(files: dict[str, bytes], field: str = "files") -> list[tuple[str, tuple[str, bytes]]]:
    return [(field, (name.replace("__", "."), content)) for name, content in files.items()]


def ended(client: TestClient, reply) -> str:
    assert reply.status_code == 303, reply.text
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        state = client.get(reply.headers["location"], headers={"hx-request": "true"})
        if state.status_code == 286:
            return client.get(reply.headers["location"]).text
        time.sleep(0.05)
    raise AssertionError(state.text)


def rows(page: str) -> dict[str, tuple[int, str]]:
    """Return the snippets of each file of a job's page, and what was not read."""
    found = re.findall(r'<th scope="row">(.*?)</th><td>(\d+)</td><td>(.*?)</td>', page)
    return {name: (int(snippets), fault) for name, snippets, fault in found}


def opened(client: TestClient, index: str, name: str) -> str:
    """Return the address of a paper that an answer links to."""
    answer = client.get("/ask", params={"index": index, **QUESTION, "k": "5"}).text
    links = re.findall(r'<a href="(/files[^"]*)"[^>]*>Open ' + re.escape(name), answer)
    assert links, answer
    return links[0].replace("&amp;", "&")


def test_a_paper_is_sent_asked_and_opened_at_its_page(client, session, tmp_path):
    paper, web = searchable_pdf(PAPER), PAGE.replace(b"</body>", b"<script>alert(1)</script></body>")
    page = sent(client, "mine", paper__pdf=paper, gout__html=web, scan__pdf=searchable_pdf([""]), x__exe=b"MZ")
    assert rows(page) == {
        "paper.pdf": (2, ""),
        "gout.html": (rows(page)["gout.html"][0], ""),
        "scan.pdf": (0, "scan.pdf, page 1: no text on any page, as in a scan: make it searchable by OCR first"),
        "x.exe": (0, "its format is not read"),
    }
    assert "mine is up to date" in page
    folder = session.settings.uploads / "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["gout.html", "paper.pdf", "scan.pdf"]

    link = opened(client, "mine", "paper.pdf at page 2")
    assert unquote(link) == "/files?index=mine&id=paper.pdf#page=2#page=2"
    reply = client.get(link)
    assert (reply.status_code, reply.content, reply.headers["content-type"]) == (200, paper, "application/pdf")
    assert reply.headers["content-disposition"] == 'inline; filename="paper.pdf"'
    assert (
        reply.headers["x-content-type-options"] == "nosniff"
        and "default-src 'none'" in reply.headers["content-security-policy"]
    )
    text = client.get(opened(client, "mine", "gout.html"))
    assert text.headers["content-type"] == "text/plain; charset=utf-8", "nothing in it runs"
    for id in ("r1", "/etc/passwd", "paper.pdf", "../paper.pdf#page=1"):
        assert client.get("/files", params={"index": "mine", "id": id}).status_code == 404
    (folder / "paper.pdf").write_bytes(paper + b"%")
    changed = client.get(link)
    assert (changed.status_code, "not as it was when it was indexed" in changed.text) == (409, True)
    (folder / "paper.pdf").unlink()
    assert client.get(link).status_code == 404
    (folder / "paper.pdf").symlink_to("/etc/hostname")
    assert client.get(link).status_code == 409


def test_the_index_that_is_served_takes_papers_and_is_open_again_after(client, session, monkeypatch):
    made = Store(session.settings).require_manifest().updated
    monkeypatch.setattr("biorag.indexes.writing.timestamp", lambda: made)  # all within one second
    assert "1 snippet" in client.get("/").text
    assert rows(sent(client, "first", paper__pdf=searchable_pdf(PAPER))) == {"paper.pdf": (2, "")}
    assert "3 snippets" in client.get("/").text, "what it holds is counted again"
    assert [hit.snippet.id for hit in session.search("25 mg a day", mode="bm25").hits] == ["paper.pdf#page=2"]
    assert opened(client, "first", "paper.pdf at page 2")
    with session.written():
        with pytest.raises(ServiceError, match="index 'first' is taking in papers just now: ask again in a minute"):
            session.search("pyridoxine")
        assert client.get("/ask", params=QUESTION).status_code == 503
        assert client.get("/").status_code == 200, "what it holds is known"
    assert client.get("/ask", params=QUESTION).status_code == 200


def test_a_name_that_is_taken_gets_a_number_and_the_same_file_is_kept_once(client, session):
    papers = [searchable_pdf([f"Pyridoxine number {number} prevents harm."]) for number in range(2)]
    assert rows(sent(client, "mine", paper__pdf=papers[0])) == {"paper.pdf": (1, "")}
    assert rows(sent(client, "mine", paper__pdf=papers[1])) == {"paper (2).pdf": (1, "")}
    assert rows(sent(client, "mine", paper__pdf=papers[0])) == {"paper.pdf": (1, "")}
    assert rows(sent(client, "mine", renamed__pdf=papers[0])) == {"paper.pdf": (1, "")}, "whatever its name"
    manifest = b'{"identity": {}, "format": 1, "rows": 1}'
    found = rows(sent(client, "mine", corpus__jsonl=b'{"id": "a", "contents": "Gout."}\n', manifest__json=manifest))
    assert found["corpus (2).jsonl"] == (1, ""), "a name that makes files beside it count for nothing"
    folder = session.settings.uploads / "mine"
    assert (folder / "paper.pdf").read_bytes() == papers[0] and (folder / "paper (2).pdf").read_bytes() == papers[1]
    with Session(session.settings.replace(name="mine")) as mine:
        assert {hit.snippet.id for hit in mine.search("pyridoxine harm gout", k=9).hits} == {
            "paper.pdf#page=1",
            "paper (2).pdf#page=1",
            "a",
        }


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd.pdf", "passwd.pdf"),
        ("C:\\papers\\a.pdf", "a.pdf"),
        ("..", ""),
        (".hidden.pdf", "hidden.pdf"),
        ("a\x00\x1b[2J.pdf", "a��[2J.pdf"),
        ("ü" * 300 + ".pdf", "ü" * 88 + ".pdf"),
        ("tab\tand\nline.ris", "tab�and�line.ris"),
        ("paper", "paper"),
    ],
)
def test_no_name_leads_out_of_the_folder(name, kept):
    assert file_name(name) == kept


def refused(session: Session, **limits: float) -> tuple[int, str, int]:
    """Send a file that never ends; return the status, the text, and how many parts of 64 KiB were read."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.pdf"\r\n\r\n'
        while True:
            read += 1
            await anyio.sleep(0)
            yield b"%" * 65536

    async def asked() -> httpx.Response:
        app = create_app(session, ServeOptions(uploads=True, rate=0, **limits))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
            return await client.post("/papers", content=endless(), headers=FORM)

    reply = anyio.run(asked)
    return reply.status_code, reply.text, read


def test_what_is_too_much_is_refused_while_it_comes(session):
    status, text, read = refused(session, upload_bytes=2**20)
    assert (status, "longer than 1,048,576 bytes" in text, read) == (413, True, 16)
    status, text, _ = refused(session, upload_seconds=0.5)
    assert (status, "too slowly" in text) == (408, True)
    with client_of(session, uploads=True, upload_bytes=2**20) as client:
        assert client.post("/papers", content=b"", headers={**FORM, "content-length": str(2**40)}).status_code == 413
        files = {f"{number}.pdf": b"" for number in range(10_000)}
        assert client.post("/check", files=parts(files)).status_code in (400, 413)
        header = b"--b\r\nX: " + b"x" * 2**19
        assert client.post("/papers", content=header, headers=FORM).status_code == 400
        assert client.post("/papers", data={"index": "mine"}).status_code == 400
        assert not (session.settings.uploads).exists()


def test_only_those_who_may_send_files(session):
    form = {"data": {"index": "mine"}, "files": parts({"paper.pdf": b"%PDF-"})}
    with client_of(session) as client:
        assert client.post("/papers", **form).status_code in (404, 405), "it is off unless it is switched on"
        assert client.get("/check").status_code == 404 and "/papers" not in client.get("/").text
    with client_of(session, uploads=True) as client:
        assert "/papers" in client.get("/").text
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            for path in ("/papers", "/check"):
                assert client.post(path, **form, headers=headers).status_code == 403
        other = client.post("/papers", **form)
        assert (other.status_code, "alone: send the papers there" in other.text) == (400, True), (
            "--name keeps the others apart"
        )
    with client_of(session, token="a-token-of-this-test-alone", uploads=True) as client:
        assert client.post("/papers", **form).status_code == 401
        assert client.get("/files?index=first&id=r1").status_code == 401
    assert not session.settings.uploads.exists()


def test_two_people_send_papers_at_once(client):
    def send(number: int) -> dict[str, tuple[int, str]]:
        return rows(sent(client, "mine", **{f"paper{number}__pdf": searchable_pdf([f"Gout number {number}."])}))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(send, range(2))) == [{f"paper{number}.pdf": (1, "")} for number in range(2)]


def test_a_full_disk_is_said_and_keeps_nothing(client, session, monkeypatch):
    full = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr("biorag.utils.files.shutil.disk_usage", lambda path: full)
    ((name, (snippets, fault)),) = rows(sent(client, "mine", paper__pdf=searchable_pdf(PAPER))).items()
    assert (name, snippets) == ("paper.pdf", 0) and "is full" in fault
    assert list((session.settings.uploads / "mine").iterdir()) == []


def checked(client: TestClient, files: list[tuple[str, tuple[str, bytes]]]) -> str:
    """Send a manuscript to be checked in `first`; return the page that it leads to."""
    return client.post("/check", data={"index": "first"}, files=files, follow_redirects=True).text


def manuscript() -> bytes:
    document = Document()
    for paragraph in MANUSCRIPT.split("\n"):
        document.add_paragraph(paragraph)
    document.save(stream := BytesIO())
    return stream.getvalue()


def test_a_manuscript_is_checked_and_its_report_is_downloaded(client, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    page = checked(client, parts({"a.docx": manuscript()}, "manuscript"))
    assert "<h1>Citations of a.docx</h1>" in page and "2 references, 2 citing sentences" in page
    assert "<h2>Not found (1)</h2>" in page and str(tmp_path) not in page
    links = re.findall(r'href="(/check/[^"]+)" download>([^<]+)', page)
    assert [name for _, name in links] == ["a-checked.docx", "a-report.md", "a-report.html", "a-report.json"]
    copy, markdown, _, document = (client.get(link) for link, _ in links)
    assert ["no record found" in comment.text for comment in Document(BytesIO(copy.content)).comments] == [True]
    assert markdown.text.startswith("# Citations of a.docx") and document.json()["file"] == "a.docx"
    assert "attachment" in markdown.headers["content-disposition"]
    assert not list(tmp_path.glob("biorag-*")), "the manuscript is not kept"


def test_references_of_their_own_and_manuscripts_that_cannot_be_read(client):
    text = {"a.tex": b"Pyridoxine prevented neuropathy \\cite{p}. \\bibliography{refs}"}
    refs = {"refs.bib": b"@article{p, title={Pyridoxine and isoniazid}, note={PMID: 123}}"}
    files = parts(text, "manuscript") + parts(refs, "references")
    assert "1 references, 1 citing sentences" in checked(client, files)
    with zipfile.ZipFile(stream := BytesIO(word()), "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/bomb.xml", b"<a>" * 2**27)
    for name, content, fault in (
        ("bomb.docx", stream.getvalue(), "bomb.docx, line 1: beyond the 134,217,728 unpacked bytes"),
        ("a.exe", b"MZ", "a.exe is of no kind that"),
        ("empty.md", b"Nothing.", "empty.md: no references and no citations in it"),
    ):
        page = checked(client, parts({name: content}, "manuscript"))
        assert fault.casefold() in unescaped(page).casefold()
    assert client.post("/check", data={"index": "first"}, files=parts(refs, "references")).status_code == 400


def unescaped(page: str) -> str:
    return page.replace("&#39;", "'")


def test_exports_are_papers_too(client):
    assert rows(sent(client, "mine", refs__ris=RIS)) == {"refs.ris": (1, "")}
    assert not re.search(r"/files", client.get("/ask", params={"index": "mine", **QUESTION}).text), "it is no paper"
