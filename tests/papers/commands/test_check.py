"""`biorag check`: findings by their harm, each format of the report, the commented copy, exit codes, and a service."""

import json

import pytest
from docx import Document

from biorag.answering.guards.checker import Checker
from biorag.papers.manuscripts.checking import FindingKind, _of_claim
from biorag.papers.manuscripts.manuscript import ListedReference
from biorag.references.reference import reference_of
from biorag.types import Snippet
from tests.cli import done, failed, invoke, succeeded
from tests.fakes import ScriptedReader

RECORDS = [
    ("Isoniazid neuropathy and pyridoxine in adults", "Isoniazid causes neuropathy. It is old.", 11, 2011, {}),
    ("Statins and hip fracture in older women", "Statins do not prevent hip fracture.", 12, 2012, {"retracted": True}),
    ("Metformin and weight in young people", "Metformin lowers body weight in young people.", 13, 2013, {}),
]  # fmt: skip
LISTED = [
    "Smith J. Isoniazid neuropathy and pyridoxine in adults. Lancet. 2011;1:2. PMID: 11",
    "Smith J. Statins and hip fracture in older women. Lancet. 2012;1:2.",
    "Smith J. Metformin and weight in young people. Lancet. 2003;1:2. PMID: 12",
    "Roe P. Invented benefits of invented treatments. Lancet. 2014;1:2.",
]
SENTENCES = [
    "Isoniazid causes neuropathy [1].",
    "Statins prevent hip fracture [2].",
    "Bananas ripen in the dark of night [3].",
    "Invention is a benefit to all [4].",
]
KINDS = ["retracted", "not_found", "wrong_identifier", "contradicted", "wrong_metadata"]


@pytest.fixture(autouse=True)
def words_alone(monkeypatch):
    """No test depends on the packaged reader."""
    monkeypatch.setenv("BIORAG_READER", "none")


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_encoder):
    folder = tmp_path_factory.mktemp("check")
    rows = [
        {"id": f"r{pmid}", "title": title, "content": content, "PMID": pmid, "year": year, "authors": ["Smith, Jane"],
         "journal": "Lancet", **more}
        for title, content, pmid, year, more in RECORDS
    ]  # fmt: skip
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    succeeded(
        invoke("index", folder / "corpus.jsonl", "--name", "small", "--encoder", tiny_encoder, home=folder / "home")
    )
    return folder / "home"


def write_docx(path, sentences=SENTENCES):
    document = Document()
    document.add_paragraph(" ".join(sentences))
    document.add_heading("References", 1)
    for reference in LISTED:
        document.add_paragraph(reference, style="List Number")
    document.save(path)
    return path


def test_findings_in_the_order_of_their_harm_and_what_is_not_sure_apart(home, tmp_path):
    file = write_docx(tmp_path / "paper.docx")
    report = done(invoke("check", file, "--json", home=home))
    assert (report["references"], report["citing_sentences"]) == (4, 4)
    assert [finding["kind"] for finding in report["findings"]] == KINDS
    retracted, invented, foreign, contradicted, metadata = report["findings"]
    assert (invented["key"], invented["sentence"], invented["place"]) == ("4", SENTENCES[3], "paragraph 1")
    assert "not in index 'small'" in invented["message"]
    assert foreign["fields"][0] == {"field": "PMID", "manuscript": "12", "record": f"{RECORDS[1][0]} (2012, retracted)"}
    assert (foreign["pmid"], foreign["id"]) == (13, "r13")
    assert (retracted["key"], contradicted["key"]) == ("2", "2")
    assert (contradicted["verdict"], contradicted["quote"]) == ("contradicted", RECORDS[1][1])
    assert metadata["fields"] == [{"field": "year", "manuscript": "2003", "record": "2013"}]
    assert [one["key"] for one in report["not_sure"]] == ["3"]
    assert report["counts"] == {
        **dict.fromkeys(KINDS, 1),
        "unsupported": 0,
        "not_sure": 1,
        "supported": 1,
        "not_judged": 1,
    }
    assert report["not_judged"] == {
        "claim without a record": 1, "volume not in the record": 3, "pages not in the record": 3
    }  # fmt: skip


