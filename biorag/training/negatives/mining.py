"""Mining, shared by all kinds of negatives: gold is excluded, negatives are drawn, one row after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NotRequired

from typing_extensions import TypedDict

from biorag.engine import OpenIndex
from biorag.training.instructions import instructed
from biorag.training.rows import normalised, row_random
from biorag.types import Hit, OnProgress, TrainingRow
from biorag.utils.runs import Rows


@dataclass(frozen=True, slots=True)
class Negative:
    """A passage that does not answer a query, with the rank (from 1) and score it was mined with, None if drawn."""

    id: str
    text: str
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class Walk:
    """The kind `citation`'s paths: their number, papers on each, and from how many nearest ones the next is drawn."""

    paths: int = 3
    length: int = 3
    top: int = 5


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


# Returns the candidates that qualify for a row, in the order of their ranks.
Miner = Callable[[TrainingRow, Gold], list[Negative]]


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


def ranking(opened: OpenIndex, depth: int) -> Callable[[TrainingRow], tuple[Hit, ...]]:
    """Return a search of a row's query under its instruction for the best `depth`.

    It caches the last: rows of one query come together.
    """

    @lru_cache(maxsize=1)
    def search(query: str, instruction: str) -> tuple[Hit, ...]:
        with instructed(opened.encoder, instruction):
            return opened.retriever.search(query, depth).hits

    return lambda row: search(row.query, row.instruction)


def as_negatives(hits: Iterable[Hit]) -> Iterator[Negative]:
    """Yield ranked snippets as candidates."""
    return (Negative(hit.snippet.id, hit.snippet.contents, hit.rank, hit.score) for hit in hits)


def by_question(rows: Iterable[TrainingRow]) -> list[TrainingRow]:
    """Return the rows with those of one query under one instruction together, at the place of its first."""
    groups: dict[tuple[str, str], list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault((row.query, row.instruction), []).append(row)
    return [row for group in groups.values() for row in group]


class MinedRow(TypedDict):
    """What is read of a mined row."""

    query: str
    positive: str
    instruction: NotRequired[str]
    negatives: list[dict[str, Any]]


def mined_file(path: Path, identity: Mapping[str, Any]) -> Rows:
    """Return the JSON Lines file of a run's mined rows."""

    def belongs(pair: TrainingRow, row: MinedRow) -> bool:
        mined = (row["query"], row["positive"], row.get("instruction", ""))
        return (pair.query, pair.positive, pair.instruction) == mined

    return Rows(
        path, identity, MinedRow, belongs, lambda rows: {"negatives": sum(len(row["negatives"]) for row in rows)}
    )


def mine(
    rows: Iterable[TrainingRow], load_miner: Callable[[], Miner], plan: MiningPlan, file: Rows, on_progress: OnProgress
) -> dict[str, int]:
    """Mine and write each row that is not in the file yet; those of one query come together.

    Returns the numbers of `rows` written, of their `negatives`, of rows `without` any, which are dropped, and of
    `resumed` rows that were there before.

    Raises MismatchError if the file is of other rows or settings; ServiceError if another process is writing the file.
    """
    pairs = by_question(rows)
    gold = golds(pairs)

    def mined(left: Sequence[TrainingRow]) -> Iterator[dict[str, Any] | None]:
        miner = load_miner()
        for row in left:
            window = miner(row, gold[normalised(row.query)])
            negatives = drawn(window, plan.per_row, row_random(plan.seed, row))
            yield record_of(row, negatives, plan.kind) if negatives else None

    counts, resumed = file.fill(pairs, mined, on_progress)
    kept = {name: counts[name] for name in ("rows", "negatives")}
    return {**kept, "without": counts["items"] - counts["rows"], "resumed": resumed}


def kept_fields(row: TrainingRow) -> dict[str, str]:
    """Return a row's ids and its instruction, those that it has, for the file of a row made of it."""
    return {name: text for name in ("query_id", "positive_id", "instruction") if (text := getattr(row, name))}


def record_of(row: TrainingRow, negatives: Sequence[Negative], kind: str) -> dict[str, Any]:
    """Return a mined row as the file has it: texts, and the ids, ranks and scores of the negatives."""
    values: dict[str, Any] = {"query": row.query, "positive": row.positive}
    values |= {f"negative_{number}": negative.text for number, negative in enumerate(negatives, 1)}
    values["kind"] = kind
    values |= kept_fields(row)
    scores = [negative.score and round(negative.score, 6) for negative in negatives]
    values["negatives"] = [
        {"id": negative.id, "rank": negative.rank, "score": score}
        for negative, score in zip(negatives, scores, strict=True)
    ]
    return values
