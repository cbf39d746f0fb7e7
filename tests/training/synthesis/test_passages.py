"""What a generated passage must be, and the share of words that two texts have in common."""

import pytest
from hypothesis import strategies as st

from biorag.training.synthesis.drafts import passage_fault

POSITIVE = "Aspirin lowers fever: it blocks cyclooxygenase, an enzyme that makes prostaglandins from arachidonic acid."
MINED = "Heparin."
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
        (f"We say: {POSITIVE} It is known.", False, "copied"),
        ("Heparin acts at once, heparin is cheap, and all have it.", False, None),
        ("spirin lowers fever it blocks cyclooxygenase an enzyme", False, None),
        (" ".join(reversed(POSITIVE.split())), False, "near_copies"),
        (f"{TWENTY} other", False, "copied"),
        (TWENTY.replace("word7", "x y"), False, None),
        (TWENTY.replace("word7", "word7 x"), False, "near_copies"),
    ],
)
def test_faults_of_passages(passage, capped, fault):
    assert passage_fault(passage, capped, [POSITIVE, MINED, TWENTY]) == fault


WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=12)
