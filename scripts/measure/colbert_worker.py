"""A worker that reranks by colbert-ai: `{"question": TEXT, "texts": [...]}` gives the milliseconds that it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biorag.training.parity import ColbertAI
from scripts.measure.processes import Answer, serve


@contextmanager
def opened(folder: Path) -> Iterator[Answer]:
    """Give what answers requests, by the checkpoint in a folder."""
    reranker = ColbertAI(folder)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        reranker.score(request["question"], request["texts"])
        return {"on the fly": (time.perf_counter() - started) * 1000}

    yield answer


if __name__ == "__main__":
    serve(opened(Path(sys.argv[1])))
