"""`biorag search` and `biorag ask`: JSON on stdout, sentences on stderr, exit codes by real causes."""

from __future__ import annotations

import json
from functools import partial

import pytest

from biorag.types import Trust
from tests.cli import done, failed, invoke, succeeded
from tests.fakes import ScriptedGenerator, ScriptedReader

HIT_KEYS = ["rank", "id", "pmid", "title", "content", "score", "metadata", "facts"]
ANSWER_KEYS = {"question", "options", "answer", "choice", "reasoning", "relevant_context", "citations", "hits"}
CHECKED_KEYS = {
    *("kind", "short_answer", "items", "models", "answerer", "certainty", "abstained", "evidence_probability"),
    *("sentences", "timings_ms"),
}
BM25 = ("--mode", "bm25", "--no-rerank")
BLOCKED, BLOCKS = "What blocks vitamin K?", "Warfarin blocks vitamin K recycling and thins the blood."


@pytest.fixture
def run(tmp_path):
    """Run a command in the scratch home, or in `home`."""
    return partial(invoke, home=tmp_path / "home")


@pytest.fixture
def search_small(run, small_home):
    def search(*arguments, **env):
        return done(run("search", *arguments, "--json", home=small_home, **env))

    return search


def ids(found):
    return [hit["id"] for hit in found["hits"]]


@pytest.fixture
def ask(run, small_home):
    """Ask a question of which no answer is withheld, by the words of the evidence alone."""
    words = ("ask", *BM25, "--answer-anyway", "--reader", "none")
    return lambda *more: succeeded(run(*words, *more, home=small_home))


@pytest.fixture
def scripted(monkeypatch):
    """Put a scripted generator in the starter's place."""
    generator = ScriptedGenerator()
    monkeypatch.setattr("biorag.api.session.load_generator", lambda settings, at_a_time: generator)
    monkeypatch.setenv("BIORAG_LLM", "starter")
    return generator


# --- search ---


def test_search_json_has_the_documented_shape(search_small, snippets):
    found = search_small("vitamin K recycling", "--mode", "bm25", "-k", "3")
    assert list(found) == ["query", "mode", "hits", "timings_ms"]
    assert (found["query"], found["mode"]) == ("vitamin K recycling", "bm25")
    (hit,) = found["hits"]
    assert list(hit) == HIT_KEYS
    assert (hit["rank"], hit["id"], hit["pmid"]) == (1, "s1", 1001)
    assert (hit["title"], hit["content"]) == (snippets[1].title, snippets[1].content)
    assert set(found["timings_ms"]) == {"encode", "first_stage", "fetch", "rerank", "total"}


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            "type=Reviw",
            """no snippet has type="Reviw", as --filter asks (did you mean "Review"?); 'biorag indexes show""",
        ),
        (
            "year=2005 and type=Letter",
            'has type="Letter", as --filter asks: the commonest values are "Review", "Trial"',
        ),
        ('year="2005"', "(did you mean 2005?)"),
        ("year~2005", "(did you mean year=2005?)"),
        ("year:2001-2005", "(did you mean year>=2001 and year<=2005?)"),
        (
            "title:Warfarin and title:fever",
            'no snippet has title="fever" as a whole, as --filter asks: write title~"fever"',
        ),
    ],
)
def test_a_text_that_no_snippet_has_is_named_with_the_nearest_one(run, small_home, condition, message):
    assert message in failed(run("search", "drug", "--filter", condition, home=small_home), 2)


def test_a_question_of_which_the_filter_leaves_nothing_says_so(run, small_home):
    answer = done(
        run("ask", "What does warfarin block?", "--filter", "year>=2023 and year<=2010", "--json", home=small_home)
    )
    assert answer["notes"] == ["no snippet meets the filter: widen it, or leave it out"]
    searched = run("search", "warfarin", "--filter", "year>=2030", home=small_home)
    assert "No snippet meets the filter and matches" in searched.stderr


