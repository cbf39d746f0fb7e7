"""The command line: JSON on stdout, sentences on stderr, exit codes by real causes."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import socket
import sys
import time
from functools import partial
from html import escape

import pytest
from rich.console import Console

from biorag.cli import main
from biorag.errors import MissingError
from biorag.types import Snippet
from biorag.utils.locks import DirectoryLock
from tests.cli import done, failed, invoke, start, succeeded
from tests.conftest import write_medrag
from tests.fakes import ScriptedGenerator
from tests.loopback import Script

HIT_KEYS = ["rank", "id", "pmid", "title", "content", "score", "metadata", "facts"]
ANSWER_KEYS = {
    "question",
    "options",
    "answer",
    "choice",
    "reasoning",
    "relevant_context",
    "citations",
    "hits",
    "models",
    "timings_ms",
}
CHECKED_KEYS = {"answerer", "abstained", "evidence_probability", "sentences"}
CUTOFFS = (3, 5, 10, 20, 100)
MEASURE_KEYS = {"nDCG@10", "nDCG@20", "MAP@10", "MRR@10"} | {f"{m}@{k}" for m in ("success", "R") for k in CUTOFFS}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads that spin while they wait are many times slower where the cores are shared."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def small_home(tmp_path_factory, snippets, tiny_encoder):
    """A home whose index `default` holds the twelve snippets under the tiny encoder; tests only read it."""
    home = tmp_path_factory.mktemp("small-home")
    corpus = write_medrag(home / "corpus.jsonl", snippets)
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, home=home))
    return home


@pytest.fixture
def run(tmp_path):
    """Run a command in the scratch home, or in `home`."""
    return partial(invoke, home=tmp_path / "home")


@pytest.fixture
def search_small(run, small_home):
    def search(*arguments, **env):
        return done(run("search", *arguments, "--json", home=small_home, **env))

    return search


def refused_by_parser(result, part):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert part in result.stderr
    assert "Traceback" not in result.stderr


def ids(found):
    return [hit["id"] for hit in found["hits"]]


@pytest.fixture
def closed_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture
def scripted(monkeypatch):
    """Put a scripted generator in the real one's place, for `ask` and for `bench mirage`."""
    generator = ScriptedGenerator()
    monkeypatch.setattr("biorag.commands.ask.named_generator", lambda settings: generator)
    monkeypatch.setattr("biorag.commands.bench_mirage.require_generator", lambda settings, at_a_time: generator)
    monkeypatch.setattr("biorag.generators.gguf.GgufSource.sha256", lambda source: "0" * 64)
    return generator


# --- index --------------------------------------------------------------------------------------------------


def test_index_says_what_it_did_and_a_second_run_does_nothing(run, corpus_file, tiny_encoder):
    first = done(run("index", corpus_file, "--name", "mine", "--encoder", tiny_encoder, "--json"))
    assert first.pop("seconds") > 0
    assert first == {
        "name": "mine",
        "added": 12,
        "updated": 0,
        "unchanged": 0,
        "deleted": 0,
        "rejected": 0,
        "duplicates": 0,
        "complete": True,
        "torn": [],
        "snippets": 12,
        "files": {"taken": {"MedRAG or BEIR JSONL": 1}, "left": {}},
    }
    second = done(run("index", corpus_file, "--name", "mine", "--json"))
    assert {key: second[key] for key in ("added", "updated", "unchanged", "snippets")} == {
        "added": 0,
        "updated": 0,
        "unchanged": 12,
        "snippets": 12,
    }


def test_a_second_run_loads_no_encoder(run, corpus_file, tiny_encoder, monkeypatch):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--json"))

    def never(*_):
        raise AssertionError("the encoder was loaded though nothing changed")

    monkeypatch.setattr("biorag.engine.snippet_encoders", never)
    assert done(run("index", corpus_file, "--json"))["unchanged"] == 12


def test_appended_and_changed_snippets_are_brought_in(run, corpus_file, snippets, tiny_encoder, tmp_path):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--json"))
    new = [Snippet(f"n{place}", "New", f"Text {place} on rabies.", 7000 + place) for place in range(3)]
    changed = Snippet("s1", "Warfarin", "Warfarin interacts with cranberry juice.", 1001)
    write_medrag(corpus_file, [snippets[0], changed, *snippets[2:], *new])
    found = done(run("index", corpus_file, "--json"))
    assert [found[key] for key in ("added", "updated", "unchanged", "snippets")] == [3, 1, 11, 15]
    assert ids(done(run("search", "cranberry", "--mode", "bm25", "--no-rerank", "--json"))) == ["s1"]
    assert ids(done(run("search", "recycling", "--mode", "bm25", "--no-rerank", "--json"))) == []


def test_index_reads_files_folders_gzip_and_standard_input(run, snippets, tiny_encoder, tmp_path):
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    write_medrag(folder / "a.jsonl", snippets[:3])
    plain = write_medrag(tmp_path / "b", snippets[3:6])
    (folder / "deep" / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    piped = write_medrag(tmp_path / "c", snippets[6:9]).read_bytes()
    beir = tmp_path / "corpus.jsonl"
    beir.write_text(json.dumps({"_id": "beir", "title": "BEIR", "text": "Rabies is fatal.", "metadata": {"year": 1}}))
    found = done(run("index", folder, "-", beir, "--encoder", tiny_encoder, "--json", input=piped))
    assert found["added"] == found["snippets"] == 10
    sources = done(run("info", "default", "--json"))["sources"]
    assert [(source["name"], source["snippets"]) for source in sources] == [
        (str(folder / "a.jsonl"), 3),
        (str(folder / "deep" / "b.jsonl.gz"), 3),
        ("standard input", 3),
        (str(beir), 1),
    ]


def test_index_without_json_prints_a_table_and_no_json(run, corpus_file, tiny_encoder):
    result = run("index", corpus_file, "--encoder", tiny_encoder)
    assert result.exit_code == 0
    assert "Index default" in result.stdout
    assert ["added", "12"] in [line.replace("│", " ").split() for line in result.stdout.splitlines()]


BAD_LINES = {
    "not JSON": b"{not json",
    "not a JSON object": b'["s"]',
    "no 'id'": b'{"title": "t", "content": "c"}',
    "has no text": b'{"id": "x", "title": "t", "content": " "}',
    "'content' is int, not a string": b'{"id": "x", "content": 3}',
    "PMID 'abc' is not a positive whole number": b'{"id": "x", "content": "c", "PMID": "abc"}',
    "not UTF-8": b'{"id": "x", "content": "\xff"}',
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_stops_before_anything_is_indexed(run, corpus_file, tiny_encoder, reason, tmp_path):
    corpus_file.write_bytes(corpus_file.read_bytes() + BAD_LINES[reason] + b"\n")
    result = run("index", corpus_file, "--encoder", tiny_encoder, "--json")
    failed(result, 3, f"{corpus_file}, line 13: ", reason, "--on-bad-line skip")
    assert done(run("info", "--json"))["indexes"] == []
    assert list((tmp_path / "home").rglob("shard")) == []


def test_a_bad_line_leaves_an_index_as_it_is(run, corpus_file, tiny_encoder, snippets):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--json"))
    before = done(run("info", "default", "--json"))
    changed = Snippet("s1", "Warfarin", "Other text.", 1001)
    write_medrag(corpus_file, [changed])
    corpus_file.write_bytes(corpus_file.read_bytes() + b"{\n")
    failed(run("index", corpus_file, "--json"), 3, "line 2")
    assert done(run("info", "default", "--json")) == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", "line 1: a Git-LFS pointer"),
        (gzip.compress(b'{"id": "a", "content": "text"}\n' * 500, mtime=0)[:-20], "truncated gzip"),
        (b"", "holds no snippet"),
        (b"\n \n", "holds no snippet"),
    ],
)
def test_a_damaged_corpus_is_refused(run, tmp_path, tiny_encoder, content, reason):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    assert reason in failed(run("index", path, "--encoder", tiny_encoder), 3, path)
    assert done(run("info", "--json"))["indexes"] == []


