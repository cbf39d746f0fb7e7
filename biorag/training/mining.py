"""Mining negatives: the registered kinds, what they share, and a run that writes the rows of one kind into a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NotRequired

import numpy as np
from typing_extensions import TypedDict

from biorag.corpus.citation_graph import open_graph
from biorag.engine import OpenIndex
from biorag.errors import UsageError
from biorag.models.token_projection import unit
from biorag.registries import NEGATIVES
from biorag.training.citation_walks import CitedPapers, Walk, walk
from biorag.training.contamination import ContaminationPolicy
from biorag.training.instructions import instructed
from biorag.training.rows import normalised, read_rows, row_random, sha256_of
from biorag.types import Hit, OnProgress, Progress, TrainingRow, Vectors
from biorag.utils.runs import Rows
from biorag.utils.versions import installed_versions

DEEPEST = 10_000


@dataclass(frozen=True, slots=True)
class Negative:
    """A passage that does not answer a query, with the rank (from 1) and score it was mined with, None if drawn."""

    id: str
    text: str
    rank: int
    score: float | None


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
    written = {name: counts[name] for name in ("rows", "negatives")}
    return {**written, "without": counts["items"] - counts["rows"], "resumed": resumed}


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


def bm25(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the bottom 32 of the top 42, as in ModernBERT + ColBERT for biomedical retrieval (arXiv 2510.04757)."""
    return _bottom(opened, 42, 32)


