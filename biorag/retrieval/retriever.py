"""First-stage retrieval, fusion and the chain of rerankers, over one open index."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from biorag.corpus.blocks import ids_of_blocks, joined
from biorag.corpus.joining import record_keys
from biorag.errors import UsageError
from biorag.registries import FUSIONS
from biorag.retrieval.fusion import Candidates, Sides, best_of_all, best_of_lists, min_max, ranked
from biorag.settings.retrieval import RetrievalSettings, Stage
from biorag.settings.settings import Settings
from biorag.types import Encoder, Hit, Index, IndexQuery, Reranker, ScoredDoc, Snippet, Vectors, Where
from biorag.utils.text import first_visible, is_whole

CANDIDATES = 1000  # reranked at once at most, unless one query has more: their token vectors fill the memory


@dataclass(frozen=True, slots=True)
class Ranking:
    """The hits of one query, best first, and the time of each stage; `sides` is None unless the mode is hybrid.

    `left_out` are retracted articles that stood where hits do, before they were left out; `is_guess` tells that a word
    of the query was spelt otherwise, and may have been meant as it was.
    """

    query: str
    hits: tuple[Hit, ...]
    timings_ms: dict[str, float]
    sides: Sides | None = None
    left_out: tuple[Snippet, ...] = ()
    is_guess: bool = False


@dataclass(slots=True)
class Stopwatch:
    """Collects the milliseconds of named stages."""

    ms: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage; the same name adds up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.ms[name] = round(self.ms.get(name, 0.0) + (time.perf_counter() - start) * 1000, 3)


class Retriever:
    """First-stage retrieval of `k_init` snippets by BM25, dense vectors or both, then reranking.

    Of a document that was split into blocks the best one stands for it, under the document's id. `encoder` may be None
    for the mode "bm25"; `rerankers` are those of the configured stages, none if reranking is off.
    """

    def __init__(
        self,
        index: Index,
        encoder: Encoder | None,
        rerankers: Sequence[Reranker] | None,
        settings: RetrievalSettings,
        similarity: str = "cosine",
    ) -> None:
        self._index = index
        self._encoder = encoder
        self._rerankers = tuple(rerankers or ())
        self._stages = tuple(zip(settings.stages, self._rerankers, strict=True)) if rerankers else ()
        self._settings = settings
        self._similarity = similarity

    def with_cache(self) -> Retriever:
        """Return this retriever with models that compute nothing twice; its memory grows with what is asked."""
        from biorag.models.caching import CachedEncoder, CachedReranker  # NumPy costs --help too much

        encoder = CachedEncoder(self._encoder) if self._encoder else None
        rerankers = [CachedReranker(reranker) for reranker in self._rerankers]
        return Retriever(self._index, encoder, rerankers, self._settings, self._similarity)

    def keeping_tokens(self) -> Retriever:
        """Return a retriever that encodes no candidate of late interaction again that it scored lately."""
        from biorag.models.late_interaction import LateInteraction

        kept = [one.keeping() if isinstance(one, LateInteraction) else one for one in self._rerankers]
        return Retriever(self._index, self._encoder, kept, self._settings, self._similarity)

    def variant(self, **changes: Any) -> Retriever:
        """Return a retriever over the same index and models, loading none, with some settings changed.

        A changed chain may have fewer stages, or others of their depths.
        """
        settings = Settings.of(**{**self._settings.flat(), **changes}).retrieval
        loaded = {(stage.kind.name, stage.name): reranker for stage, reranker in self._stages}
        rerankers = [loaded[stage.kind.name, stage.name] for stage in settings.stages] if settings.rerank else None
        return Retriever(self._index, self._encoder, rerankers, settings, self._similarity)

    def search(self, query: str, limit: int | None = None, where: Where = ()) -> Ranking:
        """Return the best `limit` (default `k`) hits; see `search_all`."""
        return self.search_all([query], limit, [where])[0]

    def search_all(
        self,
        queries: Sequence[str],
        limit: int | None = None,
        wheres: Sequence[Where] = (),
        retracted: bool = True,
    ) -> list[Ranking]:
        """Return the best `limit` (default `k`) hits of each query, every stage in one batch.

        Below the depth of a stage the order of the one before stays, on its own scale of scores. The times are
        each query's share of the batch's.

        Raises `UsageError` if a query is blank.

        `wheres`: the conditions of each query; `retracted`: whether retracted articles may be among the hits.
        """
        if not queries:
            return []
        for query in queries:
            _check_query(query)
        limit = limit or self._settings.k
        watch = Stopwatch()
        candidates, snippets = self._candidates(queries, limit, wheres or [()] * len(queries), retracted, watch)
        rankings, read = [candidate.ranking for candidate in candidates], snippets
        if self._stages and any(rankings):
            with watch.stage("rerank"):
                if self._settings.rerank_whole:
                    rankings = [_by_document(ranking, snippets) for ranking in rankings]
                    read = self._whole(rankings, snippets)
                rankings = self._rerank(queries, rankings, read)
        times = {stage: round(ms / len(queries), 3) for stage, ms in watch.ms.items()}
        times["total"] = round(sum(times.values()), 3)
        hits = [_hits(_by_document(ranking, snippets)[:limit], snippets) for ranking in rankings]
        return [
            Ranking(query, of_query, dict(times), candidate.sides, candidate.left_out)
            for query, of_query, candidate in zip(queries, hits, candidates, strict=True)
        ]

    def _candidates(
        self, queries: Sequence[str], limit: int, wheres: Sequence[Where], retracted: bool, watch: Stopwatch
    ) -> tuple[list[Candidates], dict[str, Snippet]]:
        """Return the first stage's candidates and their snippets: of `limit` documents, if so many can be found.

        Blocks of one document and retracted articles take places that others may have. A query that has enough is
        searched no more: what it finds must not depend on those beside it.
        """
        wanted = max(limit, self._settings.k_init) if self._stages else limit
        candidates = [Candidates([]) for _ in queries]
        snippets: dict[str, Snippet] = {}
        lacking = list(range(len(queries)))
        while lacking:
            asked = [queries[number] for number in lacking], wanted, [wheres[number] for number in lacking]
            searched = self._first_stage(*asked, watch)
            with watch.stage("fetch"):
                fetched = self._index.fetch(sorted({scored.id for ranking, *_ in searched for scored in ranking}))
            snippets |= {id: snippet for id, snippet in fetched.items() if retracted or not snippet.retracted}
            for number, (ranking, sides, _) in zip(lacking, searched, strict=True):
                shown = [scored for scored in ranking if scored.id in snippets]
                hidden = [fetched[id] for id, _ in ranking[:limit] if id in fetched and id not in snippets]
                documents = {snippet.document: snippet for snippet in hidden}
                candidates[number] = Candidates(shown, sides, tuple(documents.values()))
            lacking = [
                number
                for number, (ranking, *_) in zip(lacking, searched, strict=True)
                if len(ranking) >= wanted and len(_by_document(candidates[number].ranking, snippets)) < limit
            ]
            wanted *= 2
        return candidates, snippets

    def _first_stage(
        self, queries: Sequence[str], limit: int, wheres: Sequence[Where], watch: Stopwatch
    ) -> list[Candidates]:
        mode = self._settings.mode
        with watch.stage("encode"):
            vectors = self._encode(queries) if mode != "bm25" else ()
        with watch.stage("first_stage"):
            depth = max(self._settings.depth, limit) if mode == "hybrid" else limit
            bm25 = [IndexQuery(query, depth, where) for query, where in zip(queries, wheres, strict=True)]
            if mode == "bm25":
                return [Candidates(ranking) for ranking in self._index.search(bm25)]
            dense = [IndexQuery(vector, depth, where) for vector, where in zip(vectors, wheres, strict=True)]
            if mode == "dense":
                return [Candidates(ranking) for ranking in self._index.search(dense)]
            return self._hybrid(dense, bm25, limit)

    def _encode(self, queries: Sequence[str]) -> Vectors:
        assert self._encoder is not None, "dense retrieval needs an encoder"
        return self._encoder.encode_queries(queries)

    def _hybrid(self, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery], limit: int) -> list[Candidates]:
        """Return each query's best `limit` by fused score, as the fusion has it: of two lists, or of all snippets."""
        kind = FUSIONS[self._settings.fusion]
        fuse = partial(kind.load(), **{name: getattr(self._settings, name) for name in kind.parameters})
        search = best_of_all if kind.exhaustive else partial(best_of_lists, true_scores=kind.true_scores)
        return search(self._index, dense, bm25, limit, fuse)

    def _rerank(
        self, queries: Sequence[str], candidates: list[list[ScoredDoc]], snippets: dict[str, Snippet]
    ) -> list[list[ScoredDoc]]:
        """Order each query's best candidates stage by stage, each adding the weighted score of the one before."""
        before = None
        for stage, reranker in self._stages:
            tops = [ranking[: stage.depth] for ranking in candidates]
            texts = [[snippets[scored.id] for scored in top] for top in tops]
            step = max(1, CANDIDATES // stage.depth)  # queries whose candidates fit into memory
            turns = (slice(start, start + step) for start in range(0, len(queries), step))
            scores = chain.from_iterable(reranker.score_all(queries[turn], texts[turn]) for turn in turns)
            weight: float = getattr(self._settings, stage.kind.weight)
            candidates = [
                ranked(
                    ScoredDoc(scored.id, float(score) + weight * earlier)
                    for scored, score, earlier in zip(top, of_query, self._comparable(top, before), strict=True)
                )
                + ranking[len(top) :]
                for ranking, top, of_query in zip(candidates, tops, scores, strict=True)
            ]
            before = stage
        return candidates

    def _whole(self, rankings: Sequence[list[ScoredDoc]], snippets: Mapping[str, Snippet]) -> dict[str, Snippet]:
        """Return the snippets to be reranked with the content of their documents, under their own ids."""
        reranked = {scored.id for ranking in rankings for scored in ranking[: self._stages[0][0].depth]}
        blocks = {id: ids_of_blocks(snippets[id]) for id in sorted(reranked)}
        fetched = self._index.fetch(sorted({block for ids in blocks.values() for block in ids}))
        whole = {id: joined([fetched[block] for block in ids if block in fetched]) for id, ids in blocks.items()}
        return {id: replace(snippets[id], content=document.content) for id, document in whole.items()}

    def _comparable(self, top: list[ScoredDoc], before: Stage | None) -> list[float]:
        """Return the scores of the stage before, None for the first, on the scale of a cosine or mean MaxSim."""
        scores = [scored.score for scored in top]
        settings = self._settings
        if before:
            return scores if before.kind.bounded else min_max(scores)
        if settings.mode == "bm25":
            return [settings.lambda_ * score for score in scores]
        bounded = settings.mode != "hybrid" or FUSIONS[settings.fusion].bounded
        return scores if bounded and self._similarity != "dot" else min_max(scores)


def _check_query(query: str) -> None:
    if not is_whole(query):
        raise UsageError("the query is not UTF-8: type it again")
    if not first_visible(query):
        raise UsageError("the query is empty: give some words to search for")


def _by_document(ranking: list[ScoredDoc], snippets: dict[str, Snippet]) -> list[ScoredDoc]:
    """Return the first of each document's blocks, without records of a title alone whose paper is there too."""
    first: dict[str, ScoredDoc] = {}
    for scored in ranking:
        first.setdefault(snippets[scored.id].document, scored)
    documents = {scored: snippets[scored.id] for scored in first.values()}
    if all(snippet.content for snippet in documents.values()):
        return list(documents)
    papers = {key for snippet in documents.values() if snippet.content for key in _record_keys(snippet)}
    return [scored for scored, snippet in documents.items() if snippet.content or not papers & _record_keys(snippet)]


def _record_keys(snippet: Snippet) -> set[str]:
    return set(record_keys(snippet.title, snippet.metadata, snippet.pmid))


def _hits(ranking: list[ScoredDoc], snippets: dict[str, Snippet]) -> tuple[Hit, ...]:
    return tuple(
        Hit(rank, replace(snippets[id], id=snippets[id].document), score) for rank, (id, score) in enumerate(ranking, 1)
    )
