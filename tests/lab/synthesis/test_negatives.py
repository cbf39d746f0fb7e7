"""Negatives that a model writes: what it is shown of a row, and which of its texts become negatives."""

import json
from dataclasses import replace
from functools import partial

import pytest

from biorag.lab.synthesis.drafts import GeneratedFile, passage_fault
from biorag.lab.synthesis.negatives import MinedPair, draft_form, negative_rows
from biorag.lab.synthesis.writers import Draws, PromptedWriter
from biorag.prompts.template import Template, load_template
from biorag.types import Generation, TrainingRow
from tests.fakes import ScriptedGenerator

POSITIVE = "Aspirin lowers fever since it blocks cyclooxygenase, which makes prostaglandins."
MINED = ("Paracetamol lowers fever too, by means that are not known.", "Heparin acts at once, and by infusion.")
MINED_ROW = TrainingRow("How does aspirin lower fever?", POSITIVE, MINED, "bm25", "q1", "p1")
BARE_ROW = TrainingRow("What is heparin?", "Heparin is a glycosaminoglycan.")
GOOD = [
    "Aspirin is sold in every pharmacy, and fever is why most people buy it.",
    "In a survey of 310 patients, aspirin against fever was taken twice a day.",
]


OWN = ("negatives", "without", "near_copies")


class Writer:
    batch = 1

    def __init__(self, texts):
        self.texts = texts

    def __call__(self, subjects):
        return [[Generation(*one) for one in self.texts[subject.row.query]] for subject in subjects]


def generated(tmp_path, texts, examples):
    pairs = [MinedPair(MINED_ROW), MinedPair(BARE_ROW)]
    file = GeneratedFile(tmp_path / "n.jsonl", {}, partial(negative_rows, examples=examples))
    counts = file.generate(pairs, dict.fromkeys(OWN, 0) | {"pairs": 2, "unmined": 1}, Writer(texts), lambda _: None)
    assert file.finished() == {**counts, "resumed": 2}
    return counts, [json.loads(line) for line in file.path.read_text(encoding="utf-8").splitlines()]


TEXTS = {
    MINED_ROW.query: [
        (f" {GOOD[0]}\n", False, False, 100, 20),
        (GOOD[0].upper(), False, False, 100, 20),
        ("", False),
        (GOOD[1], True),
        ("Aspirin is sold.", False),
        (MINED[0], False),
        (POSITIVE.replace("since", "as since"), False),
        ("An example of the prompt, of eight words.", False),
        (GOOD[1], False, True, 7, 3),
    ],
    BARE_ROW.query: [(GOOD[1], False)],
}


def test_rows_and_counts(tmp_path):
    counts, lines = generated(tmp_path, TEXTS, examples="Example: An example of the prompt, of eight words. Be brief.")
    tally = {"empty": 1, "cut": 1, "short": 1, "copied": 2, "near_copies": 1, "duplicates": 2}
    tokens = {"prompt_tokens": 207, "completion_tokens": 43}
    own = {"pairs": 2, "unmined": 1, "negatives": 2, "without": 1, "resumed": 0}
    assert counts == {**own, "generated": 10, "rows": 1, **tally, **tokens}
    ids = {"query_id": "q1", "positive_id": "p1"}
    texts = {"query": MINED_ROW.query, "positive": POSITIVE, "negative_1": GOOD[0], "negative_2": GOOD[1]}
    assert lines == [{**texts, "kind": "synthetic", **ids}]


def test_a_model_is_shown_the_positive_and_mined_negatives_in_turn():
    generator = ScriptedGenerator(replies=[json.dumps({"passage": f" text {n} "}) for n in range(5)] + ["no JSON"])
    asked = draft_form(load_template("negative"))
    drafts = PromptedWriter(generator, asked, Draws(3, 48, 0.5, seed=3))([MinedPair(MINED_ROW), MinedPair(BARE_ROW)])
    assert [[draft.text for draft in group] for group in drafts] == [
        ["text 0", "text 1", "text 2"],
        ["text 3", "text 4", ""],
    ]
    shown = [[text in prompt.user for text in (POSITIVE, *MINED)] for prompt in generator.prompts[:3]]
    assert shown == [[True, True, False], [True, False, True], [True, True, False]]
    assert all(MINED_ROW.query in prompt.user for prompt in generator.prompts[:3])
    assert '<document n="2">' not in generator.prompts[3].user
    assert generator.schemas[0]["properties"] == {"passage": {"type": "string"}}
    assert len({sampling.seed for sampling in generator.samplings}) == 6


def test_a_template_of_ones_own_shows_the_rows_instruction():
    generator = ScriptedGenerator(replies=["{}", "{}"])
    template = Template("Be brief.", "Query: {question} Original prompt: {instruction}\n{documents}")
    pairs = [MinedPair(replace(MINED_ROW, instruction="Find {it}")), MinedPair(BARE_ROW)]
    PromptedWriter(generator, draft_form(template), Draws(1, 48, 0.5, seed=3))(pairs)
    assert [prompt.user.split("\n")[0] for prompt in generator.prompts] == [
        f"Query: {MINED_ROW.query} Original prompt: Find {{it}}",
        f"Query: {BARE_ROW.query} Original prompt: ",
    ]


def test_long_passages_are_cut_to_the_window_together():
    generator = ScriptedGenerator(replies=["{}"], context_window=700)
    long = TrainingRow("What is it?", "one " * 3000, ("two " * 3000,))
    PromptedWriter(generator, draft_form(load_template("negative")), Draws(1, 48, 0.5, 0))([MinedPair(long)])
    (prompt,) = generator.prompts
    assert 300 < generator.count_tokens(prompt) <= 700 - 48 - 64
    assert abs(prompt.user.count("one ") - prompt.user.count("two ")) <= 1


LONG_POSITIVE = (
    "Aspirin lowers fever: it blocks cyclooxygenase, an enzyme that makes prostaglandins from arachidonic acid."
)
SHORT_MINED = "Heparin."
TWENTY = " ".join(f"word{n}" for n in range(20))


@pytest.mark.parametrize(
    ("passage", "capped", "fault"),
    [
        ("Fever is measured in the ear, and aspirin is sold in every pharmacy.", False, None),
        (" ?! ", False, "empty"),
        ("", True, "empty"),
        ("Fever is measured in the ear, and aspirin is sold in every phar", True, "cut"),
        ("Fever is measured in the ear today", False, "short"),
        ("Fever is measured in the ear, today only", False, None),
        ("aspirin LOWERS fever; it blocks cyclooxygenase - an enzyme", False, "copied"),
        (f"We say: {LONG_POSITIVE} It is known.", False, "copied"),
        ("Heparin acts at once, heparin is cheap, and all have it.", False, None),
        ("spirin lowers fever it blocks cyclooxygenase an enzyme", False, None),
        (" ".join(reversed(LONG_POSITIVE.split())), False, "near_copies"),
        (f"{TWENTY} other", False, "copied"),
        (TWENTY.replace("word7", "x y"), False, None),
        (TWENTY.replace("word7", "word7 x"), False, "near_copies"),
    ],
)
def test_faults_of_passages(passage, capped, fault):
    assert passage_fault(passage, capped, [LONG_POSITIVE, SHORT_MINED, TWENTY]) == fault
