"""`biorag generate`: what is written, what is refused, and what a killed run goes on to."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest

from biorag.corpus.sources import demo_file
from biorag.engine import open_index
from biorag.settings.settings import Settings
from biorag.training.rows import read_rows
from tests import cli
from tests.cli import done, failed
from tests.loopback import completion

COUNTS = {
    *("generated", "rows", "empty", "short", "cut", "copied", "duplicates", "resumed"),
    *("prompt_tokens", "completion_tokens", "out", "seconds"),
}


@pytest.fixture
def invoke(demo_home):
    return partial(cli.invoke, "generate", home=demo_home)


@pytest.fixture
def generate(invoke):
    def generate(*arguments, **options):
        return done(invoke(*arguments, "--json", **options))

    return generate


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def about(body):
    """Reply with a question of the words of the document; the seed tells one from another."""
    time.sleep(0.01)
    content = body["messages"][1]["content"].split("\n")[1]
    return json.dumps({"question": f"What is known about {content} ({body['seed']})? And more"})


def test_a_server_writes_questions_of_an_index(generate, invoke, server, tmp_path):
    server.rule = about
    out = tmp_path / "new" / "q.jsonl"
    asked = ["queries", "--llm", server.url, "--llm-model", "m", "--no-cache", "--per-snippet", 2, "--limit", 9]
    report = generate(*asked, "--out", out)
    assert report.keys() == COUNTS | {"snippets", "too_short"}
    assert (report["snippets"], report["generated"], report["rows"], report["resumed"]) == (9, 18, 18, 0)
    rows, cleaning = read_rows([out])
    assert (len(rows), cleaning["questions"]) == (18, 18)
    assert all(row.query.startswith("What is known about ") and row.query.endswith("?") for row in rows)
    assert all(row.kind == "generated" for row in rows)
    assert len(server.bodies) == len({body["seed"] for body in server.bodies}) == 18
    assert {(body["temperature"], body["max_tokens"]) for body in server.bodies} == {(0.3, 48)}
    assert server.most > 1, "a server is asked for several at a time"
    before = out.read_bytes()
    again = generate(*asked, "--out", out)
    assert {**again, "seconds": 0} == {**report, "seconds": 0, "resumed": 9}
    assert (out.read_bytes(), len(server.bodies)) == (before, 18)
    failed(invoke(*asked, "--seed", 1, "--out", out), 5, "other seed (0 → 1):", "choose another --out")


def test_a_corpus_and_a_template_of_ones_own(generate, invoke, server, tmp_path, corpus_file):
    server.rule = about
    prompt = tmp_path / "own.txt"
    prompt.write_text("[system]\nAsk in Latin.\n[user]\n{documents}\n")
    asked = ["queries", corpus_file, "--llm", server.url, "--llm-model", "m", "--prompt", prompt, "--out"]
    report = generate(*asked, tmp_path / "q.jsonl")
    assert (report["snippets"], report["too_short"]) == (12, 0)
    assert [line["positive_id"] for line in lines(tmp_path / "q.jsonl")] == [f"s{n}" for n in range(12)]
    assert server.bodies[0]["messages"][0]["content"] == "Ask in Latin."
    prompt.write_text("[system]\nAsk.\n[user]\n{question}\n")
    failed(invoke(*asked, tmp_path / "r.jsonl"), 3, prompt, "no {documents}")
    corpus_file.write_text("{}\n")
    prompt.write_text("[system]\nAsk.\n[user]\n{documents}\n")
    failed(invoke(*asked, tmp_path / "r.jsonl"), 3, corpus_file, "line 1", "fix or remove the line")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["demo", "--model", "t5"], 2, "seq2seq:ID"),
        (["demo", "--model", "seq2seq:/nowhere/at-all"], 4, "/nowhere/at-all"),
        (["demo", "--model", "seq2seq:x", "--llm", "starter"], 2, "--model replaces --llm"),
        (["demo", "--name", "default"], 2, "give one of them"),
        (["demo", "--llm", "none"], 2, "--llm"),
        (["demo", "--prompt", "/no/such.txt"], 4, "/no/such.txt"),
    ],
)
def test_what_cannot_be_done_is_said(invoke, tmp_path, arguments, code, said, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    failed(invoke("queries", *arguments, "--out", tmp_path / "q.jsonl"), code, said)
    assert list(tmp_path.glob("q.jsonl*")) == []
    failed(invoke("queries", "demo", "--out", tmp_path), 2, "is a folder")


def test_the_filter_keeps_what_search_finds(generate, invoke, demo_home, tmp_path):
    snippets = lines(demo_file("snippets.jsonl"))[:40]
    rows = [
        {"query": f"what of {one['title'].split()[-1]}?", "positive": one["contents"], "positive_id": one["id"]}
        for one in snippets
    ]
    path, out = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = generate("filter", path, "--keep-top", 1, "--out", out)
    with open_index(Settings.of(home=demo_home, mode="dense", rerank=False)) as ready:
        best = [ready.retriever.search(row["query"], 1).hits[0].snippet.id for row in rows]
    expected = [row for row, id in zip(rows, best, strict=True) if row["positive_id"] == id]
    assert lines(out) == expected
    assert 0 < len(expected) < 40
    counts = {"read": 40, "kept": len(expected), "below": 40 - len(expected), "absent": 0, "empty": 0}
    share = round(len(expected) / 40, 4)
    assert {**report, "seconds": 0} == {"out": str(out), "keep_top": 1, **counts, "share_kept": share, "seconds": 0}
    (tmp_path / "link.jsonl").symlink_to(path)
    for same in (path, tmp_path / "link.jsonl"):
        failed(invoke("filter", path, "--out", same), 2, "name another file")
    failed(invoke("filter", path, "--mode", "bm25", "--out", tmp_path / "new.jsonl"), 2, "'bm25'", "dense, hybrid")
    failed(invoke("filter", path, "--out", out), 2, "kept.jsonl", "--force")
    failed(invoke("filter", tmp_path / "no.jsonl", "--out", tmp_path / "new.jsonl"), 4, "no.jsonl")
    assert generate("filter", path, "--keep-top", 1, "--out", out, "--force")["kept"] == len(expected)


# --- negatives and pairs ---


def mined_rows(count):
    return [
        {
            "query": f"What does drug{n} do?",
            "positive": f"Drug{n} lowers fever since it blocks enzyme{n} in the liver.",
            **({"negative_1": f"Enzyme{n} is one of the many enzymes that a liver has."} if n % 2 else {}),
            "kind": "retriever",
        }
        for n in range(count)
    ]


MINED = mined_rows(12)


@pytest.fixture
def mined(tmp_path):
    path = tmp_path / "mined.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MINED))
    return path


def beside(body):
    """Reply as asked: a list, a pair or a passage, of words of the prompt and the seed; with counts of tokens."""
    time.sleep(0.01)
    seed, (about, *_) = body["seed"], body["messages"][1]["content"].split("\n")
    if "List 10" in about:
        content = {"scenarios": [f"Given drug {seed}, find effect {n}." for n in range(10)]}
    elif about.startswith("Task"):
        positive, negative = (f"A passage on {about} that {says} it, of {seed}." for says in ("answers", "avoids"))
        content = {"query": f"What of {about} {seed}?", "positive": positive, "hard_negative": negative}
    else:
        content = {"passage": f"A passage on {about} that does not answer it, of {seed}."}
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    return 200, {**completion(json.dumps(content)), "usage": usage}


def test_a_server_writes_negatives_of_mined_rows(generate, invoke, server, tmp_path, mined):
    server.rule = beside
    out = tmp_path / "n.jsonl"
    asked = ["negatives", mined, "--llm", server.url, "--llm-model", "m", "--no-cache", "--per-row", 2, "--out", out]
    report = generate(*asked)
    own = {"pairs": 12, "unmined": 6, "negatives": 24, "without": 0, "near_copies": 0}
    assert report.keys() == COUNTS | own.keys()
    assert {key: report[key] for key in own} == own
    assert (report["rows"], report["generated"], report["resumed"]) == (12, 24, 0)
    assert (report["prompt_tokens"], report["completion_tokens"]) == (2400, 168)
    rows, _ = read_rows([out])
    assert [(row.query, row.positive) for row in rows] == [(row["query"], row["positive"]) for row in MINED]
    assert {(row.kind, len(row.negatives)) for row in rows} == {("synthetic", 2)}
    assert server.most > 1, "a server is asked for several at a time"
    before = out.read_bytes()
    again = generate(*asked)
    assert {**again, "seconds": 0} == {**report, "seconds": 0, "resumed": 12}
    assert (out.read_bytes(), len(server.bodies)) == (before, 24)
    mined.write_text("".join(json.dumps(row) + "\n" for row in MINED[1:]))
    failed(invoke(*asked), 5, "other rows:", "choose another --out")


def test_pairs_of_scenarios_that_the_model_lists(generate, invoke, server, tmp_path):
    server.rule = beside
    out = tmp_path / "p.jsonl"
    asked = ["pairs", "--llm", server.url, "--llm-model", "m", "--no-cache", "--per-scenario", 2, "--out", out]
    report = generate(*asked, "--scenarios", 13)
    assert report.keys() == COUNTS | {"scenarios", "near_copies"}
    assert (report["scenarios"], report["generated"], report["rows"]) == (13, 26, 26)
    assert (report["prompt_tokens"], report["completion_tokens"]) == (2800, 196), "the lists' too"
    listed = Path(f"{out}.scenarios.txt").read_text().splitlines()
    assert len(listed) == 13
    assert [line["instruction"] for line in lines(out)] == [scenario for scenario in listed for _ in range(2)]
    rows, _ = read_rows([out])
    assert {(row.kind, len(row.negatives)) for row in rows} == {("synthetic", 1)}
    failed(invoke(*asked, "--scenarios", 14), 5, "other scenarios (13 → 14):", "choose another --out")
    out.unlink()
    assert generate(*asked, "--scenarios", 13)["prompt_tokens"] == 2800
    assert len(server.bodies) == 2 + 26 + 26, "a list that is there is not asked for again"


def test_a_papers_own_words_replace_the_prompts(generate, server, tmp_path, mined):
    """Our fields in place of the paper's, braces of its JSON doubled: docs/prompts.md."""
    server.rule = beside
    model = ["--llm", server.url, "--llm-model", "m", "--no-cache"]
    template, tasks = tmp_path / "own.txt", tmp_path / "tasks.txt"
    tasks.write_text("Find documents on a drug.\n")
    attributes = "{query_type}, {query_length}, {clarity}, {num_words}, {difficulty}"
    template.write_text(f'[system]\nIts words.\n[user]\nTask: {{scenario}}\n{attributes}\nKeys: {{{{"query": 1}}}}\n')
    asked = ["pairs", *model, "--attributes", "--scenario-file", tasks, "--prompt", template]
    generate(*asked, "--out", tmp_path / "p.jsonl")
    system, user = (message["content"] for message in server.bodies[-1]["messages"])
    (row,) = lines(tmp_path / "p.jsonl")
    drawn = ", ".join(row["attributes"].values())
    assert (system, user) == ("Its words.", f'Task: Find documents on a drug.\n{drawn}\nKeys: {{"query": 1}}')
    assert server.bodies[-1]["max_tokens"] == 3 * 768
    template.write_text(
        "[system]\nIts words.\n[user]\n{question}\nPrompt: {instruction}\n{documents}\nONLY the text.\n"
    )
    generate("negatives", mined, *model, "--prompt", template, "--out", tmp_path / "n.jsonl")
    users = [body["messages"][1]["content"] for body in server.bodies[1:]]
    assert all(user.endswith("ONLY the text.") for user in users)
    assert sum('<document n="2">' in user for user in users) == 6, "those of rows with a mined negative"
    server.rule = lambda body: json.dumps({"question": "What is known about it?"})
    generate("queries", "demo", *model, "--dataset", "{Meadow}", "--limit", 1, "--out", tmp_path / "q.jsonl")
    assert "this document of {Meadow} is relevant" in server.bodies[-1]["messages"][1]["content"]
