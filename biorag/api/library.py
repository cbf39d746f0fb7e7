"""biorag from Python: `biorag.open`, `biorag.index`, and measuring; settings have the names of the flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from biorag.answering.answerer import OnText
from biorag.api.results import AnswerResult, SearchResult, SnippetResult, VerdictResult
from biorag.api.session import Session
from biorag.engine import index_corpus, open_index
from biorag.errors import UsageError
from biorag.indexes.catalogue import IndexSummary, summaries
from biorag.indexes.store import name_for, unnamed_index
from biorag.indexes.writing import IndexReport
from biorag.retrieval.filters import parse_filters
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings
from biorag.types import FieldFilter, Question
from biorag.utils.network import restrict
from biorag.utils.progress import silent

Filter = str | Iterable[str]


class SearchableIndex:
    """An open index; `biorag.open` makes it. Close it, or use it in a `with` statement. Threads may share it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<biorag index {self.name!r}>"

    def close(self) -> None:
        """Release the index and its models."""
        self._session.close()

    @property
    def name(self) -> str:
        """The index's name."""
        return self._session.name

    @property
    def settings(self) -> Settings:
        """The settings that it was opened with."""
        return self._session.settings

    def search(
        self,
        query: str,
        *,
        filter: Filter = (),
        exclude_pmid: Sequence[int] = (),
        k: int | None = None,
        k_init: int | None = None,
        mode: str | None = None,
        rerank: bool | None = None,
    ) -> SearchResult:
        """Find the snippets that are relevant to a query, as `biorag search` does.

        Parameters
        ----------
        filter : conditions such as "year>=2015 and not retracted", all of which must hold
        exclude_pmid : PubMed records to leave out
        k, k_init, mode, rerank : for this query, in place of those that the index was opened with

        Raises
        ------
        UsageError
            If the query is blank, or a filter or a setting is wrong.
        """
        changes = {"k": k, "k_init": k_init, "mode": mode, "rerank": rerank}
        ranking = self._session.search(query, conditions(filter, exclude_pmid), **changes)
        return SearchResult(query, mode or self.settings.retrieval.mode, ranking.hits, ranking.timings_ms)

    def ask(
        self,
        question: str,
        *,
        options: Mapping[str, str] | None = None,
        filter: Filter = (),
        exclude_pmid: Sequence[int] = (),
        k: int | None = None,
        k_init: int | None = None,
        mode: str | None = None,
        rerank: bool | None = None,
        include_retracted: bool | None = None,
        answer_anyway: bool | None = None,
        on_text: OnText | None = None,
    ) -> AnswerResult:
        """Answer a question from the evidence, as `biorag ask` does; see `search` for the other parameters.

        Parameters
        ----------
        options : texts of a multiple-choice question by their letters
        on_text : is given a generator's reply so far as it grows, before it is checked

        Raises
        ------
        UsageError
            If the question is blank, or an option, a filter or a setting is wrong.
        ServiceError
            If the generator fails.
        """
        changes = {"k": k, "k_init": k_init, "mode": mode, "rerank": rerank}
        changes |= {"include_retracted": include_retracted, "answer_anyway": answer_anyway}
        asked = Question("ask", question, checked_options(options or {}))
        answer = self._session.ask(asked, conditions(filter, exclude_pmid), on_text, **changes)
        return AnswerResult(answer, self._session.models)

    def show(self, id: str | int) -> SnippetResult:
        """Return the snippet of an id, or those of a PMID; raises `MissingError` if there is none."""
        return SnippetResult(self._session.show(str(id)))

    def verify(self, claim: str, *, snippet: str | None = None, filter: Filter = ()) -> VerdictResult:
        """Judge a claim by what a search for it finds, or by one snippet, as `biorag verify` does."""
        return VerdictResult(self._session.verify(claim, snippet, conditions(filter)))

    def info(self) -> dict[str, Any]:
        """Return what the index holds and was made with, as `biorag info NAME --json` prints it."""
        return self._session.info()


