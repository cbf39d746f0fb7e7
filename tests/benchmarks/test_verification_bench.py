"""Claims of known truth: how they are falsified and reworded, by hand, and the benchmark over a small index."""

import json
import random
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.benchmarks.verification import claims, run, weighed
from biorag.benchmarks.verification.falsification import FALSIFIERS, KINDS
from biorag.benchmarks.verification.rewording import reworded
from biorag.corpus.datasets import Dataset
from biorag.types import Question, Snippet
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_judged, write_medrag

TEXT = "IL-6 was measured. Serum TNF rose in children by 12 mg after 3 days."


def falsified(kind: str, sentence: str, text: str = TEXT, seed: int = 0) -> str | None:
    return FALSIFIERS[kind](sentence, text, random.Random(seed))


@pytest.mark.parametrize(
    ("kind", "sentence", "expected"),
    [
        ("negation", "The drug is effective.", "The drug is not effective."),
        ("negation", "The drug inhibits growth.", "The drug does not inhibit growth."),
        ("negation", "The drug did not help.", "The drug did help."),
        ("negation", "It failed to respond.", "It respond."),
        ("negation", "It occurred with or without fever.", None),
        ("negation", "It is only given to men.", None),
        ("negation", "It may be effective.", None),
        ("direction", "The dose increased quickly.", "The dose decreased quickly."),
        ("direction", "The inferior result stood.", "The superior result stood."),
        ("direction", "Nothing points anywhere.", None),
        ("number", "No figure here.", None),
        ("number", "It rose (P < 0.05).", None),
        ("unit", "It took 3 women.", None),
        ("hedge", "It may be toxic.", "It is toxic."),
        ("hedge", "These data suggest that it helps.", "These data proves that it helps."),
        ("hedge", "It is toxic.", None),
        ("population", "Nothing was seen in stones.", None),
        ("name", "Serum TNF rose.", "Serum IL-6 rose."),
        ("name", "Serum levels rose.", None),
    ],
)
def test_falsified_by_hand(kind, sentence, expected):
    assert falsified(kind, sentence) == expected


def test_numbers_units_and_populations_change_and_nothing_else_does():
    for seed in range(10):
        assert falsified("number", "We gave 12 mg.", seed=seed) in {"We gave 120 mg.", *_numbers(13, 14, 19, 25)}
        assert falsified("unit", "We gave 12 mg daily.", seed=seed) in {"We gave 12 g daily.", "We gave 12 µg daily."}
        assert falsified("population", "Seen in women.", seed=seed) in {"Seen in men.", "Seen in boys."}


def _numbers(*values: int) -> set[str]:
    return {f"We gave {value} mg." for value in values}


@given(st.text(max_size=80), st.text(max_size=60), st.integers(0, 9))
def test_a_falsified_or_reworded_sentence_is_another_one(sentence, text, seed):
    changed = [falsified(kind, sentence, text, seed) for kind in FALSIFIERS]
    assert sentence not in [*changed, reworded(sentence, random.Random(seed))]


def test_rewordings_by_hand():
    texts = {reworded("COX-1 is inhibited by aspirin.", random.Random(seed)) for seed in range(30)}
    assert any(text and text.endswith("spirin inhibits COX-1.") for text in texts)
    assert None not in texts


SNIPPETS = {
    "a": Snippet(
        "a", "", "Serum TNF rose in children by 12 mg after 3 days. The drug was well tolerated by all of them."
    ),
    "b": Snippet("b", "", "Regular walking improves sleep and mood in elderly women. IL-6 was measured twice in them."),
}
QUESTIONS = [Question("q1", "What rose?"), Question("q2", "What improves sleep?")]
DATASET = Dataset("small", QUESTIONS, {"q1": {"a": 1}, "q2": {"b": 1}})
ANSWERS = {
    "q1": ["Serum TNF rose in children by 12 mg after 3 days."],
    "q2": ["Sleep gets better by walking regularly, they say."],
}


def made():
    return list(claims.passages(DATASET, ANSWERS, lambda ids: {id: SNIPPETS[id] for id in ids}, seed=0))


def test_a_passage_is_the_sentence_that_the_answer_repeats_or_the_nearest():
    first, second = made()
    assert (first.sentence, first.written) == ("Serum TNF rose in children by 12 mg after 3 days.", "")
    assert second.sentence == "Regular walking improves sleep and mood in elderly women."
    assert second.written == "Sleep gets better by walking regularly, they say."


def test_claims_are_seeded_and_true_or_false_by_their_kind():
    todo = list(claims.make_claims(made(), 0))
    assert todo == list(claims.make_claims(made(), 0))
    kinds = {claim.kind for claim in todo}
    assert kinds <= {*claims.TRUE_KINDS, *KINDS}
    assert {"verbatim", "unit", "other snippet"} <= kinds
    assert len({claim.id for claim in todo}) == len(todo)
    for claim in todo:
        assert (claim.text == claim.source) == (claim.kind == "verbatim")


