"""The main line: retrieve, rerank, prompt, generate, parse, verify."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from biorag.config import Config
from biorag.errors import BadInputError, UsageError, unknown_name
from biorag.evidence import verify_citations
from biorag.fusion import linear, min_max, ranked, reciprocal_rank
from biorag.prompts.parse import cited_numbers, parse_reply, without_marks
from biorag.prompts.template import Template, load_template, schema_for
from biorag.stages import Stage
from biorag.text import is_whole
from biorag.types import (
    Answer,
    Condition,
    Encoder,
    Generator,
    Hit,
    Index,
    Probe,
    Prompt,
    Question,
    Reranker,
    Scored,
    Snippet,
    Vectors,
)

METHODS = ("generate", "score")
CANDIDATES = 1000  # reranked at once at most, unless one query has more: their token vectors fill the memory
ANSWER_MARGIN = 64  # tokens kept for the fields after the free text and the chat format
CACHED_NOTE = "the model was not asked: its reply was kept from before (--no-cache asks it)"
OnText = Callable[[str], None]


class PromptTooLongError(BadInputError):
    """A question that does not fit the generator's window even without documents."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The hits of one query, best first, and what each stage took."""

    query: str
    hits: tuple[Hit, ...]
    timings_ms: dict[str, float]


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

    Of a document that was split into blocks the best one stands for it, under the document's id.
    `encoder` may be None where `config.mode` is "bm25"; `rerankers` are those of `config.stages`, and None or empty
    switches reranking off.
    """

    def __init__(
        self, index: Index, encoder: Encoder | None, rerankers: Sequence[Reranker] | None, config: Config
    ) -> None:
        self._index = index
        self._encoder = encoder
        self._rerankers = tuple(rerankers or ())
        self._stages = tuple(zip(config.stages, self._rerankers, strict=True)) if rerankers else ()
        self._config = config

    def remembering(self) -> Retriever:
        """Return this retriever with models that compute nothing twice; its memory grows with what is asked."""
        from biorag.remembered import RememberedEncoder, RememberedReranker  # NumPy costs --help too much

        encoder = RememberedEncoder(self._encoder) if self._encoder else None
        return Retriever(self._index, encoder, [RememberedReranker(each) for each in self._rerankers], self._config)

    def variant(self, **changes: Any) -> Retriever:
        """Return a retriever over the same index and models, loading none, with some settings changed."""
        config = self._config.replace(**changes)
        return Retriever(self._index, self._encoder, self._rerankers if config.rerank else None, config)

    def over(self, index: Index) -> Retriever:
        """Return this retriever, models and settings, over another view of its index."""
        return Retriever(index, self._encoder, self._rerankers, self._config)

    def search(self, query: str, limit: int | None = None, where: tuple[Condition, ...] = ()) -> Ranking:
        """Return the best `limit` (default `config.k`) hits; see `search_all`."""
        return self.search_all([query], limit, [where])[0]

    def search_all(
        self,
        queries: Sequence[str],
        limit: int | None = None,
        wheres: Sequence[tuple[Condition, ...]] = (),
        retracted: bool = True,
    ) -> list[Ranking]:
        """Return the best `limit` (default `config.k`) hits of each query, every stage in one batch.

        Below the depth of a stage the order of the one before goes on, on its own scale of scores. The times are
        each query's share of the batch's.

        Parameters
        ----------
        wheres : the conditions of each query; empty for none
        retracted : whether retracted articles may be among the hits

        Raises
        ------
        UsageError
            If a query is blank.
        """
        if not queries:
            return []
        for query in queries:
            _check_query(query)
        limit = limit or self._config.k
        watch = Stopwatch()
        candidates, snippets = self._candidates(queries, limit, wheres or [()] * len(queries), retracted, watch)
        if self._stages and any(candidates):
            with watch.stage("rerank"):
                candidates = self._rerank(queries, candidates, snippets)
        times = {stage: round(ms / max(1, len(queries)), 3) for stage, ms in watch.ms.items()}
        times["total"] = round(sum(times.values()), 3)
        return [
            Ranking(query, _hits(_by_document(found, snippets)[:limit], snippets), dict(times))
            for query, found in zip(queries, candidates, strict=True)
        ]

    def _candidates(
        self,
        queries: Sequence[str],
        limit: int,
        wheres: Sequence[tuple[Condition, ...]],
        retracted: bool,
        watch: Stopwatch,
    ) -> tuple[list[list[Scored]], dict[str, Snippet]]:
        """Return the first stage's candidates and their snippets: of `limit` documents, if so many can be found."""
        wanted = max(limit, self._config.k_init) if self._stages else limit
        kept: list[list[Scored]] = [[] for _ in queries]
        snippets: dict[str, Snippet] = {}
        lacking = list(range(len(queries)))
        # Blocks of one document and retracted articles take places that others may have. A query that has enough is
        # asked no more: what it finds must not depend on those beside it.
        while lacking:
            asked = [queries[place] for place in lacking], wanted, [wheres[place] for place in lacking]
            found = dict(zip(lacking, self._first_stage(*asked, watch), strict=True))
            with watch.stage("fetch"):
                fetched = self._index.fetch(sorted({scored.id for ranking in found.values() for scored in ranking}))
            snippets |= {id: snippet for id, snippet in fetched.items() if retracted or not snippet.retracted}
            for place, ranking in found.items():
                kept[place] = [scored for scored in ranking if scored.id in snippets]
            lacking = [
                place
                for place, ranking in found.items()
                if len(ranking) >= wanted and len(_by_document(kept[place], snippets)) < limit
            ]
            wanted *= 2
        return kept, snippets

    def _first_stage(
        self, queries: Sequence[str], limit: int, wheres: Sequence[tuple[Condition, ...]], watch: Stopwatch
    ) -> list[list[Scored]]:
        mode, depth = self._config.mode, max(self._config.depth, limit)
        with watch.stage("encode"):
            vectors = self._encode(queries) if mode != "bm25" else ()
        with watch.stage("first_stage"):
            asked = limit if mode != "hybrid" else depth
            bm25 = [Probe(query, asked, where) for query, where in zip(queries, wheres, strict=True)]
            if mode == "bm25":
                return self._index.search(bm25)
            dense = [Probe(vector, asked, where) for vector, where in zip(vectors, wheres, strict=True)]
            if mode == "dense":
                return self._index.search(dense)
            found = self._index.search(dense + bm25)
            fused = self._fuse(dense, bm25, found[: len(dense)], found[len(dense) :])
            return [ranked(scores, limit) for scores in fused]

    def _encode(self, queries: Sequence[str]) -> Vectors:
        assert self._encoder is not None, "dense retrieval needs an encoder"
        return self._encoder.encode_queries(queries)

    def _fuse(
        self, dense: list[Probe], bm25: list[Probe], near: list[list[Scored]], worded: list[list[Scored]]
    ) -> list[dict[str, float]]:
        """Return each query's fused scores; `near` answers `dense`, and `worded` answers `bm25`."""
        if self._config.fusion == "rrf":
            return [reciprocal_rank(list(sides), self._config.rrf_k) for sides in zip(near, worded, strict=True)]
        dense_scores, bm25_scores = [dict(found) for found in near], [dict(found) for found in worded]
        # A candidate that one side alone found gets its true score from the other.
        missing: list[tuple[dict[str, float], Probe]] = []
        for probes, scores, others in ((dense, dense_scores, bm25_scores), (bm25, bm25_scores, dense_scores)):
            for probe, own, other in zip(probes, scores, others, strict=True):
                if lacking := frozenset(other) - frozenset(own):
                    missing.append((own, Probe(probe.query, len(lacking), among=lacking)))
        if missing:
            for (own, _), found in zip(missing, self._index.search([probe for _, probe in missing]), strict=True):
                own.update(found)
        return [linear(*sides, self._config.lambda_) for sides in zip(dense_scores, bm25_scores, strict=True)]

    def _rerank(
        self, queries: Sequence[str], candidates: list[list[Scored]], snippets: dict[str, Snippet]
    ) -> list[list[Scored]]:
        """Order each query's best candidates stage by stage, each adding the weighted score of the one before."""
        before = None
        for stage, reranker in self._stages:
            tops = [found[: stage.depth] for found in candidates]
            late = _score_in_turns(reranker, stage.depth, queries, tops, snippets)
            weight = self._config.cross_interpolation if stage.cross else self._config.interpolation
            candidates = [
                ranked(
                    Scored(scored.id, float(score) + weight * earlier)
                    for scored, score, earlier in zip(top, scores, self._comparable(top, before), strict=True)
                )
                + found[len(top) :]
                for found, top, scores in zip(candidates, tops, late, strict=True)
            ]
            before = stage
        return candidates

    def _comparable(self, top: list[Scored], before: Stage | None) -> list[float]:
        """Return the scores of the stage before, None for the first, on the scale of a cosine or mean MaxSim."""
        scores = [scored.score for scored in top]
        config = self._config
        if before:
            return min_max(scores) if before.cross else scores
        if config.mode == "bm25":
            return [config.lambda_ * score for score in scores]
        if config.similarity == "dot" or (config.mode == "hybrid" and config.fusion == "rrf"):
            return min_max(scores)
        return scores


