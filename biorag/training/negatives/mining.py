"""Mining, as all kinds of negatives share it: what is excluded, what is drawn, one row after the other."""

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
    """The kind `citation`'s paths: how many, papers on each, and among how many nearest each next one is drawn.

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
    """What is no negative of a question: all its positives by id and normalised text, and its own text."""

    ids: frozenset[str]
    texts: frozenset[str]


class Kind(Protocol):
    """A way to find negatives."""

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
    return {question: Gold(frozenset(ids[question]), frozenset(found)) for question, found in texts.items()}


def eligible(candidates: Iterable[Negative], gold: Gold) -> Iterator[Negative]:
    """Yield the candidates that are no gold, have some text, and have not the text of one before."""
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
    return [window[place] for place in sorted(random.sample(range(len(window)), count))]


def ranking(retriever: Retriever, depth: int) -> Callable[[str], tuple[Hit, ...]]:
    """Return a search for the best `depth` that keeps the last query's: rows of one query come together."""
    return lru_cache(maxsize=1)(lambda query: retriever.search(query, depth).hits)


def as_negatives(hits: Iterable[Hit]) -> Iterator[Negative]:
    """Yield ranked snippets as candidates."""
    return (Negative(hit.snippet.id, hit.snippet.contents, hit.rank, hit.score) for hit in hits)


def by_question(rows: Iterable[TrainingRow]) -> list[TrainingRow]:
    """Return the rows with those of one query together, where its first stood."""
    groups: dict[str, list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault(row.query, []).append(row)
    return [row for group in groups.values() for row in group]


def mine(
    rows: Iterable[TrainingRow], kind: Kind, plan: MiningPlan, out: TripletFile, on_progress: OnProgress
) -> MiningReport:
    """Mine and write each row that is not in the file yet; those of one query come together.

    A row for which nothing qualifies is left out and counted. Each line is with the system when the next row
    begins, so that a killed run goes on after its last whole line, and the file gets the same bytes.

    Raises
    ------
    BadInputError
        If a line of the file is none of these rows.
    ServiceError
        If another process is writing the file.
    """
    rows = by_question(rows)
    gold = golds(rows)
    with out.appending() as stream:
        done = out.resume(rows)
        on_progress(done.place)
        written, negatives = done.rows, done.negatives
        stream.truncate(done.size)
        for row in rows[done.place :]:
            window = kind.window(row, gold[normalised(row.query)])
            chosen = drawn(window, plan.per_row, row_random(plan.seed, row))
            if chosen:
                stream.write(to_line(row, chosen, plan.kind))
                stream.flush()
                written += 1
                negatives += len(chosen)
            on_progress(1)
        report = MiningReport(written, negatives, len(rows) - written, done.rows)
        out.finish(report)
    return report
