"""`biorag show`, the output formats of `search` and `ask`, and what is kept of the last hits."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest
from rich.console import Console

from biorag.commands import show, show_answer
from biorag.lab.citation_graph.building import build, find_citations
from biorag.settings.settings import Settings
from biorag.types import EXTRACT, Answer, CheckedSentence, Citation, Hit, Question, Snippet, Verdict
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag
from tests.pubmed_records import article, file_of

TRIAL = (
    "METHODS: We randomly assigned 120 adults with asthma to budesonide or placebo. RESULTS: Fewer exacerbations were "
    "seen with budesonide."
)
BARE = [*("--mode", "bm25", "--no-rerank")]


def records() -> bytes:
    authors = (
        "<AuthorList><Author><LastName>O'Byrne</LastName><ForeName>Paul M</ForeName></Author>"
        "<Author><CollectiveName>Asthma, Lung and Health Group</CollectiveName></Author></AuthorList>"
    )
    trial = article(1, "Budesonide in asthma.", TRIAL, types=("Journal Article", "Randomized Controlled Trial"))
    trial = trial.replace("<Abstract>", authors + "<Abstract>")
    notice = '<CommentsCorrections RefType="ExpressionOfConcernIn"><RefSource>J. 2021</RefSource></CommentsCorrections>'
    doubted = article(2, "Budesonide doubted.", "Budesonide heals everything.").replace(
        "<MeshHeadingList>", f"<CommentsCorrectionsList>{notice}</CommentsCorrectionsList><MeshHeadingList>"
    )
    withdrawn = article(3, "Budesonide withdrawn.", "Budesonide cures.", types=("Retracted Publication",))
    return file_of(trial, doubted, withdrawn)


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_encoder) -> Path:
    """A home with the index `papers` of three PubMed records, and `old` of one without their fields."""
    home = tmp_path_factory.mktemp("home")
    (home / "papers.xml").write_bytes(records())
    succeeded(invoke("index", home / "papers.xml", "--name", "papers", "--encoder", tiny_encoder, home=home))
    old = [Snippet("a#1", "Old", "Aspirin lowers fever.", 77, {"year": 1999}), Snippet("b", "", "Heparin.", 77)]
    dois = {"d": "10.1000/AbC.1", "e": "https://doi.org/10.1000/AbC", "f": "10.1000/AbC.1.2"}
    with_dois = [Snippet(id, "T", f"Zinc {id}.", n, {"doi": doi}) for n, (id, doi) in enumerate(dois.items(), 90)]
    others = [Snippet("c", "No paper", "Warfarin thins blood."), Snippet("10.1/x", "T", "Iron."), *with_dois]
    corpus = write_medrag(home / "old.jsonl", [*old, *others])
    succeeded(invoke("index", corpus, "--name", "old", "--encoder", tiny_encoder, home=home))
    return home


def run(home: Path, *words: object, **env: str):
    return invoke(*words, home=home, **env)


@pytest.mark.parametrize(
    ("doi", "id"),
    [
        ("10.1000/AbC.1", "d"), ("https://doi.org/10.1000/abc.1", "d"), ("DOI: 10.1000/ABC.1", "d"),
        ("10.1000/abc", "e"), ("http://dx.doi.org/10.1000/AbC", "e"), ("https://doi.org/10.1/x", "10.1/x"),
    ],
)  # fmt: skip
def test_a_record_is_shown_by_its_doi_however_that_is_spelt(home, doi, id):
    assert [one["id"] for one in done(run(home, "show", doi, "--name", "old", "--json"))["snippets"]] == [id]


def searched(home: Path, *words: object) -> list[dict]:
    return done(run(home, "search", "budesonide", "--name", "papers", *BARE, *words, "--json"))["hits"]


# --- show


def test_show_prints_all_of_a_snippet_and_the_facts(home):
    shown = succeeded(run(home, "show", "1", "--name", "papers")).stdout
    assert "Fewer exacerbations were seen with budesonide." in shown
    assert "O'Byrne PM; Asthma, Lung and Health Group. Budesonide in asthma. J. 2020. PMID: 1." in shown
    rows = dict(line.split("\t") for line in shown.splitlines() if "\t" in line)
    assert rows["publication type"] == "Journal Article, Randomized Controlled Trial"
    assert (rows["retracted"], rows["expression of concern"]) == ("no", "no")
    assert rows["participants"] == "120 (“randomly assigned 120 adults”)"
    assert rows["cited by"] == "unknown"


def test_show_json_has_metadata_and_facts(home):
    found = done(run(home, "show", "1", "--name", "papers", "--mark", "budesonide", "--json"))
    (snippet,) = found["snippets"]
    assert found["index"] == "papers"
    assert snippet["metadata"]["authors"] == ["O'Byrne, Paul M", "Asthma, Lung and Health Group"]
    assert snippet["facts"] == {
        "publication_types": ["Journal Article", "Randomized Controlled Trial"],
        "retracted": False,
        "concern": False,
        "notices": [],
        "corrections": [],
        "participants": {"number": 120, "quote": "randomly assigned 120 adults"},
        "cited_by": None,
    }
    assert [snippet["content"][start:end] for start, end in snippet["marks"]] == ["budesonide", "budesonide"]
    assert snippet["url"] == "https://pubmed.ncbi.nlm.nih.gov/1/"


def test_show_puts_blocks_together(tmp_path, tiny_encoder):
    text = " ".join(f"Aspirin lowers fever in trial {number}." for number in range(40))
    corpus = write_medrag(tmp_path / "long.jsonl", [Snippet("long", "T", text, 5, {"year": 2000})])
    blocks = ["--block-tokens", 64, "--block-overlap", 16]
    succeeded(run(tmp_path, "index", corpus, "--name", "long", "--encoder", tiny_encoder, *blocks))
    for which in ("long", "5"):
        (snippet,) = done(run(tmp_path, "show", which, "--name", "long", "--json"))["snippets"]
        assert (snippet["id"], snippet["content"], snippet["metadata"]) == ("long", text, {"year": 2000})


def test_show_counts_the_papers_of_the_graph_that_cite(home, tmp_path):
    citations = tmp_path / "citations.csv"
    citations.write_text("citing,referenced\n10,1\n11,1\n11,2\n12,1\n")
    graphs = Settings.of(home=home).graphs
    build(graphs / "cited", find_citations([str(citations)]), lambda _: None)
    facts = [
        done(run(home, "show", id, "--name", "papers", "--graph", "cited", "--json"))["snippets"][0]["facts"]
        for id in ("1", "2", "3")
    ]
    assert [fact["cited_by"] for fact in facts] == [3, 1, 0]


# --- the last hits


def test_a_number_is_the_rank_of_the_last_hits_in_their_index(home):
    hits = searched(home)
    for rank in (1, 2, 3):
        found = done(run(home, "show", rank, "--json"))
        assert (found["index"], found["snippets"][0]["id"]) == ("papers", hits[rank - 1]["id"])
    failed(run(home, "show", 4), 4, "which index?")
    (named,) = done(run(home, "show", 2, "--name", "papers", "--json"))["snippets"]
    assert named["id"] == hits[1]["id"], "of the index that is named"
    failed(run(home, "show", 1, "--name", "old"), 4, "'old'", "'1'")
    reference = succeeded(run(home, "show", 2, "--format", "ris")).stdout
    assert f"TI  - {hits[1]['title']}" in reference
    failed(run(home, "show", 2, "--format", "ris", "--json"), 2, "--json", "--format")


def test_what_is_kept_of_the_last_hits_is_private_and_no_question(home):
    for command in (["search"], ["ask", "--llm", "none"]):
        succeeded(run(home, *command, "canary budesonide", "--name", "papers", *BARE))
        path = home / "cache" / "last-hits.json"
        kept = json.loads(path.read_text())
        assert set(kept) == {"index", "ids"}
        assert kept["index"] == "papers"
        assert kept["ids"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        texts = [file.read_bytes() for file in home.rglob("*") if file.is_file() and "shard" not in file.parts]
        assert not any(b"canary" in text for text in texts)


def test_a_damaged_file_of_last_hits_is_named(home):
    path = home / "cache" / "last-hits.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"index": "papers", "ids": [1], "question": "x"}')
    failed(run(home, "show", 1), 5, "last-hits.json", "delete it")
    path.unlink()
    failed(run(home, "show", "999", "--name", "papers"), 4, "papers", "999", "id, PMID or DOI")
    failed(run(home, "ask", "x", "--name", "papers", "--format", "ris", "--json"), 2, "--json", "--format")


def test_search_and_ask_write_references(home):
    found = ["search", "budesonide", "--name", "papers", *BARE]
    asked = ["ask", "Does budesonide lower exacerbations?", "--answer-anyway", "--name", "papers", *BARE]
    for words, format, part in ((found, "md", "Budesonide in asthma. | O'Byrne PM"), (asked, "ris", "TY  - JOUR")):
        assert part in succeeded(run(home, *words, "--format", format)).stdout


def of_paper(text: str, title: str) -> tuple[Answer, Hit]:
    """Return an extract of one sentence of a paper's page, and its hit."""
    fields = {"authors": ["Hallqvist, Johan", "Roe, Pat"], "year": 2019, "page": 3, "file": "gout.pdf"}
    hit = Hit(1, Snippet("gout.pdf#page=3", title, text, None, fields), 1.5)
    citation = Citation(1, hit.snippet.id, None, title, text, 1.0, location=hit.snippet.location)
    sentence = CheckedSentence(text, Verdict.SUPPORTED, (1,))
    question = Question("q", "Does it?")
    return Answer(question, text=text, hits=(hit,), citations=(citation,), sentences=(sentence,), answerer=EXTRACT), hit


