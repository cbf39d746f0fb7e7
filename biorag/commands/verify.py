"""`biorag verify`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import StringConstraints
from rich.text import Text
from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.errors import BadInputError, MissingError, UnsupportedError, UsageError
from biorag.settings.settings import Settings
from biorag.types import CheckedSentence, Verdict
from biorag.utils.files import check_is_no_folder
from biorag.utils.parsing import parsed
from biorag.utils.text import showable

if TYPE_CHECKING:
    from biorag.api.session import Session

STYLES = {Verdict.SUPPORTED: "bold green", Verdict.UNSUPPORTED: "bold yellow", Verdict.CONTRADICTED: "bold red"}
BATCH = 64  # claims that are searched for at once


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims to judge: one, or those of a file."""

    claim: Annotated[str | None, Argument(help="Claim.")] = None
    claims: Annotated[Path | None, Option(help="JSONL of id, claim and, optionally, snippet (.gz too).")] = None
    out: Annotated[Path | None, Option(help="JSONL file to write the verdicts to; an interrupted run resumes.")] = None
    snippet: Annotated[str | None, Option(help="Judge by the snippet of this id or PMID alone.")] = None

    def check(self) -> None:
        """Refuse options that exclude or need each other."""
        check_is_no_folder(self.out)
        if (self.claim is None) == (self.claims is None):
            raise UsageError("give a claim to judge, or --claims FILE with --out FILE for many")
        if (self.claims is None) != (self.out is None):
            raise UsageError("--claims and --out go together: the claims to read, and the verdicts to write")
        if self.claims and self.snippet:
            raise UsageError("--snippet is for one claim: give the rows of --claims a field 'snippet'")


@expanded
def verify(
    asked: Claims,
    settings: Annotated[Settings, options.INDEX, options.RANKING],
    filters: options.RecordFilters,
    verifier: options.Verifier = None,
    fail_unsupported: Annotated[
        bool, Option("--fail-unsupported", help="Exit with code 7 unless every claim is supported.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Judge claims by the evidence of an index: supported, unsupported or contradicted, and by which sentence.

    Each claim is searched for, unless a snippet is named. A supported claim need not be true.

    Examples:

      biorag verify "Pyridoxine prevents the neuropathy caused by isoniazid."
      biorag verify "Metformin does not lower blood glucose." --name pubmed --snippet pubmed_123 --json
      biorag verify --claims claims.jsonl --out verdicts.jsonl --name pubmed --fail-unsupported
    """
    from biorag.api.session import Session

    asked.check()
    with Session(settings, verifier) as session:
        if asked.claim is None:
            counts = _many(asked, session, filters)
            supported = counts[Verdict.SUPPORTED] == sum(counts.values())
        else:
            verdict = session.verify(asked.claim, snippet=asked.snippet, **filters.arguments)
            supported = verdict.checked.verdict is Verdict.SUPPORTED
    if asked.claim is None:
        show.report("Verdicts", {"out": str(asked.out), "claims": sum(counts.values()), **counts}, as_json)
    elif as_json:
        show.print_json(verdict.to_json())
    else:
        _print(verdict.checked)
    if fail_unsupported and not supported:
        raise UnsupportedError("not every claim is supported by the evidence: read it with 'biorag search'")


def _many(asked: Claims, session: Session, filters: options.RecordFilters) -> dict[str, int]:
    from biorag.api.session import conditions
    from biorag.utils.files import sha256_of
    from biorag.utils.progress import batched
    from biorag.utils.runs import Rows

    assert asked.claims and asked.out, "checked before"
    claims = list(read_claims(asked.claims))
    where = [str(condition) for condition in conditions(**filters.arguments)]
    identity = {"claims": sha256_of(asked.claims), "filter": where, **session.identity()}

    def judge(rest: Sequence[ClaimRow]) -> Iterator[dict[str, Any]]:
        for batch in batched(rest, BATCH):
            verdicts = session.verify_all([(row.claim, row.snippet or "") for row in batch], **filters.arguments)
            for row, verdict in zip(batch, verdicts, strict=True):
                yield {"id": row.id, **verdict.to_json()}

    def tally(rows: Iterator[Any]) -> dict[str, int]:
        counts = Counter(row["verdict"] for row in rows)
        return {verdict.value: counts[verdict.value] for verdict in Verdict}

    with show.progress("Claims", len(claims)) as advance:
        filled = Rows(asked.out, identity, tally=tally).fill(claims, judge, advance, BATCH)
    return {verdict.value: filled.counts[verdict.value] for verdict in Verdict}


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim of a file; without the id of a snippet, it is judged by those that a search finds."""

    id: str
    claim: Annotated[str, StringConstraints(pattern=r"\S")]
    snippet: str | None = None


def read_claims(path: Path) -> Iterator[ClaimRow]:
    """Yield the claims of a JSONL file, gzipped or not.

    Raises `MissingError` if the file is not there; `BadInputError` naming file, line and reason.
    """
    from biorag.corpus.sources import Source, read_lines

    if not path.is_file():
        raise MissingError(f"{path} is not there: give a JSONL file of claims, each with id and claim")
    for number, line in read_lines(Source(str(path), path)):
        try:
            yield parsed(ClaimRow, line, extra="ignore")
        except ValueError as error:
            raise BadInputError(f"{path}, line {number}: not a JSON object with id and claim ({error})") from None


def _print(checked: CheckedSentence) -> None:
    verdict = f"{checked.verdict.value} by the evidence" if checked.evidence else checked.verdict.value
    show.out.print(Text(verdict[0].upper() + verdict[1:], style=STYLES[checked.verdict]))
    for span in checked.evidence:
        source = f"PMID {span.pmid}" if span.pmid else span.id
        show.out.print(Text.assemble((f"[{span.n}] ", "bold"), f"“{showable(span.quote)}” ", (showable(source), "dim")))
    if not checked.evidence:
        show.err.print("No snippet at hand says so: read them with 'biorag search', or try other words.")
