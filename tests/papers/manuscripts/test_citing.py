"""Marks of each style, and the clause that each cites its reference for."""

from dataclasses import replace

import pytest

from biorag.papers.manuscripts import citing
from biorag.papers.manuscripts.citing import Register, citing_sentences
from biorag.papers.manuscripts.listing import items
from biorag.papers.manuscripts.manuscript import CLOSE, OPEN, Paragraph
from biorag.utils.text import squeezed

LISTED = [
    Paragraph(f"{n}. {name} A. Title number {n}. Lancet. {2010 + n};1:2.", n, "")
    for n, name in enumerate(["Smith", "Jones", "van der Berg", "García", "Miller"], 1)
]
LISTED.append(Paragraph("6. World Health Organization and Partners. Title number 6. Geneva: 2016.", 6, ""))


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
        ("Aspirin lowers fever (Smith 2011, p. 23; Jones 2012, Table 2).", "12"),
        ("Aspirin lowers fever (see Smith et al., 2011, p. 2, for details).", "1"),
        ("Aspirin lowers fever (World Health Organization and Partners [WHO], 2016; Smith, 2011a).", "61"),
        ("García et al. (2014, p. 5) found that aspirin lowers fever.", "4"),
        ("Aspirin lowers fever (Smith et Doe, 2011; Jones y cols., 2012; García und Doe 2014, S. 3).", "124"),
        ("Aspirin lowers fever [1, Table 2].", "1"),
        ("Aspirin lowers fever [see 2, pp. 5–9; 3, Fig. 1a].", "23"),
        ("Aspirin lowers fever (ref. 3).", "3"),
        ("Aspirin lowers fever [1], refs. 2–4.", "1234"),
        (r"Aspirin lowers fever \parencite[3]{2}.", "2"),
        (r"Aspirin lowers fever \parencites[see][p. 3]{1}[4]{2}(){5}.", "125"),
        (r"Aspirin lowers fever \citep[see][]{1, 3}.", "13"),
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
        f"The {OPEN}14{CLOSE}C test, Ca²⁺, and [Table 2] or (Fig. 3).",
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
    assert [claim.key for claim in sentence.claims] == ["1"]
    assert sentence.unlisted == ("77", "Nobody et al., 1999")


@pytest.mark.parametrize(
    ("text", "unlisted"),
    [
        (f"It works.{OPEN}88{CLOSE}", "88"),
        ("It works [88, Table 2].", "[88, Table 2]"),
        ("It works (ref. 88).", "(ref. 88)"),
        ("It works (Nobody, 1999, p. 3).", "Nobody, 1999"),
        (r"It works \cites{1}[3]{gone}.", "gone"),
        ("It works [^gone].", "[^gone]"),
        ("It works（Nobody，1999）.", "Nobody, 1999"),
        ("Nobody (1999, p. 3) saw that it works.", "Nobody (1999)"),
    ],
)
def test_no_mark_that_names_no_reference_is_skipped_in_silence(text, unlisted):
    (sentence,) = read(text)
    assert sentence.unlisted == (unlisted,)


def test_numerals_name_the_manuscripts_own_list_alone():
    record = replace(items(LISTED[:1])[0], key="8", is_record=True)
    register = Register([*items(LISTED), record], [])
    assert [mark.keys for mark in register.marks(r"It works [5]. It works [8]. It works \cite{8}.")] == [
        ("5",), (), ("8",)
    ]  # fmt: skip


def test_many_references_of_one_name_and_year_are_looked_for_at_once(monkeypatch):
    listed = items([Paragraph(f"{n}. Smith A. Title number {n}. Lancet. 2011;1:2.", n, "") for n in range(1, 2001)])
    register = Register(listed, [])
    compared = []
    monkeypatch.setattr(citing, "squeezed", lambda text: compared.append(text) or squeezed(text))
    marks = register.marks("It works (Smith & Nobody, 2011). " * 100)
    assert {mark.keys for mark in marks} == {("1",)} and len(marks) == 100
    assert len(compared) < 100 * (citing.MOST_NAMESAKES + 10)


def test_identifiers_and_keys_of_latex_and_pandoc():
    works = "It works in adults."
    assert claims("It works in adults (PMID: 123; PMID 45).") == [("PMID 123", works), ("PMID 45", works)]
    assert claims("It works (https://doi.org/10.1000/Ab(1)c).") == [("doi:10.1000/ab(1)c", "It works.")]
    assert claims(r"It works. \citet{2} showed that fever falls fast.") == [("2", "Fever falls fast.")]
    assert claims("It works [@1; @3, p. 2].") == [("1", "It works."), ("3", "It works.")]


def test_a_sentence_of_many_marks_is_worded_once_for_each_clause(monkeypatch):
    worded = []
    monkeypatch.setattr(citing, "_reported", lambda text: worded.append(len(text)) or text)
    (sentence,) = read("It works" + ", now [1]" * 400 + ".")
    assert len(sentence.claims) == 1 and sum(worded) < 10_000


@pytest.mark.parametrize(
    "piece", ["[", "(", "et al. ", "Smith et al. (2011 ", OPEN, "(Smith, ", "1,", "@", "\\cite{", "A"]
)
def test_hostile_repetition_ends(piece):
    assert claims(piece * (200_000 // len(piece))) == []
