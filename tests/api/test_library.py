"""biorag from Python: the same as the command line gives, for many questions and from many threads."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import biorag
from biorag.api import session
from biorag.api.answer_text import verdict_line
from biorag.api.results import AnswerResult, SearchResult
from biorag.api.session import Session, options_of
from biorag.errors import MissingError, UsageError
from biorag.faces.chat.conversation import NEAR
from biorag.settings.settings import Settings
from biorag.types import LABELS, Answer, CheckedSentence, Hit, Question, Snippet, Verdict

QUESTION = "Why is pyridoxine given with isoniazid?"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def demo(demo_home, monkeypatch):
    """The packaged corpus, open."""
    monkeypatch.setenv("BIORAG_HOME", str(demo_home))
    with biorag.open("default") as index:
        yield index


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as JSON has it."""
    timeless = {name: value for name, value in document.items() if name != "timings_ms"}
    return json.loads(json.dumps(timeless))


@pytest.mark.slow
def test_a_question_may_have_settings_of_its_own(demo):
    ids = [hit.snippet.id for hit in demo.search("isoniazid neuropathy", k=3)]
    by_words = demo.search("isoniazid neuropathy", k=3, mode="bm25", rerank=False)
    assert (len(ids), len(by_words), by_words.to_json()["mode"]) == (3, 3, "bm25")
    assert "rerank" in demo.search("isoniazid").timings_ms and "rerank" not in by_words.timings_ms
    assert [hit.snippet.id for hit in demo.search("isoniazid neuropathy", k=3)] == ids, "later questions are as before"
    without = demo.search("isoniazid neuropathy", k=3, filter="not id:demo_044")
    assert "demo_044" in ids and "demo_044" not in [hit.snippet.id for hit in without]
    assert demo.nearness("thanks") < NEAR < demo.nearness("high blood pressure")
    assert demo.nearness("prolactinoma") is None
    withheld = demo.ask("How is a carburettor cleaned?")
    assert withheld.abstained and not withheld.supported and withheld.evidence_probability is not None
    assert not demo.ask("How is a carburettor cleaned?", answer_anyway=True).abstained


@pytest.mark.slow
def test_threads_get_what_one_caller_gets(demo):
    questions = [QUESTION, "How does metformin lower blood glucose?", "Which drug reverses heparin?"] * 4
    alone = [without_times(demo.ask(question).to_json()) for question in questions[:3]]
    with ThreadPoolExecutor(8) as threads:
        together = [without_times(answer.to_json()) for answer in threads.map(demo.ask, questions)]
    for answer, expected in zip(together, alone * 4, strict=True):
        assert answer.keys() == expected.keys()
        assert answer["evidence_probability"] == pytest.approx(expected["evidence_probability"], abs=1e-4)
        for hit, same in zip(answer["hits"], expected["hits"], strict=True):
            assert (hit["id"], hit["score"]) == (same["id"], pytest.approx(same["score"], abs=1e-4))
        assert (answer["answer"], answer["sentences"]) == (expected["answer"], expected["sentences"])


@pytest.mark.slow
def test_mistakes_are_sentences(demo, demo_home, tmp_path, monkeypatch):
    for asked, message in [
        (lambda: demo.search(" "), "is empty"),
        (lambda: demo.search("x", mode="hybird"), "did you mean hybrid"),
        (lambda: demo.search("x", filter="yeer>2000"), "'yeer'"),
        (lambda: demo.ask("x", options={"A": "alone"}), "two options"),
        (lambda: demo.search("x").to("docx"), "'docx'"),
        (lambda: biorag.open("default", modee="bm25"), "'modee'"),
        (lambda: biorag.index(), "files or folders"),
    ]:
        with pytest.raises(UsageError, match=message):
            asked()
    with pytest.raises(MissingError, match="no snippet 'nothing'"):
        demo.show("nothing")
    with biorag.open("default", mode="bm25", rerank=False) as words_alone:
        with pytest.raises(UsageError, match="without its encoder"):
            words_alone.search("isoniazid", mode="dense")
        with pytest.raises(UsageError, match="without reranking"):
            words_alone.search("isoniazid", rerank=True)
    with pytest.raises(MissingError, match="'nowhere'"):
        biorag.open("nowhere")


def test_a_closed_index_says_so(small_home, monkeypatch):
    monkeypatch.setenv("BIORAG_HOME", str(small_home))
    index = biorag.open("default", mode="bm25", rerank=False)
    assert repr(index.search("vitamin K recycling", k=1)).splitlines()[0] == "<1 hits for 'vitamin K recycling'>"
    index.close()
    for use in (lambda: index.search("x"), index.info, lambda: index.show("s1")):
        with pytest.raises(UsageError, match="index 'default' is closed: open it again"):
            use()


def test_importing_the_package_loads_no_library():
    code = "import biorag, sys; print(sorted({'numpy', 'torch', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        biorag.opne  # noqa: B018


HITS = (
    Hit(1, Snippet("s1", f"Title {HOSTILE}", f"Text {HOSTILE}", 7, {"year": 2020, "journal": HOSTILE}), 0.5),
    Hit(2, Snippet("s2", "", "Untitled."), 0.25),
)


