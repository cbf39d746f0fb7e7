"""`biorag verify`: one claim by search or by a snippet, and files of claims that resume."""

import gzip
import json

import pytest

from biorag.answering.guards.checker import Checker
from biorag.api.session import Session
from biorag.faces.mcp_server.tools import Tools
from biorag.faces.session_pool import SessionPool
from biorag.settings.settings import Settings
from biorag.types import CheckedSentence, Verdict
from tests.cli import done, failed, invoke, succeeded
from tests.loopback import Script

CLAIM = "A vitamin is used up."  # in other words than the evidence


@pytest.fixture(scope="module")
def bm25(demo_home):
    """A home whose index needs no encoder to be searched."""
    return demo_home


def verify(home, *arguments):
    return invoke("verify", *arguments, "--mode", "bm25", "--no-rerank", "--reader", "none", home=home)


@pytest.fixture(scope="module")
def snippet(bm25):
    hits = done(invoke("search", "isoniazid pyridoxine", "--mode", "bm25", "--no-rerank", "--json", home=bm25))["hits"]
    return hits[0]


def sentence_of(snippet) -> str:
    return snippet["content"].split(". ")[0].rstrip(".") + "."


def test_a_claim_by_one_snippet_and_what_a_terminal_shows(bm25, snippet):
    shown = succeeded(verify(bm25, sentence_of(snippet), "--snippet", snippet["id"])).stdout
    assert shown.startswith(f"Stated by [1]\n[1] “{sentence_of(snippet)}” ")
    unsupported = succeeded(verify(bm25, "Bananas ripen in the dark.", "--snippet", snippet["id"]))
    assert unsupported.stdout.startswith("Not stated in these words\nNear: “")
    assert "or name a --reader" in unsupported.stderr


def test_what_comes_near_an_unstated_claim_says_what_of_it_is_lacking(bm25):
    claim = "Intravenous alteplase is given in Canberra within 12 hours of stroke."
    result = done(verify(bm25, claim, "--json"))
    assert (result["verdict"], result["nearest"]) == ("unsupported", result["near"][0])
    assert result["nearest"]["lacking"] == ["Canberra", "12 hours"] and "4.5 hours" in result["nearest"]["quote"]
    assert " not mentioned: Canberra, 12 hours\n" in succeeded(verify(bm25, claim)).stdout
    (near, *_) = done(verify(bm25, "β-carotene did protect smokers in large randomised trials.", "--json"))["near"]
    assert (near["lacking"], near["denies"]) == ([], "not")
    (near, *_) = done(verify(bm25, "Alteplase does not improve disabling stroke after onset.", "--json"))["near"]
    assert ("not" in near["lacking"], near["denies"]) == (True, "")


