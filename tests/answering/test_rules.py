"""The rules' word level, by hand: names by all their aliases, numbers in all their forms, and the veto."""

import pytest

from biorag.answering.verification.aliases import aliases_for
from biorag.answering.verification.alignment import compare
from biorag.answering.verification.analysis import analyse
from biorag.answering.verification.checker import Checker
from biorag.answering.verification.rules import Fault, veto
from biorag.answering.verification.words import WordKind, words
from biorag.types import Snippet


def verdict(claim: str, text: str) -> str:
    return Checker().check_claim(claim, [Snippet("s", "", text)]).verdict.value


def faults(claim: str, text: str) -> set[Fault]:
    aliases = aliases_for(claim, text)
    return set(veto(compare(analyse(claim, aliases), analyse(text, aliases))))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a third of, one third, two-thirds, three quarters", ["#0.3333", "#0.3333", "#0.6667", "#0.75"]),
        ("33 %, 33 percent, 33 per cent, 0.33", ["#0.33"] * 4),
        ("half of; a third dose", ["#0.5"]),
        ("122,300; 781 000; 25 thousand; 1.2 million", ["#122300", "#781000", "#25000", "#1200000"]),
        ("twenty-five, two hundred, 0.05 mg", ["#25", "#200", "#0.00005mass"]),
        ("20 to 30 %", ["#0.2", "#0.3"]),
    ],
)
def test_numbers_in_words_fractions_and_shares(text, keys):
    assert [word.key for word in words(text) if word.kind is WordKind.NUMBER] == keys


@pytest.mark.parametrize(
    ("number", "other", "expected"),
    [
        ("a third of", "30.7%", True),
        ("a third of", "45%", False),
        ("4 %", "4.3%", True),
        ("4.3%", "4 %", False),
        ("25,000", "24,693", True),
        ("20", "18", False),
        ("5 mg", "5 g", False),
        ("< 5", "5", False),
    ],
)
def test_what_a_number_rounds(number, other, expected):
    (one,), (two,) = ([word for word in words(text) if word.value is not None] for text in (number, other))
    assert one.is_about(two.key) is expected


@pytest.mark.parametrize(
    ("claim", "evidence", "expected"),
    [
        ("Icatibant treats HAE attacks.", "Icatibant treats hereditary angioedema (HAE) attacks.", "supported"),
        (
            "Icatibant treats hereditary angioedema.",
            "HAE is hereditary angioedema (HAE). Icatibant treats HAE.",
            "supported",
        ),
        ("CRP rose after surgery.", "C-reactive protein rose after surgery.", "supported"),
        ("Mortality fell in the United States.", "Mortality fell in the U.S. after 1990.", "supported"),
        ("Tumours regressed in randomised trials.", "Tumors regressed in randomized trials.", "supported"),
        ("A third of the patients had fever.", "Fever: 33.3% of the patients had fever.", "supported"),
        # The definition itself is falsified.
        ("Olaparib is a PARP activator (PARPi).", "Olaparib is a PARP inhibitor (PARPi).", "contradicted"),
        ("The toll-like receptor 80 (TLR8) binds it.", "The toll-like receptor 8 (TLR8) binds it.", "unsupported"),
    ],
)
def test_one_name_in_several_forms(claim, evidence, expected):
    assert verdict(claim, evidence) == expected


@pytest.mark.parametrize(
    ("claim", "evidence", "expected"),
    [
        # In other words, or with words left out: no veto.
        ("A third of the patients were febrile.", "At triage, 30.7% of patients were febrile.", set()),
        ("Lack of FGF21 shortens the life of mice.", "FGF21 deficiency causes premature death in mice.", set()),
        ("No deaths occurred in the ferrets.", "Although deaths were not seen, the ferrets shed virus.", set()),
        ("EGFR mutations predict response.", "Response in the trial was best predicted by EGFR mutations.", set()),
        # Names and numbers that the snippet has not, or has of something else.
        ("Half of the patients were febrile.", "At triage, 30.7% of patients were febrile.", {Fault.MISSING}),
        ("IL-17 was raised in patients with sepsis.", "Sepsis raised IL-6 in most patients.", {Fault.MISSING}),
        (
            "Quinine cures malaria faster than artesunate.",
            "Artesunate cures malaria faster than quinine.",
            {Fault.ORDER, Fault.ROLE},
        ),
        # Explicit negation and direction.
        ("Aspirin does not lower the risk of stroke.", "Stroke: the risk is lowered by aspirin.", {Fault.POLARITY}),
        ("Metformin raises blood glucose.", "Metformin lowers blood glucose.", {Fault.DIRECTION}),
    ],
)
def test_the_veto_leaves_other_words_to_the_judge(claim, evidence, expected):
    assert faults(claim, evidence) == expected


