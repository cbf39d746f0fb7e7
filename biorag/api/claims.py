"""A file of claims judged by what a session finds, or by the texts beside them, as a run that resumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biorag.api.answer_text import read_by
from biorag.api.results import VerdictResult
from biorag.api.session import Filter, Session, conditions
from biorag.corpus.claims import ClaimRow
from biorag.engine import load_checker
from biorag.settings.settings import Settings
from biorag.types import OnProgress, Reader, Verdict
from biorag.utils.files import sha256_of
from biorag.utils.progress import batched
from biorag.utils.runs import Rows

BATCH = 64  # claims that are searched for at once
Judge = Callable[[Sequence[ClaimRow]], list[VerdictResult]]


def judge_file(
    settings: Settings, claims: Sequence[ClaimRow], file: Path, out: Path, filter: Filter, advance: OnProgress
) -> tuple[dict[str, int], str]:
    """Write a verdict for each claim of a file to `out`; return the counts of each, and a note on the reader."""
    where = [str(condition) for condition in conditions(filter)]
    with _judging(settings, claims, filter) as (judge, identity, reader):

        def rows(rest: Sequence[ClaimRow]) -> Iterator[dict[str, Any]]:
            for batch in batched(rest, BATCH):
                for row, verdict in zip(batch, judge(batch), strict=True):
                    yield {"id": row.id, **verdict.to_json()}

        verdicts = Rows(out, {"claims": sha256_of(file), "filter": where, **identity}, tally=_tally)
        filled = verdicts.fill(claims, rows, advance, BATCH)
        note = read_by(reader)
    return {verdict.value: filled.counts.get(verdict.value, 0) for verdict in Verdict}, note


@contextmanager
def _judging(
    settings: Settings, claims: Sequence[ClaimRow], filter: Filter
) -> Iterator[tuple[Judge, dict[str, Any], Reader | None]]:
    """Yield what judges a batch of claims, its identity, and the reader that it asks.

    An index is opened only if a claim comes without text.
    """
    if all(row.text for row in claims):
        checker = load_checker(settings)
        yield (
            lambda batch: [VerdictResult(checker.check_claim(row.claim, [row.text])) for row in batch if row.text],
            {"reader": checker.identity()},
            checker.reader,
        )
        return
    with Session(settings) as session:
        yield (
            lambda batch: session.verify_all([(row.claim, row.text or row.snippet) for row in batch], filter=filter),
            session.identity(),
            session.reader,
        )


def _tally(rows: Iterator[Any]) -> dict[str, int]:
    counts = Counter(row["verdict"] for row in rows)
    return {verdict.value: counts[verdict.value] for verdict in Verdict}
