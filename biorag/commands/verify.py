"""`biorag verify`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.commands.outputs import RESUMED
from biorag.errors import UnsupportedError, UsageError
from biorag.settings.settings import Settings
from biorag.types import Verdict
from biorag.utils.text import showable

if TYPE_CHECKING:
    from biorag.api.results import VerdictResult

STYLES = {
    Verdict.SUPPORTED: "bold green",
    Verdict.UNSUPPORTED: "bold yellow",
    Verdict.CONTRADICTED: "bold red",
    Verdict.UNSURE: "bold cyan",
}


UNSTATED = "No retrieved snippet states this in these words: read them with 'biorag search', or name a --reader."


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims to judge: one, or those of a file."""

    claim: Annotated[str | None, Argument(help="Claim.")] = None
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
        bool, Option("--fail-unsupported", help="Exit with code 7 unless every claim is supported.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Say whether the evidence states a claim in these words, or, with a reader, supports or contradicts it.

    Each claim is searched for, unless a snippet is named or its row has sentences. A stated claim need not be true.

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
        with show.progress("Claims", len(claims)) as advance:
            counts, note = judge_file(settings, claims, asked.claims, asked.out, filter or (), advance)
        supported = counts[Verdict.SUPPORTED] == len(claims)
        show.report("Verdicts", {"out": str(asked.out), "claims": len(claims), **counts}, as_json)
    else:
        with Session(settings) as session:
            verdict = session.verify(asked.claim or "", snippet=asked.snippet, filter=filter or ())
            note = session.read_by if verdict.checked.basis == "reader" else ""
        supported = verdict.checked.verdict is Verdict.SUPPORTED
        show.result(verdict.to_json(), as_json, lambda _: _print(verdict))
    if note and not as_json:
        show.err.print(f"note: {note}")
    if fail_unsupported and not supported:
        raise UnsupportedError("not every claim is supported by the evidence: read it with 'biorag search'")


def _print(judged: VerdictResult) -> None:
    from biorag.api.answer_text import difference_line, percent, said_of

    checked, nearest, wraps = judged.checked, judged.nearest, not show.out.is_terminal
    numbers = ", ".join(f"[{n}]" for n in dict.fromkeys(span.n for span in checked.evidence))
    verdict = said_of(checked).capitalize() + (f" by {numbers}" if numbers and not checked.difference else "")
    if differs := difference_line(checked):
        verdict += f": {differs}"
    show.out.print(Text(showable(verdict), style=STYLES[checked.verdict]), soft_wrap=wraps)
    if checked.probability:
        shown = (f"{label} {percent(value)}" for label, value in checked.probability.items())
        show.out.print(Text(", ".join(shown), style="dim"))
    for span in (*checked.evidence, *([nearest] if nearest else [])):
        head = "Nearest: " if span is nearest else f"[{span.n}] "
        source = f"PMID {span.pmid}" if span.pmid else span.id
        line = Text.assemble((head, "bold"), f"“{showable(span.quote)}” ", (showable(source), "dim"))
        show.out.print(line, soft_wrap=wraps)
    if checked.verdict is Verdict.UNSUPPORTED:
        show.err.print(UNSTATED, soft_wrap=True)
