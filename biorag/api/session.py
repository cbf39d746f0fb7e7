"""An index that stays open with its models: the one object that every face calls, for many questions and threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack, cast
from weakref import WeakValueDictionary, finalize

from biorag.api.answer_text import read_by
from biorag.api.results import AnswerResult, NearSentence, SearchResult, SnippetResult, VerdictResult
from biorag.engine import OpenIndex, load_checker, load_chooser, load_models, open_stored
from biorag.errors import MissingError, ServiceError, UsageError, check_name
from biorag.generators.source import generator_source, load_generator
from biorag.indexes.reading import named_snippets
from biorag.indexes.store import Store, check_settings
from biorag.references.reference import reference_of
from biorag.registries import generator_of
from biorag.retrieval.filters import parse_filters
from biorag.retrieval.retriever import Ranking, Stopwatch
from biorag.settings.section import STARTER
from biorag.settings.settings import SHOWN, Settings
from biorag.types import (
    Generator,
    Hit,
    Index,
    Question,
    Reader,
    Snippet,
    Stance,
    Verdict,
    Where,
)
from biorag.utils.locks import Turns
from biorag.utils.text import cut, first_visible, is_whole

if TYPE_CHECKING:
    from biorag.answering.guards.checker import Checker
    from biorag.api.weighings import WeighResult
    from biorag.api.word_matching import WordMatch
    from biorag.indexes.manifest import Manifest

T = TypeVar("T")
Filter = str | Iterable[str]
Options = Mapping[str, str] | Iterable[str]
_OPTION = re.compile(r"([A-Z])\s*=\s*(.*\S)\s*", re.DOTALL)


class QuestionSettings(TypedDict, total=False):
    """The settings that one question may change, if not None; all others decide which models are loaded."""

    k: int | None
    k_init: int | None
    mode: str | None
    rerank: bool | None
    include_retracted: bool | None
    answer_anyway: bool | None
    kind: str | None


WRITTEN = "index {!r} is taking in papers just now: ask again in a minute"
PER_QUESTION = tuple(QuestionSettings.__annotations__)


class Session:
    """An open index with its models; `biorag.open` makes one. Close it, or use it in a `with` statement.

    Threads may share it. Searches run one at a time, since each uses all cores; a generator takes as many questions at
    a time as it can. Until the session is closed, nothing can write to the index.

    `eager` loads all models now, as threads that share the session need, but a judge of claims only if a generator's
    answers are to be judged, or it is not the one that comes with biorag: so that its faults show at once.

    `beside` is a session of another index with the same settings: the two take turns and load no model twice. It must
    stay open as long.

    Raises `MissingError` if the index or a model is missing; `MismatchError` if the encoder is not the index's.
    """

    def __init__(self, settings: Settings, *, eager: bool = False, beside: Session | None = None) -> None:
        self.settings, self._beside = settings, beside
        self._at_a_time = 1
        if settings.generation.llm:
            kind = generator_of(settings.generation.generator)
            self._at_a_time = kind.at_a_time(settings.generation.concurrency)
        self._searching: Lock = beside._searching if beside else Lock()
        self._answering: Turns = beside._answering if beside else Turns(self._at_a_time)
        # Models that an open session holds.
        self._loaded: MutableMapping[str, Any] = beside._loaded if beside else WeakValueDictionary()
        self._facts: dict[Callable[[Session], Any], Any] = {}
        self._opened: OpenIndex | None = None
        self._generator: Future[Generator | None] | None = None
        opening = ExitStack()
        self._held = opening.enter_context(ExitStack())  # the index alone
        self._closed_because = ""
        self._closing = finalize(self, opening.close)  # at the interpreter's exit, too
        try:
            self._background = opening.enter_context(ThreadPoolExecutor(1, "generator"))
            if eager and settings.generation.llm:
                self._begin_generator()
            self._manifest, self._index = self._held.enter_context(open_stored(settings))
            if eager:
                self._begin_generator()
                self._models()
                checker = self._checker
                if self._loaded_generator():
                    checker.identity()
        except BaseException:
            self._closing()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<biorag index {self.name!r}>"

    def close(self) -> None:
        """Release the index and its models; a second call does nothing."""
        with self._searching:
            self._closing()

    @contextmanager
    def _opened_index(self) -> Iterator[None]:
        """Let one thread at a time use the index; raise `UsageError` once it is closed."""
        with self._searching:
            if not self._closing.alive:
                raise UsageError(f"index {self.name!r} is closed: open it again")
            if self._closed_because:
                raise ServiceError(self._closed_because)
            yield

    @contextmanager
    def written(self) -> Iterator[None]:
        """Close the index while a block writes to it, then open it as it is now; the models stay loaded.

        Meanwhile what needs the index raises `ServiceError`. Raises as opening a session does if it cannot be opened.
        """
        with self._opened_index():
            self._closed_because = WRITTEN.format(self.name)
            self._held.close()
        try:
            yield
        finally:
            with self._searching:
                self._manifest, self._index = self._held.enter_context(open_stored(self.settings))
                self._facts = {}
                if self._opened:
                    self._opened = load_models(self.settings, self._manifest, self._index, self._loaded)
                self._closed_because = ""

    @contextmanager
    def stored(self) -> Iterator[tuple[Index, Manifest]]:
        """Give the open index and its manifest to one thread at a time."""
        with self._opened_index():
            yield self._index, self._manifest

    @property
    def name(self) -> str:
        """The index's name."""
        return self._manifest.name

    def fact(self, make: Callable[[Session], T]) -> T:
        """Return what a function makes of the open index: made once, and again once it was written to."""
        facts = self._facts  # those of this opening, whatever happens meanwhile
        if make not in facts:
            facts[make] = make(self)
        return cast(T, facts[make])

    @property
    def models(self) -> dict[str, Any]:
        """The names of the models that questions are answered with."""
        return self._models().models_used(self._loaded_generator())

    def standalone(self, question: str, previous: str, answer: str) -> str:
        """Return a follow-up of a question that stands alone, and its answer, as a question that stands alone, too.

        The generator rewrites it where another than the starter is named, else the packaged Llama; it is empty where
        neither is there, or what it wrote cannot be used. Raises `UsageError` for text that is not UTF-8;
        `ServiceError` if the generator fails.
        """
        from biorag.answering.followups import open_rewriter, rewritten

        check_text(question, previous, answer)
        named = self._loaded_generator() if self.settings.generation.llm not in (None, STARTER) else None
        with self._answering:
            if named:
                return rewritten(named, question, previous, answer)
            rewrite = open_rewriter(self.settings.generation.threads, self.settings.cache / "models")
            return rewrite(question, previous, answer) if rewrite else ""

    def check_filter(self, filter: Filter) -> None:
        """Raise `UsageError` if a filter cannot be read, or names a field that no snippet has."""
        models = self._models()
        with self._opened_index():
            models.checked(conditions(filter))

    def search(self, query: str, *, filter: Filter = (), **changes: Unpack[QuestionSettings]) -> SearchResult:
        """Find the snippets that are relevant to a query, as `biorag search` does.

        `filter` is conditions such as "year>=2015 and not pmid=29768149", all of which must hold; `changes` are
        settings for this query alone, such as `k=10` (see `QuestionSettings`).
        Raises `UsageError` if the query is blank, or a filter or a setting is wrong.
        """
        check_text(query)
        models = self._models(**changes)
        (ranking,) = self._ranked([query], models, conditions(filter))
        return SearchResult(query, models.settings.retrieval.mode, ranking.hits, ranking.timings_ms)

    def nearness(self, text: str, *, filter: Filter = ()) -> float | None:
        """Return the largest mean MaxSim of a text to its hits by the packaged encoder.

        None without it, without hits, or if a word is several pieces to the encoder, as names of the field are.
        """
        from biorag.answering.sentence_matching import late_interaction

        check_text(text)
        models = self._models()
        (ranking,) = self._ranked([text], models, conditions(filter))
        gauge = models.load_gauge()
        if gauge is None or not ranking.hits:
            return None
        spans = [span for span in gauge.located_tokens([text])[0].spans if span[0] < span[1]]
        if any(end == start and text[start].isalnum() for (_, end), (start, _) in pairwise(spans)):
            return None
        return float(late_interaction(text, [hit.snippet for hit in ranking.hits], [], gauge).snippets.max())

    def ask(
        self,
        question: str,
        *,
        options: Options = (),
        filter: Filter = (),
        on_text: Callable[[str], None] | None = None,
        **changes: Unpack[QuestionSettings],
    ) -> AnswerResult:
        """Answer a question from the evidence, as `biorag ask` does; see `search` for the other parameters.

        `options` are the texts of a multiple-choice question by their letters, or strings such as "A=thiamine";
        `on_text` receives a generator's reply so far as it grows, before it is checked. Raises `UsageError` if the
        question is blank, or an option, a filter or a setting is wrong; `ServiceError` if the generator fails.
        """
        from biorag.answering.weighing import opposed

        check_text(question)
        asked = Question("ask", question, options_of(options))
        where = conditions(filter)
        self._begin_generator()
        models = self._models(**changes)
        with self._opened_index():
            ranking = models.search(asked, where)
        generator = self._loaded_generator()
        with self._answering:
            answerer = models.answerer(generator, self._checker, in_haste=self._answering.waiting > 0)
            searched = replace(asked, text=ranking.query)
            answer = answerer.answer_or_withhold(searched, ranking, on_text=on_text)
        answer = opposed(answer, self._checker.stances)
        if searched != asked:
            answer = replace(answer, question=asked, notes=(f"searched for: {searched.text}", *answer.notes))
        if where and not ranking.hits:
            answer = replace(answer, notes=("no snippet meets the filter: widen it, or leave it out",))
        if ranking.left_out:
            answer = replace(answer, notes=(*answer.notes, retracted_note(ranking.left_out)))
        by_reader = any(one.basis == "reader" for one in answer.sentences) or (answer.short_answer and not generator)
        if by_reader and (note := self.read_by):
            answer = replace(answer, notes=(*answer.notes, note))
        return AnswerResult.of(answer, models.models_used(generator))

    @property
    def read_by(self) -> str:
        """Whose words a reader's verdicts are, and what they have cost so far; "" where none count."""
        return read_by(self.reader)

    @property
    def reader(self) -> Reader | None:
        """The reader of evidence, if one is configured."""
        return self._checker.reader

    def show(self, id: str | int) -> SnippetResult:
        """Return the snippets of an id, a PMID or a DOI, with how many papers of the local graph cite each.

        Raises `MissingError` if there is none.
        """
        from biorag.references.facts import facts_of

        snippets = self._named(str(id))
        if not snippets:
            shown = cut(repr(str(id)), SHOWN)
            raise MissingError(f"index {self.name!r} has no snippet {shown}: give the id, PMID or DOI of one")
        cited = self._times_cited(snippets)
        return SnippetResult(self.name, snippets, tuple(facts_of(one, cited.get(one.pmid or 0)) for one in snippets))

    def verify(self, claim: str, *, snippet: str | None = None, filter: Filter = ()) -> VerdictResult:
        """Judge a claim by a search for it, or by the snippets of one id or PMID, as `biorag verify` does.

        Raises `UsageError` if the claim is blank; `MissingError` if there is no such snippet.
        """
        check_claim(claim)
        if snippet is not None:
            return self._judged(claim, [Hit(n, one, 1.0) for n, one in enumerate(self.show(snippet).snippets, 1)])
        return self._judged(claim, self.search(claim, filter=filter).hits, self._models())

    def _judged(self, claim: str, hits: Sequence[Hit], models: OpenIndex | None = None) -> VerdictResult:
        """Return the verdict of snippets on a claim; where none decides it, with the nearest sentences."""
        from biorag.answering.extract import Extractor
        from biorag.answering.guards.words import denial, lacking

        checked = self._checker.check_claim(claim, [hit.snippet for hit in hits])
        if checked.verdict is not Verdict.UNSUPPORTED:
            return VerdictResult(checked)
        chooser = partial(load_chooser, self.settings, self.reader)
        rows = (models.extractor(self.reader) if models else Extractor(load_reader=chooser)).extract(claim, hits)
        ours, near = denial(claim), []
        for row in rows:
            snippet, theirs = hits[row.n - 1].snippet, denial(row.text)
            missing = lacking(claim, f"{snippet.title} {row.text}") + ((ours,) if ours and not theirs else ())
            near.append(NearSentence(snippet.id, snippet.pmid, row.text, missing, "" if ours else theirs))
        return VerdictResult(checked, tuple(near))

    def weigh(self, claim: str, *, filter: Filter = (), **changes: Unpack[QuestionSettings]) -> WeighResult:
        """Find the studies that support a claim and those that oppose it, as `biorag weigh` does.

        The claim is searched for; the 50 studies that are found first, or `k` of them, are read beside it. See `search`
        for the parameters. Raises `UsageError` if the claim is blank, or a filter or a setting is wrong.
        """
        from biorag.answering.weighing import STUDIES, weigh, with_near
        from biorag.api.weighings import WeighResult

        check_claim(claim)
        models = self._models(**changes)
        retrieval = models.settings.retrieval
        most = retrieval.k if "k" in retrieval.model_fields_set else STUDIES
        (ranking,) = self._ranked([claim], models, conditions(filter), most)
        watch = Stopwatch()
        with watch.stage("judge"):
            weighing = weigh(claim, ranking.hits, self._checker.stances, most)
            if not (self.reader and self.reader.trust.tells_sides):
                weighing = with_near(weighing, ranking.hits, models.extractor(self.reader).scored(claim, ranking.hits))
        searched = round(ranking.timings_ms["total"], 3)
        timings = {"search": searched, **watch.ms, "total": round(searched + watch.ms["judge"], 3)}
        return WeighResult(weighing, timings, self.read_by)

    def studies(self, question: str, *, filter: Filter = (), **changes: Unpack[QuestionSettings]) -> WeighResult:
        """Find the studies that answer a question, each with the sentence that comes nearest to it.

        Of a yes/no question a reader that is trusted with both sides tells which say yes (`weighing.supporting`) and
        which no (`opposing`); else all are in `weighing.found`. See `search` for the parameters.
        """
        from biorag.answering.extract import SHORT
        from biorag.answering.guards.checker import statement_of
        from biorag.answering.kinds import kind_of
        from biorag.answering.weighing import QUESTION_STUDIES, Weighing, found, weigh
        from biorag.api.weighings import WeighResult

        check_text(question)
        changes.setdefault("k", QUESTION_STUDIES)
        models = self._models(**changes)
        with self._opened_index():
            ranking = models.search(Question("studies", question), conditions(filter))
        hits, reader = ranking.hits, self.reader
        if reader and reader.trust.tells_sides and kind_of(question) == "yesno":
            stated = ranking.query if reader.reads_questions else statement_of(ranking.query)
            weighing = replace(weigh(stated, hits, self._checker.stances), claim=question)
            return WeighResult(weighing, ranking.timings_ms, self.read_by)
        scored = models.extractor(reader).scored(ranking.query, hits)
        near = found(hits, scored, scored.scores.max(initial=0.0) - SHORT.margin)
        return WeighResult(Weighing(question, found=near), ranking.timings_ms)

    def stances(self, claim: str, snippets: Sequence[Snippet]) -> list[Stance]:
        """Return whether each snippet supports or contradicts a claim, how surely, and by what quote."""
        return self._checker.stances(claim, snippets, leaning=True)

    def verify_all(
        self, claims: Sequence[tuple[str, Snippet | str | None]], *, filter: Filter = ()
    ) -> list[VerdictResult]:
        """Judge claims, searching for all at once but for those with a snippet, or the id or PMID of one.

        A snippet that the index does not have supports nothing.
        """
        searched = [claim for claim, snippet in claims if not snippet]
        check_text(*searched)
        rankings: Iterator[Ranking] = iter(())
        if searched:
            rankings = iter(self._ranked(searched, self._models(), conditions(filter)))

        def evidence(snippet: Snippet | str | None) -> Sequence[Snippet]:
            if isinstance(snippet, Snippet):
                return [snippet]
            return self._named(snippet) if snippet else [hit.snippet for hit in next(rankings).hits]

        return [VerdictResult(self._checker.check_claim(claim, evidence(snippet))) for claim, snippet in claims]

    def identity(self) -> dict[str, Any]:
        """Return the identity of verdicts, besides claims and filters."""
        return {
            "index": self._models().fingerprint(),
            "retrieval": self.settings.retrieval.identity(),
            "reader": self._checker.identity(),
        }

    def matches(self, question: str, hits: Sequence[Hit]) -> list[list[WordMatch]]:
        """Return the words of each hit's contents that match a question's, by the token vectors that rerank the hits.

        There are none where another reranker than the bi-encoder's late interaction is used.
        """
        from biorag.api.word_matching import word_matches

        retrieval, encoder = self.settings.retrieval, self._models().encoder
        is_compared = retrieval.rerank and any(stage.kind.uses_encoder for stage in retrieval.stages)
        if not is_compared or encoder is None or not encoder.has_tokens:
            return [[] for _ in hits]
        return word_matches(question, [hit.snippet.contents for hit in hits], encoder)

    def info(self) -> dict[str, Any]:
        """Return the facts of the index, as `biorag indexes show NAME --json` prints them."""
        from biorag.indexes.reading import index_facts

        with self._opened_index():
            return index_facts(Store(self.settings), self._manifest, self._index)

    def _ranked(
        self, queries: Sequence[str], models: OpenIndex, where: Where, most: int | None = None
    ) -> Sequence[Ranking]:
        """Return the ranking of each query among the snippets that fulfil `where`."""
        with self._opened_index():
            return models.retriever.search_all(queries, most, [models.checked(where)] * len(queries))

    @cached_property
    def _checker(self) -> Checker:
        reader = self._beside._checker.reader if self._beside else None
        return load_checker(self.settings, lambda: self._models().load_encoder(), reader)

    def _begin_generator(self) -> None:
        """Begin to load the generator in the background, if one is named, after the checks that take no time."""
        if self._beside:
            self._beside._begin_generator()
            return
        if self._generator or not self.settings.generation.llm:
            return
        generator_source(self.settings.generation.llm).check()
        check_settings(Store(self.settings).require_manifest(), self.settings)
        self._generator = self._background.submit(load_generator, self.settings, self._at_a_time)

    def _loaded_generator(self) -> Generator | None:
        if self._beside:
            return self._beside._loaded_generator()
        self._begin_generator()
        return self._generator.result() if self._generator else None

    def _models(self, **changes: Unpack[QuestionSettings]) -> OpenIndex:
        """Return the index with the models of retrieval, some settings changed for one question."""
        with self._opened_index():
            if self._opened is None:
                self._opened = load_models(self.settings, self._manifest, self._index, self._loaded)
        opened = self._opened
        changed: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        if not changed:
            return opened
        for name in changed:
            check_name("setting of a question", name, PER_QUESTION)
        settings = self.settings.replace(**changed)
        if settings.retrieval.rerank and not self.settings.retrieval.rerank:
            raise UsageError("the index was opened without reranking: open it with rerank=True")
        if settings.retrieval.mode != "bm25" and opened.encoder is None:
            raise UsageError("the index was opened with mode='bm25', without its encoder: open it with mode='hybrid'")
        of_retrieval = {name: value for name, value in changed.items() if name in settings.retrieval.flat()}
        return replace(opened, settings=settings, retriever=opened.retriever.variant(**of_retrieval))

    def _named(self, name: str) -> tuple[Snippet, ...]:
        check_text(name)
        with self._opened_index():
            return tuple(named_snippets(self._index, name, self._manifest.encoder.dimension))

    def _times_cited(self, snippets: Sequence[Snippet]) -> dict[int, int]:
        """Return how many papers of the local graph cite each PMID; empty without a graph."""
        from biorag.corpus.citation_graph import FILE, open_graph

        pmids = {snippet.pmid for snippet in snippets if snippet.pmid}
        if not pmids or not (self.settings.graphs / self.settings.graph / FILE).is_file():
            return {}
        graph = open_graph(self.settings)
        return {pmid: graph.times_cited(pmid) for pmid in pmids}


