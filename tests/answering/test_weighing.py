"""A claim turned round, what a sentence states, and the columns of studies for and against a claim."""

import time

import pytest

from biorag.answering.findings import Findings, findings_of, sample_size
from biorag.answering.reversal import reversed_claim
from biorag.answering.stance import Stance
from biorag.answering.weighing import joined, opposed, weigh
from biorag.types import Answer, CheckedSentence, Hit, Opposition, Question, Snippet, Verdict

YES, NO, UNSURE, SILENT = Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSURE, Verdict.UNSUPPORTED
HOSTILE = (
    *("odds ratio (OR ", "1 ", "a versus ", "compared with ", "between a and b ", "95% CI ", "p value ", " ", "("),
    *("n = 1", "than in ", "did not increase ", "neither a ", "no significant ", "12 patients and ", "1,000,", "A-"),
)


@pytest.mark.parametrize(
    ("claim", "turned"),
    [
        ("Statins reduce mortality.", "Statins increase mortality."),
        ("High doses of statins improve survival.", "High doses of statins worsen survival."),
        ("Acute leukaemia is more common in boys.", "Acute leukaemia is less common in boys."),
        ("Vitamin D did not reduce falls.", "Vitamin D did reduce falls."),
        ("Aspirin has no effect on survival.", "Aspirin has an effect on survival."),
        ("Zinc fails to prevent colds.", "Zinc does prevent colds."),
        ("Obesity is associated with asthma.", "Obesity is not associated with asthma."),
        ("Medications are effective.", "Medications are ineffective."),
        ("Natriuretic peptides protect against diabetes.", "Natriuretic peptides do not protect against diabetes."),
        ("MVP regulates the sorting of miR-193a.", "MVP does not regulate the sorting of miR-193a."),
        (
            "Visceral fat has brown cells, not only white ones.",
            "Visceral fat does not have brown cells, not only white ones.",
        ),
        ("Nothing of the kind", None),
        ("", None),
    ],
)
def test_a_claim_is_turned_round(claim, turned):
    assert reversed_claim(claim) == turned


@pytest.mark.parametrize(
    ("sentence", "stated"),
    [
        (
            "Fewer died with aspirin than with placebo (hazard ratio (HR) 0.82, 95% CI 0.70 to 0.96; P=0.01).",
            Findings("than with placebo", "Fewer", "hazard ratio (HR) 0.82, 95% CI 0.70 to 0.96; P=0.01"),
        ),
        (
            "There was no significant difference between the metformin and placebo groups (p = 0.34).",
            Findings("between the metformin and placebo groups", "no significant difference", "p = 0.34"),
        ),
        (
            "Budesonide versus terbutaline did not reduce visits.",
            Findings("Budesonide versus terbutaline", "did not reduce"),
        ),
        ("Relapse fell from 12 or 14 patients; 49% vs 32% responded.", Findings(None, None, "49% vs 32%")),
        ("Of 15.5 vs. 9.5 points nothing is said.", Findings()),
        ("RRR=8.213; 95% CI=1.04, 64.75", Findings(None, None, "8.213; 95% CI=1.04, 64.75")),
        ("", Findings()),
    ],
)
def test_what_a_sentence_states_is_verbatim_or_nothing(sentence, stated):
    assert findings_of(sentence) == stated
    assert all(part is None or part in sentence for part in (stated.arms, stated.direction, stated.effect))


def test_participants_are_the_abstract_s_else_the_sentence_s_only_sample():
    assert sample_size("Falls (n = 52) were rare.", "We enrolled 120 patients. Falls were rare.").number == 120
    assert sample_size("Falls (n = 1,052) were rare.", "Falls were rare.") == (1052, "n = 1,052")
    assert sample_size("Falls in A (n = 52) and B (n = 51) were rare.", "Falls were rare.") is None


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_sentences_of_100_000_characters_take_no_time(part):
    text = part * (100_000 // len(part))
    start = time.process_time()
    findings_of(text), reversed_claim(text), sample_size(text, text)
    assert time.process_time() - start < 2


def hits(*snippets: Snippet) -> list[Hit]:
    return [Hit(rank, snippet, 1.0) for rank, snippet in enumerate(snippets, 1)]


def study(name: str, pmid: int | None = None, **fields) -> Snippet:
    return Snippet(name, "", f"Text of {name}.", pmid, fields)


def judge_of(verdicts: dict[str, tuple[Verdict, float]]):
    """Return a judge with a stance for each snippet id."""
    return lambda claim, snippets: [Stance(*verdicts[one.id], one.content) for one in snippets]


def test_rankings_are_joined_by_best_rank_and_a_study_stands_once():
    a, b, c, same = study("a", 1), study("b", doi="10.1/X"), study("c"), study("b-copy", doi="https://doi.org/10.1/x")
    parts = joined([hits(a, b), hits(c, a, same)], 10)
    assert [[one.id for one in snippets] for snippets in parts] == [["a"], ["c"], ["b", "b-copy"]]
    assert len(joined([hits(a, b), hits(c)], 2)) == 2


def test_columns_are_ordered_and_retracted_studies_are_marked_and_not_counted():
    verdicts = {
        "a": (YES, 0.7),
        "b": (YES, 0.9),
        "c": (YES, 0.99),
        "d": (NO, 0.8),
        "e": (UNSURE, 0.5),
        "f": (SILENT, 1),
    }
    snippets = [study(name, n, retracted=name == "c") for n, name in enumerate(verdicts, 1)]
    weighed = weigh("x", None, [hits(*snippets)], judge_of(verdicts))
    assert [one.snippet.id for one in weighed.supporting] == ["b", "a", "c"]
    assert [one.snippet.id for one in weighed.opposing] == ["d"]
    assert weighed.counts == {"supporting": 2, "opposing": 1, "unsure": 1, "silent": 1, "retracted": 1}
    assert weighed.searched == 6


@pytest.mark.parametrize(("support", "column"), [(0.95, "supporting"), (0.85, "unsure"), (0.7, "opposing")])
def test_no_study_stands_in_both_columns(support, column):
    parts = [Snippet("p", "", "One block.", 7), Snippet("q", "", "Another block.", 7)]
    weighed = weigh("x", None, [hits(*parts)], judge_of({"p": (YES, support), "q": (NO, 0.82)}))
    assert {name: len(studies) for name, studies in weighed.columns.items() if studies} == {column: 1}


def test_a_supported_sentence_names_each_other_study_that_surely_says_otherwise():
    found = hits(study("a", 1), study("b", 2), study("c", 2), study("d", 3), study("e", 4, retracted=True))
    sentences = (CheckedSentence("S.", YES, (1,)), CheckedSentence("T.", SILENT))
    answer = Answer(Question("q", "Q?"), hits=tuple(found), sentences=sentences)
    verdicts = dict.fromkeys("abce", (NO, 0.99)) | {"d": (NO, 0.5)}
    first, second = opposed(answer, judge_of(verdicts)).sentences
    assert first.otherwise == (Opposition(2, "b", 2, "Text of b.", 0.99),)
    assert second.otherwise == ()
