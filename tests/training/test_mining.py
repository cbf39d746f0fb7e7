"""What all kinds share: gold and repetitions are kept out, draws are uniform and a row's own, rows come in order."""

import json

from biorag.training.mining import (
    Gold,
    MiningPlan,
    eligible,
    mine,
    mined_file,
)
from biorag.types import TrainingRow
from tests.training.small_corpus import negative, row

PLAN = MiningPlan("scripted", per_row=2, seed=0)


class Scripted:
    """Offers the same candidates to every row; nothing for the queries named in `barren`."""

    def __init__(self, texts, barren=()):
        self.candidates = [negative(f"n{n}", text, n, 1 / n) for n, text in enumerate(texts, 1)]
        self.barren = barren
        self.asked = []

    def __call__(self):
        return self.window

    def window(self, row, gold):
        self.asked.append(row)
        return [] if row.query in self.barren else list(eligible(self.candidates, gold))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- gold ---


def test_gold_repetitions_and_blanks_are_no_negatives():
    gold = Gold(frozenset({"s1"}), frozenset({"the positive", "the query"}))
    candidates = [
        negative("s1", "Gold by its id."),
        negative("s2", "The  POSITIVE."),
        negative("s3", "The query?"),
        negative("s4", "Another text."),
        negative("s5", "another  text."),
        negative("s6", " – "),
        negative("s7", "A third."),
    ]
    assert [found.id for found in eligible(candidates, gold)] == ["s4", "s7"]


# --- drawing ---


# --- ranking ---


# --- mining ---


def test_rows_are_written_with_texts_ids_ranks_and_scores(tmp_path):
    out = mined_file(tmp_path / "out" / "mined.jsonl", {"kind": "scripted"})
    rows = [
        TrainingRow("Why β?", "Because of α.", ("an old negative",), query_id="q1", positive_id="s1"),
        row("Why not?", "So."),
        row("Why this?", "Three."),
    ]
    kind, told = Scripted(["One.", "so.", "Three."], barren=["Why not?"]), []
    counts = mine(rows, kind, MiningPlan("scripted", per_row=9, seed=0), out, told.append)
    assert counts == {"rows": 2, "negatives": 5, "without": 1, "resumed": 0}
    assert sum(told) == 3
    assert lines(out.path) == [
        {
            "query": "Why β?",
            "positive": "Because of α.",
            "negative_1": "One.",
            "negative_2": "so.",
            "negative_3": "Three.",
            "kind": "scripted",
            "query_id": "q1",
            "positive_id": "s1",
            "negatives": [
                {"id": "n1", "rank": 1, "score": 1.0},
                {"id": "n2", "rank": 2, "score": 0.5},
                {"id": "n3", "rank": 3, "score": 0.333333},
            ],
        },
        {
            "query": "Why this?",
            "positive": "Three.",
            "negative_1": "One.",
            "negative_2": "so.",
            "kind": "scripted",
            "negatives": [{"id": "n1", "rank": 1, "score": 1.0}, {"id": "n2", "rank": 2, "score": 0.5}],
        },
    ]
    assert "β".encode() in out.path.read_bytes()
    assert out.counts() == {"items": 3, "rows": 2, "negatives": 5}


def test_the_positives_of_other_rows_of_a_question_are_no_negatives(tmp_path):
    rows = [row("Why?", "One."), row("why? ", "Two."), row("How?", "Three.")]
    out = mined_file(tmp_path / "mined.jsonl", {})
    mine(rows, Scripted(["One.", "Two.", "Three.", "Four."]), MiningPlan("scripted", 9, 0), out, lambda _: None)
    found = [[value for key, value in line.items() if key.startswith("negative_")] for line in lines(out.path)]
    assert found == [["Three.", "Four."], ["Three.", "Four."], ["One.", "Two.", "Four."]]


# --- resuming ---

ROWS = [row(f"question {number}?", f"positive {number} ä") for number in range(6)]
BARREN = ["question 0?", "question 2?", "question 5?"]


def mined(path, kind=None) -> tuple[dict, Scripted]:
    kind = kind or Scripted([f"text {n} é" for n in range(6)], BARREN)
    return mine(ROWS, kind, PLAN, mined_file(path, {"seed": 0}), lambda _: None), kind


def test_rows_that_are_there_are_not_mined_again(tmp_path):
    counts, _ = mined(tmp_path / "whole.jsonl")
    assert counts == {"rows": 3, "negatives": 6, "without": 3, "resumed": 0}
    whole = (tmp_path / "whole.jsonl").read_bytes()
    mined_file(tmp_path / "cut.jsonl", {"seed": 0}).save(complete=False)
    (tmp_path / "cut.jsonl").write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 9])
    again, kind = mined(tmp_path / "cut.jsonl")
    assert again == {"rows": 3, "negatives": 6, "without": 3, "resumed": 2}
    assert (tmp_path / "cut.jsonl").read_bytes() == whole
    assert kind.asked == ROWS[4:]
    assert mined(tmp_path / "cut.jsonl")[0] == {"rows": 3, "negatives": 6, "without": 3, "resumed": 3}