def bm25_hits(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the first ten passages by BM25, gold removed.

    The BioASQ 8 hybrid system takes its BM25 system's passages (section 5.1), without saying how many: ten is ours, the
    most documents that a submission may name.
    """
    return _bottom(opened, 10, 10)


def _bottom(opened: OpenIndex, top: int, count: int) -> Miner:
    """Return the bottom `kept` of the top `top`, gold removed, or all if a question has fewer."""
    hits = ranking(opened, top)
    return lambda row, gold: list(eligible(as_negatives(hits(row)), gold))[-count:]


def random(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return negatives drawn uniformly without replacement; a negative's rank is the number of its draw.

    Memory: the ids of the corpus.
    """
    index, count, all_ids = opened.index, plan.per_row, sorted(opened.index.ids())
    assert count is not None, "the number of draws"

    def draws(row: TrainingRow) -> Iterator[Negative]:
        order = shuffled(all_ids, row_random(plan.seed, row))
        while ids := list(islice(order, count)):
            snippets = index.fetch(ids)
            yield from (Negative(snippets[id].document, snippets[id].contents, 0, None) for id in ids if id in snippets)

    def window(row: TrainingRow, gold: Gold) -> list[Negative]:
        return [
            replace(negative, rank=rank) for rank, negative in enumerate(islice(eligible(draws(row), gold), count), 1)
        ]

    return window


def shuffled(items: Sequence[str], random: Random) -> Iterator[str]:
    """Yield all items in a random order: a lazy Fisher-Yates shuffle."""
    moved: dict[int, int] = {}
    for index in range(len(items)):
        other = random.randrange(index, len(items))
        yield items[moved.get(other, other)]
        moved[other] = moved.get(index, index)


def retriever(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the passages at the plan's ranks (from 1, gold counted), gold removed.

    With a margin those that score near the row's positive or above it are dropped too, as likely false negatives: see
    `highest_score`. A positive below the last rank has every candidate above it, so none is kept.
    """
    assert plan.ranks is not None, "the ranks of the kind retriever"
    first, last = plan.ranks
    margin, search = plan.margin, ranking(opened, last)

    def window(row: TrainingRow, gold: Gold) -> list[Negative]:
        hits = search(row)
        candidates = eligible(as_negatives(hits[first - 1 :]), gold)
        if margin is None:
            return list(candidates)
        limit = highest_score(score_of_positive(row, hits), margin)
        return [negative for negative in candidates if negative.score is not None and negative.score <= limit]

    return window


def score_of_positive(row: TrainingRow, hits: Iterable[Hit]) -> float | None:
    """Return the score of the row's positive, by its id or its text; None if it is not among the hits."""
    text = normalised(row.positive)
    for hit in hits:
        if hit.snippet.id == row.positive_id or normalised(hit.snippet.contents) == text:
            return hit.score
    return None


def highest_score(positive: float | None, margin: float) -> float:
    """Return the highest score of a negative: `(1 − margin) · positive`, and `(1 + margin) · positive` below 0.

    Source: TopK-PercPos of NV-Retriever (Moreira et al., 2024, arXiv 2407.15831), where 95 % is margin 0.05.
    """
    return -math.inf if positive is None else positive - margin * abs(positive)


def parse_ranks(text: str) -> tuple[int, int]:
    """Return the first and the last rank of `FIRST-LAST`.

    Raises UsageError if it is not of this form, or the ranks are out of range.
    """
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last <= DEEPEST:
        raise UsageError(f"--ranks {text!r}: give FIRST-LAST, such as 1-50, with ranks from 1 to {DEEPEST:,}")
    return first, last


def citation(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the papers that walks over a positive's neighbourhood visit, and another, drawn uniformly from the rest.

    Gold and repeated texts are not candidates. A negative's rank is the number of its visit, its score the cosine with
    the query. A row whose positive has no candidate gets none.
    """
    how, index, encoder = plan.walk, opened.index, opened.load_encoder()
    assert how is not None, "the walk of the kind citation"
    papers = CitedPapers(open_graph(opened.settings), index, rows)

    @lru_cache(maxsize=1)  # rows of one query come together
    def vector_of(query: str, instruction: str) -> Vectors:
        with instructed(encoder, instruction):
            vector: Vectors = unit(encoder.encode_queries([query]))[0]
        return vector

    def window(row: TrainingRow, gold: Gold) -> list[Negative]:
        ids, cited = papers.of(row)
        snippets = index.fetch(ids)
        order = {snippets[id].document: number for number, id in enumerate(ids)}
        others = list(eligible((Negative(snippets[id].document, snippets[id].contents, 0, None) for id in ids), gold))
        if not others:
            return []
        stored = index.dense_vectors([ids[order[other.id]] for other in others])
        vectors = unit(np.stack([stored[ids[order[other.id]]] for other in others]))
        to_query = vectors @ vector_of(row.query, row.instruction)
        one_hop = np.array([order[other.id] < cited for other in others])
        visited = walk(to_query, vectors @ vectors.T, one_hop, how, row_random(plan.seed, row))
        return [replace(others[n], rank=rank, score=float(to_query[n])) for rank, n in enumerate(visited, 1)]

    return window


def plan_of(kind: str, seed: int, per_row: int | None, ranks: str, margin: float | None, walk: Walk) -> MiningPlan:
    """Return the plan of a kind with its own options; raises UsageError if the ranks are not FIRST-LAST."""
    options: dict[str, Any] = {"ranks": parse_ranks(ranks), "margin": margin, "walk": walk}
    return MiningPlan(kind, per_row, seed, **{name: options[name] for name in NEGATIVES[kind].plan})


def _identity(row: TrainingRow) -> list[str]:
    return [row.query, row.positive, row.query_id, row.positive_id, *filter(None, [row.instruction])]


def mine_pairs(
    pairs: Sequence[Path],
    plan: MiningPlan,
    opened: OpenIndex,
    policy: ContaminationPolicy,
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Mine negatives of pairs into the file `out`, resuming an interrupted run, and return the report.

    Raises ContaminationError if pairs match benchmark questions and the policy does not drop them; BadInputError if the
    pairs cannot be read; MismatchError if the file is of other pairs or settings.
    """
    read, counts_of_pairs = read_rows(pairs, opened.index.fetch)
    rows, matches = policy.apply(read)
    identity = {
        **asdict(plan),
        **opened.settings.retrieval.first_stage(),
        "index": opened.fingerprint(),
        "graph": open_graph(opened.settings).sha256 if plan.walk else None,
        "pairs": sha256_of(_identity(row) for row in rows),
        "versions": installed_versions(),
    }

    def load_miner() -> Miner:
        miner: Miner = NEGATIVES[plan.kind].load()(plan, opened, rows)
        return miner

    with progress("Mining", len(rows)) as advance:
        counts = mine(rows, load_miner, plan, mined_file(out, identity), advance)
    return {
        "kind": plan.kind,
        **counts,
        "per_row_mean": round(counts["negatives"] / counts["rows"], 2) if counts["rows"] else 0.0,
        "contaminated": len(read) - len(rows),
        "matches": [asdict(match) for match in matches],
        "input": counts_of_pairs,
    }
