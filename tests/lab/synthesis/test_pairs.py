"""Scenarios as a model lists them or a file has them, and the pairs that are written of them."""

import json
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import BadInputError, MissingError
from biorag.lab.synthesis.drafts import GeneratedFile
from biorag.lab.synthesis.pairs import draft_form, pair_rows, read_attributes
from biorag.lab.synthesis.scenarios import LISTED, Scenario, list_scenarios, read_scenarios
from biorag.lab.synthesis.scenarios import draft_form as scenario_form
from biorag.lab.synthesis.writers import Draws, PromptedWriter
from biorag.prompts.template import load_template
from biorag.training.rows import normalised, read_rows
from biorag.types import Generation
from tests.fakes import ScriptedGenerator

DRUG = Scenario("Given a drug, find what it does.")
GENE = Scenario("Given a gene, find its disease.")
POSITIVE = "Aspirin lowers fever since it blocks an enzyme called cyclooxygenase."
NEGATIVE = "Aspirin against fever is sold in every pharmacy of the country."
LISTER = load_template("scenario", needed="count", known=("count",))
PAIR = load_template("pair", needed="scenario", known=("scenario",))


def pair(query="How does aspirin act? And more", positive=POSITIVE, negative=NEGATIVE):
    return json.dumps({"query": query, "positive": positive, "hard_negative": negative})


def pair_file(path, examples="", attributes=None):
    return GeneratedFile(path, {}, partial(pair_rows, examples=examples, attributes=attributes))


# --- pairs ---

DRAFTS = {
    DRUG.id: [
        (pair(), False, False, 50, 60),
        (pair("how does ASPIRIN act?", positive=f"{POSITIVE} It does."), False),
        (pair("Why?"), False),
        (pair(DRUG.id), False),
        (pair("What of fever?", positive=NEGATIVE), False),
        (pair("What of fever?", negative=f"Fever, {POSITIVE}"), False),
        (pair("What of fever?", positive="An enzyme."), False),
        (pair("What of fever?", negative=""), False),
        (pair("What of fever?", negative="Fever is felt on the forehead by all who ha"), True),
        (pair("What of it?", negative="The prompt has this passage of eight words."), False),
        (pair("aspirin example?"), False),
        ("no JSON", False),
        ('{"query": "What of fe', True),
        (json.dumps(["x"]), False),
    ],
    GENE.id: [
        (pair("What of fever?"), False),  # the first pair's positive
        (pair("cftr gene", "Mutations of CFTR cause cystic fibrosis, as was found."), False, True, 5, 6),
        (pair("What of fever?", "In 1989, as was found, mutations of CFTR.", "a b c d e f g h"), False),
    ],
}


class Writer:
    batch = 2

    def __call__(self, subjects):
        return [[Generation(*one) for one in DRAFTS[subject.id]] for subject in subjects]


