"""A worker that reranks by PyLate: `{"question": TEXT, "texts": [...]}` gives the milliseconds that it took.

It runs in PyLate's own environment, because PyLate needs older releases of sentence-transformers and transformers than
biorag does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scripts.measure.processes import Answer, serve


@contextmanager
def opened(folder: str) -> Iterator[Answer]:
    """Give what answers requests, by the checkpoint in a folder."""
    from pylate import models, rank

    model = models.ColBERT(model_name_or_path=folder, device="cpu")

    def encoded(texts: list[str], is_query: bool) -> Any:
        return model.encode(texts, is_query=is_query, show_progress_bar=False)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        texts = request["texts"]
        ids = [list(range(len(texts)))]
        started = time.perf_counter()
        documents = encoded(texts, is_query=False)
        documents_encoded = time.perf_counter()
        query = encoded([request["question"]], is_query=True)
        rank.rerank(documents_ids=ids, queries_embeddings=query, documents_embeddings=[documents])
        ended = time.perf_counter()
        return {"on the fly": (ended - started) * 1000, "documents encoded before": (ended - documents_encoded) * 1000}

    yield answer


if __name__ == "__main__":
    serve(opened(sys.argv[1]))
