"""`biorag verify`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from biorag.api.documents import verdict_json
from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.engine import OpenIndex, load_checker, open_index, open_stored
from biorag.errors import MissingError, UnsupportedError, UsageError
from biorag.settings.settings import Settings
from biorag.types import CheckedSentence, Snippet, Verdict
from biorag.utils.files import check_is_no_folder
from biorag.utils.text import is_whole, showable

if TYPE_CHECKING:
    from biorag.answering.verification.batches import ClaimRow
    from biorag.answering.verification.checker import Checker

STYLES = {Verdict.SUPPORTED: "bold green", Verdict.UNSUPPORTED: "bold yellow", Verdict.CONTRADICTED: "bold red"}


@dataclass(frozen=True, slots=True)
class Claims:
    """Which claims to judge: one, or those of a file."""

    claim: Annotated[str | None, typer.Argument(help="The claim.")] = None
    claims: Annotated[
        Path | None, typer.Option(help="JSONL of id, claim and, optionally, snippet (.gz too): judge them all.")
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="JSONL file to write the verdicts to; an interrupted run resumes.")
    ] = None
    snippet: Annotated[str | None, typer.Option(help="Judge by this snippet of the index alone.")] = None

    def check(self) -> None:
        """Refuse options that exclude or need each other."""
        check_is_no_folder(self.out)
        if (self.claim is None) == (self.claims is None):
            raise UsageError("give a claim to judge, or --claims FILE with --out FILE for many")
        if (self.claims is None) != (self.out is None):
            raise UsageError("--claims and --out go together: the claims to read, and the verdicts to write")
        if self.claims and self.snippet:
            raise UsageError("--snippet is for one claim: give the rows of --claims a field 'snippet'")
        if self.claim is not None and not (self.claim.strip() and is_whole(self.claim)):
            raise UsageError("the claim is empty or not UTF-8: type it again")


@expanded
def verify(
    asked: Claims,
    settings: Annotated[Settings, options.INDEX, options.RANKING],
    filters: options.RecordFilters,
    verifier: options.Verifier = None,
    fail_unsupported: Annotated[
        bool, typer.Option("--fail-unsupported", help="Exit with code 7 unless every claim is supported.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Judge claims by the evidence of an index: supported, unsupported or contradicted, and by which sentence.

    The index is searched for each claim, unless a snippet is named. A verdict says what the snippets at hand say; a
    supported claim need not be true.

    Examples:

      biorag verify "Pyridoxine prevents the neuropathy caused by isoniazid."

      biorag verify "Metformin does not lower blood glucose." --name pubmed --snippet pubmed_123 --json

      biorag verify --claims claims.jsonl --out verdicts.jsonl --name pubmed --fail-unsupported
    """
    asked.check()
    checker = load_checker(verifier, settings)
    if asked.claim is None:
        counts = _many(asked, checker, settings, filters)
        supported = counts[Verdict.SUPPORTED] == sum(counts.values())
        if as_json:
            show.print_json({"out": str(asked.out), "claims": sum(counts.values()), **counts})
        else:
            show.table("Verdicts", ["verdict", "claims"], list(counts.items()))
    else:
        checked = _judged(asked.claim, asked.snippet, checker, settings, filters)
        supported = checked.verdict is Verdict.SUPPORTED
        if as_json:
            show.print_json(verdict_json(checked))
        else:
            _print(checked)
    if fail_unsupported and not supported:
        raise UnsupportedError("not every claim is supported by the evidence: read it with 'biorag search'")


def _judged(
    claim: str, id: str | None, checker: Checker, settings: Settings, filters: options.RecordFilters
) -> CheckedSentence:
    if id is None:
        with open_index(settings) as ready:
            ranking = ready.retriever.search(claim, where=ready.checked(filters.conditions))
        return checker.check_claim(claim, [hit.snippet for hit in ranking.hits])
    with open_stored(settings) as (manifest, index):
        snippets = index.fetch([id])
    if id not in snippets:
        raise MissingError(f"index {manifest.name!r} has no snippet {id!r}: 'biorag search' shows the ids")
    return checker.check_claim(claim, [snippets[id]])


def _many(asked: Claims, checker: Checker, settings: Settings, filters: options.RecordFilters) -> dict[str, int]:
    """Judge the claims of a file; return how many got each verdict."""
    from biorag.answering.verification.batches import VerdictFile, read_claims
    from biorag.utils.files import sha256_of

    assert asked.claims and asked.out, "checked before"
    rows = list(read_claims(asked.claims))
    with open_index(settings) as ready, show.progress("Claims", len(rows)) as advance:

        def judge(batch: Sequence[ClaimRow]) -> Iterable[dict[str, Any]]:
            for row, snippets in zip(batch, _snippets(ready, batch, filters), strict=True):
                yield {"id": row.id, **verdict_json(checker.check_claim(row.claim, snippets))}

        identity = {
            "claims": sha256_of(asked.claims),
            "index": ready.fingerprint(),
            "retrieval": settings.retrieval.identity(),
            "filter": [str(condition) for condition in filters.conditions],
            "verifier": checker.identity(),
        }
        return VerdictFile(asked.out, identity).fill(rows, judge, advance)


def _snippets(ready: OpenIndex, rows: Sequence[ClaimRow], filters: options.RecordFilters) -> list[list[Snippet]]:
    """Return what each claim is judged by: its own snippet, where it names one, or else what a search finds.

    A snippet that the index does not have is none.
    """
    named = ready.index.fetch([row.snippet for row in rows if row.snippet])
    searched = [row.claim for row in rows if not row.snippet]
    rankings = iter(ready.retriever.search_all(searched, wheres=[ready.checked(filters.conditions)] * len(searched)))
    return [
        [named[row.snippet] for _ in range(row.snippet in named)]
        if row.snippet
        else [hit.snippet for hit in next(rankings).hits]
        for row in rows
    ]


def _print(checked: CheckedSentence) -> None:
    verdict = f"{checked.verdict.value} by the evidence" if checked.evidence else checked.verdict.value
    show.out.print(Text(verdict[0].upper() + verdict[1:], style=STYLES[checked.verdict]))
    for span in checked.evidence:
        source = f"PMID {span.pmid}" if span.pmid else span.id
        show.out.print(Text.assemble((f"[{span.n}] ", "bold"), f"“{showable(span.quote)}” ", (showable(source), "dim")))
    if not checked.evidence:
        show.err.print("No snippet that was found says so: read them with 'biorag search', or try other words.")
