"""Made-up studies of inhalers, with all that a source's line and chips tell."""

from __future__ import annotations

from typing import Any

from biorag.types import Snippet


def study(number: int, title: str, content: str, **fields: Any) -> Snippet:
    """Return a study with a DOI of the prefix that is reserved for examples."""
    return Snippet(f"inhaler_{number}", title, content, None, {"doi": f"10.5555/inhaler.{number}", **fields})


STUDIES = [
    study(
        1,
        "Budesonide-formoterol as needed in mild asthma",
        "BACKGROUND: Patients with mild asthma often take a reliever alone. METHODS: We randomly assigned 3849 "
        "patients with mild asthma to terbutaline as needed, budesonide-formoterol as needed, or budesonide twice "
        "daily. RESULTS: Budesonide-formoterol taken as needed prevented two thirds of the severe exacerbations that "
        "occurred with terbutaline alone. Control of symptoms was better with budesonide twice daily. CONCLUSIONS: "
        "Budesonide-formoterol as needed protects patients with mild asthma from severe exacerbations.",
        authors=["Okafor, Paula M", "Lindqvist, Jon", "Moreau, Anne"],
        journal="The journal of ward medicine",
        journal_abbreviation="J Ward Med",
        year=2018,
        volume="12",
        pages="34-41",
        type=["Clinical Trial, Phase III", "Journal Article", "Multicenter Study", "Randomized Controlled Trial"],
        retracted=False,
    ),
    study(
        2,
        "Inhalers as needed for mild asthma: a meta-analysis of five trials",
        "Five trials with 9565 participants were included. Inhalers that combine a steroid and formoterol, taken as "
        "needed, lowered the odds of an exacerbation that needed oral steroids by half, compared with a reliever "
        "alone. Visits to hospital were rarer. Changes in lung function were small.",
        authors=["Crossley, Ida", "Turner, Sam"],
        journal="Reviews of respiratory evidence",
        journal_abbreviation="Rev Respir Evid",
        year=2021,
        type=["Journal Article", "Meta-Analysis", "Systematic Review"],
        retracted=False,
    ),
    study(
        3,
        "Dry mouth and hoarseness with steroid inhalers: a survey",
        "A total of 412 adults with asthma were surveyed. Hoarseness was reported by a third of those who inhaled "
        "steroids twice daily and by fewer who inhaled them as needed. Rinsing the mouth made thrush rarer.",
        authors=["Haas, Miriam"],
        journal="Airway Letters",
        year=2016,
        type=["Journal Article", "Observational Study"],
        retracted=False,
    ),
    study(
        4,
        "Smartphone reminders and the use of preventer inhalers",
        "We enrolled 120 adolescents with asthma. Reminders raised the share of preventer doses that were taken from "
        "40% to 58% over six months, without a change in exacerbations.",
        authors=["Nowak, Ewa", "Silva, Rui"],
        year=2023,
        type=["Preprint"],
        retracted=False,
    ),
    study(
        5,
        "High doses of inhaled steroids end exacerbations of asthma within a day",
        "Quadrupling inhaled steroids ended severe exacerbations of mild asthma within a day in all 64 patients.",
        authors=["Roe, Richard", "Doe, Jane"],
        journal="Annals of Swift Cures",
        year=2012,
        type=["Journal Article", "Retracted Publication"],
        retracted=True,
    ),
]
