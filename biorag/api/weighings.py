"""A weighing as Markdown, CSV, and a line of a run of TREC's BioGen track."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from biorag.answering.weighing import COLUMNS
from biorag.api.json_views import study_json
from biorag.references.formats import cell, plain, separated
from biorag.references.reference import source_line

if TYPE_CHECKING:
    from biorag.answering.weighing import Study, Weighing

NOT_STATED = "not stated"
MOST_CITED = 3  # PMIDs of either side in the track's runs
FIELDS = (
    *("id", "pmid", "title", "author", "year", "type", "participants", "effect", "retracted"),
    *("quote", "probability", "basis", "leaning", "location"),
)
HEADINGS = {"supporting": "Supporting", "opposing": "Opposing", "unsure": "Not sure"}


def counts_line(weighing: Weighing) -> str:
    """Return "3 supporting, 1 opposing, 2 not sure; 44 say neither", and how many retracted studies are not counted."""
    counts = weighing.counts
    line = ", ".join(f"{counts[name]} {heading.lower()}" for name, heading in HEADINGS.items())
    retracted = f"; {counts['retracted']} retracted, not counted" if counts["retracted"] else ""
    return f"{line}; {counts['silent']} say neither{retracted}"


def probability_line(study: Study) -> str:
    """Return the probability of a study's stance, "0.42"; where it is not sure, with the side that it leans to."""
    leaning = study.stance.leaning
    return f"{study.stance.probability:.2f}" + (f", leans {HEADINGS[COLUMNS[leaning]].lower()}" if leaning else "")


def stated_line(study: Study) -> str:
    """Return what a study states of its participants and effect, in its own words."""
    people = study.participants
    stated = {
        "n": f"{people.number:,}" if people else None,
        "effect": study.effect,
    }
    return " · ".join(f"{name}: {value or NOT_STATED}" for name, value in stated.items())


def markdown(weighing: Weighing) -> str:
    """Return a weighing with a list of studies under each heading."""
    lines = [f"**{plain(weighing.claim)}**", "", f"{counts_line(weighing)}."]
    for name, studies in weighing.columns.items():
        lines += ["", f"## {HEADINGS[name]}", ""] if studies else []
        lines += [_item(study) for study in studies]
    return "\n".join(lines) + "\n"


def comma_separated(weighing: Weighing) -> str:
    """Return a row a study, with its column first."""
    rows = []
    for column, study in ((name, one) for name, studies in weighing.columns.items() for one in studies):
        values = study_json(study)
        values["participants"] = values["participants"] and values["participants"]["number"]
        values["retracted"] = "yes" if values["retracted"] else ""
        cells = (cell(values[field]) if isinstance(values[field], str) else values[field] for field in FIELDS)
        rows.append((column, *cells))
    return separated(["column", *FIELDS], rows)


def trec_biogen(weighing: Weighing) -> str:
    """Return a line of a run of task A of the TREC 2025 BioGen track, the claim being the one sentence of an answer.

    What was left out of the search by its PMID is what the answer cites already. The track's own ids are to be filled
    in: https://trec-biogen.github.io/docs/
    """
    cited = {
        name: [str(one.snippet.pmid) for one in studies if one.snippet.pmid and not one.snippet.retracted][:MOST_CITED]
        for name, studies in weighing.columns.items()
    }
    metadata = {
        "team_id": "biorag",
        "run_id": "biorag-weigh",
        "qa_id": "",
        "question": "",
        "existing_supported_citations": list(map(str, weighing.excluded)),
    }
    sentence = {
        "text": weighing.claim,
        "supported_citations": cited["supporting"],
        "contradicted_citations": cited["opposing"],
    }
    return json.dumps({"metadata": metadata, "answer": [sentence]}, ensure_ascii=False) + "\n"


def _item(study: Study) -> str:
    reference = study.reference
    named = f"PMID {reference.pmid}" if reference.pmid else reference.id
    source = f"[{plain(named)}](<{reference.url}>)" if reference.url else plain(named)
    notes = "".join(f"**{note}.** " for note in reference.notes)
    line = ": ".join(filter(None, (plain(source_line(reference)), plain(reference.title))))
    return f"- {notes}“{plain(study.stance.quote)}” {line} ({source}). {plain(stated_line(study))}"