def test_a_source_is_named_by_author_year_and_page_and_its_own_marks_are_not_shown(capsys):
    text = r"\n CONCLUSIONS <b>Colchicine</b> eases gout [1,2], and [18]F shows it (p < 0.05, $\nu > 1$) [3].<br>"
    answer, _ = of_paper(text, "Gout")
    show_answer.answer(answer)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == r"CONCLUSIONS Colchicine eases gout, and [18]F shows it (p < 0.05, $\nu > 1$). [1]"
    assert lines[2] == "[1] Hallqvist J, et al. Gout. 2019; p. 3. gout.pdf"


def test_a_terminal_of_any_width_shows_a_hit_whole(monkeypatch):
    _, hit = of_paper("Text.", "Colchicine " * 20)
    for width in (80, 60, 40):
        console = Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)
        monkeypatch.setattr(show, "out", console)
        show_answer.evidence("colchicine", [hit], quoted=False)
        lines = console.file.getvalue().splitlines()
        assert lines[0].startswith("  1  1.500 Colchicine Colchicine") and max(map(len, lines)) <= width
        shown = " ".join(" ".join(lines).split())
        assert shown.count("Colchicine") == 20
        assert shown.endswith("gout.pdf#page=3 · p. 3 · Hallqvist J, et al. · 2019")
