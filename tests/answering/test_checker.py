"""The check of claims and answers, by hand: what each rule accepts and refuses."""

import pytest

from biorag.answering.verification.checker import Checker
from biorag.prompts.parse import CitedNumber
from biorag.types import Hit, Snippet, Verdict

TEXT = (
    "Metformin lowers blood glucose in adults with diabetes. TNF and IL-6 rose. "
    "Aspirin inhibits COX-1 in platelets at 81 mg/day."
)


def verdict(claim: str, text: str = TEXT, question: str = "") -> Verdict:
    return Checker().check_claim(claim, [Snippet("s", "", text)], question).verdict


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("Metformin lowers blood glucose.", "supported"),
        ("Metformin does not lower blood glucose.", "contradicted"),
        ("Metformin raises blood glucose.", "contradicted"),
        ("IL-6 lowers blood glucose.", "unsupported"),
        ("Metformin lowers blood glucose in children with diabetes.", "unsupported"),
        ("COX-1 inhibits aspirin in platelets.", "unsupported"),
        ("COX-1 is inhibited by aspirin in platelets.", "supported"),
        ("Aspirin is inhibited by COX-1 in platelets.", "unsupported"),
        ("Aspirin inhibits COX-1 in platelets at 810 mg/day.", "unsupported"),
        ("Aspirin inhibits COX-1 in platelets at 81 g/day.", "unsupported"),
        ("Aspirin inhibits COX-1 in platelets at 0.081 g per day.", "supported"),
        ("Bananas are yellow.", "unsupported"),
        ("", "unsupported"),
    ],
)
def test_a_claim_against_one_snippet(claim, expected):
    assert verdict(claim) == expected


def test_marks_belong_to_their_sentences():
    hits = [Hit(1, Snippet("a", "", TEXT, 11), 1.0), Hit(2, Snippet("b", "", "Bananas are yellow.", 12), 0.5)]
    checked = Checker().check_answer(
        "Metformin lowers blood glucose [2]. Bananas are yellow. [2]", hits, "What does metformin do?", [CitedNumber(7)]
    )
    assert [(item.verdict, item.citations) for item in checked.sentences] == [
        (Verdict.SUPPORTED, (1,)),
        (Verdict.SUPPORTED, (2,)),
    ]
    assert [(citation.n, citation.quote) for citation in checked.citations] == [
        (1, "Metformin lowers blood glucose in adults with diabetes."),
        (2, "Bananas are yellow."),
    ]
    assert checked.notes == (
        "citation [2] was dropped: its sentence is not supported by snippet b",
        "citation [7] was dropped: there is no document of that number",
    )
