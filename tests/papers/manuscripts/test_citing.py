"""Marks of each style, and the clause that each cites its reference for."""

import pytest

from biorag.papers.manuscripts.citing import Register, citing_sentences
from biorag.papers.manuscripts.listing import items
from biorag.papers.manuscripts.manuscript import CLOSE, OPEN, Paragraph

LISTED = [
    Paragraph(f"{n}. {name} A. Title number {n}. Lancet. {2010 + n};1:2.", n, "")
    for n, name in enumerate(["Smith", "Jones", "van der Berg", "García", "Miller"], 1)
]


def read(text: str):
    paragraph = Paragraph(text, 9, "paragraph 9")
    return list(citing_sentences(paragraph, Register(items(LISTED), [paragraph])))


def claims(text: str) -> list[tuple[str, str]]:
    return [tuple(claim) for sentence in read(text) for claim in sentence.claims]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Aspirin lowers fever [1].", "1"),
        ("Aspirin lowers fever.[2,4]", "24"),
        ("Aspirin lowers fever [1-3, 5].", "1235"),
        ("Aspirin lowers fever [1]–[3].", "123"),
        ("Aspirin lowers fever (1, 2).", "12"),
        (f"Aspirin lowers fever.{OPEN}1,2{CLOSE}", "12"),
        ("Aspirin lowers fever.³", "3"),
        ("Aspirin lowers fever[^2].", "2"),
        ("Aspirin lowers fever (Smith et al., 2011; Jones & Miller 2012).", "12"),
        ("Aspirin lowers fever (see Berg, 2013, for a review).", "3"),
        ("García et al. (2014) found that aspirin lowers fever.", "4"),
    ],
)
def test_each_style_of_marks(text, cited):
    assert claims(text) == [(key, "Aspirin lowers fever.") for key in cited]


@pytest.mark.parametrize(
    "text",
    [
        f"Some 10{OPEN}2{CLOSE} cells per m{OPEN}2{CLOSE}, R², 5 m².",
        "A range of [0, 1] and of (18-65) years, 95% CI [1.2, 3.4], and [1,2,4]triazole.",
        "In the year (2011), and in Smith County.",
    ],
)
def test_what_looks_like_a_mark(text):
    assert claims(text) == []


def test_a_mark_cites_for_its_clause_and_one_after_the_stop_for_the_sentence_before():
    text = (
        "Aspirin lowers fever in adults [1], whereas ibuprofen relieves pain in boys [2]. It is cheap.[3] Old [4] too."
    )
    assert claims(text) == [
        ("1", "Aspirin lowers fever in adults."),
        ("2", "Ibuprofen relieves pain in boys."),
        ("3", "It is cheap."),
        ("4", "Old too."),
    ]
    first, second, _ = read(text)
    assert text[slice(*first.span)] == first.text == text[: text.index(" It")]
    assert second.text == "It is cheap.[3]"


def test_a_mark_after_names_cites_for_what_follows():
    text = (
        "Smith et al. [1] showed that aspirin lowers fever in adults, whereas Jones et al. (2012) saw no effect at all."
    )
    assert claims(text) == [("1", "Aspirin lowers fever in adults."), ("2", "Saw no effect at all.")]
    assert claims("It works in most adults, as Smith et al. [1] reported.")[0][1].startswith("It works in most adults")


def test_a_mark_without_reference_is_kept_apart():
    (sentence,) = read("Aspirin lowers fever [1, 77] (Nobody et al., 1999).")
    assert sentence.claims == ()
    assert sentence.unlisted == ("[1, 77]", "Nobody et al., 1999")


def test_identifiers_and_keys_of_latex_and_pandoc():
    works = "It works in adults."
    assert claims("It works in adults (PMID: 123; PMID 45).") == [("PMID 123", works), ("PMID 45", works)]
    assert claims("It works (https://doi.org/10.1000/Ab(1)c).") == [("doi:10.1000/ab(1)c", "It works.")]
    assert claims(r"It works. \citet{2} showed that fever falls fast.") == [("2", "Fever falls fast.")]
    assert claims("It works [@1; @3, p. 2].") == [("1", "It works."), ("3", "It works.")]


@pytest.mark.parametrize(
    "piece", ["[", "(", "et al. ", "Smith et al. (2011 ", OPEN, "(Smith, ", "1,", "@", "\\cite{", "A"]
)
def test_hostile_repetition_ends(piece):
    assert claims(piece * (200_000 // len(piece))) == []
