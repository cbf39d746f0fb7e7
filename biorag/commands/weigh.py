"""`biorag weigh`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.groups import expanded
from biorag.registries import TERMINAL, WEIGHINGS
from biorag.settings.settings import Settings
from biorag.types import Verdict
from biorag.utils.text import showable

if TYPE_CHECKING:
    from biorag.answering.weighing import Study, Weighing

STYLES = {"supporting": "bold green", "opposing": "bold red", "unsure": "bold cyan"}
Output = Annotated[str, Option("--format", help=f"{WEIGHINGS.listed()}.", **choices(WEIGHINGS))]


@expanded
def weigh(
    claim: Annotated[list[str], Argument(help="Claim, in quotes or not.")],
    settings: Annotated[Settings, options.INDEX, options.RANKING, options.READER],
    filter: options.Filters = None,
    output: Output = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Show the studies that support a claim, and those that oppose it, each with its quote.

    The claim is searched for; of the first 50 studies, or -k of them, each is read beside it. They are counted, never
    averaged; retracted ones are shown and not counted. Without a trusted --reader, those that state the claim support
    it, and those that a small model leans on are "not sure".

    Examples:

      biorag weigh "Pyridoxine prevents isoniazid neuropathy." --name demo
      biorag weigh "Vitamin D prevents falls." --name pubmed --filter 'type:"Randomized Controlled Trial"'
      biorag weigh "Vitamin D prevents falls." --name pubmed --format md > falls.md
      biorag weigh "Vitamin D prevents falls." --name pubmed --reader models/reader -k 100 --json
    """
    from biorag.api.session import Session

    format = options.output_format(output, as_json, WEIGHINGS)
    with Session(settings) as session:
        result = session.weigh(" ".join(claim), filter=filter or ())
        note = session.read_by
    if as_json:
        show.print_json(result.to_json())
    elif format:
        show.out.file.write(result.to(format))
    else:
        _print(result.weighing)
        if note:
            show.err.print(f"note: {note}")


def _print(weighing: Weighing) -> None:
    """Print how many studies stand in each column, and the columns."""
    from biorag.api.weighings import HEADINGS, counts_line

    show.out.print(Text(counts_line(weighing), style="bold"), soft_wrap=True)
    for name, studies in weighing.columns.items():
        if studies or name != "unsure":
            show.out.print(Text(f"{HEADINGS[name]}: {weighing.counts[name]}", STYLES[name]))
        for study in studies:
            show.out.print(Text("\n").append_text(_study(study)), soft_wrap=not show.out.is_terminal)
        show.out.print()
    if not any(weighing.columns.values()):
        show.err.print("No study at hand supports or opposes this: read them with 'biorag search', or try other words.")


def _study(study: Study) -> Text:
    """Return a study in four lines: whose it is, its title, the quote, and what it states."""
    from biorag.api.weighings import stated_line
    from biorag.references.reference import source_line

    reference = study.reference
    known = f"PMID {reference.pmid}" if reference.pmid else reference.id
    named = " · ".join(filter(None, (source_line(reference), known, study.snippet.location)))
    marks = [(f"{note.upper()} ", "bold red") for note in reference.notes]
    lines = [Text.assemble(*marks, (showable(named), "dim"))]
    if reference.title:
        lines.append(Text(showable(reference.noted_heading), "bold"))
    surely = "" if study.stance.verdict is Verdict.UNSURE else f" {study.stance.probability:.2f}"
    lines.append(Text(f"“{showable(study.stance.quote)}”{surely}"))
    lines.append(Text(showable(stated_line(study)), "dim"))
    return Text("\n").join(lines)