def test_a_truncated_gzip_never_exits_0_and_what_it_has_is_kept(run, tmp_path, tiny_encoder, corpus_file):
    lines = [b'{"id": "z%d", "content": "text %d"}' % (place, place * place) for place in range(500)]
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(lines))[:-200])
    result = run("index", path, corpus_file, "--encoder", tiny_encoder, "--on-bad-line", "skip", "--json")
    assert result.exit_code == 3 and "truncated gzip" in result.stderr and "Traceback" not in result.stderr
    report = json.loads(result.stdout)
    assert report["rejected"] == 1 and 12 < report["snippets"] < 512
    assert report["snippets"] == done(run("info", "default", "--json"))["snippets"]


@pytest.mark.parametrize("named", [False, True])
def test_bad_lines_can_be_skipped_and_are_kept_with_their_reasons(run, corpus_file, tiny_encoder, tmp_path, named):
    good = corpus_file.read_bytes().splitlines()
    corpus_file.write_bytes(b"\n".join([*good[:5], b"{bad", *good[5:], b'{"id": "x"}']) + b"\n")
    where = ["--rejects", tmp_path / "new" / "bad.jsonl"] if named else []
    found = done(run("index", corpus_file, "--encoder", tiny_encoder, "--on-bad-line", "skip", *where, "--json"))
    assert (found["added"], found["rejected"], found["snippets"]) == (12, 2, 12)
    path = tmp_path / "new" / "bad.jsonl" if named else tmp_path / "home" / "indexes" / "default" / "rejects.jsonl"
    rejects = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(reject["file"], reject["line"], reject["text"]) for reject in rejects] == [
        (str(corpus_file), 6, "{bad"),
        (str(corpus_file), 14, '{"id": "x"}'),
    ]
    assert [reject["reason"].split(" (")[0] for reject in rejects] == ["not JSON", "snippet 'x' has no text"]


def test_skipped_lines_are_said_on_stderr(run, corpus_file, tiny_encoder):
    corpus_file.write_bytes(corpus_file.read_bytes() + b"{bad\n")
    result = run("index", corpus_file, "--encoder", tiny_encoder, "--on-bad-line", "skip")
    assert result.exit_code == 0
    assert "1 bad lines were skipped" in " ".join(result.stderr.split())


def test_a_duplicate_id_with_other_text_is_reported_and_the_later_one_wins(run, tmp_path, tiny_encoder):
    rows = [
        Snippet("a", "", "Rabies is rare."),
        Snippet("b", "", "Same text."),
        Snippet("a", "", "Scurvy is rare."),
        Snippet("b", "", "Same text."),
    ]
    path = write_medrag(tmp_path / "twice.jsonl", rows)
    result = run("index", path, "--encoder", tiny_encoder, "--json")
    found = done(result)
    assert (found["added"], found["duplicates"], found["snippets"]) == (2, 2, 2)
    assert "id 'a' appears again with other text" in result.stderr
    assert "'b'" not in result.stderr
    hits = done(run("search", "rare", "--mode", "bm25", "--no-rerank", "--json"))["hits"]
    assert [hit["content"] for hit in hits] == ["Scurvy is rare."]


# --- search -------------------------------------------------------------------------------------------------


def test_search_json_has_the_documented_shape(search_small, snippets):
    found = search_small("vitamin K recycling", "--mode", "bm25", "-k", "3")
    assert list(found) == ["query", "mode", "hits", "timings_ms"]
    assert (found["query"], found["mode"]) == ("vitamin K recycling", "bm25")
    (hit,) = found["hits"]
    assert list(hit) == HIT_KEYS
    assert (hit["rank"], hit["id"], hit["pmid"]) == (1, "s1", 1001)
    assert (hit["title"], hit["content"]) == (snippets[1].title, snippets[1].content)
    assert set(found["timings_ms"]) == {"encode", "first_stage", "fetch", "rerank", "total"}


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
@pytest.mark.parametrize("fusion", ["linear", "rrf"])
@pytest.mark.parametrize("rerank", ["--rerank", "--no-rerank"])
def test_every_mode_gives_ranked_hits(search_small, mode, fusion, rerank):
    found = search_small("warfarin heparin aspirin", "--mode", mode, "--fusion", fusion, rerank, "-k", "3")
    assert found["mode"] == mode
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3]
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    if mode == "bm25":
        assert sorted(ids(found)) == ["s0", "s1", "s2"]
    assert ("rerank" in found["timings_ms"]) == (rerank == "--rerank")


def test_k_and_k_init(search_small):
    assert len(ids(search_small("the blood", "--mode", "dense", "-k", "7", "--k-init", "2"))) == 7
    assert len(ids(search_small("the blood", "--mode", "dense"))) == 5


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("year>=2010", {"s10", "s11"}),
        ("type=Review and year<2004", {"s1", "s3"}),
        ("not type=Review and year>2008", {"s10"}),
        ("pmid=1004", {"s4"}),
        ('title="Aspirin and fever"', {"s0"}),
    ],
)
def test_filters(search_small, condition, expected):
    assert set(ids(search_small("drug", "--mode", "dense", "-k", "12", "--filter", condition))) == expected


def test_filters_given_twice_must_both_hold(search_small):
    found = search_small("drug", "--mode", "dense", "-k", "12", "--filter", "year>=2009", "--filter", "type=Review")
    assert set(ids(found)) == {"s9", "s11"}


def test_pmids_can_be_excluded(search_small):
    everything = {f"s{place}" for place in range(12)}
    found = search_small("drug", "--mode", "dense", "-k", "12", "--exclude-pmid", "1001", "--exclude-pmid", "1003")
    assert set(ids(found)) == everything - {"s1", "s3"}


def test_search_prints_a_table_with_rank_pmid_title_and_score(run, small_home):
    result = run("search", "vitamin K", "--mode", "bm25", "--no-rerank", home=small_home)
    assert result.exit_code == 0
    assert result.stderr == "Index 'default' (the only one)\n"
    cells = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in result.stdout.splitlines()]
    assert ["1", "1001", "Warfarin"] in [cell[:3] for cell in cells]
    assert "Warfarin blocks vitamin K recycling and" in result.stdout


def test_nothing_found_is_said_on_stderr(run, small_home):
    result = run("search", "zebrafish", "--mode", "bm25", home=small_home)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No snippet matches" in result.stderr
    assert done(run("search", "zebrafish", "--mode", "bm25", "--json", home=small_home))["hits"] == []


def test_in_a_terminal_pmids_are_links_and_matched_words_stand_out(monkeypatch, run, small_home):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, color_system="standard", width=100, highlight=False)
    monkeypatch.setattr("biorag.commands.show.out", terminal)
    result = run("search", "vitamin K", "--mode", "bm25", "--no-rerank", home=small_home)
    assert result.exit_code == 0
    assert "https://pubmed.ncbi.nlm.nih.gov/1001/" in screen.getvalue()
    assert "\x1b[33mvitamin\x1b[0m" in screen.getvalue()


HOSTILE = "\x1b]0;owned\x07\x1b[31mRed\x9b2J\u202eabc"


@pytest.fixture(scope="module")
def hostile_home(tmp_path_factory, tiny_encoder):
    home = tmp_path_factory.mktemp("hostile")
    rows = [
        Snippet("id\u202e2J", f"T {HOSTILE}", f"Rabies is fatal {HOSTILE}."),
        Snippet("other", "Other", "Scurvy comes from want of vitamin C."),
    ]
    corpus = write_medrag(home / "corpus.jsonl", rows)
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, home=home))
    return home


def harmless(text):
    return not any(mark in text for mark in ("\x1b", "\x07", "\x9b", "\u202e"))


def test_escape_sequences_of_a_snippet_do_not_reach_the_terminal(run, hostile_home):
    result = run("search", "rabies", "--mode", "bm25", "--no-rerank", home=hostile_home)
    assert result.exit_code == 0
    assert harmless(result.output)
    assert "\ufffd[31mRed" in result.stdout
    found = done(run("search", "rabies", "--mode", "bm25", "--no-rerank", "--json", home=hostile_home))
    assert found["hits"][0]["title"] == f"T {HOSTILE}", "JSON keeps the text as it is, escaped"


