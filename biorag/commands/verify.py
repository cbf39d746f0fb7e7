"""`biorag verify` and `biorag weigh`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import RESUMED
from biorag.errors import BadInputError, UnsupportedError, UsageError
from biorag.registries import TERMINAL, WEIGHINGS
from biorag.settings.settings import SHOWN, Settings
from biorag.types import Verdict
from biorag.utils.text import cut, showable

if TYPE_CHECKING:
    from biorag.answering.weighing import Study, Weighing
    from biorag.api.results import NearSentence, VerdictResult
    from biorag.types import EvidenceSpan

STYLES = {
    Verdict.SUPPORTED: "bold green",
    Verdict.UNSUPPORTED: "bold yellow",
    Verdict.CONTRADICTED: "bold red",
    Verdict.UNSURE: "bold cyan",
}
SIDES = {"supporting": "bold green", "opposing": "bold red", "unsure": "bold cyan"}
WeighingOutput = Annotated[str, Option("--format", help=f"{WEIGHINGS.listed()}.", **choices(WEIGHINGS))]
STUDIES = Flags("k", default="50")
UNSTATED = "No snippet states this in these words, be it true or not: read what comes near, or name a --reader."


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims to judge: one, or those of a file."""

    claim: Annotated[str | None, Argument(help="One claim, in quotation marks; --claims takes many.")] = None
    claims: Annotated[
        Path | None, Option(help="JSONL of id, claim and, to judge by, snippet or title and sentences (.gz too).")
    ] = None
    out: Annotated[
        Path | None, Option(help="JSONL file to write the verdicts to; an interrupted run resumes."), RESUMED
    ] = None
    snippet: Annotated[str | None, Option(help="Judge by the snippet of this id or PMID alone.")] = None

    def check(self) -> None:
        """Refuse options that exclude or need each other."""
        if (self.claim is None) == (self.claims is None):
            raise UsageError("give a claim to judge, or --claims FILE with --out FILE for many")
        if (self.claims is None) != (self.out is None):
            raise UsageError("--claims and --out go together: the claims to read, and the verdicts to write")
        if self.claims and self.snippet:
            raise UsageError("--snippet is for one claim: give the rows of --claims a field 'snippet'")


