"""Texts in batches of about equal work, whatever runs the model."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

Task = Literal["query", "document"]
Text = str | tuple[str, str]  # a model's input: a text, or a query with a passage, or evidence with a claim
T = TypeVar("T")

# Characters of a batch, padding counted: about a fifth as many tokens.
CPU_CHARACTERS = 1_000
MANY, SHARES = 16, 8  # from so many batches on, they are the same for up to so many workers
FETCH = "fetch it again, or name another"


def size(text: Text) -> int:
    """Return the characters of a text or a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


def in_batches(
    batches: Sequence[Sequence[int]], compute: Callable[[Sequence[int]], Sequence[T]], workers: int, **options: Any
) -> list[T]:
    """Return what `compute` gives for each index of the batches, in the order of the indices.

    Batches run side by side in `workers` threads; `options` are those of `ThreadPoolExecutor`.
    """
    with ThreadPoolExecutor(workers, **options) as pool:
        computed = list(pool.map(compute, batches) if workers > 1 else map(compute, batches))
    results = {
        index: result
        for batch, batch_results in zip(batches, computed, strict=True)
        for index, result in zip(batch, batch_results, strict=True)
    }
    return [results[index] for index in range(len(results))]


def by_length(lengths: Sequence[int], budget: int, workers: int) -> list[list[int]]:
    """Return the indices of texts in batches, longest first, each of at most `budget` when padded.

    A longer text is a batch alone. Batches are smaller if there would be fewer than `workers`.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    budget = min(budget, math.ceil(sum(lengths) / workers))
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * max(1, lengths[batches[-1][0]]) <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def balanced(lengths: Sequence[int], budget: int, workers: int) -> list[list[int]]:
    """Return the indices of texts in batches of about equal sums, of `budget` or less where no text is longer.

    Each of the `workers` has as many, fewer if there are fewer texts: each text, the longest first, joins the smallest
    batch (Graham 1969, longest processing time first). Many batches are the same for any few workers, since in
    bfloat16 the last bits of a text's vector depend on the texts beside it.
    """
    total = sum(lengths)
    shares = SHARES if workers <= SHARES and total >= MANY * budget else workers
    rounds = math.ceil(total / (budget * shares)) or 1
    batches: list[list[int]] = [[] for _ in range(min(rounds * shares, len(lengths)))]
    heap = [(0, number) for number in range(len(batches))]
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        total, number = heap[0]
        batches[number].append(index)
        heapq.heapreplace(heap, (total + max(1, lengths[index]), number))
    return batches
