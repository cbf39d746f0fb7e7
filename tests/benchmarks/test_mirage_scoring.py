"""Scoring against a slow restatement of MIRAGE's published rules, and the figures made from the scores."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from biorag.benchmarks.mirage.questions import load_benchmark
from biorag.benchmarks.mirage.scoring import (
    Located,
    Scoring,
    average,
    locate,
    score_reply,
    stored_reply,
    task_score,
)
from biorag.types import Question

LETTERS = "ABCD"
MARKER = '"answer_choice": "'


def mirage_letter(reply: str) -> tuple[str, bool]:
    """What MIRAGE's evaluate.py makes of a file's first string, rule by rule, and whether no rule fitted."""
    sentence = reply.split(MARKER)[-1].strip()
    for pattern in [
        r"^\s*(A|B|C|D)$",
        r"^\s*(A|B|C|D) or",
        r"^\s*(A|B|C|D) and",
        r"^\s*(A|B|C|D)/",
        r"^\s*(A|B|C|D),",
        r"[Oo]ption (A|B|C|D)",
        r":\s*(A|B|C|D)",
        r"^\s*(A|B|C|D)\.",
        r'^\s*(A|B|C|D)"',
        r"^\s*(A|B|C|D):",
    ]:
        found = re.findall(pattern, sentence)
        if len(found) > 0:
            return found[0].upper(), False
    return "A", True


@pytest.mark.parametrize(
    ("reply", "letter", "forced"),
    [
        ("B", "B", False),
        ("  C\n", "C", False),
        ("D or A", "D", False),
        ("C, certainly", "C", False),
        ("The answer is option C", "C", False),
        ("The answer is: B", "B", False),
        ("B. the second", "B", False),
        ('C"}', "C", False),
        ("D: the fourth", "D", False),
        ('{"answer_choice": "C"}', "C", False),
        ('{"answer_choice": "A"} or rather {"answer_choice": "D"}', "D", False),
        ('{"step_by_step_thinking": "option A", "answer_choice": "B"}', "B", False),
        ('{"answer_choice": "Because: D"}', "D", False),
        ('{"answer_choice":"B"}', "A", True),
        ("B. but option C", "C", False),
        ("", "A", True),
        ("b", "A", True),
        ("I do not know", "A", True),
        ("Bacteria", "A", True),
        ('{"answer_choice": "E"}', "A", True),
    ],
)
def test_locate_on_golden_cases(reply, letter, forced):
    assert locate(reply) == Located(letter, forced)
    assert mirage_letter(reply) == (letter, forced), "the restatement in this test is wrong"


PIECES = st.sampled_from(
    [*"ABCDEabx", *" \n\t\u2003:./,\"'{}[]()", " or", " and", "Option ", "option ", MARKER, '"answer_choice":', "\\"]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=14).map("".join))


@given(TEXTS)
def test_locate_is_what_mirage_does(text):
    assert tuple(locate(text)) == mirage_letter(text)


def replied(**fields):
    return json.dumps(fields)


@given(
    choice=st.sampled_from(LETTERS),
    others=st.dictionaries(
        TEXTS.filter(lambda key: key != "answer_choice"), st.one_of(TEXTS, st.lists(TEXTS, max_size=2)), max_size=3
    ),
    choice_first=st.booleans(),
)
def test_a_stored_reply_gives_its_choice_back_whatever_stands_beside_it(choice, others, choice_first):
    fields = {"answer_choice": choice, **others} if choice_first else {**others, "answer_choice": choice}
    stored = stored_reply(choice, json.dumps(fields))
    assert mirage_letter(stored) == (choice, False)
    assert json.loads(stored) == fields
    assert list(json.loads(stored))[-1] == "answer_choice"


@pytest.mark.parametrize("reply", ["I think B", '{"answer_choice": "B"', 'Sure: {"answer_choice": "B"}', "[]", ""])
def test_what_is_not_the_json_asked_for_is_stored_as_it_came(reply):
    assert stored_reply(None, reply) == reply
    assert stored_reply("B", reply) == reply


ASKED = Question("q", "?", {"A": "a", "B": "b", "C": "c"}, "B")


@pytest.mark.parametrize(
    ("reply", "correct", "strict", "forced"),
    [
        ('{"step_by_step_thinking": "x", "answer_choice": "B"}', True, True, False),
        ('{"step_by_step_thinking": "x", "answer_choice": "C"}', False, True, False),
        ('{"answer_choice": "D"}', False, False, False),
        ("B", True, False, False),
        ('Sure! {"answer_choice": "B"}', True, False, False),
        ('["B"]', False, False, True),
        ('{"answer_choice": null}', False, False, True),
        ('{"answer_choice": ["B"]}', False, False, True),
        ("", False, False, True),
    ],
)
def test_score_reply(reply, correct, strict, forced):
    expected_letter, expected_forced = mirage_letter(reply)
    scoring = score_reply(ASKED, reply)
    assert (scoring.correct, scoring.forced) == (expected_letter == "B", expected_forced)
    assert scoring == Scoring(correct, strict, forced, expected_letter, len(ASKED.options))


def test_a_run_without_one_readable_reply_scores_40_13_percent_on_the_real_benchmark(shared_data):
    benchmark = load_benchmark(shared_data / "mirage" / "benchmark.json")
    scores = {
        task: task_score([score_reply(question, "I cannot tell") for question in questions])
        for task, questions in benchmark.items()
    }
    assert round(average(scores), 4) == 0.4013
    for task, questions in benchmark.items():
        assert scores[task].accuracy == sum(question.answer == "A" for question in questions) / len(questions)
        assert scores[task].forced_A == scores[task].n == len(questions)
        assert scores[task].parsed == scores[task].strict_accuracy == 0


SCORINGS = st.builds(Scoring, *[st.booleans()] * 3, st.sampled_from("ABCD"), st.integers(2, 4))


@given(st.lists(SCORINGS, min_size=1, max_size=40))
def test_task_score_by_counting(scorings):
    right = [scoring for scoring in scorings if scoring.correct]
    score = task_score(scorings)
    share = len(right) / len(scorings)
    assert score.n == len(scorings)
    assert score.accuracy == pytest.approx(share)
    assert score.std == pytest.approx(math.sqrt(share * (1 - share) / len(scorings)))
    assert score.strict_accuracy == pytest.approx(len([s for s in right if s.strict]) / len(scorings))
    assert score.parsed == pytest.approx(len([s for s in scorings if s.strict]) / len(scorings))
    assert score.forced_A == len([s for s in scorings if s.forced])
    assert score.letters == {letter: n for letter in "ABCD" if (n := [s.letter for s in scorings].count(letter))}
    assert score.chance == pytest.approx(np.mean([1 / s.options for s in scorings]))
    assert score.interval == pytest.approx(
        tuple(binomtest(len(right), len(scorings)).proportion_ci(method="wilson")), abs=1e-4
    )
