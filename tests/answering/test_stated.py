"""What words alone establish: that a claim stands in a sentence, or differs in one number, name or negation."""

import pytest

from biorag.answering.guards.stated import APART, Relation, compared, nearest
from biorag.answering.guards.verdicts import SnippetVerdict, snippet_verdicts
from biorag.answering.guards.words import WordKind, words
from biorag.types import Snippet

SHOWN = "Aspirin prevents stroke."
STATED = [
    ("Metformin lowers blood glucose in adults.", "Metformin lowers blood glucose in adults."),
    ("Rate has been lower in the men.", "The rate was lower in men."),
    ("Stroke fell among men.", "Stroke fell in men."),
    (SHOWN, "These results show that aspirin prevents stroke."),
    ("These results show that aspirin prevents stroke.", SHOWN),
    # Cut where the sentence joins or pauses, or without what it says in brackets.
    (SHOWN, "However, aspirin prevents stroke."),
    (SHOWN, "Aspirin prevents stroke (p < 0.01)."),
    (SHOWN, "Aspirin prevents stroke, although bleeding is common."),
    # Words and numbers in their other forms.
    ("Tumours regressed in randomised trials.", "Tumors regressed in randomized trials."),
    ("Adults took 500 mg daily.", "Adults took 0.5 g daily."),
    ("Follow-up lasted 14 days.", "Follow-up lasted two weeks."),
    ("Drug A isn't safe.", "Drug A is not safe."),
    ("Patients took 1.2 g daily.", "21 patients took 1.2 g daily."),
]
NOT_STATED = [
    (SHOWN, "Aspirin may prevent stroke."),
    ("Aspirin may prevent stroke.", SHOWN),
    (SHOWN, "Aspirin prevents stroke in men over 60."),
    (SHOWN, "Aspirin prevents stroke (in men over 60)."),
    (SHOWN, "Aspirin (in men only) prevents stroke."),
    (SHOWN, "In men over 60, aspirin prevents stroke."),
    (SHOWN, "Aspirin prevents stroke, but not in women."),
    (SHOWN, "Aspirin prevents stroke, although only in men."),
    (SHOWN, "Aspirin prevents stroke, a difference that was not significant."),
    ("Aspirin lowers fever by 30%.", "Aspirin lowers fever by 13% in women."),
    (SHOWN, "Aspirin prevents stroke only if it is given early."),
    (SHOWN, "If given early, aspirin prevents stroke."),
    (SHOWN, "It is unknown whether aspirin prevents stroke."),
    (SHOWN, "There is no evidence that aspirin prevents stroke."),
    (SHOWN, "Studies failed to show that aspirin prevents stroke."),
    (SHOWN, "A study in rats showed that aspirin prevents stroke."),
    (SHOWN, "Neither zinc nor aspirin prevents stroke."),
    ("Aspirin prevents stroke by 12%.", SHOWN),
    ("Only aspirin prevents stroke.", SHOWN),
    ("COX-1 inhibits aspirin in platelets.", "Aspirin inhibits COX-1 in platelets."),
    ("Women had more pain than men.", "Men had more pain than women."),
    ("Of 30 women, 12 relapsed.", "Of 12 women, 30 relapsed."),
    ("Fever fell in 78% given zinc.", "Fever fell in 49 of 63 (78%) given iron and in 32 of 63 (51%) given zinc."),
    ("Metformin raises blood glucose.", "Metformin lowers blood glucose."),
    ("Survival was < 5 years.", "Survival was 5 years."),
    ("Bananas are yellow.", SHOWN),
    # What some did not do, others may have done.
    ("Patients took aspirin daily.", "21 patients did not take aspirin daily."),
    ("Patients took Warfarin daily.", "21 patients took Heparin daily."),
    ("Patients took 1.2 mg daily.", "21 of the patients took 1.2 g daily."),
    ("", SHOWN),
]
DIFFERS = [  # and the words of the difference
    ("The toll-like receptor 80 (TLR8) binds it.", "The toll-like receptor 8 (TLR8) binds it.", "8, not 80"),
    ("Adults took 500 mg daily.", "Adults took 50 mg daily.", "50 mg, not 500 mg"),
    ("Aspirin lowers fever by 30%.", "Aspirin lowers fever by 13% (95% CI 2 to 20), and pain.", "13%, not 30%"),
    ("Follow-up lasted 12 weeks.", "Follow-up lasted 12 months.", "12 months, not 12 weeks"),
    ("Patients took 1.2 mg daily for a month.", "21 patients took 1.2 g daily for a month.", "1.2 g, not 1.2 mg"),
    ("Scores changed by -3 points.", "Scores changed by 3 points.", "3, not -3"),
    ("IL-6 inhibits TNF.", "IL-10 inhibits TNF.", "IL-10, not IL-6"),
    ("Warfarin inhibits its recycling.", "Heparin inhibits its recycling.", "Heparin, not Warfarin"),
    ("Metformin does not lower glucose.", "Metformin lowers glucose.", "this without “not”"),
    ("Metformin lowers glucose.", "Metformin does not lower glucose.", "this with “not”"),
    ("The test was significant.", "The test was non-significant.", "this with “non”"),
]