def test_hits_are_a_sequence_and_a_table():
    result = SearchResult(HOSTILE, "hybrid", HITS, {"total": 1.0})
    assert (len(result), result[0], list(result), result[1:]) == (2, HITS[0], list(HITS), HITS[1:])
    frame = result.to_pandas()
    assert frame.to_dict("list") | {"pmid": None, "year": None, "journal": None} == {
        "rank": [1, 2],
        "score": [0.5, 0.25],
        "id": ["s1", "s2"],
        "title": [f"Title {HOSTILE}", ""],
        "content": [f"Text {HOSTILE}", "Untitled."],
        "pmid": None,
        "year": None,
        "journal": None,
    }
    assert frame["pmid"].tolist()[0] == 7 and frame["year"].tolist()[0] == 2020
    assert list(SearchResult("q", "bm25", (), {}).to_pandas().columns)[:3] == ["rank", "score", "id"]
    page = result._repr_markdown_()
    assert HOSTILE not in page and "\\<script\\>" in page
    assert "[PMID 7](<https://pubmed.ncbi.nlm.nih.gov/7/>)" in page


@pytest.mark.parametrize(
    ("verdict", "basis", "probabilities", "mark", "line"),
    [
        ("supported", "reader", (0.96, 0.01, 0.03), "", "Supported"),
        ("supported", "reader", (0.83, 0.02, 0.15), " [supported, 83 %]", "Supported"),
        ("supported", "quote", (0.83, 0.02, 0.15), "", "Stated"),
        ("supported", "quote", (), "", "Stated"),
        ("unsupported", "reader", (0.2, 0.18, 0.62), " [unsupported, 62 %]", "Unsupported"),
        ("unsupported", "none", (), " [not stated in these words]", "Not stated in these words"),
        ("contradicted", "reader", (0, 0.7, 0.3), " [contradicted, 70 %]", "Contradicted"),
        ("contradicted", "quote", (), " [differs]", "Differs"),
        (
            "unsure",
            "reader",
            (0.55, 0.05, 0.4),
            " [not sure: 55 % supported]",
            "Not sure whether the evidence says this",
        ),
        (
            "unsure",
            "reader",
            (0.05, 0.55, 0.4),
            " [not sure: 55 % contradicted]",
            "Not sure whether the evidence says this",
        ),
        ("unsure", "reader", (), " [not sure]", "Not sure whether the evidence says this"),
    ],
)
def test_a_mark_says_what_is_established_and_how_likely_a_reader_thinks_it(verdict, basis, probabilities, mark, line):
    probability = dict(zip(LABELS, probabilities, strict=False))
    difference = {"difference": "12 %, not 21 %"} if mark == " [differs]" else {}
    sentence = CheckedSentence("It does.", Verdict(verdict), probability=probability, basis=basis, **difference)
    answer = AnswerResult(Question("ask", "?"), text="It does.", sentences=(sentence,))
    assert str(answer) == f"It does.{mark}"
    assert verdict_line(answer).text == line
    (written,) = answer.to_json()["sentences"]
    assert written == {"text": "It does.", "verdict": verdict, "citations": [], "evidence": [], "basis": basis} | (
        difference | ({"probability": probability} if probability else {})
    )
    both = replace(answer, sentences=(sentence, CheckedSentence("So.", Verdict.SUPPORTED, (1,))))
    assert (", 1 not sure" in verdict_line(both).text) == (verdict == "unsure")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["A"], "option 'A' cannot be read"),
        (["AB=x", "B=y"], "'AB=x'"),
        (["A= ", "B=y"], "'A= '"),
        (["A=x", "A=y"], "A is given twice"),
        (["A=x"], "at least two options"),
        (["A=\udcff", "B=y"], "not UTF-8"),
    ],
)
def test_options_that_cannot_be_read(options, part):
    with pytest.raises(UsageError, match=part):
        options_of(options)


@pytest.mark.parametrize("name", biorag.__all__)
def test_what_is_exported_is_documented(name):
    page = Path(__file__).resolve().parents[2] / "docs" / "python.md"
    assert getattr(biorag, name).__doc__ and f"{name}" in page.read_text(encoding="utf-8")


def test_a_session_loads_models_when_it_needs_them_and_verifies_by_id_and_pmid(small_home, monkeypatch):
    settings, loaded = Settings.of(home=small_home, name="default", mode="bm25", rerank=False, reader="none"), []
    load = session.load_models
    monkeypatch.setattr(session, "load_models", lambda *parts: loaded.append(parts) or load(*parts))
    claim = "Warfarin blocks vitamin K recycling and thins the blood."
    with Session(settings) as opened:
        assert opened.show(1001)[0].id == "s1"
        assert [opened.verify(claim, snippet=name).verdict for name in ("s1", "1001", "s2")] == [
            *("supported", "supported", "unsupported")
        ]
        assert loaded == [], "no model is needed to read an index"
        alone = [opened.verify(claim), opened.verify(claim, snippet="1001"), opened.verify("Bananas ripen.")]
        claims = [(claim, None), (claim, "1001"), ("Bananas ripen.", ""), (claim, "no")]
        assert opened.verify_all(claims)[:3] == alone
        opened.search("heparin")
    assert len(loaded) == 1


def test_of_a_choice_the_option_counts_and_not_the_reasoning():
    option, reason = CheckedSentence("Zinc", Verdict.SUPPORTED), CheckedSentence("So.", Verdict.CONTRADICTED)
    answer = Answer(Question("q", "Which?", {"A": "Zinc"}), choice="A", sentences=(option, reason))
    assert AnswerResult.of(answer, {}).supported
    assert not AnswerResult.of(replace(answer, sentences=(reason, option)), {}).supported