@expanded
def verify(
    asked: Claims,
    settings: Annotated[Settings, options.INDEX, options.RANKING, options.READER],
    filter: options.Filters = None,
    fail_unsupported: Annotated[
        bool, Option("--fail-unsupported", help="Exit with code 7 unless the claim, or each of --claims, is supported.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Say whether the evidence states a claim in these words, or, with a reader, supports or contradicts it.

    The claim is searched for, unless --snippet names what to judge it by. So is each of --claims, unless its row has
    sentences. A stated claim need not be true.

    Examples:

      biorag verify "Isoniazid interferes with the metabolism of vitamin B6."
      biorag verify "Metformin does not lower blood glucose." --name pubmed --snippet pubmed_123 --json
      biorag verify --claims claims.jsonl --out verdicts.jsonl --name pubmed --fail-unsupported
    """
    from biorag.api.claims import judge_file
    from biorag.api.session import Session
    from biorag.corpus.claims import read_claims

    asked.check()
    if asked.claims and asked.out:
        claims = list(read_claims(asked.claims))
        if not claims:
            raise BadInputError(f"{asked.claims} holds no claim")
        if twice := next((id for id, count in Counter(row.id for row in claims).items() if count > 1), None):
            named = cut(repr(twice), SHOWN)
            raise BadInputError(
                f"{asked.claims} has two rows of id {named}, by which verdicts are told: give each its own"
            )
        with show.progress("Claims", len(claims)) as advance:
            counts, note = judge_file(settings, claims, asked.claims, asked.out, filter or (), advance)
        supported = counts[Verdict.SUPPORTED] == len(claims)
        show.report("Verdicts", {"out": str(asked.out), "claims": len(claims), **counts}, as_json)
    else:
        with Session(settings) as session:
            verdict = session.verify(asked.claim or "", snippet=asked.snippet, filter=filter or ())
            note = session.read_by if verdict.checked.basis == "reader" else ""
        supported = verdict.checked.verdict is Verdict.SUPPORTED
        show.result(verdict.to_json(), as_json, lambda _: _print_verdict(verdict))
    if note and not as_json:
        show.err.print(f"note: {note}")
    if fail_unsupported and not supported:
        raise UnsupportedError("not every claim is supported by the evidence: read it with 'biorag search'")


def _print_verdict(judged: VerdictResult) -> None:
    from biorag.api.answer_text import difference_line, percent, said_of

    checked, wraps = judged.checked, not show.out.is_terminal
    numbers = ", ".join(f"[{n}]" for n in dict.fromkeys(span.n for span in checked.evidence))
    verdict = said_of(checked).capitalize() + (f" by {numbers}" if numbers and not checked.difference else "")
    if differs := difference_line(checked):
        verdict += f": {differs}"
    show.out.print(Text(showable(verdict), style=STYLES[checked.verdict]), soft_wrap=wraps)
    if checked.probability:
        shown = (f"{label} {percent(value)}" for label, value in checked.probability.items())
        show.out.print(Text(", ".join(shown), style="dim"))
    for span in checked.evidence:
        show.out.print(_quoted(f"[{span.n}]", span), soft_wrap=wraps)
    for near in judged.near:
        missing = f" not mentioned: {', '.join(near.lacking)}" if near.lacking else ""
        denies = f" it says “{near.denies}”" if near.denies else ""
        show.out.print(_quoted("Near:", near).append(showable(missing + denies), "yellow"), soft_wrap=wraps)
    if checked.verdict is Verdict.UNSUPPORTED:
        show.err.print(UNSTATED, soft_wrap=True)


def _quoted(head: str, span: EvidenceSpan | NearSentence) -> Text:
    source = f"PMID {span.pmid}" if span.pmid else span.id
    return Text.assemble((f"{head} ", "bold"), f"“{showable(span.quote)}” ", (showable(source), "dim"))


@expanded
def weigh(
    claim: Annotated[list[str], Argument(help="Claim, in quotes or not.")],
    settings: Annotated[Settings, options.INDEX, options.RANKING, STUDIES, options.READER],
    filter: options.Filters = None,
    output: WeighingOutput = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Show the studies that support a claim, and those that oppose it, each with its quote.

    The claim is searched for; of the first 50 studies, or -k of them, each is read beside it. They are counted, never
    averaged; retracted ones are shown and not counted. Without a trusted --reader, those that state the claim support
    it, and those that come near it take no side.

    Examples:

      biorag weigh "Isoniazid interferes with the metabolism of vitamin B6." --name demo
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
        _print_weighing(result.weighing)
        if note:
            show.err.print(f"note: {note}")


def _print_weighing(weighing: Weighing) -> None:
    """Print how many studies stand in each column, and the columns."""
    from biorag.api.weighings import counts_line, headings

    show.out.print(Text(counts_line(weighing), style="bold"), soft_wrap=True)
    for name, studies in weighing.columns.items():
        if not studies:
            continue
        show.out.print(Text(f"\n{headings(weighing)[name]}: {weighing.counts[name]}", SIDES[name]))
        for study in studies:
            show.out.print(Text("\n").append_text(_study(study)), soft_wrap=not show.out.is_terminal)
    if not any(weighing.columns.values()):
        show.err.print("No study at hand comes near this: read them with 'biorag search', or try other words.")
    elif not (weighing.supporting or weighing.opposing):
        missing = weighing.nowhere
        nowhere = f", and none mentions {', '.join(missing)}" if missing else ""
        told = "none states the claim in its words. Read them: sides are told by a trusted --reader alone."
        show.err.print(f"These come near{nowhere}: {told}", soft_wrap=True)


def _study(study: Study) -> Text:
    """Return a study in up to four lines: whose it is, its title, the quote, and what it states."""
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
    if stated := stated_line(study):
        lines.append(Text(showable(stated), "dim"))
    return Text("\n").join(lines)