def test_rows_and_counts(tmp_path):
    file = pair_file(tmp_path / "p.jsonl", "Aspirin example: The prompt has this passage of eight words.")
    counts = file.generate(
        [DRUG, GENE], {"scenarios": 2, "near_copies": 0, "prompt_tokens": 1000}, Writer(), lambda _: None
    )
    left_out = {"empty": 3, "short": 2, "cut": 2, "copied": 5, "near_copies": 0, "duplicates": 2}
    tokens = {"prompt_tokens": 1055, "completion_tokens": 66, "resumed": 0}
    assert counts == {"scenarios": 2, "generated": 17, "rows": 3, **left_out, **tokens}
    assert counts["generated"] == counts["rows"] + sum(left_out.values())
    assert file.finished() == {**counts, "resumed": 2}
    lines = [json.loads(line) for line in file.path.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == {
        "query": "How does aspirin act?",
        "positive": POSITIVE,
        "negative_1": NEGATIVE,
        "kind": "synthetic",
        "instruction": DRUG.id,
    }
    assert [line["instruction"] for line in lines] == [DRUG.id, GENE.id, GENE.id]
    rows, cleaning = read_rows([file.path])
    assert (cleaning["rows"], {row.kind for row in rows}, len(rows[1].negatives)) == (3, {"synthetic"}, 1)


# --- attributes ---

ATTRIBUTES = read_attributes(7)


def test_attributes_are_bmretrievers_and_drawn_for_each_pair_alone():
    assert {name: len(values) for name, values in ATTRIBUTES.values.items()} == {
        "query_type": 3,
        "query_length": 3,
        "clarity": 3,
        "num_words": 5,
        "difficulty": 3,
    }
    drawn = Counter(ATTRIBUTES.draw("task", number)["num_words"] for number in range(2000))
    assert set(drawn) == set(ATTRIBUTES.values["num_words"])
    assert all(320 < count < 480 for count in drawn.values())
    pairs = [(ATTRIBUTES.draw("task", n)["clarity"], ATTRIBUTES.draw("task", n)["difficulty"]) for n in range(200)]
    assert len(set(pairs)) == 9, "attributes do not depend on each other"
    assert read_attributes(8).draw("task", 0) != ATTRIBUTES.draw("task", 0)


def test_a_prompt_and_its_row_have_the_drawn_attributes(tmp_path):
    template = load_template("pair_attributes", needed="scenario", known=("scenario", *ATTRIBUTES.values))
    generator = ScriptedGenerator(replies=[pair(), pair("What of it?", f"{NEGATIVE} So", f"{POSITIVE} So")])
    writer = PromptedWriter(generator, draft_form(template, ATTRIBUTES), Draws(2, 60, 0.5, seed=7))
    file = pair_file(tmp_path / "p.jsonl", "", ATTRIBUTES)
    file.generate([DRUG], {"scenarios": 1, "near_copies": 0}, writer, lambda _: None)
    rows = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert [row["attributes"] for row in rows] == [ATTRIBUTES.draw(DRUG.id, number) for number in range(2)]
    for row, prompt in zip(rows, generator.prompts, strict=True):
        assert all(value in prompt.user for value in row["attributes"].values())


# --- scenarios ---


def listing(*texts, more=()):
    return json.dumps({"scenarios": list(texts)}), *more


def lister(*replies):
    generator = ScriptedGenerator(replies=[reply[0] for reply in replies])
    return generator, PromptedWriter(generator, scenario_form(LISTER), Draws(1, 40, 0.7, seed=1))


def test_lists_are_asked_for_until_there_are_enough():
    first = [f"find paper number {n}" for n in range(7)]
    replies = [
        listing(*first, "Find PAPER: number 3", "too short", "find case reports of patients"),
        ("no JSON",),
        listing("find the\nlast one", "find one too many", 3),
    ]
    generator, writer = lister(*replies)
    done = []
    listed, _ = list_scenarios(8, writer, LISTED, "Example: find case reports of patients, or not.", done.append)
    assert [scenario.id for scenario in listed] == [*first, "find the last one"]
    assert sum(done) == 8
    assert len(generator.prompts) == 3
    assert len({sampling.seed for sampling in generator.samplings}) == 3
    field = generator.schemas[0]["properties"]["scenarios"]
    assert field == {"type": "array", "items": {"type": "string"}, "minItems": LISTED, "maxItems": LISTED}


def test_a_model_that_repeats_itself_is_asked_three_times_as_often_and_no_more():
    generator, writer = lister(*[listing("find the same again")] * 9)
    assert [s.id for s in list_scenarios(12, writer, LISTED, "", lambda _: None)[0]] == ["find the same again"]
    assert len(generator.prompts) == 6
    _, writer = lister(*[("no JSON",)] * 3)
    with pytest.raises(BadInputError, match="listed no scenario: give --scenario-file"):
        list_scenarios(1, writer, LISTED, "", lambda _: None)


def test_what_is_no_file_of_scenarios_is_refused(tmp_path):
    path = tmp_path / "s.txt"
    with pytest.raises(MissingError, match=r"s\.txt is not there"):
        read_scenarios(path)
    path.write_bytes(b"find \xff this\n")
    with pytest.raises(BadInputError, match=r"s\.txt is not UTF-8 \(byte 5\)"):
        read_scenarios(path)
    path.write_text("too short\n\n ?\n")
    with pytest.raises(BadInputError, match=r"s\.txt has no scenario"):
        read_scenarios(path)


@given(st.lists(st.text(st.sampled_from("ab \t\r?é\u2028"), max_size=12)), st.integers(1, 5))
def test_a_file_gives_its_distinct_lines_of_three_words(tmp_path_factory, lines, limit):
    path = tmp_path_factory.mktemp("s") / "s.txt"
    path.write_bytes("\n".join(lines).encode())
    slow = {}
    for line in "\n".join(lines).replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if len(normalised(line).split()) >= 3:
            slow.setdefault(normalised(line), " ".join(line.split()))
    if not slow:
        with pytest.raises(BadInputError):
            read_scenarios(path, limit)
    else:
        assert [scenario.id for scenario in read_scenarios(path, limit)] == list(slow.values())[:limit]
