"""biorag from Python: `biorag.open`, `biorag.index`, and measuring; settings have the names of the flags."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from biorag.api.session import Filter, conditions
from biorag.api.session import Session as Session
from biorag.engine import open_index
from biorag.errors import UsageError
from biorag.indexes.catalogue import IndexSummary, summaries
from biorag.indexes.store import index_names, name_for, unnamed_index
from biorag.indexes.writing import IndexReport
from biorag.indexing import index_corpus
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings
from biorag.utils.network import restrict
from biorag.utils.progress import silent

logger = logging.getLogger(__name__)


def open(name: str | None = None, *, config: Path | None = None, **settings: Any) -> Session:
    """Open an index for questions, with its models: it takes seconds once, and then milliseconds a question.

    By default it is the only index, or `default`. `config` is a settings file in place of the default one; settings
    have the names of the flags, such as `llm="starter"` or `k=10`.

    Raises `MissingError` if the index or a model is missing; `UsageError` if a setting is unknown or not allowed.
    """
    return Session(_of_index({**settings, "name": name}, config), eager=True)


def index(
    *corpus: str | PathLike[str], name: str | None = None, config: Path | None = None, **settings: Any
) -> IndexReport:
    """Index a corpus, or bring an index up to date with it, as `biorag index` does; return its report.

    The corpus is files and folders, or "demo"; the index is by default `default`, of the packaged corpus `demo`.
    Raises `BadInputError` at the first record that cannot be read.
    """
    if not corpus:
        raise UsageError("name the files or folders to index, or 'demo'")
    loaded, paths = _settings({**settings, "name": name}, config), [fspath(path) for path in corpus]
    if "name" not in loaded.index.model_fields_set:
        loaded = loaded.replace(name=name_for(paths, loaded))
    return index_corpus(loaded, paths)


def list_indexes(*, config: Path | None = None, **settings: Any) -> list[IndexSummary]:
    """Return the indexes, by name."""
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

    Return the report that its `--json` prints: `metrics`, `timings_ms`, `questions`, and how it was measured.
    Raises `MismatchError` if the index holds fewer than a tenth of the judged snippets.
    """
    from biorag.benchmarks import retrieval as bench
    from biorag.corpus.datasets import load_dataset

    data, loaded = load_dataset(Path(dataset)), _of_index({**settings, "name": name}, config)
    with open_index(loaded) as opened, silent("Questions", len(data.questions)) as advance:
        measured = bench.measure_index(data, opened, conditions(filter), advance)
    return bench.report(measured, loaded.public())


def _of_index(values: Mapping[str, Any], config: Path | None) -> Settings:
    """Return settings that name an index; by default the only one, or `default`."""
    settings = _settings(values, config)
    if "name" in settings.index.model_fields_set:
        return settings
    name = unnamed_index(settings) or settings.index.name
    if (count := len(index_names(settings))) > 1:
        logger.warning("index %r is opened, one of %d: choose with name=", name, count)
    return settings.replace(name=name)


def _settings(values: Mapping[str, Any], config: Path | None) -> Settings:
    """Return the settings of these values, the environment and the configuration; enforce offline mode if it is set."""
    settings = load_settings(values, config)
    if settings.services.offline:
        restrict([])
    return settings