def test_search_prints_a_line_a_hit_where_there_is_no_terminal(run, small_home):
    result = run("search", "vitamin K", "--mode", "bm25", "--no-rerank", home=small_home)
    assert result.exit_code == 0
    assert result.stderr == "Index 'default' (the only one)\n"
    title, columns, hit = [line.split("\t") for line in result.stdout.splitlines()]
    assert (title, columns) == (["# Evidence"], ["#", "Source", "Score", "Title", "Reference", "Sentence"])
    assert [*hit[:2], hit[3], hit[5]] == [
        *("1", "1001", "Warfarin"),
        "Warfarin blocks vitamin K recycling and thins the blood.",
    ]


# --- ask ---


def test_ask_json_has_the_documented_shape(ask, scripted):
    scripted.replies = [json.dumps({"answer": BLOCKS, "citations": [1]})]
    found = done(ask(BLOCKED, "--json"))
    assert set(found) == ANSWER_KEYS | {"notes", "parsed", "option_logprobs", "supplied"} | CHECKED_KEYS
    assert (found["question"], found["options"], found["choice"]) == (BLOCKED, {}, None)
    assert found["answer"] == BLOCKS
    (citation,) = found["citations"]
    assert list(citation) == ["n", "id", "pmid", "title", "quote", "score", "metadata"]
    assert (citation["n"], citation["id"], citation["pmid"], citation["quote"]) == (1, "s1", 1001, BLOCKS)
    assert (found["kind"], found["short_answer"], found["items"]) == ("factoid", "", [])
    assert (found["certainty"], found["evidence_probability"]) == (None, None), "what is answered anyway"
    assert ids(found)[0] == "s1"
    assert [list(hit) for hit in found["hits"]] == [HIT_KEYS] * len(found["hits"])
    assert found["models"]["generator"] == "scripted"
    assert {"generate", "total"} <= set(found["timings_ms"])


def test_ask_without_json_shows_the_answer_then_the_evidence(ask, scripted):
    scripted.replies = [json.dumps({"answer": f"{BLOCKS} It cures [bold]colds[/bold].", "citations": [1, 9]})]
    result = ask(BLOCKED)
    answer, _, evidence = result.stdout.partition("Evidence")
    assert "1 of 2 sentences stated by [1]" in answer
    assert f"{BLOCKS} [1] It cures [bold]colds[/bold]. [not stated in these words]" in answer
    assert f"[1] “{BLOCKS}” Warfarin. 2001. PMID 1001" in answer
    assert "1*" in evidence, "a cited snippet is marked"
    assert "note: citation [9] was dropped: there is no document of that number" in result.stderr


@pytest.mark.parametrize(
    ("text", "withheld"),
    [
        ("I do not know.", True),
        ("The documents do not say which enzyme it blocks.", True),
        ("There is no information on this in the documents.", True),
        ("This cannot be answered from the context.", True),
        ("I do not know. Warfarin blocks vitamin K recycling.", False),
        ("There is no evidence that it blocks anything.", False),
        ("No evidence supports this; warfarin thins the blood. It does so by vitamin K.", False),
    ],
)
def test_a_model_that_does_not_know_withholds_the_answer(ask, scripted, text, withheld):
    scripted.replies = [json.dumps({"answer": text, "citations": [1]})]
    found = done(ask(BLOCKED, "--json"))
    assert (found["abstained"], found["certainty"]) == (withheld, "nothing" if withheld else None)
    assert ("nothing that answers" in found["answer"]) == withheld


def test_ask_extracts_where_no_generator_is_named(ask):
    found = done(ask(BLOCKED, "--json"))
    assert found["answer"] == f"{BLOCKS} [1]"
    assert (found["answerer"], found["abstained"], found["models"]["generator"]) == ("extract", False, None)
    evidence = [{"id": "s1", "quote": BLOCKS}]
    assert found["sentences"] == [
        {"text": BLOCKS, "verdict": "supported", "citations": [1], "evidence": evidence, "basis": "quote"}
    ]
    shown = ask(BLOCKED).stdout.splitlines()
    assert shown[:2] == ["Extract: 1 sentence of the evidence, verbatim", f"{BLOCKS} [1]"]


