"""The benchmark of claims that people labelled, by their own texts and by an index."""

import json
import shutil

from biorag.benchmarks.verification import weighed
from biorag.types import Snippet
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag

SNIPPETS = [
    Snippet("a", "", "Serum TNF rose in children by 12 mg after 3 days. The drug was well tolerated by all of them."),
    Snippet("b", "", "Regular walking improves sleep and mood in elderly women. IL-6 was measured twice in them."),
]
STATED = "Serum TNF rose in children by 12 mg after 3 days."

LABELLED = [
    ("Serum TNF rises in children.", "supports"),
    ("Serum TNF did not rise in children.", "contradicts"),
    ("Walking improves the mood of everyone.", "supports"),
    ("IL-6 predicts death.", "neither"),
]


def labelled(path, rows=LABELLED):
    text = {"title": "", "sentences": ["Serum TNF rises in children.", "Walking improves mood."]}
    path.write_text(
        "".join(
            json.dumps({"id": str(number), "claim": claim, "label": label, **text}) + "\n"
            for number, (claim, label) in enumerate(rows)
        )
    )
    return path


def test_files_of_labelled_claims_are_measured_without_an_index_and_resume(tmp_path):
    home, out = tmp_path / "home", tmp_path / "run"
    first, second = labelled(tmp_path / "one.jsonl"), labelled(tmp_path / "two.jsonl", LABELLED[:2])
    arguments = ("bench", "verification", first, second, "--reader", "none", "--out", out, "--json")
    report = done(invoke(*arguments, home=home))
    assert (report["claims"], list(report["sets"])) == (6, ["one", "two"])
    labels = report["sets"]["one"]["labels"]
    assert labels["supports"]["called"] == {"supports": 1, "contradicts": 0, "neither": 1}
    assert labels["contradicts"]["recall"] == report["sets"]["two"]["macro_f1"] == 1
    rows = (out / "claims.jsonl").read_bytes()
    assert [json.loads(row)["id"] for row in rows.splitlines()][3:] == ["one:3", "two:0", "two:1"]
    (out / "claims.jsonl").write_bytes(rows[: len(rows) // 2])
    assert done(invoke(*arguments, home=home)) == report == json.loads((out / "report.json").read_bytes())
    assert (out / "claims.jsonl").read_bytes() == rows
    shown = succeeded(invoke(*arguments[:-1], home=home)).stdout
    assert "contradicts\t1\t1.000\t1.000\t1.000\t0\t1\t0" in shown
    assert "supports found, as called\t50.0%, with 0.0% of the others" in shown
    failed(invoke(*arguments, "--limit", 2, home=home), 5, "limit")
    labelled(second, LABELLED[1:])
    failed(invoke(*arguments, home=home), 5, "sets")


def test_sources_that_cannot_be_measured_are_refused(tmp_path):
    good, bare, empty = labelled(tmp_path / "one.jsonl"), tmp_path / "bare.jsonl", tmp_path / "empty.jsonl"
    bare.write_text('{"id": "7", "claim": "X.", "label": "supports"}\n')
    empty.touch()
    (tmp_path / "two").mkdir()
    same = labelled(tmp_path / "two" / "one.jsonl")

    def refused(code, part, *sources):
        failed(invoke("bench", "verification", *sources, "--out", tmp_path / "run", home=tmp_path / "home"), code, part)

    refused(3, "claim 7", bare)
    refused(3, "no claims", empty)
    refused(2, "the same name", good, same)
    refused(2, "is a folder", good, tmp_path)
    refused(4, "none.jsonl", tmp_path / "none.jsonl")


def test_a_reader_is_trained_and_reads(tmp_path, tiny_encoder, tiny_cross_encoder):
    home, model = tmp_path / "home", tmp_path / "reader"
    corpus = write_medrag(tmp_path / "corpus.jsonl", SNIPPETS)
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, "--name", "small", home=home))
    fast = ("--precision", "fp32", "--batch-size", 4, "--max-tokens", 32, "--evaluations", 1, "--validation", 0)
    training = ("train", "reader", labelled(tmp_path / "people.jsonl"), "--base", tiny_encoder, *fast)
    manifest = done(invoke(*training, "--out", model, "--json", home=home))
    assert manifest["data"]["sources"]["people"] == {"supports": 2, "contradicts": 1, "neither": 3}
    claim = ("verify", STATED, "--name", "small", "--snippet", "a", "--json")
    assert done(invoke(*claim, "--reader", f"cross:{model}", home=home))["verdict"] != "contradicted"
    people = ("bench", "verification", tmp_path / "people.jsonl", "--reader", model)
    report = done(invoke(*people, "--out", tmp_path / "labelled", "--json", home=home))
    assert report["config"]["reader"] == str(model)
    measured = report["sets"]["people"]
    judged = [json.loads(row) for row in (tmp_path / "labelled" / "claims.jsonl").read_bytes().splitlines()]
    assert not any("probability" in row for row in judged[:2]), "words alone state, and deny"
    assert set(judged[2]["probability"]) == {"supports", "contradicts", "neither"}
    assert measured["calibration"]["claims"] == sum("probability" in row for row in judged)
    assert "calibration error" in succeeded(invoke(*people, "--out", tmp_path / "labelled", home=home)).stdout
    failed(invoke(*claim, "--reader", tiny_encoder, home=home), 4, "biorag train reader")
    asked = ("ask", "What rose?", "--name", "small", "--answer-anyway", "--json", "--reader")
    assert done(invoke(*asked, model, home=home))["answer"]
    failed(invoke(*asked, tiny_encoder, home=home), 4, "biorag train reader")
    claims_file, out = tmp_path / "some.jsonl", tmp_path / "verdicts.jsonl"
    claims_file.write_text(json.dumps({"id": "q1", "claim": STATED}) + "\n")
    many = ("verify", "--claims", claims_file, "--out", out, "--name", "small", "--reader", model, "--json")
    assert done(invoke(*many, home=home))["claims"] == 1
    shutil.copytree(tiny_cross_encoder, model, dirs_exist_ok=True)  # other weights at the same path
    failed(invoke(*many, home=home), 5, out, "reader")


