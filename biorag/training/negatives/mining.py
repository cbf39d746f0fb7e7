"""Mining, shared by all kinds of negatives: what is excluded, what is drawn, one row after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Protocol

from biorag.retrieval.retriever import Retriever
from biorag.training.negatives.triplets import MiningReport, TripletFile, to_line
from biorag.training.rows import normalised, row_random
from biorag.types import Hit, Negative, OnProgress, TrainingRow


@dataclass(frozen=True, slots=True)
class Walk:
    """The kind `citation`'s paths: their number, papers on each, and from how many nearest ones the next is drawn.

    Candidates whose cosine with the positive is above `max_similarity`, or that cite it, may be excluded.
    """

    paths: int = 3
    length: int = 3
    top: int = 5
    max_similarity: float | None = None
    exclude_citing: bool = False


@dataclass(frozen=True, slots=True)
class MiningPlan:
    """How negatives are mined, at most `per_row` of a row; None keeps all.

    `ranks` (first and last) and `margin` are the kind `retriever`'s, `walk` the kind `citation`'s.
    """

    kind: str
    per_row: int | None
    seed: int
    ranks: tuple[int, int] | None = None
    margin: float | None = None
    walk: Walk | None = None


@dataclass(frozen=True, slots=True)
class Gold:
    """What must not be a negative of a question: its positives by id and normalised text, and its own text."""

    ids: frozenset[str]
    texts: frozenset[str]


class Miner(Protocol):
    """A kind of negatives."""

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return what qualifies for a row, in the order of the ranks."""


def golds(rows: Iterable[TrainingRow]) -> dict[str, Gold]:
    """Return the gold of each question, by its normalised text."""
    ids: dict[str, set[str]] = {}
    texts: dict[str, set[str]] = {}
    for row in rows:
        question = normalised(row.query)
        ids.setdefault(question, set()).update(filter(None, [row.positive_id]))
        texts.setdefault(question, {question}).add(normalised(row.positive))
    return {question: Gold(frozenset(ids[question]), frozenset(forms)) for question, forms in texts.items()}


def eligible(candidates: Iterable[Negative], gold: Gold) -> Iterator[Negative]:
    """Yield the candidates that are not gold, have some text, and do not repeat an earlier one's."""
    seen = {"", *gold.texts}
    for candidate in candidates:
        text = normalised(candidate.text)
        if candidate.id not in gold.ids and text not in seen:
            seen.add(text)
            yield candidate


def drawn(window: Sequence[Negative], count: int | None, random: Random) -> list[Negative]:
    """Return `count` of the window, or all, drawn uniformly without replacement, in the order of their ranks."""
    if count is None or len(window) <= count:
        return list(window)
    return [window[index] for index in sorted(random.sample(range(len(window)), count))]


def ranking(retriever: Retriever, depth: int) -> Callable[[str], tuple[Hit, ...]]:
    """Return a search for the best `depth` that caches the last query's: rows of one query come together."""
    return lru_cache(maxsize=1)(lambda query: retriever.search(query, depth).hits)


def as_negatives(hits: Iterable[Hit]) -> Iterator[Negative]:
    """Yield ranked snippets as candidates."""
    return (Negative(hit.snippet.id, hit.snippet.contents, hit.rank, hit.score) for hit in hits)


def by_question(rows: Iterable[TrainingRow]) -> list[TrainingRow]:
    """Return the rows with those of one query together, at the place of its first."""
    groups: dict[str, list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault(row.query, []).append(row)
    return [row for group in groups.values() for row in group]


def mine(
    rows: Iterable[TrainingRow], miner: Miner, plan: MiningPlan, out: TripletFile, on_progress: OnProgress
) -> MiningReport:
    """Mine and write each row that is not in the file yet; those of one query come together.

    A row for which nothing qualifies is dropped and counted. Each line is flushed before the next row begins, so that a
    killed run resumes after its last whole line, and the file gets the same bytes.

    Raises
    ------
    BadInputError
        If a line of the file is not one of these rows.
    ServiceError
        If another process is writing the file.
    """
    rows = by_question(rows)
    gold = golds(rows)
    with out.appending() as stream:
        done = out.resume(rows)
        on_progress(done.next_row)
        written, count = done.rows, done.negatives
        stream.truncate(done.size)
        for row in rows[done.next_row :]:
            window = miner.window(row, gold[normalised(row.query)])
            negatives = drawn(window, plan.per_row, row_random(plan.seed, row))
            if negatives:
                stream.write(to_line(row, negatives, plan.kind))
                stream.flush()
                written += 1
                count += len(negatives)
            on_progress(1)
        report = MiningReport(written, count, len(rows) - written, done.rows)
        out.finish(report)
    return report