def open(
    name: str | None = None, *, verifier: str | None = None, config: Path | None = None, **settings: Any
) -> SearchableIndex:
    """Open an index for questions, with its models: it takes seconds once, and then milliseconds a question.

    Parameters
    ----------
    name : the index; by default the only one there is, else `default`
    verifier : a cross-encoder to check claims with too, `cross:ID` or a directory
    config : a file of settings; by default the one of BIORAG_CONFIG, or `biorag.toml` in the home
    settings : by the names of the flags, `llm="starter"`, `k=10`, `mode="bm25"`

    Raises
    ------
    MissingError
        If the index or a model is not there.
    UsageError
        If a setting is unknown or not allowed.
    """
    return SearchableIndex(Session(_of_index({**settings, "name": name}, config), verifier))


def index(
    *corpus: str | PathLike[str], name: str | None = None, config: Path | None = None, **settings: Any
) -> IndexReport:
    """Index a corpus, or bring an index up to date with it, as `biorag index` does; returns what was done.

    Parameters
    ----------
    corpus : files and folders, or "demo"
    name : the index; by default `default`, of the packaged corpus `demo`

    Raises
    ------
    BadInputError
        At the first record that cannot be read.
    """
    if not corpus:
        raise UsageError("name the files or folders to index, or 'demo'")
    found, paths = _settings({**settings, "name": name}, config), [fspath(path) for path in corpus]
    if name is None and "name" not in found.index.model_fields_set:
        found = found.replace(name=name_for(found, paths))
    return index_corpus(found, paths)


def list_indexes(*, config: Path | None = None, **settings: Any) -> list[IndexSummary]:
    """Return the indexes there are, by name."""
    return summaries(_settings(settings, config))


def bench_retrieval(
    dataset: str | PathLike[str],
    *,
    name: str | None = None,
    filter: Filter = (),
    config: Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Measure retrieval on a folder of judged questions in BEIR's layout, as `biorag bench retrieval` does.

    Returns
    -------
    The report that its `--json` prints: `metrics`, `timings_ms`, `questions`, and how it was measured.

    Raises
    ------
    MismatchError
        If the index holds fewer than a tenth of the judged snippets.
    """
    from biorag.benchmarks import retrieval as bench
    from biorag.corpus.datasets import load_dataset

    data, found = load_dataset(Path(dataset)), _of_index({**settings, "name": name}, config)
    with open_index(found) as ready, silent("Questions", len(data.questions)) as advance:
        measured = bench.measure_index(data, ready, conditions(filter), advance)
    return bench.report(measured, found.public())


def conditions(filter: Filter = (), exclude_pmid: Sequence[int] = ()) -> tuple[FieldFilter, ...]:
    """Return what `--filter` and `--exclude-pmid` come to.

    Raises
    ------
    UsageError
        If a filter cannot be read.
    """
    texts = [filter] if isinstance(filter, str) else filter
    return parse_filters(texts, exclude_pmid)


def checked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a multiple-choice question.

    Raises
    ------
    UsageError
        If a letter is no capital letter, a text is empty, or there is only one.
    """
    for letter, text in options.items():
        if len(letter) != 1 or not letter.isascii() or not letter.isupper() or not text.strip():
            raise UsageError(f"option {letter!r} cannot be read: options are texts by capital letters, A, B and so on")
    if len(options) == 1:
        raise UsageError("a multiple-choice question needs at least two options; leave them out for an open one")
    return {letter: text.strip() for letter, text in options.items()}


def _of_index(values: Mapping[str, Any], config: Path | None) -> Settings:
    """Return settings of which the index, where none is named, is the one that is there."""
    settings = _settings(values, config)
    if "name" in settings.index.model_fields_set:
        return settings
    return settings.replace(name=unnamed_index(settings) or settings.index.name)


def _settings(values: Mapping[str, Any], config: Path | None) -> Settings:
    """Return the settings of these values, the environment and the configuration; offline mode holds if it is set."""
    settings = load_settings(values, config)
    if settings.services.offline:
        restrict([])
    return settings
