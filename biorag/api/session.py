"""An index that stays open with its models, for many questions, from many threads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, Self

from biorag.answering.answerer import OnText
from biorag.engine import OpenIndex, check_index, load_checker, load_generator, open_index
from biorag.errors import MissingError, UsageError, unknown_name
from biorag.generators.source import generator_source
from biorag.indexes.describing import index_facts
from biorag.indexes.reading import named_snippets
from biorag.indexes.store import Store
from biorag.references.facts import Facts, facts_of
from biorag.registries import generator_of
from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.types import (
    Answer,
    CheckedSentence,
    FieldFilter,
    Generation,
    GenerationRequest,
    Question,
    Snippet,
)

if TYPE_CHECKING:
    from biorag.retrieval.heat_map import HeatMap

# What one question may set otherwise; all else decides what is loaded.
PER_QUESTION = ("k", "k_init", "mode", "rerank", "include_retracted", "answer_anyway")
Where = tuple[FieldFilter, ...]


@dataclass(frozen=True, slots=True)
class FoundSnippets:
    """What an id or a PMID names: snippets, and the facts of each."""

    index: str
    snippets: tuple[Snippet, ...]
    facts: tuple[Facts, ...]


class Session:
    """The configured index, open with its models until `close`; threads may share it.

    Searches run one at a time, since each uses all cores; a generator is asked as many questions at a time as it takes.
    Meanwhile nothing can be written to the index.

    Parameters
    ----------
    verifier : a cross-encoder that claims are checked with too, `cross:ID` or a directory

    Raises
    ------
    MissingError
        If the index or a model is not there.
    MismatchError
        If the index was made with another encoder.
    """

    def __init__(self, settings: Settings, verifier: str | None = None) -> None:
        self.settings = settings
        if settings.generation.llm:
            generator_source(settings.generation.llm).check()  # before the index and the encoder are loaded
        check_index(settings)
        at_a_time = 1
        if settings.generation.llm:
            at_a_time = generator_of(settings.generation.generator).at_a_time(settings.generation.concurrency)
        self._searching, self._answering = Lock(), BoundedSemaphore(at_a_time)
        self._checker = load_checker(verifier, settings)
        with ExitStack() as opening:
            self._ready: OpenIndex = opening.enter_context(open_index(settings))
            self._generator = load_generator(settings, at_a_time) if settings.generation.llm else None
            self._closing = opening.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the index and its models; a second call does nothing."""
        with self._searching:
            self._closing.close()

    @property
    def name(self) -> str:
        """The index's name."""
        return self._ready.manifest.name

    @property
    def models(self) -> dict[str, Any]:
        """The names of the models that questions are answered with."""
        return self._ready.models_used(self._generator)

    @property
    def controls(self) -> Sequence[str]:
        """What the generator's chat format is made of, which quoted text must not write; see `Generator`."""
        return self._generator.controls if self._generator else ()

    def generate(self, request: GenerationRequest) -> Generation | None:
        """Ask the generator for JSON; None where no generator is named.

        Raises
        ------
        ServiceError
            If it fails.
        """
        if self._generator is None:
            return None
        with self._answering:
            return self._generator.generate(request)

    def check(self, where: Where) -> None:
        """Check conditions before they are searched with.

        Raises
        ------
        UsageError
            If one names a field that no snippet has.
        """
        with self._searching:
            self._ready.checked(where)

    def search(self, query: str, where: Where = (), **changes: Any) -> Ranking:
        """Return the best hits of a query.

        Parameters
        ----------
        where : conditions that hits must all fulfil
        changes : settings for this query alone, of `PER_QUESTION`

        Raises
        ------
        UsageError
            If the query is blank, a condition names no field, or a setting cannot be changed.
        """
        return self._search(self._with(changes), query, where, retracted=True)

    def ask(self, question: Question, where: Where = (), on_text: OnText | None = None, **changes: Any) -> Answer:
        """Answer a question from the evidence, or withhold the answer; see `search` for the parameters.

        `on_text` sees a generator's reply as it grows, before it is checked.
        """
        ready = self._with(changes)
        retracted = ready.settings.retrieval.include_retracted
        ranking = self._search(ready, question.text, where, retracted)
        answerer = ready.answerer(self._generator, self._checker)
        with self._answering:
            return answerer.answer_or_withhold(question, ranking, on_text=on_text)

    def verify(self, claim: str, snippet: str | None = None, where: Where = ()) -> CheckedSentence:
        """Judge a claim by a snippet, or by what a search for it finds.

        Raises
        ------
        MissingError
            If there is no such snippet.
        """
        if snippet is not None:
            return self._checker.check_claim(claim, self.show(snippet).snippets)
        return self._checker.check_claim(claim, [hit.snippet for hit in self.search(claim, where).hits])

    def show(self, id: str) -> FoundSnippets:
        """Return the snippets that an id or a PMID names.

        Raises
        ------
        MissingError
            If there is none.
        """
        with self._searching:
            found = named_snippets(self._ready.index, id, self._ready.manifest.encoder.dimension)
        if not found:
            raise MissingError(f"index {self.name!r} has no snippet {id!r}: give an id or a PMID of it")
        return FoundSnippets(self.name, tuple(found), tuple(facts_of(snippet) for snippet in found))

    def heat_map(self, question: str, id: str) -> HeatMap:
        """Divide the reranker's score of a snippet among the words of a question; of a block the id is the block's.

        Raises
        ------
        UsageError
            If no reranker compares the bi-encoder's token vectors.
        MissingError
            If there is no such snippet.
        """
        from biorag.retrieval.heat_map import heat_map  # NumPy costs --help too much

        ready = self._ready
        compared = ready.settings.retrieval.rerank and any(
            stage.kind.uses_encoder for stage in ready.settings.retrieval.stages
        )
        if not compared or ready.encoder is None or not ready.encoder.has_tokens:
            raise UsageError("only the reranker 'encoder' compares words: open the index with reranking by it")
        kept = ready.manifest.tokens
        stored = kept if kept and kept.sha256 == ready.encoder.identity.sha256 else None
        with self._searching:
            snippet = ready.index.fetch([id]).get(id)
            if snippet is None:
                raise MissingError(f"index {self.name!r} has no snippet {id!r}: give the id of a hit")
            return heat_map(question, snippet, ready.encoder, ready.index, stored)

    def info(self) -> dict[str, Any]:
        """Return what the index holds and was made with."""
        with self._searching:
            return index_facts(Store(self.settings), self._ready.manifest, self._ready.index)

    def _search(self, ready: OpenIndex, query: str, where: Where, retracted: bool) -> Ranking:
        with self._searching:
            wheres = [ready.checked(where)]
            return ready.retriever.search_all([query], wheres=wheres, retracted=retracted)[0]

    def _with(self, changes: dict[str, Any]) -> OpenIndex:
        """Return the index with some settings of a question changed; None stands for no change."""
        changes = {name: value for name, value in changes.items() if value is not None}
        if not changes:
            return self._ready
        for name in changes:
            if name not in PER_QUESTION:
                raise unknown_name("setting of a question", name, PER_QUESTION)
        settings = self.settings.replace(**changes)
        if settings.retrieval.rerank and not self.settings.retrieval.rerank:
            raise UsageError("the index was opened without reranking: open it with rerank=True")
        if settings.retrieval.mode != "bm25" and self._ready.encoder is None:
            raise UsageError("the index was opened with mode='bm25', without its encoder: open it with mode='hybrid'")
        of_retrieval = {name: value for name, value in changes.items() if name in settings.retrieval.flat()}
        return replace(self._ready, settings=settings, retriever=self._ready.retriever.variant(**of_retrieval))