def test_escape_sequences_do_not_reach_the_terminal_by_an_answer(run, hostile_home, scripted):
    scripted.replies = [json.dumps({"answer": f"Rabies is fatal {HOSTILE}.", "citations": [1]})]
    result = run("ask", "Is rabies fatal?", "--mode", "bm25", "--no-rerank", home=hostile_home)
    assert result.exit_code == 0
    assert "[1] “" in result.stdout
    assert harmless(result.output)


def test_escape_sequences_do_not_reach_the_terminal_by_a_note(run, hostile_home, scripted):
    scripted.replies = [json.dumps({"answer": "Entirely unrelated words here.", "citations": [1]})]
    result = run("ask", "Is rabies fatal?", "--mode", "bm25", "--no-rerank", home=hostile_home)
    assert result.exit_code == 0
    assert "citation [1] was dropped" in result.stderr
    assert harmless(result.output)


def test_escape_sequences_do_not_reach_the_terminal_by_a_conflict(run, tmp_path, tiny_encoder):
    rows = [Snippet("a\u202e2J", "", "One."), Snippet("a\u202e2J", "", "Two.")]
    result = run("index", write_medrag(tmp_path / "c.jsonl", rows), "--encoder", tiny_encoder)
    assert result.exit_code == 0
    assert "appears again" in result.stderr
    assert harmless(result.output)


def test_half_a_surrogate_in_a_query_is_no_internal_error(run, small_home):
    """As an argument that is not UTF-8 arrives."""
    result = run("search", "rabies \udcff", "--mode", "bm25", "--no-rerank", "--json", home=small_home)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in (0, 2)


# --- ask ----------------------------------------------------------------------------------------------------


def test_ask_json_has_the_documented_shape(run, small_home, scripted):
    reply = {"answer": "Warfarin blocks vitamin K recycling.", "citations": [1]}
    scripted.replies = [json.dumps(reply)]
    found = done(run("ask", "What blocks vitamin K?", "--mode", "bm25", "--json", home=small_home))
    assert set(found) == ANSWER_KEYS | {"notes", "parsed", "option_logprobs", "supplied"} | CHECKED_KEYS
    assert (found["question"], found["options"], found["choice"]) == ("What blocks vitamin K?", {}, None)
    assert found["answer"] == "Warfarin blocks vitamin K recycling."
    (citation,) = found["citations"]
    assert list(citation) == ["n", "id", "pmid", "title", "quote", "score", "metadata"]
    assert (citation["n"], citation["id"], citation["pmid"]) == (1, "s1", 1001)
    assert citation["quote"] == "Warfarin blocks vitamin K recycling and thins the blood."
    assert ids(found)[0] == "s1"
    assert [list(hit) for hit in found["hits"]] == [HIT_KEYS] * len(found["hits"])
    assert found["models"]["generator"] == "scripted"
    assert {"generate", "total"} <= set(found["timings_ms"])


def test_ask_with_options_gives_a_choice(run, small_home, scripted):
    scripted.replies = [
        json.dumps({"step_by_step_thinking": "Document 1.", "relevant_context": "YES", "answer_choice": "B"})
    ]
    options = ["-o", "A=thiamine", "--option", "B=warfarin = coumarin", "-o", "C=folate"]
    found = done(run("ask", "What blocks vitamin K?", *options, "--mode", "bm25", "--json", home=small_home))
    assert found["options"] == {"A": "thiamine", "B": "warfarin = coumarin", "C": "folate"}
    assert (found["choice"], found["answer"], found["relevant_context"]) == ("B", "warfarin = coumarin", "YES")
    assert found["reasoning"] == "Document."  # a mark that no sentence of the evidence bears out
    assert scripted.schemas[0]["properties"]["answer_choice"]["enum"] == ["A", "B", "C"]


def test_ask_without_json_shows_the_answer_then_the_evidence(run, small_home, scripted):
    scripted.replies = [
        json.dumps({"answer": "Warfarin blocks vitamin K recycling. It cures [bold]colds[/bold].", "citations": [1, 9]})
    ]
    result = run("ask", "What blocks vitamin K?", "--mode", "bm25", home=small_home)
    assert result.exit_code == 0
    answer, _, evidence = result.stdout.partition("Evidence")
    assert "1 of 2 sentences supported by [1]" in answer
    assert "Warfarin blocks vitamin K recycling. [1] It cures [bold]colds[/bold]. [unsupported]" in answer
    assert "[1] “Warfarin blocks vitamin K recycling and thins the blood.” PMID 1001" in answer
    assert "1*" in evidence, "a cited snippet is marked"
    assert "note: citation [9] was dropped: there is no document of that number" in result.stderr


def test_a_choice_that_cannot_be_read_is_said(run, small_home, scripted):
    scripted.replies = ["I do not know"]
    arguments = ["ask", "What blocks vitamin K?", "-o", "A=x", "-o", "B=y", "--mode", "bm25"]
    result = run(*arguments, home=small_home)
    assert "the model's reply names no option" in result.stdout
    scripted.replies = ["I do not know"]
    found = done(run(*arguments, "--json", home=small_home))
    assert (found["choice"], found["answer"]) == (None, "")


def test_ask_extracts_where_no_generator_is_named(run, small_home):
    found = done(run("ask", "What blocks vitamin K?", "--mode", "bm25", "--no-rerank", "--json", home=small_home))
    assert found["answer"] == "Warfarin blocks vitamin K recycling and thins the blood. [1]"
    assert (found["answerer"], found["abstained"], found["models"]["generator"]) == ("extract", False, None)
    quote = "Warfarin blocks vitamin K recycling and thins the blood."
    assert found["sentences"] == [
        {"text": quote, "verdict": "supported", "citations": [1], "evidence": [{"id": "s1", "quote": quote}]}
    ]
    result = run("ask", "What blocks vitamin K?", "--mode", "bm25", "--no-rerank", home=small_home)
    assert result.stdout.splitlines()[:2] == [
        "Extract: 1 sentence of the evidence, verbatim",
        "Warfarin blocks vitamin K recycling and thins the blood. [1]",
    ]


def test_ask_with_none_for_a_generator_gives_the_evidence_alone(run, small_home):
    found = done(run("ask", "What blocks vitamin K?", "--llm", "none", "--mode", "bm25", "--json", home=small_home))
    assert (found["answer"], found["choice"], found["citations"]) == ("", None, [])
    assert found["models"]["generator"] is None
    assert ids(found)[0] == "s1"
    assert found["notes"] == ["no generator was asked (--llm none): this is the evidence alone"]


def test_a_prompt_file_takes_the_built_in_ones_place(run, small_home, scripted, tmp_path):
    template = tmp_path / "mine.txt"
    template.write_text("[system]\nBe brief.\n[user]\n{documents}\nQ: {question}\n")
    done(run("ask", "What blocks vitamin K?", "--prompt", template, "--mode", "bm25", "--json", home=small_home))
    assert scripted.prompts[0].system == "Be brief."
    assert scripted.prompts[0].user.endswith("Q: What blocks vitamin K?")


@pytest.mark.slow
def test_ask_keeps_the_starters_reply(run, small_home):
    arguments = [
        "ask",
        "What blocks vitamin K?",
        "--mode",
        "bm25",
        "--llm",
        "starter",
        "-k",
        "1",
        "--max-tokens",
        "5",
        "--json",
    ]

    def asked(*options):
        return done(run(*arguments, *options, home=small_home, BIORAG_THREADS="1"))

    def same(answer):
        left_out = ("timings_ms", "notes")
        return {key: value for key, value in answer.items() if key not in left_out}

    replies = small_home / "cache" / "replies"
    first = asked("--no-cache")
    assert "generate" in first["timings_ms"]
    assert not replies.exists()
    made, kept = asked(), asked()
    assert len(list(replies.rglob("*.json"))) == 1
    assert same(first) == same(made) == same(kept)
    assert "generate" in made["timings_ms"]
    assert "generate" not in kept["timings_ms"]
    assert any("--no-cache" in note for note in kept["notes"])
    assert "generate" in asked("--max-tokens", "6")["timings_ms"]


