"""Questions as they are typed, in the words of the literature."""

from __future__ import annotations

import pytest

from biorag.answering.wording import is_guess, plainly_worded, respelled
from biorag.types import Hit, Snippet


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("hi, whats the moa of teclistamab pls", "what is the mechanism of action of teclistamab"),
        ("Does aspirin help? Thanks!", "Does aspirin help?"),
        ("tx for HTN in pts with asthma", "treatment for hypertension in patients with asthma"),
        ("What does MOA inhibition mean?", "What does mechanism of action inhibition mean?"),
        ("So what?", "So what?"),
        ("Hi", "Hi"),
        ("Please list the symptoms of rabies", "list the symptoms of rabies"),
        ("What is the role of TRPV1 in pain?", "What is the role of TRPV1 in pain?"),
    ],
)
def test_chat_and_shorthand_are_written_out(typed, plain):
    assert plainly_worded(typed) == plain


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        ("dose of teclistimab", "dose of Teclistamab"),
        ("dose of Teclistamab", "dose of Teclistamab"),
        ("dose of bamlanivimab", "dose of bamlanivimab"),
        ("the tumor of xyloglucanase", "the tumor of xyloglucanase"),
        ("role of miR-193b", "role of miR-193b"),
        ("treatment of myelome", "treatment of myeloma"),
        ("effect of warfarrin", "effect of warfarrin"),
        ("teh teclsitamab of mieloma", "teh Teclistamab of myeloma"),
        ("TECLISTAMIB in myelomas", "TECLISTAMIB in myelomas"),
    ],
)
def test_a_word_that_nothing_holds_is_spelt_as_the_hits_spell_it(typed, spelled):
    hits = [Hit(1, Snippet("s1", "Teclistamab", "It treats myeloma; miR-193a does not. Tumour growth slows."), 1.0)]
    assert respelled(typed, hits) == spelled
    assert respelled(typed, []) == typed


def test_a_short_word_with_another_letter_in_it_may_have_been_meant():
    assert is_guess("What causes scurvy?", "What causes scurfy?")
    assert not is_guess("What causes scurvy?", "What causes scurvy?")
    assert not is_guess("Is metfromin safe?", "Is metformin safe?")
    for slip, meant in (("cuase", "cause"), ("diabtes", "diabetes"), ("sakatti", "sakati"), ("behcet", "behçet")):
        assert not is_guess(f"What is {slip}?", f"What is {meant}?")
