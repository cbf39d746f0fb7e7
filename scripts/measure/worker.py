"""A worker with an open index: searches questions and indexes corpora, and says how long that took.

Its argument is a JSON object of settings by their flat names. A request is `{"questions": [...]}` or
`{"corpus": PATH, "name": NAME}`; the second makes a new index of that name. It imports `biorag` from the checkout that
`PYTHONPATH` names, and uses only what all checkouts have.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from biorag.engine import OpenIndex, open_index
from biorag.indexing import index_corpus
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings
from scripts.measure.processes import Answer, serve


@contextmanager
def opened(values: Mapping[str, Any]) -> Iterator[Answer]:
    """Give what answers requests, over the configured index."""
    settings = load_settings(values)
    with open_index(settings) as ready:

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            if "questions" in request:
                return _searched(ready, request["questions"])
            return _indexed(settings.replace(name=request["name"], **request.get("settings", {})), request["corpus"])

        yield answer


def _searched(ready: OpenIndex, questions: Sequence[str]) -> dict[str, Any]:
    """Return milliseconds, those of CPU, stages and snippets found: of each question, one after the other."""
    answers = []
    for question in questions:
        started, cpu = time.perf_counter(), time.process_time()
        ranking = ready.retriever.search(question)
        ms, cpu_ms = (time.perf_counter() - started) * 1000, (time.process_time() - cpu) * 1000
        texts = [hit.snippet.contents for hit in ranking.hits]
        answers.append({"ms": ms, "cpu_ms": cpu_ms, "stages": ranking.timings_ms, "texts": texts})
    return {"answers": answers}


def _indexed(settings: Settings, corpus: str) -> dict[str, Any]:
    """Return what indexing reports, and its seconds of CPU."""
    shutil.rmtree(settings.indexes / settings.index.name, ignore_errors=True)
    cpu = time.process_time()
    report = index_corpus(settings, [corpus])
    return {**asdict(report), "cpu_s": time.process_time() - cpu}


if __name__ == "__main__":
    serve(opened(json.loads(sys.argv[1])))