def _score_in_turns(
    reranker: Reranker,
    depth: int,
    queries: Sequence[str],
    tops: Sequence[Sequence[Scored]],
    snippets: Mapping[str, Snippet],
) -> Iterator[Vectors]:
    """Yield the scores of each query's candidates, `depth` at most, of so many queries at a time as memory holds."""
    texts = [[snippets[scored.id] for scored in top] for top in tops]
    step = max(1, CANDIDATES // depth)
    for start in range(0, len(queries), step):
        yield from reranker.score_all(queries[start : start + step], texts[start : start + step])


def _check_query(query: str) -> None:
    if not is_whole(query):
        raise UsageError("the query is not UTF-8: type it again")
    if not query.strip():
        raise UsageError("the query is empty: give some words to search for")


def _by_document(found: list[Scored], snippets: dict[str, Snippet]) -> list[Scored]:
    """Return the first of each document's blocks."""
    first: dict[str, Scored] = {}
    for scored in found:
        first.setdefault(snippets[scored.id].document, scored)
    return list(first.values())


def _hits(found: list[Scored], snippets: dict[str, Snippet]) -> tuple[Hit, ...]:
    return tuple(
        Hit(rank, replace(snippets[id], id=snippets[id].document), score) for rank, (id, score) in enumerate(found, 1)
    )


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise unknown_name("way to answer", method, METHODS)


class Answerer:
    """Answers questions from what the retriever finds; without a retriever, from the model alone.

    Without a generator the answer is the evidence.
    """

    def __init__(self, retriever: Retriever | None, generator: Generator | None, config: Config) -> None:
        self._retriever = retriever
        self._generator = generator
        self._config = config

    def answer(
        self,
        question: Question,
        where: tuple[Condition, ...] = (),
        method: str = "generate",
        on_text: OnText | None = None,
    ) -> Answer:
        """Answer one question from evidence that fulfils `where`; see `answer_from`."""
        _check_method(method)
        return self.answer_from(question, self.retrieve([question], [where])[0], method, on_text)

    def retrieve(
        self, questions: Sequence[Question], wheres: Sequence[tuple[Condition, ...]]
    ) -> Sequence[Ranking | None]:
        """Return the evidence of each question, whose options the retriever never sees; None without a retriever."""
        if self._retriever is None:
            return [None] * len(questions)
        texts = [question.text for question in questions]
        return self._retriever.search_all(texts, wheres=wheres, retracted=self._config.include_retracted)

    def answer_from(
        self,
        question: Question,
        ranking: Ranking | None,
        method: str = "generate",
        on_text: OnText | None = None,
    ) -> Answer:
        """Answer one question from what was retrieved for it.

        Several threads may call this if the generator lets them.

        Parameters
        ----------
        ranking : None for an answer without evidence
        method : "generate" (a JSON reply) or "score" (compare the options' log-probabilities)
        on_text : sees the raw reply as it grows

        Raises
        ------
        PromptTooLongError
            If the question alone does not fit the generator's window.
        """
        _check_method(method)
        answer = Answer(question)
        if ranking:
            answer = replace(answer, hits=ranking.hits, timings_ms=ranking.timings_ms)
        if self._generator is None:
            return replace(answer, notes=("no generator was asked (--llm none): this is the evidence alone",))
        if ranking and not ranking.hits and not question.options:
            return replace(answer, notes=("no evidence was found, so nothing was generated",))
        start = time.perf_counter()
        if method == "score":
            answer, cached = self._score(self._generator, answer)
        else:
            answer, cached = self._generate(self._generator, answer, on_text)
        taken = round((time.perf_counter() - start) * 1000, 3)
        timings = dict(answer.timings_ms)
        total = round(timings.pop("total", 0.0) + taken, 3)
        # What the cache took is not reported as the model's speed.
        timings = {**timings, "cached" if cached else "generate": taken, "total": total}
        notes = answer.notes + ((CACHED_NOTE,) if cached else ())
        return replace(answer, notes=notes, timings_ms=timings)

    def _generate(self, generator: Generator, answer: Answer, on_text: OnText | None) -> tuple[Answer, bool]:
        """Return the answer, and whether its reply was kept from before; so does `_score`."""
        question = answer.question
        name = "open" if not question.options else "choice" if answer.hits else "closed_book"
        template = load_template(name, self._config.prompt)
        prompt, supplied, notes = self._fitted(generator, template, answer, self._config.max_tokens)
        generation = generator.generate(prompt, schema_for(question, supplied), self._config.max_tokens, on_text)
        if generation.capped:
            notes += (f"the model's text was cut at {self._config.max_tokens} tokens (--max-tokens)",)
        reply = parse_reply(generation.text)
        choice = reply.choice(tuple(question.options)) if question.options else None
        reasoning = reply.text("step_by_step_thinking")
        text = reply.text("answer")
        prose = f"{reasoning} {question.options[choice] if choice else text}"
        citations, dropped = verify_citations(cited_numbers(reply, prose), answer.hits[:supplied], question.text, prose)
        held = {citation.n for citation in citations}
        if supplied and not citations:
            notes += ("no citation holds: take the answer as unsupported and read the evidence",)
        answered = replace(
            answer,
            reply=generation.text,
            text=question.options[choice] if choice else without_marks(text, held),
            choice=choice,
            parsed=reply.strict and bool(choice if question.options else text),
            reasoning=without_marks(reasoning, held),
            relevant_context=reply.text("relevant_context") or None,
            citations=citations,
            supplied=supplied,
            notes=dropped + notes,
        )
        return answered, generation.cached

    def _score(self, generator: Generator, answer: Answer) -> tuple[Answer, bool]:
        question = answer.question
        if not question.options:
            raise UsageError("an open question has no options to score: use --answer generate")
        name = "score" if answer.hits else "closed_book_score"
        prompt, supplied, notes = self._fitted(generator, load_template(name, self._config.prompt), answer, 0)
        scores, cached = generator.score(prompt, tuple(question.options))
        choice = max(scores, key=lambda letter: (scores[letter], -ord(letter)), default=None)
        logprobs = {letter: round(score, 4) for letter, score in scores.items()}
        if choice is None:
            notes += ("the model's likeliest replies hold none of the options",)
        answered = replace(
            answer,
            reply=json.dumps({"option_logprobs": logprobs, **({"answer_choice": choice} if choice else {})}),
            text=question.options[choice] if choice else "",
            choice=choice,
            parsed=choice is not None,
            option_logprobs=logprobs,
            supplied=supplied,
            notes=notes,
        )
        return answered, cached

    def _fitted(
        self, generator: Generator, template: Template, answer: Answer, output_tokens: int
    ) -> tuple[Prompt, int, tuple[str, ...]]:
        """Return the prompt with as many snippets, best first, as the window takes, and what was cut."""
        room = generator.context_window - output_tokens - ANSWER_MARGIN
        snippets = [hit.snippet for hit in answer.hits]
        for supplied in range(len(snippets), -1, -1):
            prompt = template.render(answer.question, snippets[:supplied])
            if generator.count_tokens(prompt) <= room:
                break
        else:
            raise PromptTooLongError(
                f"question {answer.question.id!r} does not fit the generator's window of "
                f"{generator.context_window} tokens: shorten it, or lower --max-tokens"
            )
        cut = len(snippets) - supplied
        if not cut:
            return prompt, supplied, ()
        note = f"{cut} of {len(snippets)} documents did not fit the window of {generator.context_window} tokens"
        return prompt, supplied, (note,)
