"""A weighing as JSON, Markdown and CSV, and the lines that tell of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from biorag.answering.weighing import COLUMNS, Study, Weighing
from biorag.api.results import DIGITS, written
from biorag.references.escaping import in_markdown, markdown_link, separated
from biorag.references.reference import source_line, study_types
from biorag.registries import WEIGHINGS
from biorag.utils.text import showable

FIELDS = (
    *("id", "pmid", "title", "author", "year", "type", "participants", "effect", "retracted"),
    *("quote", "probability", "basis", "leaning", "lacking", "location"),
)
SIDED = ("column", "probability", "basis", "leaning", "lacking")  # fields that a study of which no side is told lacks
HEADINGS = {"supporting": "Supporting", "opposing": "Opposing", "unsure": "Not sure"}


@dataclass(frozen=True, repr=False)
class WeighResult:
    """The studies that support a claim and those that oppose it: `weighing.supporting`, `opposing` and `unsure`."""

    weighing: Weighing
    timings_ms: dict[str, float]
    told_by: str = ""  # the trusted reader whose words the sides are, for people

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.weighing.counts.items())
        lines = [f"{name or 'found'}: {study.snippet.id}: {study.stance.quote}" for name, study in self.weighing.rows]
        return showable("\n".join([f"<{counts}: {self.weighing.claim!r}>", *lines]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag weigh --json` prints."""
        return {**weighing_json(self.weighing), "timings_ms": self.timings_ms}

    def to(self, format: str) -> str:
        """Return the studies as `biorag weigh --format` writes them: md or csv."""
        return written(format, self.weighing, WEIGHINGS)

    def _repr_markdown_(self) -> str:
        return self.to("md")


def headings(weighing: Weighing) -> dict[str, str]:
    """Return the headings of the columns; studies that no reader read are near the claim, and nobody is unsure."""
    read = any(study.stance.probability for study in weighing.unsure)
    return HEADINGS if read or not weighing.unsure else {**HEADINGS, "unsure": "Near the claim"}


def counts_line(weighing: Weighing) -> str:
    """Return "3 supporting, 1 opposing, 2 not sure; 44 others", and how many retracted studies are not counted.

    Where no side is told: "2 near the claim; 48 others".
    """
    counts, named = weighing.counts, headings(weighing)
    if not (weighing.supporting or weighing.opposing):
        named = {"unsure": named["unsure"]}
    line = ", ".join(f"{counts[name]} {heading.lower()}" for name, heading in named.items())
    retracted = f"; {counts['retracted']} retracted, not counted" if counts["retracted"] else ""
    others = f"{counts['silent']} other{'s' * (counts['silent'] != 1)}"
    return f"{line}; {others}{retracted}"


def stated_line(study: Study) -> str:
    """Return what a study states of its participants and effect, and what it does not mention; "" for nothing."""
    people = study.participants
    stated = {
        "n": people and f"{people.number:,}",
        "effect": study.effect,
        "not mentioned": ", ".join(study.lacking),
    }
    return " · ".join(f"{name}: {value}" for name, value in stated.items() if value)


def markdown(weighing: Weighing) -> str:
    """Return a weighing with a list of studies under each heading."""
    lines = [f"**{in_markdown(weighing.claim)}**", "", f"{counts_line(weighing)}."]
    for name, studies in weighing.columns.items():
        lines += ["", f"## {headings(weighing)[name]}", ""] if studies else []
        lines += [_item(study) for study in studies]
    return "\n".join(lines) + "\n"


def comma_separated(weighing: Weighing) -> str:
    """Return a row a study, with its column first."""
    rows: list[list[object]] = []
    fields = [name for name in ("column", *FIELDS) if not (weighing.found and name in SIDED)]
    for column, study in weighing.rows:
        number = study.participants and study.participants.number
        as_cells = {"participants": number, "retracted": "yes" * study.retracted, "lacking": ", ".join(study.lacking)}
        shown = study_json(study) | {"column": column} | as_cells
        rows.append([shown[name] for name in fields])
    return separated(fields, rows)


def weighing_json(weighing: Weighing) -> dict[str, Any]:
    """Return the JSON of a weighing: the columns, and how many studies stand in each."""
    return {
        "claim": weighing.claim,
        "searched": weighing.searched,
        "counts": weighing.counts,
        **{name: [study_json(study) for study in studies] for name, studies in weighing.columns.items()},
    }


def study_json(study: Study) -> dict[str, Any]:
    """Return the JSON of a study that stands in a column; null for what is not stated."""
    snippet, reference, people = study.snippet, study.reference, study.participants
    return {
        "id": snippet.id,
        "pmid": reference.pmid,
        "title": snippet.title,
        "author": reference.authors[0].name if reference.authors else None,
        "year": reference.date[0] if reference.date else None,
        "type": ", ".join(study_types(reference.types)) or None,
        "participants": people._asdict() if people else None,
        "effect": study.effect,
        "retracted": study.retracted,
        "quote": study.stance.quote,
        "probability": round(study.stance.probability, DIGITS) or None,  # of a study that comes near
        "basis": study.stance.basis,
        "leaning": COLUMNS[study.stance.leaning] if study.stance.leaning else None,
        "lacking": list(study.lacking),
        "location": snippet.location or None,
    }


def _item(study: Study) -> str:
    reference = study.reference
    named = f"PMID {reference.pmid}" if reference.pmid else reference.id
    source = markdown_link(named, reference.url)
    notes = "".join(f"**{note}.** " for note in reference.notes)
    line = ": ".join(
        filter(None, (in_markdown(source_line(reference)), in_markdown(reference.title and reference.noted_heading)))
    )
    return f"- {notes}“{in_markdown(study.stance.quote)}” {line} ({source}). {in_markdown(stated_line(study))}".rstrip()
