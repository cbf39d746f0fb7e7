"""The effect that a sentence states, and the columns of studies for and against a claim."""

import time

import numpy as np
import pytest

from biorag.answering.extract import ScoredSentences
from biorag.answering.sentence_matching import EvidenceSentence
from biorag.answering.weighing import Weighing, effect_of, found, joined, opposed, sample_size, weigh, with_near
from biorag.api.weighings import comma_separated, markdown
from biorag.types import Answer, CheckedSentence, Hit, Opposition, Question, Snippet, Stance, Verdict

YES, NO, UNSURE, SILENT = Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSURE, Verdict.UNSUPPORTED
HOSTILE = (
    *("odds ratio (OR ", "1 ", "a versus ", "compared with ", "between a and b ", "95% CI ", "p value ", " ", "("),
    *("n = 1", "than in ", "did not increase ", "neither a ", "no significant ", "12 patients and ", "1,000,", "A-"),
)


@pytest.mark.parametrize(
    ("sentence", "effect"),
    [
        (
            "Fewer died with aspirin than with placebo (hazard ratio (HR) 0.82, 95% CI 0.70 to 0.96; P=0.01).",
            "hazard ratio (HR) 0.82, 95% CI 0.70 to 0.96; P=0.01",
        ),
        ("There was no significant difference between the groups (p = 0.06).", None),
        ("Deaths fell (RR 0.7 [95% CI 0.5-0.9; p for trend 0.02]).", "RR 0.7 [95% CI 0.5-0.9]"),
        ("Deaths fell by their hazards (HR) 0.7 (0.5).", "HR 0.7"),
        ("Budesonide versus terbutaline did not reduce visits.", None),
        ("Relapse fell from 12 or 14 patients; 49% vs 32% responded.", "49% vs 32%"),
        ("Of 15.5 vs. 9.5 points nothing is said.", None),
        ("RRR=8.213; 95% CI=1.04, 64.75", "8.213; 95% CI=1.04, 64.75"),
        ("The odds ratio (95% CI) of being concerned was 2.03 (1.24-3.31).", None),
        ("It fell (relative risk ratio [95% CI] = 0.51 [0.34, 0.75]; p < 0.001).", None),
        ("Those whose HbA1c was between 7% and 10% took part.", None),
        ("It was 93.6% ([1,921/2,052] 95% CI 92.6, 94.7).", None),
        ("C-peptide: mean difference 2 pmol/L, 95% CI -8 to 12.", "mean difference 2 pmol/L, 95% CI -8 to 12"),
        ("It fell by -1.5 mmol/L [95% CI -2.0 to -1.0].", "-1.5 mmol/L [95% CI -2.0 to -1.0]"),
        ("It fell by 19% compared with placebo (95% CI 14 to 24).", "19% compared with placebo (95% CI 14 to 24)"),
        (
            "By 4·1 mL/min/1.73 m2 less (95% CI −5·0 to −3·2; p=0.01)",
            "4·1 mL/min/1.73 m2 less (95% CI −5·0 to −3·2; p=0.01)",
        ),
        ("Fewer died in 12 trials, and after 3-day fasts (95% CI 2 to 4).", None),
        ("It was high (96.5%, P<0.001, 95% confidence interval (95% CI): 87.9-99.6).", None),
        ("It fell by -230 kJ (-55 kcal) (95 % CI -490, 30 kJ), in 12.2% (13/107; 95% CI, 6.6%-19.9%).", None),
        ("The odds ratio was 3.1 in men and lower in women (95% CI 0.7 to 1.2).", "odds ratio was 3.1"),
        ("", None),
    ],
)
def test_the_effect_that_a_sentence_states_is_verbatim_or_none(sentence, effect):
    assert effect_of(sentence) == effect
    assert effect is None or effect.rstrip("])") in sentence.replace(")", "") or effect in sentence


