"""The benchmark of claims that people labelled, by their own texts."""

import json

from tests.cli import done, failed, invoke, succeeded

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