def test_what_a_sure_reader_does_not_find_is_unsupported(home, tmp_path, monkeypatch):
    monkeypatch.setattr("biorag.engine.load_reader", lambda settings: ScriptedReader(lambda claim, window: (0.1, 0.05)))
    report = done(invoke("check", write_docx(tmp_path / "paper.docx"), "--json", home=home))
    assert [finding["kind"] for finding in report["findings"]] == [*KINDS, "unsupported"]
    last = report["findings"][-1]
    assert (last["key"], last["message"], last["probability"]) == ("3", "the cited abstract does not say so", 0.85)
    assert report["not_sure"] == []


@pytest.mark.parametrize(
    ("claim", "quote", "kind"),
    [
        ("Fever fell by 30%.", "Fever fell by 13% (95% CI 2 to 20).", FindingKind.CONTRADICTED),
        ("IL-6 inhibits TNF.", "IL-10 inhibits TNF.", None),
    ],
)
def test_another_number_is_a_contradiction_and_another_name_is_not(claim, quote, kind):
    snippet = Snippet("a", "T", quote)
    reference = ListedReference("1", "T", reference_of(snippet))
    (stance,) = Checker().stances(claim, [snippet])
    (finding,) = _of_claim(reference, claim, stance, snippet)
    assert (finding.kind, stance.quote) == (kind, quote)


CITES = (SENTENCES[0][:-5], SENTENCES[1][:-5], SENTENCES[3][:-5])
LIST = (LISTED[0], LISTED[1], LISTED[3])
BIB = """@article{a, author={Smith, J}, title={Isoniazid neuropathy and pyridoxine in adults}, year={2011}, pmid={11}}
@article{b, author={Smith, J}, title={Statins and hip fracture in older women}, year={2012}}
@article{c, author={Roe, P}, title={Invented benefits of invented treatments}, year={2014}}
"""
RIS = "".join(
    f"TY  - JOUR\nTI  - {one.split('. ')[1]}\nAU  - {one.split()[0]}, J\nPY  - {2011 + n + (n > 1)}\nER  - \n"
    for n, one in enumerate(LIST)
)


def cited(*marks: str) -> str:
    return " ".join(f"{sentence}{mark}." for sentence, mark in zip(CITES, marks, strict=True))


def listed(form: str) -> str:
    return "".join(form.format(number, reference) for number, reference in enumerate(LIST, 1))


