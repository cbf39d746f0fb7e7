"""Everyday words, brands and units, and what the literature writes for them."""

from __future__ import annotations

import pytest

from biorag.answering.vocabulary import Vocabulary, load_vocabulary
from biorag.errors import BadInputError, MissingError
from biorag.types import Hit, Snippet

TABLE = Vocabulary(
    {
        "water pill": ("diuretic",),
        "pill": ("tablet", "drug"),
        "heart attack": ("myocardial infarction",),
        "percent": ("%",),
    }
)


def hits(*texts: str) -> list[Hit]:
    return [Hit(n, Snippet(str(n), "", text), 1.0) for n, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("typed", "searched"),
    [
        ("Do water pills help?", "Do water pills help? diuretic"),
        ("Which pill?", "Which pill? tablet drug"),
        ("A Heart-Attack after a pill", "A Heart-Attack after a pill myocardial infarction tablet drug"),
        ("heart attack or myocardial infarction", "heart attack or myocardial infarction"),
        ("Attack of the heart", "Attack of the heart"),
    ],
)
def test_the_longest_phrase_brings_what_the_literature_writes(typed, searched):
    assert TABLE.expanded(typed) == searched


@pytest.mark.parametrize(
    ("typed", "texts", "read"),
    [
        ("Do water pills help?", ["Diuretics helped."], "Do diuretic help?"),
        ("Do water pills help?", ["Water pills, that is diuretics, helped."], "Do water pills help?"),
        ("Do water pills help?", ["Aspirin helped."], "Do water pills help?"),
        ("Which pill?", ["The drug.", "Another drug.", "A tablet."], "Which drug?"),
        ("What percent?", ["It was 12 %."], "What %?"),
        (
            "After a heart attack, which pill?",
            ["Myocardial infarction: a drug"],
            "After a myocardial infarction, which drug?",
        ),
    ],
)
def test_a_phrase_that_no_hit_holds_is_read_as_most_hits_call_it(typed, texts, read):
    assert TABLE.reworded(typed, hits(*texts)) == read


def test_names_that_may_be_wider_are_searched_and_not_read():
    packaged = load_vocabulary("packaged")
    asked = "What helps in Recklinghausen's neurofibromatosis?"
    assert packaged.expanded(asked) == f"{asked} neurofibromatosis type 1"
    assert packaged.reworded(asked, hits("Neurofibromatosis type 1 is treated.")) == asked
    assert packaged.reworded("What is Lasix?", hits("Furosemide is a diuretic.")) == "What is furosemide?"


def test_the_packaged_table_knows_brands_lay_words_and_units():
    packaged = load_vocabulary("packaged")
    for phrase, name in {
        "Campath": "alemtuzumab",
        "heart attacks": "myocardial infarction",
        "milligrams": "mg",
        "Lou Gehrig's disease": "amyotrophic lateral sclerosis",
    }.items():
        assert name in packaged.expanded(phrase), phrase
    assert packaged.expanded("Does aspirin cause asthma?") == "Does aspirin cause asthma?"
    assert load_vocabulary("none").expanded("Campath") == "Campath"


def test_a_table_of_one_s_own_is_added(tmp_path):
    file = tmp_path / "words.tsv"
    file.write_text("Our wonder drug\tmetformin|glucophage\nCampath\tour own name\n", encoding="utf-8")
    mine = load_vocabulary(str(file))
    assert mine.expanded("our wonder drugs") == "our wonder drugs metformin glucophage"
    assert mine.expanded("Campath, Lasix") == "Campath, Lasix our own name furosemide"
    for line in ("no tab", "campath\t", "campath\t|", "campath\ta\tb", "campath\ta\x1b[1m", "\talemtuzumab"):
        file.write_text(f"# mine\n\n{line}\n", encoding="utf-8")
        with pytest.raises(BadInputError, match=r"words.tsv, line 3: write a phrase, one tab"):
            load_vocabulary.__wrapped__(str(file))
    file.write_text("a b c d e f\tg\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="more than 5 words"):
        load_vocabulary.__wrapped__(str(file))
    file.write_bytes(b"\xff\t\xfe\n")
    with pytest.raises(BadInputError, match="is not UTF-8"):
        load_vocabulary.__wrapped__(str(file))
    with pytest.raises(MissingError, match="packaged or none"):
        load_vocabulary(str(tmp_path / "other.tsv"))
