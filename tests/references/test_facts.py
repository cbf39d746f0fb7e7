"""Facts of evidence: participants in real phrases, and what is no number of participants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from biorag.references.facts import facts_of, number_of, participants
from biorag.types import Snippet

STATED = [
    ("A total of 3849 patients underwent randomization, and 3836 were included in the full analysis.", 3849),
    ("We randomly assigned 4,304 patients to receive canagliflozin or placebo.", 4304),
    ("Sixty-two patients with asthma were randomized to treatment or placebo.", 62),
    ("One hundred and twenty healthy volunteers participated.", 120),
    ("PARTICIPANTS: 1123 postmenopausal women aged 50 to 79 years.", 1123),
    ("Twelve trials involving 10 500 patients were included.", 10500),
    ("We included 24 RCTs with 3,402 participants.", 3402),
    ("In this prospective cohort of 27 384 women, we measured CRP.", 27384),
    ("Between 2010 and 2015, 512 consecutive patients were included.", 512),
    ("A total of 15,042 patients with type 2 diabetes were analysed.", 15042),
    ("We studied 18 insulin-dependent diabetic patients.", 18),
    ("Of 1,200 patients screened, 640 patients were randomized.", 640),
    ("METHODS: We conducted a double-blind trial in 48 adults with mild asthma.", 48),
    (
        "PATIENTS: Sixty type 2 diabetic patients. "
        "Thirty patients were assigned to A, and 30 patients were assigned to B.",
        60,
    ),
    ("All 784 subjects were divided into three groups. 12 subjects completed a questionnaire.", 784),
]
NOT_STATED = [
    "Severe bleeding occurred in 12 of 45 patients.",
    "The rate was 3 per 1000 patients.",
    "In 2018 patients were enrolled at one site.",
    "Mice (n = 20) were randomized.",
    "Two groups of 30 patients were studied.",
    "The drug was given for 12 weeks to patients.",
    "We enrolled more than 500 patients.",
    "A previous study of 40 patients showed benefit.",
    "A sample of 120 patients is required.",
    "We will enrol 300 participants.",
    "A total of 4176 patients were screened.",
    "5-year-old children were included.",
    "We assigned 120 patients to aspirin and 118 to placebo.",
    "There were 1200 patient-years of follow-up.",
    "A total of 2.5 patients were studied.",
    "We analyzed 5 trials of patients with asthma.",
    "A total of 120 rats were studied.",
    "A total of 100 patients per group were included.",
    "",
    "One of these patients was randomized.",
    "Of 967 children admitted, 55 were included.",
    "RESULTS: 197 women were randomized to the epidural group. 198 women were randomized to the other group.",
    "Twenty patients were assigned to placebo and another 20 patients were assigned to receive it.",
    "The sample size of the five studies ranged from 41 to 1,099 patients who were included.",
    "The largest study population of 1099 patients was from China.",
    "13 patients with early disease were investigated, along with 13 age-matched healthy control subjects.",
    "The study will include a total of 82 patients.",
]


@pytest.mark.parametrize(("text", "number"), STATED)
def test_participants_are_read(text, number):
    found = participants(text)
    assert found is not None
    assert found.number == number
    assert found.quote in " ".join(text.split())


@pytest.mark.parametrize("text", NOT_STATED)
def test_what_is_no_number_of_participants(text):
    assert participants(text) is None


def test_numbers():
    words = {"twenty-one": 21, "one hundred and five": 105, "two thousand three hundred": 2300, "thousand": 1000}
    for text, number in {**words, "1,234": 1234, "10 500": 10500, "9" * 12: 0}.items():
        assert number_of(text) == number


PIECES = [*"0123456789,. -%()", "patients ", "of ", "enrolled ", "one ", "hundred ", "A total of "]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_read(text):
    found = participants(text)
    assert found is None or (found.number > 0 and found.quote in " ".join(text.split()))


def test_a_long_text_is_read_in_time():
    for text in ("1 000" * 200_000, "one " * 200_000, "A total of " * 100_000, "12 patients " * 100_000):
        participants(text)


def test_the_real_record(shared_data):
    (snippet,) = read_snippets(Source("real", shared_data / "pubmed-xml" / "pubmed-29768149.xml"))
    facts = facts_of(snippet, cited_by=3)
    assert facts.participants == (3849, "A total of 3849 patients")
    assert (facts.retracted, facts.concern, facts.cited_by) == (False, False, 3)
    assert facts.publication_types is not None
    assert "Randomized Controlled Trial" in facts.publication_types


def test_what_is_not_known_is_none():
    facts = facts_of(Snippet("x", "T", "Text."))
    assert (facts.publication_types, facts.retracted, facts.concern, facts.participants, facts.cited_by) == (None,) * 5
    assert facts_of(Snippet("x", "T", "Text.", None, {"retracted": True})).retracted is True
    assert facts_of(Snippet("x", "T", "Text.", None, {"concern": [12]})).concern is True