TWO_ARMS = {
    "counts": "Fever resolved in 49 of 63 children (78%) given infliximab and in 32 of 63 (51%) given immunoglobulin.",
    "shares": "Nausea led to discontinuation in 7.1% with semaglutide and 2.0% with placebo.",
    "periods": "Live vaccines are postponed for 11 months after immunoglobulin and for 6 months after infliximab.",
    "interval": "The hazard ratio for death was 0.80 (95% CI 0.70 to 0.90) with dapagliflozin.",
    "brackets": "Conjunctivitis was more frequent with dupilumab (11.4%) than with velnacitinib (2.0%).",
    "groups": "At 30 days, 307 (80%) of 382 patients died in the drug group and 154 (81%) of 189 in the placebo group.",
    "tail": "One patient (1.1%) in the first group and 5 patients (5.9%) in the second group had adhesions.",
    "head": "Relapses were observed in the partial remission group (91.4%) and in the complete remission one (51.3%).",
    "respectively": "Severe episodes occurred in 5.7 and 1.8% of the glargine and standard group, respectively.",
    "doses": "Infants had a high dose of caffeine (loading dose 40 mg/kg, maintenance dose 20 mg/kg/day) or a standard "
    "dose (loading dose 20 mg/kg, maintenance dose 10 mg/kg/day).",
    "rounded": "Hypersalivation occurred in 11.4% of patients given atropine compared with 30.8% given placebo.",
}


@pytest.mark.parametrize(
    ("claim", "evidence", "expected"),
    [
        ("Fever resolved in 49 of 63 children given infliximab.", "counts", "supported"),
        ("Fever resolved in 32 of 63 given immunoglobulin.", "counts", "supported"),
        ("Fever resolved in 51% given immunoglobulin.", "counts", "supported"),
        ("Fever resolved in 49 of 63 children given immunoglobulin.", "counts", "unsupported"),
        ("Fever resolved in 78% given immunoglobulin.", "counts", "unsupported"),
        ("Nausea led to discontinuation in 7.1% with semaglutide.", "shares", "supported"),
        ("Nausea led to discontinuation in 2.0% with placebo.", "shares", "supported"),
        ("Nausea led to discontinuation in 7.1% with placebo.", "shares", "unsupported"),
        ("Live vaccines are postponed for 6 months after infliximab.", "periods", "supported"),
        ("Live vaccines are postponed for 11 months after infliximab.", "periods", "unsupported"),
        ("The hazard ratio for death was 0.80 with dapagliflozin.", "interval", "supported"),
        ("Conjunctivitis occurred in 11.4% of patients with dupilumab.", "brackets", "supported"),
        ("Conjunctivitis occurred in 11.4% of patients with velnacitinib.", "brackets", "unsupported"),
        ("In the drug group, 80% of the patients died.", "groups", "supported"),
        ("In the placebo group, 80% of the patients died.", "groups", "unsupported"),
        ("Adhesions occurred in 5.9% of patients in the first group.", "tail", "unsupported"),
        ("The complete remission group had relapses in 91.4%.", "head", "unsupported"),
        ("Severe episodes occurred in 5.7% of the standard group.", "respectively", "unsupported"),
        ("The high dose of caffeine was a loading dose of 40 mg/kg.", "doses", "supported"),
        ("The high dose of caffeine was a loading dose of 20 mg/kg.", "doses", "unsupported"),
        ("Hypersalivation occurred in 31% of patients given placebo.", "rounded", "supported"),
        ("Hypersalivation occurred in 31% of patients given atropine.", "rounded", "unsupported"),
    ],
)
def test_a_number_belongs_to_the_arm_that_the_evidence_gives_it(claim, evidence, expected):
    assert verdict(claim, TWO_ARMS[evidence]) == expected


@pytest.mark.parametrize(
    ("claim", "expected"),
    [("Aspirin reduced deaths.", "contradicted"), ("Aspirin increased deaths.", "unsupported")],
)
def test_what_did_not_fall_need_not_have_risen(claim, expected):
    assert verdict(claim, "Aspirin did not reduce deaths.") == expected


EXCLUDED = "Patients with a history of venous thromboembolism, active malignancy or pregnancy were excluded."


@pytest.mark.parametrize(
    ("claim", "evidence", "expected"),
    [
        ("Patients with a history of venous thromboembolism were included.", EXCLUDED, "contradicted"),
        ("Patients with a history of venous thromboembolism were excluded.", EXCLUDED, "supported"),
        ("Patients with active malignancy were included.", EXCLUDED, "contradicted"),
        ("Insulin drives phosphate out of cells.", "Insulin drives phosphate into cells.", "unsupported"),
        ("Stroke recurs within 7 days.", "Stroke recurs at least 7 days later.", "unsupported"),
        (
            "It did not prolong survival in patients with previously untreated mesothelioma.",
            "It did not prolong survival beyond placebo in patients with previously treated mesothelioma.",
            "contradicted",
        ),
    ],
)
def test_small_words_that_turn_a_sentence(claim, evidence, expected):
    assert verdict(claim, evidence) == expected
