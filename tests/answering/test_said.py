"""What is said of questions and claims on which an earlier program was confidently wrong, by default settings."""

from __future__ import annotations

import json

import pytest

import biorag
from biorag.types import Verdict
from tests.cli import invoke, succeeded

pytestmark = pytest.mark.slow

TEXTS = {
    "warfarin": (
        "Warfarin in pregnancy",
        "Warfarin crosses the placenta. It causes severe defects of the fetus in the first trimester. Heparin is "
        "given in its place.",
    ),
    "iron": (
        "Hypophosphataemia after infusions",
        "An important but underappreciated complication of certain formulations of intravenous iron is "
        "hypophosphatemia. Ferric carboxymaltose raises FGF23, and phosphate is lost in the urine.",
    ),
    "heritable": (
        "What epigenetics is",
        "Epigenetic modification refers to heritable changes in gene expression that do not alter the DNA sequence.",
    ),
    "budesonide": (
        "As-needed treatment of mild asthma",
        "Budesonide-formoterol as needed protects people with mild asthma from severe exacerbations. It was compared "
        "with terbutaline in 3,849 people.",
    ),
    "covid": (
        "Predictors of a severe course",
        "Older age, obesity, diabetes and chronic kidney disease were associated with severe COVID-19. Of 4,100 "
        "people 12 % needed intensive care.",
    ),
    "ttp": (
        "Thrombotic thrombocytopenic purpura",
        "Thrombotic thrombocytopenic purpura (TTP) is a disorder of clotting in which small thrombi form throughout "
        "the body, caused by a deficiency of ADAMTS13.",
    ),
    "metoclopramide": (
        "Antiemetics in headache",
        "Metoclopramide is used for migraine in the emergency department. It relieves nausea as well as pain. "
        "Drowsiness and restlessness are its adverse effects.",
    ),
    "allgrove": (
        "Triple A syndrome",
        "Allgrove syndrome is a rare disorder with achalasia, alacrima and adrenal insufficiency. It is autosomal "
        "recessive.",
    ),
    "aim": (
        "Vitamin E prevents dementia",
        "We aimed to show that vitamin E prevents dementia. Volunteers were followed for six years.",
    ),
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """An index of `TEXTS` by the default encoder."""
    home = tmp_path_factory.mktemp("said")
    file = home / "texts.jsonl"
    rows = [{"id": id, "title": title, "content": content} for id, (title, content) in TEXTS.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    succeeded(invoke("index", file, "--name", "texts", home=home))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIORAG_HOME", str(home))
        with biorag.open("texts") as index:
            yield index


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("Is warfarin safe in pregnancy?", "severe defects of the fetus"),
        ("Does intravenous iron cause low phosphate?", "is hypophosphatemia"),
        ("Can epigenetic modifications be heritable?", "heritable changes"),
        ("Does budesonide-formoterol as needed prevent exacerbations of mild asthma?", "protects people"),
        ("Does vitamin E prevent dementia?", "vitamin E"),
    ],
)
def test_a_yes_no_question_gets_sentences_and_no_verdict(texts, question, shown):
    answer = texts.ask(question)
    assert answer.short_answer == "" and answer.certainty in ("answer", "may")
    assert shown in answer.text and not answer.text.startswith(("Yes", "No"))


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("What factors are associated with severe COVID-19?", "Older age, obesity"),
        ("What is TTP?", "disorder of clotting"),
    ],
)
def test_what_the_evidence_answers_is_shown(texts, question, shown):
    answer = texts.ask(question)
    assert not answer.abstained and shown in answer.text


def test_sentences_without_a_dose_are_no_answer_to_a_question_for_one(texts):
    answer = texts.ask("What dose of metoclopramide is used for migraine?")
    assert answer.certainty == "may" and len(answer.sentences) == 1


def test_what_no_text_names_is_not_answered(texts):
    answer = texts.ask("Does velraxitinib inhibit JAK3?")
    assert answer.short_answer == "" and answer.certainty != "answer"


@pytest.mark.parametrize(
    "claim",
    [
        "Warfarin is safe in pregnancy.",
        "Warfarin in pregnancy",
        "Vitamin E prevents dementia.",
        "Intravenous iron does not cause hypophosphatemia.",
    ],
)
def test_neither_title_nor_aim_nor_what_says_otherwise_supports(texts, claim):
    assert texts.verify(claim).verdict is not Verdict.SUPPORTED
    assert texts.weigh(claim).weighing.supporting == ()


def test_a_true_paraphrase_is_not_called_contradicted(texts):
    checked = texts.verify("Allgrove syndrome combines achalasia, lack of tears and adrenal failure.")
    assert checked.verdict in (Verdict.UNSUPPORTED, Verdict.UNSURE, Verdict.SUPPORTED)


def test_the_demonstration_answers_what_it_holds(demo_home, monkeypatch):
    monkeypatch.setenv("BIORAG_HOME", str(demo_home))
    with biorag.open("default") as index:
        aspirin, scurvy = index.ask("Does aspirin inhibit platelets?"), index.ask("What causes scurvy?")
    assert aspirin.short_answer in ("", "yes") and "cyclooxygenase" in aspirin.text
    assert not scurvy.abstained and "Its lack causes scurvy" in scurvy.text