MANUSCRIPTS = {
    "numbers.md": {"numbers.md": f"{cited(' [1]', ' [2]', ' [3]')}\n\n# References\n\n{listed('{}. {}' + chr(10))}"},
    "round.txt": {
        "round.txt": f"{cited(' (1)', ' (2)', ' (3)')}\n\nReferences\n----------\n\n{listed('{}. {}' + chr(10))}"
    },
    "notes.md": {"notes.md": f"{cited('[^1]', '[^2]', '[^3]')}\n\n{listed('[^{}]: {}' + chr(10))}"},
    "names.md": {
        "names.md": cited(" (Smith, 2011)", " (Smith 2012)", " (Roe et al., 2014)")
        + f"\n\n# References\n\n{listed('- {1}' + chr(10))}"
    },
    "keys.md": {
        "keys.md": f"---\nbibliography: refs.bib\n---\n{cited(' [@a]', ' [@b]', ' [@c]')}\n",
        "refs.bib": BIB,
        "other.bib": "",
    },
    "keys.tex": {
        "keys.tex": "\\begin{document}\n\\section{One}\n" + cited(*(rf" \cite{{{key}}}" for key in "abc")) + "\n",
        "keys.bib": BIB,
    },
    "items.tex": {
        "items.tex": cited(*(rf"~\citep{{{key}}}" for key in "123"))
        + "\n\n\\begin{thebibliography}{9}\n" + listed("\\bibitem{{{}}} {}\n") + "\\end{thebibliography}\n",
    },
    "raised.html": {
        "raised.html": f"<p>{cited(*(f'<sup>{n}</sup>' for n in (1, 2, 3)))}</p><h2>References</h2>"
        f"<ol>{listed('<li>{1}</li>')}</ol>"
    },
    "ris.md": {"ris.md": cited(" (Smith, 2011)", " (Smith, 2012)", " (Roe, 2014)"), "library.ris": RIS},
    "pmids.json": {
        "pmids.json": json.dumps(
            {"sentences": [{"text": f"{text}.", "citations": [n]} for text, n in zip(CITES, (11, 12, 99), strict=True)]}
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MANUSCRIPTS)
def test_a_manuscript_of_each_format_and_style_of_marks(home, tmp_path, name):
    for file, content in MANUSCRIPTS[name].items():
        (tmp_path / file).write_text(content)
    report = done(invoke("check", tmp_path / name, "--json", home=home))
    assert (report["references"], report["citing_sentences"], report["unlisted"]) == (3, 3, [])
    assert [one["kind"] for one in report["findings"]] == ["retracted", "not_found", "contradicted"]
    for finding, sentence in zip(report["findings"], (CITES[1], CITES[2], CITES[1]), strict=True):
        assert finding["sentence"].startswith(sentence)
    assert report["findings"][2]["claim"] == f"{CITES[1]}."
    assert report["counts"]["supported"] == 1


def test_exit_codes_and_what_a_terminal_shows(home, tmp_path):
    file = write_docx(tmp_path / "paper.docx")
    shown = invoke("check", file, "--fail-unsupported", home=home)
    assert shown.exit_code == 7
    assert shown.stdout.startswith("4 references, 4 citing sentences")
    assert "; not judged: claim without a record (1)" in shown.stdout.partition("Retracted")[0].replace("\n", " ")
    assert (
        shown.stdout.index("Retracted (1)") < shown.stdout.index("Not found (1)") < shown.stdout.index("Not sure (1)")
    )
    assert f"• [3] {SENTENCES[2]} (paragraph 1)\n  The paper: “{RECORDS[2][1]}” (PMID 13)" in shown.stdout
    clean = tmp_path / "clean.md"
    clean.write_text(f"{SENTENCES[0]}\n\n# References\n\n1. {LISTED[0]}\n")
    assert done(invoke("check", clean, "--json", "--fail-unsupported", home=home))["findings"] == []
    failed(invoke("check", tmp_path / "gone.docx", home=home), 4, "gone.docx")
    failed(invoke("check", clean, "--commented", tmp_path / "c.docx", home=home), 2, "--commented")
    failed(invoke("check", clean, "--format", "pdf", home=home), 2, "html")
    failed(invoke("check", file, "--commented", file, home=home), 2, "is read by this command")


def test_a_report_grows_with_its_marks_and_not_with_their_square(home, tmp_path):
    text = f"Aspirin [1]{'[1-5000]' * 300}"
    (tmp_path / "a.md").write_text(f"{text}\n\n# References\n\n1. Aspirin 1. Journal; 2020.\n")
    report = done(invoke("check", tmp_path / "a.md", "--json", home=home))
    assert (len(report["unlisted"]), len(report["findings"])) == (300, 1)
    assert {one["sentence"] for one in report["unlisted"] + report["findings"]} == {f"{text[:1000]}…"}
    text = f"Aspirin lowers fever{' in adults' * 200}."
    (tmp_path / "a.json").write_text(json.dumps({"sentences": [{"text": text, "citations": [11, 13]}]}))
    report = done(invoke("check", tmp_path / "a.json", "--json", home=home))
    assert {one["claim"] for one in report["not_sure"]} == {f"{text[:1000]}…"}


def test_reports_as_a_page_and_markdown(home, tmp_path):
    file = tmp_path / "a <b>.md"
    file.write_text(f"{SENTENCES[1]}\n\n# References\n\n1. {LISTED[0]}\n2. {LISTED[1]} <script>alert(1)</script>\n")
    for name in ("r.html", "r.md"):
        succeeded(invoke("check", file, "--out", tmp_path / name, home=home))
    both = done(invoke("check", file, "--json", "--out", tmp_path / "r.html", home=home))
    assert both["counts"]["retracted"] == 1
    page = (tmp_path / "r.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "Statins do not prevent hip fracture." in page
    assert "\\<script\\>" in (tmp_path / "r.md").read_text()


def test_comments_stand_at_the_sentences_of_a_copy(home, tmp_path):
    file = write_docx(tmp_path / "paper.docx")
    before = file.read_bytes()
    outputs = ("--out", tmp_path / "r.md", "--commented", tmp_path / "copy.docx")
    said = succeeded(invoke("check", file, *outputs, home=home)).stderr
    assert "citing sentences, checked in index" in said
    assert said.endswith(f"\nReport: {tmp_path / 'r.md'}\nCommented copy: {tmp_path / 'copy.docx'}\n")
    assert file.read_bytes() == before
    copy = Document(tmp_path / "copy.docx")
    comments = [(comment.author, comment.text.partition(":")[0]) for comment in copy.comments]
    assert comments == [("biorag", "Retracted"), ("biorag", "Wrong identifier"), ("biorag", "Not found")]
    assert [p.text for p in copy.paragraphs] == [p.text for p in Document(file).paragraphs]


def test_comments_tell_what_is_not_sure_not_listed_and_not_cited(home, tmp_path):
    file = write_docx(tmp_path / "paper.docx", [SENTENCES[0], "Bananas ripen in the dark of night [9]."])
    report = done(invoke("check", file, "--json", "--commented", tmp_path / "copy.docx", home=home))
    assert [one["key"] for one in report["uncited"]] == ["2", "3", "4"]
    comments = [comment.text for comment in Document(tmp_path / "copy.docx").comments]
    assert "[9] is in no list of references." in comments
    assert [text.splitlines()[-1] for text in comments[-3:]] == [
        f"Reference {n} is listed and never cited." for n in (2, 3, 4)
    ]
    sure = write_docx(tmp_path / "sure.docx", SENTENCES[2:3])
    succeeded(invoke("check", sure, "--commented", tmp_path / "copy.docx", home=home))
    first = next(iter(Document(tmp_path / "copy.docx").comments)).text
    assert first.endswith(f"The paper: “{RECORDS[2][1]}” (PMID 13)") and "Not sure whether the cited paper" in first


def test_a_named_service_is_asked_for_what_the_index_lacks(home, tmp_path, monkeypatch):
    asked = []

    def find(title, facts):
        asked.append((title, facts))
        known = Snippet(
            "9", "Seen elsewhere by nobody but a service", "It is seen.", 9, {"year": 2014, "retracted": True}
        )
        return known if title == known.title else None

    monkeypatch.setattr("biorag.corpus.enriching.pubmed", lambda services: find)
    file = tmp_path / "a.md"
    elsewhere = "Roe P. Seen elsewhere by nobody but a service. Lancet. 2014;1:2."
    citing = "It is seen [1]. It is not seen [2]. Nobody saw it [2]."
    file.write_text(f"{citing}\n\n# References\n\n1. {elsewhere}\n2. {LISTED[3]}\n")
    offline = done(invoke("check", file, "--json", home=home))
    once, twice = (one["message"] for one in offline["findings"])
    assert once == "no record found: not in index 'small'"
    assert twice == f"{once}; none of the 2 sentences that cite it was judged"
    assert asked == []
    report = done(invoke("check", file, "--json", "--enrich", "pubmed", home=home))
    assert [title for title, _ in asked] == [
        "Seen elsewhere by nobody but a service",
        "Invented benefits of invented treatments",
    ]
    assert [(one["kind"], one["key"]) for one in report["findings"]] == [("retracted", "1"), ("not_found", "2")]
    assert "neither in index 'small' nor at pubmed" in report["findings"][1]["message"]


def test_a_report_replaces_an_earlier_one_and_nothing_else(home, tmp_path):
    """Neither a chapter, nor references named or found beside the manuscript, nor a copy that somebody edited."""
    file = write_docx(tmp_path / "paper.docx")
    file.chmod(0o640)
    chapter, beside, copy = (tmp_path / name for name in ("chapter.md", "paper.bib", "copy.docx"))
    chapter.write_text("# Citations of my life\n")
    beside.write_text("@article{a, title={Isoniazid neuropathy and pyridoxine in adults}, year={2011}}\n")
    for name in (chapter, beside):
        failed(invoke("check", file, "--out", name, "--format", "md", home=home), 2, "no report that biorag wrote")
    failed(
        invoke("check", file, "--references", beside, "--out", beside, "--format", "md", home=home),
        2,
        "is read by this",
    )
    twice = ("--out", tmp_path / "new.docx", "--format", "md", "--commented", tmp_path / "new.docx")
    failed(invoke("check", file, *twice, home=home), 2, "named for two outputs")
    write_docx(copy)
    failed(invoke("check", file, "--commented", copy, home=home), 2, "no commented copy that biorag wrote")
    copy.unlink()
    for format in ("md", "html", "json"):
        for _ in range(2):
            succeeded(invoke("check", file, "--out", tmp_path / f"r.{format}", "--commented", copy, home=home))
    assert copy.stat().st_mode & 0o777 == 0o640
    edited = Document(copy)
    edited.core_properties.last_modified_by = "Ada Okafor"
    edited.save(copy)
    failed(invoke("check", file, "--commented", copy, home=home), 2, "no commented copy that biorag wrote")
    assert chapter.read_text() == "# Citations of my life\n"
