"""The consistency filter: a question is kept if a retriever finds its passage for it.

Promptagator's round-trip filter (Dai et al. 2022, arXiv 2209.11755); BMRetriever (Xu et al. 2024, arXiv 2404.18443)
keeps a generated question whose passage is among the top 3.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path

from biorag.engine import OpenIndex
from biorag.errors import MissingError
from biorag.retrieval.retriever import Ranking
from biorag.training.instructions import instructed
from biorag.training.rows import normalised, parsed_rows
from biorag.types import Index, OnProgress, TrainingRow, block_id
from biorag.utils.files import json_line, replacing
from biorag.utils.progress import batched

BATCH = 32


def keep_consistent(
    path: Path, out: Path, opened: OpenIndex, keep_top: int, on_progress: OnProgress
) -> dict[str, int | float]:
    """Write the rows whose passage is among the best `keep_top` for their query, unchanged and at once; return counts.

    Of the rows `read` some are `kept`. Of the others, `below` rows have their passage below the top ranks, the passages
    of `absent` ones are not in the index, and `empty` ones have a query without a word.

    Raises MissingError if the file is not there; BadInputError naming file, line and reason.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a JSON Lines file of query and positive")
    tally = {"read": 0, "kept": 0, "below": 0, "absent": 0, "empty": 0}
    with replacing(out) as stream:
        for batch in batched(parsed_rows(path), BATCH):
            batch_verdicts = verdicts([row for row, _ in batch], opened, keep_top)
            for (_, record), verdict in zip(batch, batch_verdicts, strict=True):
                tally["read"] += 1
                tally[verdict] += 1
                if verdict == "kept":
                    stream.write(json_line(record))
            on_progress(len(batch))
    return {**tally, "share_kept": round(tally["kept"] / tally["read"], 4) if tally["read"] else 0.0}


def verdicts(rows: Sequence[TrainingRow], opened: OpenIndex, keep_top: int) -> list[str]:
    """Return the count that each row belongs to, "kept" for those to keep, with one search for each instruction.

    A hit is a row's passage if it is the document of its `positive_id`, which may name a document or a block, or has
    the same `normalised` text. A row without an id is never "absent".
    """
    documents = _documents(opened.index, {row.positive_id for row in rows} - {""})
    rankings: dict[tuple[str, str], Ranking] = {}
    for own in dict.fromkeys(row.instruction for row in rows):
        queries = dict.fromkeys(row.query for row in rows if row.instruction == own and normalised(row.query))
        with instructed(opened.encoder, own):
            found = opened.retriever.search_all(list(queries), keep_top)
        rankings |= {(query, own): ranking for query, ranking in zip(queries, found, strict=True)}

    def verdict(row: TrainingRow) -> str:
        if (row.query, row.instruction) not in rankings:
            return "empty"
        if row.positive_id and row.positive_id not in documents:
            return "absent"
        document = documents.get(row.positive_id)
        text = normalised(row.positive)
        hits = (hit.snippet for hit in rankings[row.query, row.instruction].hits)
        return "kept" if any(hit.id == document or normalised(hit.contents) == text for hit in hits) else "below"

    return [verdict(row) for row in rows]


def _documents(index: Index, ids: Set[str]) -> dict[str, str]:
    """Return the document of each id of a snippet or a document that the index has."""
    snippets = index.fetch(sorted({*ids, *(block_id(id, 0) for id in ids)}))
    cut = {id: id for id in ids if block_id(id, 0) in snippets}
    return cut | {id: snippets[id].document for id in ids if id in snippets}