def test_fail_unsupported_exits_with_seven(bm25, snippet):
    assert verify(bm25, sentence_of(snippet), "--fail-unsupported").exit_code == 0
    result = verify(bm25, "Bananas ripen in the dark.", "--fail-unsupported", "--json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (7, "unsupported")


def test_a_file_of_claims_resumes_and_gives_the_verdicts_of_single_claims(bm25, snippet, tmp_path):
    rows = [
        {"id": "a", "claim": sentence_of(snippet)},
        {"id": "b", "claim": sentence_of(snippet), "snippet": "no such snippet"},
        {"id": "c", "claim": sentence_of(snippet), "snippet": snippet["id"]},
        {"id": "d", "claim": "Bananas ripen in the dark."},
    ]
    claims, out = tmp_path / "claims.jsonl.gz", tmp_path / "verdicts.jsonl"
    claims.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    arguments = ("--claims", claims, "--out", out, "--json")
    counts = {"out": str(out), "claims": 4, "supported": 2, "unsupported": 2, "contradicted": 0, "unsure": 0}
    assert done(verify(bm25, *arguments)) == counts
    whole = out.read_bytes()
    verdicts = [json.loads(line) for line in whole.splitlines()]
    assert [(row["id"], row["verdict"]) for row in verdicts] == [
        ("a", "supported"),
        ("b", "unsupported"),
        ("c", "supported"),
        ("d", "unsupported"),
    ]
    assert verdicts[0] == {"id": "a"} | done(verify(bm25, rows[0]["claim"], "--json"))
    assert done(verify(bm25, *arguments)) == counts, "a finished file is left as it is"
    # As a kill leaves it: an incomplete manifest and a torn line.
    manifest = out.with_name("verdicts.jsonl.manifest.json")
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({"complete": False, "identity": values["identity"]}))
    out.write_bytes(whole[: len(whole) // 2])
    assert done(verify(bm25, *arguments)) == counts
    assert out.read_bytes() == whole
    claims.write_bytes(gzip.compress(b'{"id": "z", "claim": "Another claim."}\n'))
    failed(verify(bm25, *arguments), 5, str(out), "claims")
    claims.write_bytes(claims.read_bytes()[:-9])
    failed(verify(bm25, *arguments), 3, claims, "damaged or truncated gzip (its end is missing): fetch the file again")
    failed(verify(bm25, "Zinc heals.", "Iron heals."), 2, "(Iron heals.); it takes CLAIM, in quotation marks")


def test_claims_beside_their_texts_need_no_index(bm25, snippet, tmp_path):
    rows = [
        {"id": "a", "claim": "Isoniazid causes neuropathy [<|cit|>].", "sentences": ["Isoniazid causes neuropathy."]},
        {"id": "b", "claim": "Isoniazid causes neuropathy.", "title": "Walking", "sentences": ["It improves sleep."]},
        {"id": "c", "claim": "Isoniazid does not cause neuropathy.", "sentences": ["Isoniazid causes neuropathy."]},
    ]
    claims, out = tmp_path / "claims.jsonl", tmp_path / "verdicts.jsonl"
    claims.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("--claims", claims, "--json", "--out")
    counts = {"out": str(out), "claims": 3, "supported": 1, "unsupported": 1, "contradicted": 1, "unsure": 0}
    assert done(verify(tmp_path / "no home", *arguments, out)) == counts
    verdicts = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert verdicts[0] == {
        "id": "a",
        "claim": "Isoniazid causes neuropathy.",
        "verdict": "supported",
        "evidence": [{"id": "a", "pmid": None, "quote": "Isoniazid causes neuropathy.", "verdict": "supported"}],
        "basis": "quote",
    }
    assert [(row["verdict"], row["basis"]) for row in verdicts[1:]] == [
        ("unsupported", "none"),
        ("contradicted", "quote"),
    ]
    assert verdicts[2]["difference"] == "this without “not”"
    with claims.open("a") as stream:  # one without a text: the others are judged as before, beside an index
        stream.write(json.dumps({"id": "d", "claim": sentence_of(snippet)}) + "\n")
    mixed = tmp_path / "mixed.jsonl"
    assert done(verify(bm25, *arguments, mixed)) == counts | {"out": str(mixed), "claims": 4, "supported": 2}
    assert mixed.read_bytes().splitlines()[:3] == out.read_bytes().splitlines()
    failed(verify(tmp_path / "no home", *arguments, tmp_path / "none.jsonl"), 4, "index")


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ((), 2, "give a claim"),
        ((" ",), 2, "empty"),
        (("half \udcff",), 2, "not UTF-8"),
        (("--claims", "none.jsonl", "--out", "x.jsonl", "--snippet", "s"), 2, "--snippet"),
        (("--claims", "none.jsonl", "--out", "x.jsonl"), 4, "none.jsonl"),
        (("A claim.", "--snippet", "none"), 4, "no snippet 'none'"),
    ],
)
def test_refusals_name_the_option_and_the_next_step(bm25, arguments, code, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed(verify(bm25, *arguments), code, part)


@pytest.mark.parametrize("line", ["{", '{"id": "a"}', '{"id": "a", "claim": " "}'])
def test_a_bad_line_is_named(bm25, line, tmp_path):
    claims = tmp_path / "claims.jsonl"
    claims.write_text('{"id": "ok", "claim": "A claim."}\n' + line + "\n")
    failed(verify(bm25, "--claims", claims, "--out", tmp_path / "out.jsonl"), 3, str(claims), "line 2")


def test_what_a_reader_is_not_sure_of_is_shown_as_such(bm25, monkeypatch, server, tmp_path):
    class Leaning(Checker):
        def check_claim(self, claim, snippets):
            probability = {"supports": 0.55, "contradicts": 0.05, "neither": 0.4}
            return CheckedSentence(claim, Verdict.UNSURE, probability=probability, basis="reader")

    monkeypatch.setattr("biorag.api.session.load_checker", lambda settings, load, reader: Leaning())
    shown = succeeded(verify(bm25, CLAIM))
    assert shown.stdout == "Not sure\nsupports 55 %, contradicts 5 %, neither 40 %\n"
    assert done(verify(bm25, CLAIM, "--json"))["verdict"] == "unsure"
    assert verify(bm25, CLAIM, "--fail-unsupported").exit_code == 7
    claims, out = tmp_path / "claims.jsonl", tmp_path / "verdicts.jsonl"
    claims.write_text(json.dumps({"id": "a", "claim": CLAIM}))
    assert done(verify(bm25, "--claims", claims, "--out", out, "--json"))["unsure"] == 1
    with Session(Settings.of(home=bm25, name="default", mode="bm25", rerank=False)) as session:
        assert Tools(SessionPool(session, others=False)).verify_claim(CLAIM)["verdict"] == "unsure"
    server.rule = lambda body: json.dumps({"answer": CLAIM, "citations": [1]})
    asking = ("--mode", "bm25", "--no-rerank", "--llm", server.url, "--llm-model", "writer", "--no-cache")
    asking += ("--answer-anyway",)
    expected = f"Not sure whether the evidence says this\n{CLAIM} [not sure: 55 % supported]\n"
    assert succeeded(invoke("ask", "Which vitamin?", *asking, home=bm25)).stdout.startswith(expected)
    assert expected in succeeded(invoke("chat", *asking, home=bm25, input="Which vitamin?")).stdout


@pytest.mark.parametrize("offline", [(), ("--offline",)])
def test_a_server_reads_and_its_probabilities_are_in_the_json(bm25, snippet, offline):
    quote = sentence_of(snippet)
    script = Script()
    written = {"judge": {"quote": quote, "verdict": "supports"}, "writer": {"answer": CLAIM, "citations": [1]}}
    script.rule = lambda body: json.dumps(written[body["model"]])
    options, judge = (
        ("--reader", script.url, "--mode", "bm25", "--no-rerank", "--json"),
        {"BIORAG_READER_MODEL": "judge"},
    )
    try:
        report = done(invoke(*offline, "verify", CLAIM, "--snippet", snippet["id"], *options, home=bm25, **judge))
        writer = ("--llm", script.url, "--llm-model", "writer", "-k", 1, "--answer-anyway")
        answer = done(invoke(*offline, "ask", quote, *writer, *options, home=bm25, **judge))
    finally:
        script.close()
    (sentence,) = answer["sentences"]
    assert [(one["verdict"], one["basis"]) for one in (report, sentence)] == [("supported", "reader")] * 2
    (note,) = answer["notes"]
    assert note.startswith("read by judge")
    certain = {"supports": 1.0, "contradicts": 0.0, "neither": 0.0}
    assert report["probability"] == sentence["probability"] == certain


@pytest.mark.parametrize(
    ("rows", "said"),
    [("", "holds no claim"), ("\n\n", "holds no claim"), (2 * '{"id": "a", "claim": "Zinc."}\n', "two rows of id 'a'")],
)
def test_a_file_without_claims_or_with_one_id_twice_passes_no_gate(bm25, tmp_path, rows, said):
    claims = tmp_path / "claims.jsonl"
    claims.write_text(rows)
    result = verify(bm25, "--claims", claims, "--out", tmp_path / "out.jsonl", "--fail-unsupported")
    assert (result.exit_code, said in result.stderr) == (3, True)