def test_a_report_counts_true_claims_supported_and_falsified_ones_not():
    verdicts = [
        ("verbatim", "supported"),
        ("verbatim", "unsupported"),
        ("number", "supported"),
        ("number", "contradicted"),
    ]
    report = run.report([{"kind": kind, "verdict": verdict} for kind, verdict in verdicts], "small", {}, 0)
    assert report["claims"] == 4
    assert [(kind, shares["accuracy"]) for kind, shares in report["kinds"].items()] == [
        ("verbatim", 0.5),
        ("number", 0.5),
    ]
    assert report["kinds"]["number"]["contradicted"] == 0.5


@pytest.fixture
def dataset(tmp_path):
    texts = {question.id: question.text for question in QUESTIONS}
    folder = write_judged(tmp_path / "data", texts, [("q1", "a", 1), ("q2", "b", 1)])
    (folder / "answers.jsonl").write_text(
        "".join(json.dumps({"_id": id, "ideal_answer": answers}) + "\n" for id, answers in ANSWERS.items())
    )
    return folder


def test_the_command_measures_resumes_and_refuses_another_run(dataset, tmp_path, tiny_encoder):
    home, corpus, out = tmp_path / "home", tmp_path / "corpus.jsonl", tmp_path / "run"
    corpus.write_text(
        "".join(json.dumps({"id": s.id, "title": "", "content": s.content}) + "\n" for s in SNIPPETS.values())
    )
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, "--name", "small", home=home))
    arguments = ("bench", "verification", dataset, "--name", "small", "--reader", "none", "--out", out, "--json")
    report = done(invoke(*arguments, home=home))
    assert report["kinds"]["verbatim"] == {
        "claims": 2, "true": True, "supported": 1.0, "unsupported": 0.0, "contradicted": 0.0, "unsure": 0.0,
        "accuracy": 1.0, "interval": [1.0, 1.0],
    }  # fmt: skip
    assert all(report["kinds"][kind]["supported"] == 0 for kind in KINDS if kind in report["kinds"])
    rows = (out / "claims.jsonl").read_bytes()
    assert len(rows.splitlines()) == report["claims"]
    (out / "claims.jsonl").write_bytes(rows[: len(rows) // 2])
    assert done(invoke(*arguments, home=home)) == report == json.loads((out / "report.json").read_bytes())
    assert (out / "claims.jsonl").read_bytes() == rows
    assert "verbatim" in succeeded(invoke(*arguments[:-1], home=home)).stdout
    failed(invoke(*arguments, "--seed", 3, home=home), 5, "seed")
    failed(invoke(*arguments, "--half", "third", home=home), 2, "third")


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


def test_sources_that_cannot_be_measured_are_refused(dataset, tmp_path):
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
    refused(2, "is a folder", good, dataset)
    refused(2, "--half", good, "--half", "test")
    refused(4, "none.jsonl", tmp_path / "none.jsonl")
    refused(4, "index", tmp_path / "none")


def test_a_reader_is_trained_and_reads(dataset, tmp_path, tiny_encoder, tiny_cross_encoder):
    home, corpus, model = tmp_path / "home", tmp_path / "corpus.jsonl", tmp_path / "reader"
    corpus.write_text(
        "".join(json.dumps({"id": s.id, "title": "", "content": s.content}) + "\n" for s in SNIPPETS.values())
    )
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, "--name", "small", home=home))
    fast = ("--precision", "fp32", "--batch-size", 4, "--max-tokens", 32, "--evaluations", 1, "--validation", 0)
    training = ("train", "reader", labelled(tmp_path / "people.jsonl"), "--base", tiny_encoder, *fast)
    manifest = done(invoke(*training, "--out", model, "--json", home=home))
    assert manifest["data"]["sources"]["people"] == {"supports": 2, "contradicts": 1, "neither": 3}
    claim = ("verify", ANSWERS["q1"][0], "--name", "small", "--snippet", "a", "--json")
    assert done(invoke(*claim, "--reader", f"cross:{model}", home=home))["verdict"] != "contradicted"
    report = done(
        invoke("bench", "verification", dataset, "--name", "small", "--reader", model, "--out", tmp_path / "run",
               "--json", home=home)
    )  # fmt: skip
    assert report["config"]["reader"] == str(model)
    people = ("bench", "verification", tmp_path / "people.jsonl", "--reader", model)
    measured = done(invoke(*people, "--out", tmp_path / "labelled", "--json", home=home))["sets"]["people"]
    judged = [json.loads(row) for row in (tmp_path / "labelled" / "claims.jsonl").read_bytes().splitlines()]
    assert not any("probability" in row for row in judged[:2]), "words alone state, and deny"
    assert set(judged[2]["probability"]) == {"supports", "contradicts", "neither"}
    assert measured["calibration"]["claims"] == sum("probability" in row for row in judged)
    assert "calibration error" in succeeded(invoke(*people, "--out", tmp_path / "labelled", home=home)).stdout
    failed(invoke(*claim, "--reader", tiny_encoder, home=home), 4, "biorag train reader")
    asked = ("ask", QUESTIONS[0].text, "--name", "small", "--answer-anyway", "--json", "--reader")
    assert done(invoke(*asked, model, home=home))["answer"]
    failed(invoke(*asked, tiny_encoder, home=home), 4, "biorag train reader")
    claims_file, out = tmp_path / "some.jsonl", tmp_path / "verdicts.jsonl"
    claims_file.write_text(json.dumps({"id": "q1", "claim": ANSWERS["q1"][0]}) + "\n")
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
