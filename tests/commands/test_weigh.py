"""`biorag weigh`: the columns in a terminal, as JSON and in its formats; the API, MCP and Python give the same."""

import csv
import io

import pytest

from biorag.api.weighings import FIELDS
from biorag.types import Snippet, Trust
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag
from tests.fakes import ScriptedReader

CLAIM = "Aspirin reduces mortality after stroke."
ARTICLE = {"authors": ["Okafor, Paula M", "Moreau, Anne"], "year": 2018, "type": ["Randomized Controlled Trial"]}
STUDIES = [
    Snippet(
        "for", "Trial A", "We randomly assigned 3849 patients. Aspirin reduced mortality after stroke.", 11, ARTICLE
    ),
    Snippet("against", "Trial B", "Aspirin did not reduce mortality after stroke (HR 1.2, 95% CI 1.1-1.4).", 12),
    Snippet("withdrawn", "Trial C", "Aspirin reduces mortality after stroke.", 13, {"retracted": True}),
    Snippet("other", "Trial D", "Heparin is given under the skin.", 14),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_encoder):
    """A home whose index has both sides of a claim, and needs no encoder to be searched."""
    home = tmp_path_factory.mktemp("weighing")
    succeeded(invoke("index", write_medrag(home / "studies.jsonl", STUDIES), "--encoder", tiny_encoder, home=home))
    return home


def weighed(home, *words):
    return invoke("weigh", CLAIM, "--mode", "bm25", "--no-rerank", "--reader", "none", *words, home=home)


def test_both_sides_are_shown_with_what_they_state(home):
    report = done(weighed(home, "--json"))
    assert list(report) == ["claim", "searched", "counts", "supporting", "opposing", "unsure", "timings_ms"]
    assert report["counts"] == {"supporting": 1, "opposing": 1, "unsure": 0, "silent": 0, "retracted": 1}
    first, withdrawn = report["supporting"]
    assert tuple(first) == FIELDS
    assert (first["author"], first["year"], first["type"]) == ("Okafor PM", 2018, "RCT")
    assert first["participants"]["number"] == 3849
    assert (first["quote"], first["basis"]) == ("Aspirin reduced mortality after stroke.", "quote")
    assert (first["probability"], first["retracted"]) == (1.0, False)
    assert (withdrawn["id"], withdrawn["retracted"]) == ("withdrawn", True)
    (against,) = report["opposing"]
    assert (against["pmid"], against["effect"]) == (12, "HR 1.2, 95% CI 1.1-1.4")


def test_a_terminal_shows_counts_and_quotes_and_leaves_out_what_is_not_stated(home):
    shown = succeeded(weighed(home)).stdout
    assert shown.startswith("1 supporting, 1 opposing, 0 not sure; 0 others; 1 retracted, not counted\n")
    assert shown.index("Supporting: 1") < shown.index("Opposing: 1")
    assert "RETRACTED ARTICLE" in shown
    assert "n: 3,849\n" in shown


def test_the_formats_of_a_weighing(home):
    markdown = succeeded(weighed(home, "--format", "md")).stdout
    assert "## Opposing\n\n- “Aspirin did not reduce mortality after stroke" in markdown
    rows = list(csv.DictReader(io.StringIO(succeeded(weighed(home, "--format", "csv")).stdout)))
    assert [(row["column"], row["pmid"], row["retracted"]) for row in rows] == [
        *(("supporting", "11", ""), ("supporting", "13", "yes"), ("opposing", "12", "")),
    ]


def test_filters_and_what_cannot_be_weighed(home):
    report = done(weighed(home, "--json", "--filter", "not retracted", "--filter", "not pmid=12"))
    assert (report["searched"], report["counts"]["retracted"], report["opposing"]) == (1, 0, [])
    for blank in (" ", "\u200b\u2062", "\x01\ufeff"):
        failed(invoke("weigh", blank, home=home), 2, "the claim is empty")
    failed(weighed(home, "--format", "ris"), 2, "'ris'", "csv")
    failed(weighed(home, "--format", "md", "--json"), 2, "--json and --format")


def test_without_a_trusted_reader_what_comes_near_is_not_sure(home, monkeypatch):
    reader = ScriptedReader(lambda claim, window: (0.7, 0.1), Trust(2, 2, 2, 2))
    monkeypatch.setattr("biorag.engine.load_reader", lambda settings: reader)
    claim = "Where heparin is given, the skin bruises."
    report = done(invoke("weigh", claim, "--mode", "bm25", "--no-rerank", "--json", home=home))
    assert report["counts"] == {"supporting": 0, "opposing": 0, "unsure": 1, "silent": 0, "retracted": 0}
    (study,) = report["unsure"]
    said = [study[name] for name in ("id", "leaning", "probability", "basis")]
    assert said == ["other", None, None, "none"]
    assert study["lacking"] == ["bruises"], "the record has heparin and skin"
    csv_row = invoke("weigh", claim, "--mode", "bm25", "--no-rerank", "--format", "csv", home=home).stdout.splitlines()[
        1
    ]
    assert csv_row.count(",,none,")
    shown = succeeded(invoke("weigh", claim, "--mode", "bm25", "--no-rerank", home=home))
    assert "“Heparin is given under the skin.”\n" in shown.stdout, "nor how surely"
    assert "read by" not in shown.stderr, "nobody trusts it"
    assert shown.stdout.endswith("not mentioned: bruises\n")
    assert "These come near, and none mentions bruises: none states" in " ".join(shown.stderr.split())
    assert shown.stdout.startswith("1 near the claim; ") and "\nNear the claim: 1\n" in shown.stdout


def test_an_answer_names_the_study_that_says_otherwise(home):
    words = (
        "ask",
        "What reduced the mortality of patients after stroke?",
        "--mode",
        "bm25",
        "--no-rerank",
        "--answer-anyway",
    )
    words += ("--reader", "none")
    said = done(invoke(*words, "--json", "--filter", "not pmid=13", home=home))["sentences"]
    (opposed,) = [one for one in said if one["text"].endswith("Aspirin reduced mortality after stroke.")]
    (opposition,) = opposed["otherwise"]
    assert (opposition["id"], opposition["pmid"]) == ("against", 12)
    assert opposition["quote"].startswith("Aspirin did not reduce mortality")
    shown = succeeded(invoke(*words, "--filter", "not pmid=13", home=home)).stdout
    assert "1 study says otherwise than “Aspirin reduced mortality after stroke.”" in shown
    agreeing = done(invoke(*words, "--json", "--filter", "not pmid=12", home=home))["sentences"]
    assert all("otherwise" not in sentence for sentence in agreeing)
