"""The benchmark of claims that people labelled, by their own texts and by an index."""

import json

from biorag.benchmarks import weighing
from biorag.types import Snippet
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag

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


def test_the_probabilities_of_a_reader_are_measured(tmp_path, tiny_encoder):
    home, model, people = tmp_path / "home", tmp_path / "reader", labelled(tmp_path / "people.jsonl")
    fast = ("--precision", "fp32", "--batch-size", 4, "--max-tokens", 32, "--max-steps", 2, "--validation", 0)
    training = ("train", "reader", people, "--base", tiny_encoder, *fast, "--out", model)
    manifest = done(invoke(*training, "--json", home=home))
    assert manifest["data"]["sources"]["people"] == {"supports": 2, "contradicts": 1, "neither": 3}
    bench = ("bench", "verification", people, "--reader", model, "--out", tmp_path / "out")
    report = done(invoke(*bench, "--json", home=home))
    assert report["config"]["reader"] == str(model)
    rows = [json.loads(row) for row in (tmp_path / "out" / "claims.jsonl").read_bytes().splitlines()]
    assert not any("probability" in row for row in rows[:2]), "words alone state, and deny"
    assert set(rows[2]["probability"]) == {"supports", "contradicts", "neither"}
    assert report["sets"]["people"]["calibration"]["claims"] == sum("probability" in row for row in rows)
    assert "calibration error" in succeeded(invoke(*bench, home=home)).stdout


def test_weighing_is_scored_by_the_first_three_of_each_column():
    claim = weighing.LabelledEvidence("x:0", "C.", {"a": "supports", "b": "supports", "c": "contradicts"})
    silent = weighing.LabelledEvidence("x:1", "D.", {})
    rows = [
        {"id": claim.id, "supporting": ["x", "a", "c", "b"], "opposing": ["b", "c"], "reached": ["a", "b", "c"]},
        {"id": silent.id, "supporting": ["z"], "opposing": [], "reached": []},
    ]
    measured = weighing.weighing_scores(list(zip([claim, silent], rows, strict=True)))
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