@pytest.mark.slow
def test_ask_with_the_starter_models(run, demo_home):
    arguments = ["ask", "Which vitamin is given with isoniazid?", "-o", "A=thiamine", "-o", "B=pyridoxine"]
    result = run(*arguments, "--llm", "starter", "--max-tokens", "40", "--json", home=demo_home, BIORAG_THREADS="1")
    found = done(result)
    assert "135M starter generator, which is not a medical model" in result.stderr
    assert found["choice"] in ("A", "B")
    assert found["relevant_context"] in ("YES", "NOT")
    assert ids(found)[0] == "demo_044"
    assert len(ids(found)) == 5
    texts = {hit["id"]: f"{hit['title']}. {hit['content']}" for hit in found["hits"]}
    assert all(citation["quote"] in texts[citation["id"]] for citation in found["citations"])
    assert found["models"] == {
        "encoder": "all-MiniLM-L6-v2",
        "reranker": "encoder",
        "generator": "SmolLM2-135M-Instruct.Q4_1",
    }


@pytest.mark.slow
def test_search_with_the_starter_encoder(run, demo_home):
    found = done(run("search", "isoniazid neuropathy", "--json", home=demo_home))
    assert found["mode"] == "hybrid"
    assert ids(found)[0] == "demo_044"
    assert len(ids(found)) == 5


# --- info, models, doctor -----------------------------------------------------------------------------------


def test_info_of_an_index_is_its_manifest(run, small_home, tiny_encoder, snippets):
    found = done(run("info", "default", "--json", home=small_home))
    assert (found["name"], found["format"], found["snippets"], found["complete"]) == ("default", 1, 12, True)
    assert found["encoder"]["id"] == str(tiny_encoder)
    assert (found["encoder"]["dimension"], len(found["encoder"]["sha256"])) == (32, 64)
    assert (found["similarity"], found["quantized"]) == ("cosine", False)
    assert found["bm25"]["k"] == 0.9
    (source,) = found["sources"]
    assert (source["name"], source["snippets"]) == (str(small_home / "corpus.jsonl"), 12)
    table = run("info", "default", home=small_home)
    assert (table.exit_code, "Index default" in table.stdout, "corpus.jsonl" in table.stdout) == (0, True, True)


def test_info_lists_the_indexes(run, small_home):
    found = done(run("info", "--json", home=small_home))
    assert found["home"] == str(small_home)
    assert [(index["name"], index["snippets"]) for index in found["indexes"]] == [("default", 12)]
    assert "default" in run("info", home=small_home).stdout


def test_info_without_indexes_says_how_to_make_one(run):
    result = run("info")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "biorag index demo" in " ".join(result.stderr.split())
    assert done(run("info", "--json"))["indexes"] == []


def test_settings_are_listed_without_secrets(run):
    secrets = {"QDRANT_API_KEY": "hush-qdrant", "BIORAG_LLM_API_KEY": "hush-llm"}
    as_json, table = run("info", "--settings", "--json", **secrets), run("info", "--settings", **secrets)
    found = done(as_json)
    assert (found["k_init"], found["k"], found["lambda"], found["mode"]) == (20, 5, 0.03, "hybrid")
    assert table.exit_code == 0
    assert "k_init" in table.stdout
    assert not any(secret in result.output for secret in secrets.values() for result in (as_json, table))


def test_models_lists_the_starters(run):
    found = done(run("models", "--json"))
    assert [(model["name"], model["role"]) for model in found][:2] == [
        ("starter (all-MiniLM-L6-v2)", "encoder"),
        ("starter (SmolLM2-135M-Instruct)", "generator"),
    ]
    assert "all-MiniLM-L6-v2" in run("models").stdout


@pytest.mark.slow
def test_doctor_finds_everything_well(run):
    found = done(run("doctor", "--json", BIORAG_THREADS="1"))
    assert found["ok"] is True
    assert {check["name"] for check in found["checks"]} >= {"home", "starter encoder", "a question, end to end"}
    assert all(check["ok"] for check in found["checks"])
    assert "Isoniazid neuropathy and pyridoxine" in found["checks"][-1]["detail"]


def test_doctor_names_what_fails_and_goes_on(run, tmp_path, monkeypatch):
    def broken(settings):
        raise MissingError("no question today")

    monkeypatch.setattr("biorag.diagnosis._question", broken)
    broken_index = tmp_path / "home" / "indexes" / "broken"
    broken_index.mkdir(parents=True)
    (broken_index / "manifest.json").write_text("{")
    result = run("doctor", "--json")
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    assert found["ok"] is False
    wrong = {check["name"]: check["detail"] for check in found["checks"] if not check["ok"]}
    assert set(wrong) == {"indexes", "a question, end to end"}
    assert "manifest.json is damaged" in wrong["indexes"]
    table = run("doctor")
    assert (table.exit_code, "FAILS" in table.stdout) == (4, True)


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "biorag")
    assert result.stdout.split()[1][0].isdigit()


# --- bench retrieval ----------------------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "tiny"
    (folder / "qrels").mkdir(parents=True)
    queries = {"q1": "aspirin fever", "q2": "vitamin K recycling", "q3": "zebrafish"}
    rows = [json.dumps({"_id": id, "text": text}) for id, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(rows))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ts0\t1\nq2\ts5\t1\nq3\ts1\t1\n")
    return folder


def test_bench_retrieval(run, small_home, dataset, tmp_path):
    arguments = ["bench", "retrieval", dataset, "--mode", "bm25", "--no-rerank"]
    files = ["--run-file", tmp_path / "r" / "run.trec", "--per-question", tmp_path / "r" / "questions.jsonl"]
    found = done(run(*arguments, *files, "--json", home=small_home, QDRANT_API_KEY="hush"))
    assert set(found) == {"dataset", "questions", "judged", "config", "metrics", "timings_ms"}
    assert (found["dataset"], found["questions"]) == ("tiny", 3)
    assert set(found["metrics"]) == MEASURE_KEYS
    assert found["metrics"]["MRR@10"] == found["metrics"]["success@3"] == pytest.approx(1 / 3, abs=1e-6)
    assert (found["config"]["mode"], found["config"]["rerank"], found["config"]["lambda"]) == ("bm25", False, 0.03)
    assert "hush" not in json.dumps(found)
    assert set(found["timings_ms"]["total"]) == {"mean", "p50", "p95"}
    assert (tmp_path / "r" / "run.trec").read_text().splitlines()[0].split()[:4] == ["q1", "Q0", "s0", "1"]
    questions = [json.loads(line) for line in (tmp_path / "r" / "questions.jsonl").read_text().splitlines()]
    assert [row["metrics"]["MRR@10"] for row in questions] == [1.0, 0.0, 0.0]
    table = run(*arguments, home=small_home)
    assert (table.exit_code, "nDCG@10" in table.stdout, "tiny: 3 questions" in table.stdout) == (0, True, True)


def test_bench_retrieval_says_what_the_index_lacks(run, small_home, dataset):
    arguments = ["bench", "retrieval", dataset, "--mode", "bm25", "--no-rerank", "--json"]
    file = dataset / "qrels" / "test.tsv"
    file.write_text(file.read_text() + "q1\telsewhere\t1\n")
    lacking = run(*arguments, home=small_home)
    assert done(lacking)["judged"] == {"in_index": 3, "missing": 1}
    assert "lacks 1 of 4 judged snippets" in lacking.stderr
    file.write_text(file.read_text() + "".join(f"q1\telsewhere{n}\t1\n" for n in range(40)))
    failed(run(*arguments, home=small_home), 3, "holds 3 of 44 judged snippets", "--name")


