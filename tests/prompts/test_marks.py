"""Marks of citation in every form, and text that looks like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.prompts.marks import numbers_in, plain_marks, without_marks
from biorag.types import Snippet

SNIPPETS = [
    Snippet("s1", "", "Men (12) and women (9) took it [1]. The [1,2,4]triazolo ring of G1P[8]; PaO(2) fell.", 12345678),
    Snippet("s2", "", "Aspirin lowers fever¹ (Smith et al., 2020).", 7),
    Snippet("s3", "", "Nothing."),
]

# What stands after "Fever", and how it is rewritten.
MARKS = [
    *[
        (f" {mark}.", " [9].")
        for mark in ("[9]", "[[9]]", "\\[9\\]", "\\cite{9}", "[9](https://example.org/9)", "【9】")
    ],
    *[
        (f" {mark}.", " [9].")
        for mark in ("【9:0†L1-L7】", "[document 9]", "(9)", "(see document 9, lines 3-4)", "[9\u200b]")
    ],
    ("[1].", " [1]."),
    (" [1,2].", " [1, 2]."),
    (" [1-3].", " [1, 2, 3]."),
    (" [1–9].", " [1, 2, 3, 4, 5, 6, 7, 8, 9]."),
    (" [1-900].", " [1, 900]."),
    (" [1 and 9].", " [1, 9]."),
    (" [Doc. 1, doc. 9].", " [1, 9]."),
    (" [see refs. 1-2].", " [1, 2]."),
    (" (1-3), and rash.", " [1, 2, 3], and rash."),
    (". (9) It is safe.", ". [9] It is safe."),
    (" [PMID 12345678].", " [1]."),
    (" [12345678].", " [1]."),
    (", PMID 12345678.", ", [1]."),
    (" [PMID 99999999].", " [99999999]."),
    (" [PMID 7].", " [2]."),
    (" [PMID 3].", " [0]."),
    (" [PMIDs 12345678, 7].", " [1, 2]."),
    (". Document 9 says so.", ". Document [9] says so."),
    (", as documents 1 and 9 say.", ", as documents [1, 9] say."),
    (" docu\u00adment 9.", " document [9]."),
]


@pytest.mark.parametrize(("text", "expected"), MARKS)
def test_marks_of_every_form_are_read(text, expected):
    assert plain_marks(f"Fever{text}", SNIPPETS) == f"Fever{expected}"


TEXTS = [
    "There were 10⁹/L platelets and 10⁻⁹ mol/L.",
    "CD4⁺ and CD8⁺ cells, Ca²⁺, SO₄²⁻, HCO₃⁻.",
    "(60)Co and [(18)F]FDG and (11)% of them.",
    "[Ca2+] and [1-13C]pyruvate and [3H]thymidine and [18F]FDG.",
    "[95% CI 1-9] and [0.5, 1.2] and [p = 0.04].",
    "The dose (9 mg) in (9 patients), (n = 9), (9%), (9/12), (2,644) and (0.9).",
    "CO(2), H(2)O, Fe(3) and 10(9)/L and TGF-beta(1), chi(2).",
    "Adults (18-65) in 2019 (2019) and (1998-2010).",
    "It does two things: (1) it lowers fever, and (2) it thins blood.",
    "Documents of 1980, a document of 9 pages, 5 documents 7 days later.",
    "Sources of 9 kinds; reference 5 mg; abstract 9 of them.",
    "Vitamin B12, IL-6, COVID-19, 5-HT(2A) and p53.",
    "Men (12) and women (9) took it, PaO(2) fell.",
    "The [1,2,4]triazolo ring of G1P[8].",
    "Aspirin lowers fever¹ (Smith et al., 2020).",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_looks_like_a_mark_stays(text):
    assert plain_marks(text, SNIPPETS) == text
    assert without_marks(plain_marks(text, SNIPPETS), set()) == text


def test_text_of_a_snippet_is_text_only_where_the_snippet_has_it():
    assert plain_marks("Women (9) took it.", SNIPPETS[:1]) == "Women [9] took it."
    assert plain_marks("Some women (9) took it.", SNIPPETS[:1]) == "Some women (9) took it."
    assert plain_marks("Some women (9) took it.", SNIPPETS[1:]) == "Some women [9] took it."


PIECES = st.sampled_from(
    [*"[](){}<>【】0123456789 ,;-–.:\n¹²³⁹①aé", "document ", "PMID ", "and", "\u200b", "<sup>", "</sup>"]
)


@given(st.lists(PIECES).map("".join))
def test_reading_twice_is_reading_once_and_nothing_is_raised(text):
    once = plain_marks(text, SNIPPETS)
    kept = without_marks(once, {1, 2})
    assert set(numbers_in(kept)) <= {1, 2}
    assert without_marks(kept, {1, 2}) == kept


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a ", "[", "[1,", "1, ", " ", "(9)", "[document ", "PMID "])
def test_reading_takes_linear_time(piece):
    """Quadratic time would be hours."""
    text = piece * (400_000 // len(piece))
    without_marks(plain_marks(text, [Snippet("s", "", text)]), set())