def test_weighing_is_scored_by_the_first_three_of_each_column():
    claim = weighed.LabelledEvidence("x:0", "C.", {"a": "supports", "b": "supports", "c": "contradicts"})
    silent = weighed.LabelledEvidence("x:1", "D.", {})
    rows = [
        {"id": claim.id, "supporting": ["x", "a", "c", "b"], "opposing": ["b", "c"], "reached": ["a", "b", "c"]},
        {"id": silent.id, "supporting": ["z"], "opposing": [], "reached": []},
    ]
    measured = weighed.weighing_scores(list(zip([claim, silent], rows, strict=True)))
    # Right are a and c, of three that are labelled and of six that are called.
    assert (measured["precision"], measured["recall"], measured["f1"]) == (0.3333, 0.6667, 0.4444)
    assert measured["supporting"] == {"claims": 1, "recall@3": 1.0, "MRR": 0.5}
    assert measured["opposing"] == {"claims": 1, "recall@3": 1.0, "MRR": 0.5}
    assert (measured["weighted_MRR"], measured["reached"]) == (0.5, 1.0)


def test_weighing_an_index_of_both_sides(tmp_path, tiny_encoder):
    home = tmp_path / "home"
    texts = {"1": "Aspirin reduced mortality after stroke.", "2": "Aspirin did not reduce mortality after stroke."}
    corpus = write_medrag(tmp_path / "c.jsonl", [Snippet(id, "", text) for id, text in texts.items()])
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, home=home))
    rows = [
        {"id": f"set-0-{id}", "claim": texts["1"], "title": text, "sentences": [], "label": label}
        for (id, text), label in zip(texts.items(), ("supports", "contradicts"), strict=True)
    ]
    path = tmp_path / "claims.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("bench", "verification", path, "--weigh", "--reader", "none", "--out", tmp_path / "out")
    report = done(invoke(*words, "--json", home=home))
    assert (report["claims"], report["weighing"]["f1"], report["weighing"]["reached"]) == (1, 1, 1)
    assert "1 claims, weighed\nprecision\trecall\tF1\t" in succeeded(invoke(*words, home=home)).stdout
    path.write_text(json.dumps({**rows[0], "id": "set-0-3"}))
    failed(invoke(*words[:-1], tmp_path / "other", home=home), 3, "the index its document '3'")