def test_bench_retrieval_refuses_a_bad_dataset(run, small_home, dataset):
    failed(run("bench", "retrieval", dataset / "no", "--json", home=small_home), 4, dataset / "no" / "queries.jsonl")
    (dataset / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n{}\n')
    failed(run("bench", "retrieval", dataset, "--json", home=small_home), 3, dataset / "queries.jsonl", "line 2")


# --- bench mirage -------------------------------------------------------------------------------------------


@pytest.fixture
def mirage(run, small_home, scripted, tmp_path):
    def mirage(*arguments, out="out"):
        fixed = ["bench", "mirage", "--benchmark", "demo", "--out", tmp_path / out]
        return run(*fixed, *arguments, home=small_home)

    return mirage


def test_bench_mirage_writes_files_and_reports(mirage, scripted, tmp_path):
    found = done(mirage("--limit", "2", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--json"))
    assert set(found) == {"tasks", "average", "config", "manifest"}
    assert list(found["tasks"]) == ["mmlu", "medmcqa"]
    for score in found["tasks"].values():
        assert set(score) == {"n", "accuracy", "std", "strict_accuracy", "parsed", "forced_A"}
        assert (score["n"], score["parsed"], score["forced_A"]) == (2, 1.0, 0)
    assert found["average"] == sum(score["accuracy"] for score in found["tasks"].values()) / 2
    assert (found["config"]["mode"], found["config"]["answer"], found["config"]["k"]) == ("bm25", "generate", 5)
    assert (found["manifest"]["answered"], found["manifest"]["resumed"]) == (4, 0)
    assert found["manifest"]["generator"] == {"name": "scripted", "sha256": "0" * 64}
    assert found["manifest"]["index"]["snippets"] == 12
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8")) == found
    written = {path.relative_to(tmp_path / "out").parts[:-1] for path in (tmp_path / "out").rglob("*_demo-*.json")}
    assert {len(parts) for parts in written} == {5}
    assert {parts[0] for parts in written} == {"mmlu", "medmcqa"}
    assert {parts[1:4] for parts in written} == {("rag_5", "scripted", "default")}
    splits = {path.name.split("_")[0] for path in (tmp_path / "out" / "medmcqa").rglob("*.json")}
    assert splits == {"dev"}

    again = done(mirage("--limit", "3", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--json"))
    assert (again["manifest"]["answered"], again["manifest"]["resumed"]) == (2, 4)
    assert len(scripted.prompts) == 6


def test_what_became_of_each_question_is_kept_and_shown(mirage, run, tmp_path):
    found = done(mirage("--limit", "2", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--json"))
    rows = [json.loads(line) for line in (tmp_path / "out" / "questions.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    for task, score in found["tasks"].items():
        mine = [row for row in rows if row["task"] == task]
        assert sum(row["right"] for row in mine) / 2 == score["accuracy"]
        assert all(row["right"] == (row["choice"] == row["gold"]) for row in mine)
        ranks = [[hit["rank"] for hit in row["evidence"]] for row in mine]
        assert ranks == [list(range(1, len(found) + 1)) for found in ranks]
    wrong = {row["id"] for row in rows if not row["right"]}
    shown = done(run("bench", "show", tmp_path / "out", "--wrong", "--json"))
    assert {row["id"] for row in shown["questions"]} == wrong
    page = tmp_path / "page.html"
    assert run("bench", "show", tmp_path / "out", "--html", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert all(escape(row["question"]) in text or json.dumps(row["question"])[1:-1] in text for row in rows)
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_bench_mirage_closed_book(mirage, scripted, tmp_path):
    found = done(mirage("--limit", "1", "--mode", "none", "--json"))
    assert found["config"]["mode"] == "none"
    assert found["manifest"]["index"] is None
    assert len(list((tmp_path / "out").glob("*/cot/scripted/*_demo-*.json"))) == 5
    assert not any("<document" in prompt.user for prompt in scripted.prompts)


def test_bench_mirage_closed_book_needs_no_index(run, scripted, tmp_path):
    found = done(
        run(
            "bench",
            "mirage",
            "--benchmark",
            "demo",
            "--limit",
            "1",
            "--mode",
            "none",
            "--out",
            tmp_path / "o",
            "--json",
        )
    )
    assert found["manifest"]["answered"] == 5


def test_bench_mirage_by_scoring(mirage, scripted, tmp_path):
    scripted.logprobs = {"A": -9.0, "B": -0.5}
    found = done(mirage("--limit", "2", "--task", "bioasq", "--answer", "score", "--mode", "bm25", "--json"))
    assert found["config"]["answer"] == "score"
    assert found["tasks"]["bioasq"]["parsed"] == 1.0
    (first, *_) = sorted((tmp_path / "out" / "bioasq").rglob("test_*.json"))
    assert json.loads(json.loads(first.read_text())[0])["answer_choice"] == "B"


def test_bench_mirage_asks_a_server_several_questions_at_a_time(run, small_home, tmp_path):
    def later(body):
        time.sleep(0.02)
        return json.dumps({"step_by_step_thinking": "x", "relevant_context": "YES", "answer_choice": "A"})

    script = Script()
    script.rule = later
    fixed = ["bench", "mirage", "--benchmark", "demo", "--mode", "bm25", "--llm", script.url, "--llm-model", "m"]

    def reported(out, *options):
        script.most = 0
        return done(run(*fixed, *options, "--out", tmp_path / out, "--json", home=small_home))

    try:
        default, one = reported("default", "--no-cache"), reported("one", "--no-cache", "--concurrency", "1")
        assert script.most == 1
        assert one["manifest"]["cached"] == 0
        assert default["tasks"] == one["tasks"]
        reported("seven", "--concurrency", "7")
        assert 1 < script.most <= 7
        asked = len(script.asked)
        kept = reported("kept")
        assert kept["manifest"]["cached"] == kept["manifest"]["answered"] == sum(t["n"] for t in kept["tasks"].values())
        assert len(script.asked) == asked
        assert kept["config"] == one["config"], "neither setting changes what is found"
        resumed = reported("one", "--concurrency", "3", "--cache")
        assert (resumed["manifest"]["answered"], resumed["tasks"]) == (0, one["tasks"])
    finally:
        script.close()
    refused_by_config = run(*fixed, "--concurrency", "0", "--out", tmp_path / "none", home=small_home)
    failed(refused_by_config, 2, "--concurrency 0")


def test_bench_mirage_in_the_folder_of_another_run_is_refused(mirage):
    done(mirage("--limit", "1", "--mode", "bm25", "--json"))
    failed(mirage("--limit", "1", "--mode", "bm25", "-k", "3", "--json"), 5, "other settings", "--out")
    failed(mirage("--limit", "1", "--mode", "bm25", "--answer", "score", "--json"), 5, "other answer")
    failed(mirage("--limit", "1", "--mode", "bm25", "--exclude-source", "--json"), 5, "other exclude_source")


def test_bench_mirage_compares_with_another_run(mirage, scripted, tmp_path):
    base = ["--limit", "2", "--answer", "score", "--mode", "bm25"]
    done(mirage(*base, "--json", out="one"))
    scripted.logprobs = {"B": 0.0}
    found = done(mirage(*base, "--compare", tmp_path / "one", "--json", out="two"))
    one = json.loads((tmp_path / "one" / "report.json").read_text())
    comparison = found["comparison"]
    assert comparison["questions"] == 10
    assert comparison["difference"] == pytest.approx(found["average"] - one["average"])
    assert comparison["low"] <= comparison["difference"] <= comparison["high"]
    table = mirage(*base, "--compare", tmp_path / "one", out="two")
    assert "Against the other run:" in table.stdout


def test_bench_mirage_prints_a_table(mirage):
    result = mirage("--limit", "1", "--mode", "bm25")
    assert result.exit_code == 0
    assert "MIRAGE, average accuracy" in result.stdout
    assert all(task in result.stdout for task in ("medqa", "medmcqa", "pubmedqa", "bioasq", "mmlu"))
    assert "5 answered now, 0 before" in " ".join(result.stderr.split())


def test_bench_mirage_refuses_bad_input(mirage, run, small_home, tmp_path):
    failed(mirage("--task", "nope"), 2, "unknown task 'nope'", "bioasq, medmcqa, medqa, mmlu, pubmedqa")
    failed(mirage("--answer", "guess"), 2, "'guess'", "generate, score")
    refused_by_parser(mirage("--limit", "0"), "--limit")
    missing = ["bench", "mirage", "--benchmark", tmp_path / "no.json", "--out", tmp_path / "o"]
    failed(run(*missing, home=small_home), 4, tmp_path / "no.json", "'demo'")
    bad = tmp_path / "bad.json"
    bad.write_text('{"medqa": {"q1": {"question": "?", "options": {"A": "a", "B": "b"}, "answer": "C"}}}')
    refused = run("bench", "mirage", "--benchmark", bad, "--out", tmp_path / "o", home=small_home)
    failed(refused, 3, "task medqa, question q1", "'C'")
    assert not (tmp_path / "o").exists()


def test_bench_mirage_needs_a_generator(run, small_home, tmp_path):
    arguments = ["bench", "mirage", "--benchmark", "demo", "--llm", "none", "--mode", "bm25", "--out", tmp_path / "o"]
    failed(run(*arguments, home=small_home), 2, "needs a generator", "--llm")


# --- exit code 2: wrong usage -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["search", "x", "--mode", "best"], ["--mode 'best'", "bm25, dense or hybrid"]),
        (["search", "x", "--mode", "none"], ["--mode 'none'"]),
        (["search", "x", "--fusion", "sum"], ["--fusion 'sum'", "linear, rrf or exact"]),
        (["search", "x", "-k", "0"], ["--k 0", "greater than or equal to 1"]),
        (["search", "x", "--k-init", "-1"], ["--k-init -1"]),
        (["search", "x", "--lambda", "-0.1"], ["--lambda -0.1"]),
        (["search", "x", "--name", "../x"], ["--name '../x'"]),
        (["search", "x", "--qdrant", "localhost:6333"], ["--qdrant 'localhost:6333'", "http://localhost:6333"]),
        (["search", ""], ["query is empty"]),
        (["search", " \t "], ["query is empty"]),
        (["ask", ""], ["query is empty"]),
        (["search", "x", "--filter", "year>"], ["filter 'year>'"]),
        (["search", "x", "--filter", "year>=new"], ["'new'", "not a number"]),
        (["search", "x", "--filter", "a=1 b=2"], ['expected "and" before', "b=2"]),
        (["ask", "x", "--option", "A"], ["option 'A' cannot be read", "A=thiamine"]),
        (["ask", "x", "--option", "a=x", "--option", "B=y"], ["option 'a=x'"]),
        (["ask", "x", "--option", "AB=x", "--option", "B=y"], ["option 'AB=x'"]),
        (["ask", "x", "--option", "A= ", "--option", "B=y"], ["option 'A= '"]),
        (["ask", "x", "--option", "A=x", "--option", "A=y"], ["option A is given twice"]),
        (["ask", "x", "--option", "A=x"], ["at least two options"]),
        (["index", "demo", "--on-bad-line", "ignore"], ["'ignore'", "skip, stop"]),
        (["index", "demo", "--similarity", "euclid"], ["--similarity 'euclid'"]),
        (["index", "demo", "--batch-size", "0"], ["--batch-size 0"]),
        (["index", "demo", "--precision", "int8"], ["--precision 'int8'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage(run, small_home, arguments, parts):
    failed(run(*arguments, home=small_home), 2, *parts)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["serch", "x"], "serch"),
        (["search"], "QUERY"),
        (["search", "x", "--nope"], "--nope"),
        (["search", "x", "-k", "many"], "--k 'many': "),
        (["bench", "latensy"], "latensy"),
        (["index"], "CORPUS"),
        (["bench", "mirage", "--benchmark", "demo"], "--out"),
    ],
)
def test_what_the_parser_refuses(run, arguments, part):
    result = run(*arguments)
    assert part.lower() in result.stderr.lower()
    refused_by_parser(result, "")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("k_inti = 3", ["unknown setting 'k_inti'", "biorag info --settings"]),
        ("k_init = 0", ["k_init=0"]),
        ("k_init = 'many'", ["k_init='many'"]),
        ("mode = 3", ["mode=3"]),
        ("[retrieval]\nk = 3", ["unknown setting 'retrieval'"]),
        ("k_init", ["is not valid TOML"]),
    ],
)
def test_a_bad_configuration_file_is_named(run, tmp_path, text, parts):
    file = tmp_path / "other.toml"
    file.write_text(text)
    failed(run("--config", file, "info"), 2, file, *parts)


def test_a_bad_variable_is_named(run):
    failed(run("info", BIORAG_K="many"), 2, "k='many'", "the environment")


# --- exit code 3: bad input (more under index, bench) -------------------------------------------------------


def test_a_folder_without_a_corpus_is_bad_input(run, tmp_path):
    (tmp_path / "empty").mkdir()
    failed(run("index", tmp_path / "empty"), 3, tmp_path / "empty", ".jsonl")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Be brief.", "[system]"),
        ("[system]\nx\n[user]\n{documents}", "{question}"),
        ("[system]\nx\n[user]\n{question} {answer}", "{answer}"),
        ("[system]\nx\n[user]\n{question} {", "{{ and }}"),
    ],
)
def test_a_bad_prompt_file_is_bad_input(run, small_home, scripted, tmp_path, text, part):
    path = tmp_path / "prompt.txt"
    path.write_text(text)
    failed(run("ask", "aspirin", "--prompt", path, "--mode", "bm25", "--json", home=small_home), 3, path, part)


# --- exit code 4: not there ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["search", "x"], ["ask", "x"], ["bench", "retrieval"]], ids=lambda c: c[0])
def test_a_missing_index_is_named_with_those_there_are(run, small_home, command, dataset):
    arguments = [*command, *([dataset] if command[0] == "bench" else []), "--name", "other"]
    sentence = failed(run(*arguments, home=small_home), 4, "index 'other' is not there (there are default)")
    assert "biorag index CORPUS --name other" in sentence
    failed(run(*arguments), 4, "index 'other' is not there (there is none yet)")


def test_info_of_a_missing_index(run, small_home):
    failed(run("info", "other", "--json", home=small_home), 4, "index 'other'", "default")


def test_other_missing_things(run, small_home, tmp_path):
    failed(run("index", tmp_path / "no.jsonl"), 4, tmp_path / "no.jsonl", "'demo'")
    failed(run("index", "demo", "--encoder", tmp_path / "no-model"), 4, tmp_path / "no-model")
    failed(run("--config", tmp_path / "no.toml", "info"), 4, tmp_path / "no.toml")
    bm25 = ["--mode", "bm25", "--no-rerank"]
    failed(run("ask", "aspirin", *bm25, "--llm", tmp_path / "no.gguf", home=small_home), 4, tmp_path / "no.gguf")
    failed(run("ask", "aspirin", *bm25, "--llm", "hf:no/such/file.gguf", home=small_home), 4, "hf:no/such/file.gguf")
    failed(
        run("search", "aspirin", "--mode", "bm25", "--reranker", tmp_path / "no", home=small_home), 4, tmp_path / "no"
    )
    assert done(run("info", "--json"))["indexes"] == []


def test_a_missing_prompt_file(run, small_home, scripted, tmp_path):
    path = tmp_path / "no.txt"
    failed(run("ask", "aspirin", "--prompt", path, "--mode", "bm25", home=small_home), 4, path)


def test_a_model_without_safetensors_is_not_loaded(run, tmp_path, corpus_file):
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    failed(run("index", corpus_file, "--encoder", tmp_path / "pickled"), 4, tmp_path / "pickled", ".safetensors")


def test_an_index_whose_data_is_gone(run, small_home, tmp_path):
    folder = tmp_path / "home" / "indexes" / "default"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes((small_home / "indexes" / "default" / "manifest.json").read_bytes())
    failed(run("search", "x", "--mode", "bm25", "--no-rerank"), 4, "has lost", "index the corpus again")


# --- exit code 5: does not fit ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_encoder(tmp_path_factory):
    """Another tiny encoder of the same dimension."""
    from sentence_transformers import SentenceTransformer

    from tests.conftest import _tiny_bert

    folder = tmp_path_factory.mktemp("other-models")
    _tiny_bert(folder / "bert", seed=2)
    SentenceTransformer(str(folder / "bert"), device="cpu").save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.mark.parametrize(
    "command",
    [["index", "demo", "--name", "default"], ["search", "x"], ["ask", "x", "--llm", "none"]],
    ids=lambda c: c[0],
)
def test_an_index_is_not_opened_with_another_encoder(run, small_home, other_encoder, command):
    before = done(run("info", "default", "--json", home=small_home))
    result = run(*command, "--encoder", other_encoder, home=small_home)
    failed(result, 5, "index 'default' was made with encoder", other_encoder, "--name")
    assert done(run("info", "default", "--json", home=small_home)) == before


def test_the_starter_index_is_not_opened_with_another_encoder(run, demo_home, tiny_encoder):
    for command in (["index", "demo"], ["search", "x", "--mode", "bm25", "--no-rerank"]):
        failed(run(*command, "--encoder", tiny_encoder, home=demo_home), 5, "'all-MiniLM-L6-v2'", tiny_encoder)


def test_an_encoder_whose_weights_changed_is_noticed(run, corpus_file, other_encoder, tiny_encoder, tmp_path):

    folder = shutil.copytree(tiny_encoder, tmp_path / "encoder")
    done(run("index", corpus_file, "--encoder", folder, "--json"))
    shutil.copy(other_encoder / "model.safetensors", folder / "model.safetensors")
    failed(run("search", "x"), 5, "was made with encoder", folder)


def test_an_index_keeps_its_similarity(run, small_home, corpus_file):
    failed(run("index", corpus_file, "--similarity", "dot", home=small_home), 5, "cosine similarity, not dot")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"format": 99}, "is of format 99, this biorag reads 1"),
        ({"format": None}, "is of format None"),
        ({"encoder": {"id": "x"}}, "is damaged"),
        ({"sources": [{}]}, "is damaged"),
        ({"bm25": None}, "is damaged"),
        ({"unknown": 1}, "is damaged"),
        (None, "is damaged"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [["search", "x"], ["index", "demo", "--name", "default"], ["info", "default"], ["info"]],
    ids=" ".join,
)
def test_a_manifest_of_another_version_or_a_damaged_one_is_refused(run, small_home, tmp_path, change, part, command):
    values = json.loads((small_home / "indexes" / "default" / "manifest.json").read_text())
    path = tmp_path / "home" / "indexes" / "default" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text("{" if change is None else json.dumps({**values, **change}))
    before = path.read_bytes()
    failed(run(*command, "--json"), 5, path, part, "index the corpus again")
    assert path.read_bytes() == before


def test_an_index_is_not_looked_for_in_another_store(run, small_home, closed_port):
    result = run("search", "x", "--qdrant", f"http://127.0.0.1:{closed_port}", home=small_home)
    failed(result, 5, "lies in the embedded store")


# --- exit code 6: failed or busy ----------------------------------------------------------------------------


def test_a_generator_server_that_does_not_answer(run, small_home, closed_port, monkeypatch):
    url = f"http://127.0.0.1:{closed_port}"
    result = run("ask", "aspirin", "--mode", "bm25", "--no-rerank", "--llm", url, "--json", home=small_home)
    failed(result, 6, url, "check --llm")


@pytest.mark.parametrize("command", [["search", "x"], ["index", "demo"], ["info", "default"]], ids=lambda c: c[0])
def test_a_qdrant_server_that_does_not_answer(run, closed_port, command):
    result = run(*command, "--qdrant", f"http://127.0.0.1:{closed_port}", "--json")
    failed(result, 6, f"Qdrant server at http://127.0.0.1:{closed_port} failed", "6 times", "check --qdrant")


def test_an_index_that_is_being_written_is_busy(run, corpus_file, tiny_encoder, tmp_path):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--json"))
    lock = DirectoryLock(tmp_path / "home" / "indexes" / "default", exclusive=True)
    try:
        failed(run("index", corpus_file, "--json"), 6, "index 'default' is being written by process", "try again")
        failed(run("search", "x", "--mode", "bm25", "--no-rerank"), 6, "is being written by process")
    finally:
        lock.release()
    assert done(run("index", corpus_file, "--json"))["unchanged"] == 12


def test_an_index_that_is_being_read_can_be_read_but_not_written(run, corpus_file, tiny_encoder, tmp_path):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--json"))
    lock = DirectoryLock(tmp_path / "home" / "indexes" / "default", exclusive=False)
    try:
        assert ids(done(run("search", "heparin", "--mode", "bm25", "--no-rerank", "--json"))) == ["s2"]
        failed(run("index", corpus_file, "--json"), 6, "is being read by another biorag process")
    finally:
        lock.release()


# --- settings -----------------------------------------------------------------------------------------------


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(run, search_small, small_home, tmp_path):
    file = tmp_path / "biorag.toml"
    file.write_text('mode = "bm25"\nk = 2\nrerank = false\n')

    def mode_and_k(*flags, config=(), **env):
        found = done(run(*config, "search", "aspirin warfarin heparin", *flags, "--json", home=small_home, **env))
        return found["mode"], len(found["hits"])

    config = ["--config", file]
    assert mode_and_k() == ("hybrid", 5)
    assert mode_and_k(config=config) == ("bm25", 2)
    assert mode_and_k(config=config, BIORAG_K="1") == ("bm25", 1)
    assert mode_and_k("-k", "3", config=config, BIORAG_K="1") == ("bm25", 3)
    assert mode_and_k("--mode", "dense", config=config, BIORAG_MODE="hybrid") == ("dense", 2)


def test_a_flag_goes_before_a_variable_for_lambda_too(run, small_home, dataset, tmp_path):
    """Its parameter cannot have the setting's name, which is a keyword of Python."""
    file = tmp_path / "biorag.toml"
    file.write_text("lambda = 0.25\n")
    arguments = ["--config", file, "bench", "retrieval", dataset, "--mode", "bm25", "--no-rerank", "--json"]
    assert done(run(*arguments, home=small_home))["config"]["lambda"] == 0.25
    assert done(run(*arguments, home=small_home, BIORAG_LAMBDA="0.5"))["config"]["lambda"] == 0.5
    flagged = run(*arguments, "--lambda", "0.75", home=small_home, BIORAG_LAMBDA="0.5")
    assert done(flagged)["config"]["lambda"] == 0.75


# --- interrupts, bugs, tracebacks ---------------------------------------------------------------------------


def raising(error):
    def step(*_, **__):
        raise error

    return step


def test_an_interrupt_ends_with_130_and_one_sentence(run, small_home, monkeypatch):
    monkeypatch.setattr("biorag.retrieval.retriever.Retriever.search", raising(KeyboardInterrupt()))
    failed(run("search", "x", "--mode", "bm25", "--no-rerank", home=small_home), 130, "interrupted")


def test_an_interrupted_index_run_goes_on(run, corpus_file, tiny_encoder, monkeypatch):
    from biorag.indexes.edge import EdgeIndex

    upsert, calls = EdgeIndex.upsert, []

    def third_time_interrupted(self, *given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        upsert(self, *given)

    arguments = ["index", corpus_file, "--encoder", tiny_encoder, "--batch-size", "4", "--json"]
    with monkeypatch.context() as patch:
        patch.setattr(EdgeIndex, "upsert", third_time_interrupted)
        failed(run(*arguments), 130, "interrupted")
    assert done(run("info", "default", "--json"))["complete"] is False
    incomplete = run("search", "aspirin", "--mode", "bm25", "--no-rerank", "--json")
    assert ids(done(incomplete)) == ["s0"]
    assert "incomplete" in incomplete.stderr
    found = done(run(*arguments))
    assert [found[key] for key in ("added", "unchanged", "snippets")] == [4, 8, 12]
    assert done(run("info", "default", "--json"))["complete"] is True


def call_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["biorag", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_a_bug_is_one_sentence_and_exit_code_1(monkeypatch, small_home, capsys):
    monkeypatch.setenv("BIORAG_HOME", str(small_home))
    monkeypatch.setattr("biorag.retrieval.retriever.Retriever.search", raising(RuntimeError("boom")))
    assert call_main(monkeypatch, "search", "x", "--mode", "bm25", "--no-rerank", "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    index, error = captured.err.splitlines()
    assert index == "Index 'default' (the only one)"
    assert error.startswith("error: internal error (RuntimeError: boom): run again as 'biorag --debug")


def test_a_bug_shows_its_traceback_with_debug(monkeypatch, small_home):
    monkeypatch.setenv("BIORAG_HOME", str(small_home))
    monkeypatch.setattr("biorag.retrieval.retriever.Retriever.search", raising(RuntimeError("boom")))
    monkeypatch.setattr(sys, "argv", ["biorag", "--debug", "search", "x", "--mode", "bm25", "--no-rerank"])
    with pytest.raises(RuntimeError, match="boom"):
        main()


def test_main_ends_with_the_code_of_the_error(monkeypatch, capsys):
    assert call_main(monkeypatch, "info", "nothing") == 4
    assert capsys.readouterr().err.startswith("error: index 'nothing' is not there")
    monkeypatch.setattr("biorag.commands.info._show_indexes", raising(KeyboardInterrupt()))
    assert call_main(monkeypatch, "info") == 130


@pytest.mark.models
@pytest.mark.parametrize("debug", [False, True])
def test_a_traceback_is_shown_with_debug_alone(debug, tmp_path):
    arguments = [*(["--debug"] if debug else []), "info", "nothing"]
    with start(*arguments, home=tmp_path) as process:
        ended = process.communicate()
    assert ended.stdout == ""
    assert "index 'nothing' is not there" in ended.stderr
    assert ("Traceback (most recent call last)" in ended.stderr) is debug
    assert ended.code in ((1, 4) if debug else (4,))


# --- stored token vectors, and the estimate


def searched(run, *options) -> list[tuple[str, float]]:
    found = done(run("search", "aspirin for fever in the liver", "--json", "-k", 8, *options))
    return [(hit["id"], hit["score"]) for hit in found["hits"]]


def test_stored_token_vectors_rank_as_those_encoded_anew(run, corpus_file, snippets, tiny_encoder, tmp_path):
    anew = write_medrag(tmp_path / "more.jsonl", [Snippet("new", "Aspirin", "Aspirin and the liver.", 77)])
    for name, flags in (("fresh", ["--no-store-tokens"]), ("full", ["--store-tokens", "full"]), ("compact", [])):
        done(run("index", corpus_file, "--name", name, "--encoder", tiny_encoder, *flags, "--json"))
        done(run("index", anew, "--name", name, "--json"))  # what comes later has token vectors too
    fresh = searched(run, "--name", "fresh")
    for name, precision in (("full", 2e-3), ("compact", 0.03)):
        stored = dict(searched(run, "--name", name))
        assert stored == pytest.approx(dict(fresh), abs=precision)
        tokens = done(run("info", name, "--json"))["tokens"]
        assert (tokens["reranker"], tokens["dimension"], tokens["pooling"]) == ("encoder", 32, 1)
    assert done(run("info", "fresh", "--json"))["tokens"] is None


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], "compact"),
        (["--store-tokens"], "compact"),
        (["--store-tokens", "compact"], "compact"),
        (["--store-tokens=full"], "full"),
        (["--store-tokens", "none"], None),
        (["--no-store-tokens"], None),
    ],
)
def test_what_is_kept_of_token_vectors(run, corpus_file, tiny_encoder, options, kept):
    done(run("index", *options, corpus_file, "--encoder", tiny_encoder, "--json"))
    tokens = done(run("info", "default", "--json"))["tokens"]
    assert (tokens and tokens.get("kept", "full")) == kept
    assert len(searched(run)) == 8


def test_two_options_for_token_vectors_exclude_each_other(run, corpus_file):
    failed(run("index", corpus_file, "--store-tokens", "--no-store-tokens"), 2, "exclude each other")
    failed(run("index", corpus_file, "--store-tokens=half"), 2, "--store-tokens 'half'")


@pytest.mark.slow
def test_a_later_run_keeps_the_projection_of_the_first(run, tmp_path):
    """The second run has another corpus, to which another projection would be fitted."""
    texts = ["Aspirin lowers fever.", "Warfarin thins the blood.", "Metformin lowers glucose in the liver."]
    rows = [Snippet(f"s{number}", "", text, number + 1) for number, text in enumerate(texts)]
    first, second = (write_medrag(tmp_path / f"{len(part)}.jsonl", part) for part in (rows[:1], rows[1:]))
    home = tmp_path / "home" / "indexes" / "default" / "manifest.json"
    done(run("index", first, "--json"))
    before = json.loads(home.read_text())["tokens"]
    done(run("index", second, "--json"))
    assert json.loads(home.read_text())["tokens"] == before
    assert (before["dimension"], before["kept"]) == (128, "compact")
    shown = done(run("info", "default", "--json"))["tokens"]
    assert len(shown["projection"]) == 64, "its hash"
    found = done(run("search", "Does aspirin lower fever?", "--json", "-k", 3))
    assert found["hits"][0]["id"] == "s0"


def test_pooled_token_vectors_take_less_room(run, corpus_file, tiny_encoder):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--token-pooling", 3, "--json"))
    assert done(run("info", "default", "--json"))["tokens"]["pooling"] == 3
    assert len(searched(run)) == 8


def test_token_vectors_cannot_be_added_to_an_index(run, corpus_file, tiny_encoder):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--no-store-tokens", "--json"))
    failed(run("index", corpus_file, "--store-tokens"), 5, "was made with none", "--name")
    stored = run("search", "aspirin", "--json", BIORAG_STORE_TOKENS="1")
    assert done(stored)["hits"], "what a new index is to store is no matter of searching"


def test_stored_token_vectors_stay_as_they_were_made(run, corpus_file, tiny_encoder):
    done(run("index", corpus_file, "--encoder", tiny_encoder, "--store-tokens", "--token-pooling", 2, "--json"))
    again = run("index", corpus_file, "--store-tokens", "--token-pooling", 3)
    failed(again, 5, "--token-pooling 2: leave --store-tokens out")
    assert done(run("index", corpus_file, "--json"))["unchanged"] == 12


@pytest.mark.parametrize("flags", [["--token-pooling", 2], ["--reranker", "encoder"]], ids=lambda flags: flags[0])
def test_what_is_stored_cannot_be_said_without_storing_it(run, corpus_file, tiny_encoder, flags):
    arguments = ["index", corpus_file, "--encoder", tiny_encoder, "--no-store-tokens"]
    failed(run(*arguments, *flags), 2, "this index stores none")


def test_a_reranker_that_is_not_there_stops_before_the_corpus_is_read(run, tiny_encoder, tmp_path):
    arguments = ["--encoder", tiny_encoder, "--store-tokens", "--reranker", "/no/such/model"]
    failed(run("index", tmp_path / "never-read.jsonl", *arguments), 4, "/no/such/model")


def test_an_estimate_leaves_a_rejects_file_alone(run, corpus_file, tiny_encoder, tmp_path):
    with corpus_file.open("a") as stream:
        stream.write("{no JSON\n")
    arguments = ["index", corpus_file, "--encoder", tiny_encoder, "--on-bad-line", "skip"]
    done(run(*arguments, "--json"))
    rejects = tmp_path / "home" / "indexes" / "default" / "rejects.jsonl"
    before = rejects.read_bytes()
    done(run(*arguments, "--estimate", "--json"))
    assert rejects.read_bytes() == before


def test_an_estimate_tells_what_it_would_take_and_writes_nothing(run, corpus_file, tiny_encoder):
    arguments = ["index", corpus_file, "--encoder", tiny_encoder, "--estimate", "--json"]
    plain = done(run(*arguments, "--no-store-tokens"))
    assert (plain["name"], plain["snippets"], plain["sample"]) == ("default", 12, 12)
    assert plain["seconds"] >= 0, "rounded"
    assert plain["bytes"] == 12 * plain["bytes_per_snippet"]
    assert plain["memory_bytes"] > 12 * 4 * 32
    compact, full = (done(run(*arguments, "--store-tokens", kept))["bytes_per_snippet"] for kept in ("compact", "full"))
    assert full > plain["bytes_per_snippet"] + 2 * 32 * 4, "token vectors in half precision"
    assert full - plain["bytes_per_snippet"] == pytest.approx(4 * (compact - plain["bytes_per_snippet"]), abs=4)
    failed(run("info", "default"), 4, "there is none yet")
    shown = run("index", corpus_file, "--encoder", tiny_encoder, "--estimate")
    assert "bytes a snippet" in shown.output