def test_a_question_is_asked_in_the_words_of_the_evidence(ask, tmp_path):
    typed = "What does Coumadin do to vitamin K recycling?"
    found = done(ask(typed, "--json"))
    assert found["question"] == typed and found["answer"] == f"{BLOCKS} [1]"
    assert "searched for: What does warfarin do to vitamin K recycling?" in found["notes"]
    plain = done(ask(typed, "--json", "--vocabulary", "none"))
    assert not any("searched for" in note for note in plain["notes"])
    table = tmp_path / "words.tsv"
    table.write_text("my blood medicine\twarfarin\n", encoding="utf-8")
    found = done(ask("How does my blood medicine act on vitamin K?", "--json", "--vocabulary", str(table)))
    assert "searched for: How does warfarin act on vitamin K?" in found["notes"]


def test_no_yes_or_no_is_said_without_a_trusted_reader(run, small_home, monkeypatch):
    words = ("ask", "Does warfarin block vitamin K recycling?", *BM25, "--answer-anyway")
    for trusted_from, lead in ((2.0, ""), (0.5, "Yes. ")):
        reader = ScriptedReader(lambda claim, window: (0.9, 0.05, 0.9), Trust(polar=trusted_from), tells_answers=True)
        monkeypatch.setattr("biorag.engine.load_reader", lambda settings, reader=reader: reader)
        found = done(run(*words, "--json", home=small_home))
        assert (found["kind"], found["short_answer"]) == ("yesno", lead.lower().rstrip(". "))
        assert f"\n{lead}{BLOCKS} [1]\n" in succeeded(run(*words, home=small_home)).stdout
        assert ("read by scripted" in found["notes"]) == bool(lead)


# --- what ends a command, and its exit code ---


def test_a_missing_index_is_named_with_those_there_are(run, small_home):
    sentence = failed(run("ask", "x", "--name", "other", home=small_home), 4, "index 'other'", "there are default")
    assert "biorag index CORPUS --name other" in sentence
    failed(run("search", "x", "--name", "other"), 4, "index 'other'", "there is none yet")


def test_an_index_whose_data_is_gone(run, small_home, tmp_path):
    folder = tmp_path / "home" / "indexes" / "default"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes((small_home / "indexes" / "default" / "manifest.json").read_bytes())
    failed(run("search", "x", "--mode", "bm25", "--no-rerank"), 4, "has lost", "index the corpus again")


@pytest.fixture(scope="module")
def other_encoder(tmp_path_factory):
    """Another tiny encoder of the same dimension."""
    from sentence_transformers import SentenceTransformer

    from tests.conftest import _tiny_bert

    folder = tmp_path_factory.mktemp("other-models")
    _tiny_bert(folder / "bert", seed=2)
    SentenceTransformer(str(folder / "bert"), device="cpu").save(str(folder / "encoder"))
    return folder / "encoder"


def test_an_index_is_not_opened_with_another_encoder(run, small_home, other_encoder):
    before = done(run("info", "default", "--json", home=small_home))
    for command in (["index", "demo", "--name", "default"], ["search", "x"]):
        result = run(*command, "--encoder", other_encoder, home=small_home)
        failed(result, 5, "index 'default' was made with encoder", other_encoder, "--name")
    assert done(run("info", "default", "--json", home=small_home)) == before


def test_a_retracted_article_that_held_the_answer_is_named(run, tiny_encoder, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    rows = [
        {
            "id": "p1",
            "title": "Curcumol cures gout",
            "content": "Curcumol cures gout in a week.",
            "PMID": 77,
            "retracted": True,
        },
        {"id": "p2", "title": "Malaria", "content": "Mosquitoes transmit malaria."},
    ]
    corpus.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done(run("index", str(corpus), "--name", "mine", "--encoder", tiny_encoder, "--json"))
    asked = "ask", "Does curcumol cure gout?", "--name", "mine", "--answer-anyway", "--json"
    notes = done(run(*asked))["notes"]
    assert (
        "left out, since retracted: Curcumol cures gout (PMID 77) (--include-retracted takes them as evidence)" in notes
    )
    assert not any("retracted" in note for note in done(run(*asked, "--include-retracted"))["notes"])
