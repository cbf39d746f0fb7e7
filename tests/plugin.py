"""Kinds of what biorag has registries of, from one file: what a package of somebody else's would hold.

It imports the registries alone until a kind is used: help texts are made of what was registered before the settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from biorag.registries import (
    FORMATS,
    FUSIONS,
    NEGATIVES,
    OUTPUTS,
    READERS,
    RERANKERS,
    STORES,
    FormatKind,
    FusionKind,
    NegativesKind,
    OutputKind,
    ReaderKind,
    RerankerKind,
    StoreKind,
)
from biorag.types import Hit, ScoredDoc, Snippet, TrainingRow, Vectors

if TYPE_CHECKING:
    from biorag.corpus.sources import Source
    from biorag.engine import OpenIndex
    from biorag.lab.conversion.items import Request
    from biorag.retrieval.rerankers import RerankerParts
    from biorag.training.mining import Miner, MiningPlan

REGISTRIES = (FORMATS, FUSIONS, NEGATIVES, OUTPUTS, READERS, RERANKERS, STORES)


def register() -> None:
    """Register a dummy of each kind."""
    here = "tests.plugin:"
    FUSIONS.register(FusionKind(name="highest", target=here + "highest", summary="the better score", true_scores=True))
    RERANKERS.register(
        RerankerKind(
            name="shortest", target=here + "Shortest", summary="by length", weight="interpolation", prefix="short:"
        )
    )
    READERS.register(ReaderKind(name="tabs", target=here + "Tabs", summary="id and text", suffixes=(".tabs",)))
    STORES.register(StoreKind(name="numpy", target="biorag.indexes.edge:EdgeIndex", summary="another name for edge"))
    NEGATIVES.register(NegativesKind(name="last", target=here + "last", summary="the last of the top 9", per_row=2))
    FORMATS.register(FormatKind(name="tabs", target=here + "tabs", summary="id and text", splits=("train", "test")))
    OUTPUTS.register(OutputKind(name="ids", target=here + "listed", summary="an id a line"))


def highest(dense: Sequence[ScoredDoc], bm25: Sequence[ScoredDoc]) -> dict[str, float]:
    """Return the better of the two scores."""
    scores = dict(dense)
    return scores | {id: max(score, scores.get(id, score)) for id, score in bm25}


def listed(hits: Sequence[Hit]) -> str:
    """Return the ids of hits."""
    return "".join(f"{hit.snippet.id}\n" for hit in hits)


class Shortest:
    """Prefers short snippets."""

    def __init__(self, name: str, parts: RerankerParts) -> None:
        self.name = name

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        import numpy as np

        return [np.array([-len(snippet.contents) for snippet in found], np.float32) for found in candidates]


class Tabs:
    """Lines of an id and a text with a tab between."""

    @staticmethod
    def records(source: Source) -> Iterator[tuple[int, bytes]]:
        from biorag.corpus.sources import read_lines

        return read_lines(source)

    @staticmethod
    def parse(record: bytes) -> Snippet:
        id, _, text = record.decode().partition("\t")
        if not text:
            raise ValueError("no tab")
        return Snippet(id, "", text)

    @staticmethod
    def shown(record: bytes) -> str:
        return record.decode("utf-8", "replace")


def tabs(request: Request, on_reject: object) -> Iterator[Snippet]:
    """Yield a snippet for each line."""
    from biorag.corpus.sources import read_lines

    for source in request.sources:
        yield from (Tabs.parse(line) for _, line in read_lines(source))


def last(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the last of what BM25 ranks."""
    from biorag.training.mining import as_negatives, eligible

    return lambda row, gold: list(eligible(as_negatives(opened.retriever.search(row.query, 9).hits), gold))[-2:]