@pytest.mark.parametrize(("claim", "sentence"), STATED)
def test_a_claim_that_stands_in_a_sentence_in_nearly_its_words(claim, sentence):
    assert compared(claim, sentence).relation is Relation.STATED


@pytest.mark.parametrize(("claim", "sentence"), NOT_STATED)
def test_hedges_restrictions_roles_and_other_words_are_not_passed_over(claim, sentence):
    comparison = compared(claim, sentence)
    assert comparison.relation is Relation.APART
    assert not (comparison.opposed or comparison.difference)


@pytest.mark.parametrize(("claim", "sentence", "difference"), DIFFERS)
def test_one_difference_is_named(claim, sentence, difference):
    comparison = compared(claim, sentence)
    assert (comparison.relation, comparison.difference) == (Relation.DIFFERS, difference)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("33 %, 33 percent, 33 per cent, 0.33", ["#0.33"] * 4),
        ("half of; 122,300; two; 0.05 mg", ["#0.5", "#122300", "#2", "#0.00005mass"]),
    ],
)
def test_numbers_in_words_and_their_units(text, keys):
    assert [word.key for word in words(text) if word.kind is WordKind.NUMBER] == keys


def test_sentences_that_share_most_words_are_compared_first():
    texts = ["Zinc is a metal.", "Zinc shortens colds in adults.", "Zinc shortens colds."]
    assert list(nearest("Zinc shortens colds in adults.", texts)) == [1, 2]


def test_a_number_with_a_space_in_it_is_not_cut_at_its_point():
    assert compared("5 percent were homozygous.", "Of the adults, 0. 5 percent were homozygous.") == APART


def of(content: str, title: str = "", claim: str = SHOWN, **fields) -> SnippetVerdict | None:
    (verdict,) = snippet_verdicts(claim, [Snippet("s", title, content, None, fields)])
    return verdict


def test_a_verdict_by_words_rests_on_its_sentence():
    stated = of(f"BACKGROUND: Strokes are common. RESULTS: {SHOWN}")
    assert stated == SnippetVerdict("supported", "quote", SHOWN) and stated.strength == 1.0
    denied = "Aspirin does not prevent stroke."
    assert of(denied) == ("contradicted", "quote", denied, "this with “not”", ())
    other = of("IL-10 inhibits TNF.", claim="IL-6 inhibits TNF.")
    assert other == ("unsupported", "quote", "IL-10 inhibits TNF.", "IL-10, not IL-6", ())


@pytest.mark.parametrize(
    ("content", "title"),
    [
        (f"BACKGROUND: {SHOWN} RESULTS: Nothing was seen.", ""),
        (f"OBJECTIVE: {SHOWN}", ""),
        ("The aim of this study was to show that aspirin prevents stroke.", ""),
        ("We hypothesized that aspirin prevents stroke.", ""),
        ("Aspirin prevents stroke?", ""),
        ("Nothing was seen.", SHOWN),
        (SHOWN, "RETRACTED: Aspirin and stroke."),
        (SHOWN, "Retraction: Aspirin and stroke."),
    ],
)
def test_aims_questions_background_titles_and_retracted_articles_are_no_evidence(content, title):
    assert of(content, title) is None


def test_an_aim_is_evidence_of_a_claim_about_the_aim():
    aim = "The aim of this study was to find whether aspirin prevents stroke."
    assert of(aim, claim=aim).verdict == "supported"
