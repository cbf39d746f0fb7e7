"""The consistency filter: a question is kept if a retriever finds its passage for it.

Promptagator's round-trip filter (Dai et al. 2022, arXiv 2209.11755); BMRetriever (Xu et al. 2024, arXiv 2404.18443)
keeps a generated question whose passage is among the top 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.errors import MissingError
from biorag.retrieval.retriever import Retriever
from biorag.training.rows import normalised, parsed_rows
from biorag.types import Index, OnProgress, TrainingRow, block_id
from biorag.utils.files import json_line, replacing
from biorag.utils.progress import batched

BATCH = 32


@dataclass(frozen=True, slots=True)
class ConsistencyReport:
    """The counts of the filter: rows `read`, `kept`, and dropped.

    `below` rows have their passage below the top ranks, the passages of `absent` ones are not in the index, and `empty`
    ones have a query without a word.
    """

    read: int
    kept: int
    below: int
    absent: int
    empty: int


def keep_consistent(
    path: Path, out: Path, index: Index, retriever: Retriever, keep_top: int, on_progress: OnProgress
) -> ConsistencyReport:
    """Write the rows whose passage is among the best `keep_top` for their query, unchanged, and count.

    `out` is written at once, at the end.

    Raises MissingError if the file is not there; BadInputError naming file, line and reason.
    """
    tally = {"read": 0, "kept": 0, "below": 0, "absent": 0, "empty": 0}
    with replacing(out) as stream:
        for batch in batched(_read(path), BATCH):
            batch_verdicts = verdicts([row for row, _ in batch], index, retriever, keep_top)
            for (_, record), verdict in zip(batch, batch_verdicts, strict=True):
                tally["read"] += 1
                tally[verdict] += 1
                if verdict == "kept":
                    stream.write(json_line(record))
            on_progress(len(batch))
    return ConsistencyReport(**tally)


def is_kept(beginning: bytes) -> bool:
    """Return whether biorag wrote a file that begins so: rows are kept as they were, so nobody can tell."""
    return not beginning


def verdicts(rows: Sequence[TrainingRow], index: Index, retriever: Retriever, keep_top: int) -> list[str]:
    """Return the count that each row belongs to, "kept" for those to keep, with one search for all.

    A hit is a row's passage if it is the document of its `positive_id`, which may name a document or a block, or has
    the same `normalised` text. A row without an id is never "absent".
    """
    documents = _documents(index, {row.positive_id for row in rows} - {""})
    queries = list(dict.fromkeys(row.query for row in rows if normalised(row.query)))
    rankings = dict(zip(queries, retriever.search_all(queries, keep_top), strict=True))

    def verdict(row: TrainingRow) -> str:
        if row.query not in rankings:
            return "empty"
        if row.positive_id and row.positive_id not in documents:
            return "absent"
        document = documents.get(row.positive_id)
        text = normalised(row.positive)
        hits = (hit.snippet for hit in rankings[row.query].hits)
        return "kept" if any(hit.id == document or normalised(hit.contents) == text for hit in hits) else "below"

    return [verdict(row) for row in rows]


def _documents(index: Index, ids: Set[str]) -> dict[str, str]:
    """Return the document of each id of a snippet or a document that the index has."""
    snippets = index.fetch(sorted({*ids, *(block_id(id, 0) for id in ids)}))
    cut = {id: id for id in ids if block_id(id, 0) in snippets}
    return cut | {id: snippets[id].document for id in ids if id in snippets}


def _read(path: Path) -> Iterator[tuple[TrainingRow, Mapping[str, Any]]]:
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a JSON Lines file of query and positive")
    yield from parsed_rows(path)