def test_participants_are_the_abstract_s_else_the_sentence_s_only_sample():
    assert sample_size("Falls (n = 52) were rare.", "We enrolled 120 patients. Falls were rare.").number == 120
    assert sample_size("Falls (n = 1,052) were rare.", "Falls were rare.") == (1052, "n = 1,052")
    assert sample_size("Falls in A (n = 52) and B (n = 51) were rare.", "Falls were rare.") is None


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_sentences_of_100_000_characters_take_no_time(part):
    text = part * (100_000 // len(part))
    start = time.process_time()
    effect_of(text), sample_size(text, text)
    assert time.process_time() - start < 2


def hits(*snippets: Snippet) -> list[Hit]:
    return [Hit(rank, snippet, 1.0) for rank, snippet in enumerate(snippets, 1)]


def study(name: str, pmid: int | None = None, **fields) -> Snippet:
    return Snippet(name, "", f"Text of {name}.", pmid, fields)


def judge_of(verdicts: dict[str, tuple[Verdict, float]]):
    """Return a judge with a stance for each snippet id."""
    return lambda claim, snippets: [Stance(*verdicts[one.id], one.content) for one in snippets]


def test_studies_are_in_the_order_of_their_best_rank_and_each_stands_once():
    a, b, c, same = study("a", 1), study("b", doi="10.1/X"), study("c"), study("b-copy", doi="https://doi.org/10.1/x")
    parts = joined(hits(a, b, c, a, same), 10)
    assert [[one.id for one in snippets] for snippets in parts] == [["a"], ["b", "b-copy"], ["c"]]
    assert len(joined(hits(a, b, c), 2)) == 2


def test_copies_of_one_study_are_counted_once_and_shown_by_the_richest_record():
    text = {"title": "Zinc lozenges and the common cold", "content": "Zinc shortened colds."}
    of_ris = {"year": 2019, "authors": ["Doe, J"], "journal": "LANCET"}
    snippets = [
        Snippet("a.ris#record=2", **text, metadata=of_ris),
        Snippet("10.5/z", **text, metadata={**of_ris, "doi": "10.5/Z", "retracted": True}),
        Snippet("7", **text, pmid=7, metadata={"doi": "10.5/z", "type": ["Randomized Controlled Trial"], "year": 2019}),
        Snippet("b.ris#record=1", **text, metadata={**of_ris, "year": 2009}),
    ]
    verdicts = {one.id: (YES, 0.99 - 0.1 * n) for n, one in enumerate(snippets)}
    other, trial = weigh("x", hits(*snippets), judge_of(verdicts)).supporting
    assert (other.snippet.id, other.retracted) == ("b.ris#record=1", False)
    assert (trial.snippet.id, trial.reference.types, trial.retracted) == ("7", ("Randomized Controlled Trial",), True)


def test_a_study_is_named_by_the_page_of_its_quote():
    pages = [
        Snippet(
            f"a.pdf#page={n}", "Zinc lozenges and the common cold", f"Text {n}.", None, {"file": "a.pdf", "page": n}
        )
        for n in (1, 2, 3)
    ]
    pages[2].metadata["journal"] = "Lancet"  # the richest
    verdicts = {one.id: (SILENT, 0.9) for one in pages} | {"a.pdf#page=2": (YES, 0.9)}
    weighing = weigh("x", hits(*pages), judge_of(verdicts))
    (only,) = weighing.supporting
    assert (only.records[0].id, only.reference.id, only.reference.journal) == ("a.pdf#page=3", "a.pdf#page=2", "Lancet")
    assert "(a.pdf#page=2)" in markdown(weighing).replace("\\", "") and "page=3" not in markdown(weighing)


def test_those_not_sure_stand_in_the_order_of_the_search():
    verdicts = {"far": (UNSURE, 0.9), "near": (UNSURE, 0.4), "gone": (UNSURE, 0.5)}
    snippets = [study("gone", retracted=True), study("near"), study("far")]
    weighed = weigh("x", hits(*snippets), judge_of(verdicts))
    assert [one.snippet.id for one in weighed.unsure] == ["near", "far", "gone"]


def test_studies_of_a_question_are_those_whose_best_sentence_comes_nearly_as_near_as_the_nearest():
    a, copy, b, far = study("a", 1), study("a-copy", 1), study("b", 2, year=2020), study("c", 3)
    said = [(1, "One.", 0.7), (1, "Two.", 0.9), (2, "Three.", 0.95), (3, "=Four.", 1.0), (4, "Five.", 0.5)]
    rows = [EvidenceSentence(n, 0, 0, text, "", "") for n, text, _ in said]
    scored = ScoredSentences(rows, np.array([score for *_, score in said], np.float32))
    weighing = Weighing("Who?", found=found(hits(a, copy, b, far), scored, 0.9))
    assert [(one.snippet.id, one.stance.quote) for one in weighing.found] == [("b", "=Four."), ("a-copy", "Three.")]
    assert weighing.counts["supporting"] == 0 and weighing.searched == 2
    header, first, _ = comma_separated(weighing).splitlines()
    assert header == "id,pmid,title,author,year,type,participants,effect,retracted,quote,location", "no side is told"
    assert first == "b,2,,,2020,,,,,'=Four.,"
    assert found([], ScoredSentences([], np.zeros(0, np.float32)), 0.9) == ()


def test_studies_near_a_claim_are_not_sure_unless_they_state_it():
    a, b, gone, far = study("a", 1), study("b", 2), study("c", 3, retracted=True), study("d", 4)
    ranked = hits(a, b, gone, far)
    stances = [Stance(YES, 1.0, "One."), *[Stance(SILENT, 0.0, "")] * 3]
    rows = [EvidenceSentence(n, 0, 0, text, "", "") for n, text in enumerate(["One.", "Two.", "Three.", "Four."], 1)]
    scored = ScoredSentences(rows, np.array([3.0, 1.3, 2.0, 0.9], np.float32))
    weighing = with_near(weigh("So it is.", ranked, lambda claim, snippets: stances), ranked, scored)
    assert [(name, one.snippet.id, one.stance.verdict) for name, one in weighing.rows] == [
        ("supporting", "a", YES),
        ("unsure", "b", UNSURE),
        ("unsure", "c", UNSURE),
    ]
    assert (weighing.silent, weighing.searched) == (1, 4)


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
    weighed = weigh("x", hits(*snippets), judge_of(verdicts))
    assert [one.snippet.id for one in weighed.supporting] == ["b", "a", "c"]
    assert [one.snippet.id for one in weighed.opposing] == ["d"]
    assert weighed.counts == {"supporting": 2, "opposing": 1, "unsure": 1, "silent": 1, "retracted": 1}
    assert weighed.searched == 6


@pytest.mark.parametrize(("support", "column"), [(0.95, "supporting"), (0.85, "unsure"), (0.7, "opposing")])
def test_no_study_stands_in_both_columns(support, column):
    parts = [Snippet("p", "", "One block.", 7), Snippet("q", "", "Another block.", 7)]
    weighed = weigh("x", hits(*parts), judge_of({"p": (YES, support), "q": (NO, 0.82)}))
    assert {name: len(studies) for name, studies in weighed.columns.items() if studies} == {column: 1}


def test_a_supported_sentence_names_each_other_study_that_surely_says_otherwise():
    beside = Snippet("f", "", "Another matter.", 5)
    found = hits(
        *(study(name, n) for name, n in zip("abcd", (1, 2, 2, 3), strict=True)), study("e", 4, retracted=True), beside
    )
    sentences = (CheckedSentence("Text says so.", YES, (1,)), CheckedSentence("T.", SILENT))
    answer = Answer(Question("q", "Q?"), hits=tuple(found), sentences=sentences)
    verdicts = dict.fromkeys("abcef", (NO, 0.99)) | {"d": (NO, 0.5)}
    first, second = opposed(answer, judge_of(verdicts)).sentences
    assert first.otherwise == (Opposition(2, "b", 2, "Text of b.", 0.99),)
    assert second.otherwise == ()