def retracted_note(snippets: Sequence[Snippet]) -> str:
    """Return the note on retracted articles that would be evidence."""
    named = "; ".join(
        f"{reference_of(one).noted_heading}{f' (PMID {one.pmid})' if one.pmid else ''}" for one in snippets
    )
    return f"left out, since retracted: {named} (--include-retracted takes them as evidence)"


def check_text(*texts: str) -> None:
    """Raise `UsageError` for text that cannot be written as UTF-8."""
    for text in texts:
        if not is_whole(text):
            raise UsageError(f"{text!a} is not UTF-8: type it again")


def check_claim(claim: str) -> None:
    """Raise `UsageError` for a claim that is blank, or cannot be written as UTF-8."""
    if not first_visible(claim):
        raise UsageError("the claim is empty: give a sentence to judge")
    check_text(claim)


def conditions(filter: Filter = ()) -> Where:
    """Return the conditions of `--filter`; an empty text has none.

    Raises `UsageError` if a filter cannot be read.
    """
    texts = [filter] * bool(filter.strip()) if isinstance(filter, str) else filter
    return parse_filters(texts)


def options_of(options: Options) -> dict[str, str]:
    """Return the options of a multiple-choice question by their letters; none for an open question.

    Raises `UsageError` if an option lacks a capital letter or a text, a letter is repeated, or there is only one
    option.
    """
    texts = [f"{letter}={text}" for letter, text in options.items()] if isinstance(options, Mapping) else options
    by_letter: dict[str, str] = {}
    for text in texts:
        check_text(text)
        match = _OPTION.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"option {text!r} cannot be read: write a capital letter, '=' and the text, e.g. A=thiamine"
            )
        letter, option = match.groups()
        if letter in by_letter:
            raise UsageError(f"option {letter} is given twice")
        by_letter[letter] = option
    if len(by_letter) == 1:
        raise UsageError("a multiple-choice question needs at least two options; leave them out for an open one")
    return by_letter
