"""Other packages beside biorag, in one process, interleaved: BM25, encoding, and vectors in Qdrant's local mode.

    python -m scripts.measure.peers --name pubmed --questions DATA/bioasq [--limit 200] [--encoded 1500]

BM25 by rank_bm25 and bm25s over the snippets of an index; encoding by sentence-transformers in fp32;
dense search by `QdrantClient(":memory:")`, which compares a question with every vector. Needs `biorag[bench]`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from biorag.benchmarks.latency.stages import (
    Repetition,
    Sample,
    Timing,
    batch_of,
    collect,
    elapsed_ms,
    rank_bm25_search,
    sampled,
    stored,
)
from biorag.corpus.datasets import load_dataset
from biorag.engine import OpenIndex, encoder_files, load_encoder, open_index
from biorag.models.finding import ModelFiles
from biorag.settings.sources import load_settings
from biorag.types import Encoder, IndexQuery, Vectors
from biorag.utils.progress import batched
from scripts.measure.summary import markdown

TOP = 10  # snippets that each search returns
SIZES = (1, 10, 2000)  # questions encoded at once
ROUND = 256  # snippets that one side encodes before the other's turn
HEADER = ("package", "task", "snippets", "biorag", "package's", "ratio", "recall@10, both", "built in, s")
Search = Callable[[str], list[str]]


def bm25s_search(ids: Sequence[str], texts: Sequence[str]) -> Search:
    """Return BM25 search by bm25s with its English stop words and PyStemmer's stemmer."""
    import bm25s
    import Stemmer

    tokens = partial(bm25s.tokenize, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    bm25 = bm25s.BM25()
    bm25.index(tokens(list(texts)), show_progress=False)

    def search(question: str) -> list[str]:
        rows = bm25.retrieve(tokens([question]), k=min(TOP, len(ids)), show_progress=False).documents[0]
        return [ids[row] for row in rows]

    return search


class QdrantLocal:
    """Vectors in the client's own local mode, which is brute force in NumPy."""

    def __init__(self, ids: Sequence[str], vectors: Vectors, similarity: str) -> None:
        from qdrant_client import QdrantClient, models

        self._ids, self._client = ids, QdrantClient(":memory:")
        distance = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT}[similarity]
        self._client.create_collection("peer", models.VectorParams(size=vectors.shape[1], distance=distance))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is meant for less than 20,000 points
            for rows in batched(range(len(ids)), ROUND):
                points = [models.PointStruct(id=row, vector=vectors[row].tolist(), payload={}) for row in rows]
                self._client.upsert("peer", points)

    def search(self, vector: Vectors) -> list[str]:
        """Return the best ids; vector of shape (dimension,)."""
        points = self._client.query_points("peer", vector.tolist(), limit=TOP, with_payload=False).points
        return [self._ids[int(point.id)] for point in points]


def interleaved(functions: Mapping[str, Callable[[int], object]]) -> Sample:
    """Return a sample that times each function once, in turn first and last, so that noise hits all alike."""

    def sample(turn: int) -> dict[str, float]:
        names = list(functions)[:: 1 if turn % 2 == 0 else -1]
        return {name: elapsed_ms(partial(functions[name], turn)) for name in names}

    return sample


def _row(package: str, task: str, snippets: int, timings: Mapping[str, Timing], *more: object) -> list[object]:
    ours, theirs = timings["ours"].p50, timings["theirs"].p50
    return [package, task, snippets, f"{ours:.3g} ms", f"{theirs:.3g} ms", theirs / ours, *(more or ("", ""))]


def bm25_rows(opened: OpenIndex, questions: Sequence[str], repetition: Repetition) -> Iterator[list[object]]:
    """Yield one row a package."""
    ids = list(opened.index.ids())
    texts = [snippet.contents for snippet in stored(opened.index, ids)]
    for package, build in (("rank_bm25", partial(rank_bm25_search, top=TOP)), ("bm25s", bm25s_search)):
        started = time.perf_counter()
        search = build(ids, texts)
        built = time.perf_counter() - started
        functions: dict[str, Callable[[int], object]] = {
            "ours": lambda turn: opened.index.search([IndexQuery(questions[turn % len(questions)], TOP)]),
            "theirs": lambda turn, search=search: search(questions[turn % len(questions)]),
        }
        yield _row(package, "BM25 search", len(ids), collect(interleaved(functions), repetition), "", built)


def dense_row(opened: OpenIndex, queries: Vectors, repetition: Repetition) -> list[object]:
    """Return the row of Qdrant's local mode, over the vectors that the index holds."""
    ids = list(opened.index.ids())
    by_id: dict[str, Any] = {}
    for batch in batched(ids, 1000):
        by_id |= opened.index.dense_vectors(batch)
    vectors = np.stack([by_id[id] for id in ids])
    started = time.perf_counter()
    peer = QdrantLocal(ids, vectors, opened.manifest.similarity)
    built = time.perf_counter() - started
    functions: dict[str, Callable[[int], object]] = {
        "ours": lambda turn: opened.index.search([IndexQuery(queries[turn % len(queries)], TOP)]),
        "theirs": lambda turn: peer.search(queries[turn % len(queries)]),
    }
    timings = collect(interleaved(functions), repetition)
    exact = [[ids[row] for row in np.argsort(-(vectors @ query))[:TOP]] for query in queries]
    ours = [[scored.id for scored in hits] for hits in opened.index.search([IndexQuery(q, TOP) for q in queries])]
    recalls = f"{recall(ours, exact):.3f}, {recall([peer.search(query) for query in queries], exact):.3f}"
    return _row("QdrantClient", "dense search", len(ids), timings, recalls, built)


def recall(retrieved: Sequence[Sequence[str]], exact: Sequence[Sequence[str]]) -> float:
    """Return the mean share of each query's exact ids that were retrieved."""
    shares = [len(set(ids) & set(truth)) / len(truth) for ids, truth in zip(retrieved, exact, strict=True)]
    return float(np.mean(shares))


def encoding_rows(
    encoder: Encoder, files: ModelFiles, questions: Sequence[str], texts: Sequence[str], repetition: Repetition
) -> Iterator[list[object]]:
    """Yield a row for each batch of questions, and one for snippets."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(files.path), local_files_only=True, model_kwargs={"dtype": "float32"})
    model.max_seq_length = files.max_tokens or model.max_seq_length
    theirs = partial(model.encode_query, show_progress_bar=False)
    for size in SIZES:
        functions: dict[str, Callable[[int], object]] = {
            "ours": lambda turn, size=size: encoder.encode_queries(batch_of(questions, size, turn)),
            "theirs": lambda turn, size=size: theirs(batch_of(questions, size, turn)),
        }
        yield _row("sentence-transformers", f"encode {size} questions", 0, collect(interleaved(functions), repetition))
    batches = [list(batch) for batch in batched(texts, ROUND)]
    passages: dict[str, Callable[[int], object]] = {
        "ours": lambda turn: encoder.encode_snippets(batches[turn % len(batches)]),
        "theirs": lambda turn: model.encode_document(batches[turn % len(batches)], show_progress_bar=False),
    }
    once = Repetition(len(batches), 1, 3600)
    yield _row("sentence-transformers", f"encode {ROUND} snippets", len(texts), collect(interleaved(passages), once))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="default")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--encoded", type=int, default=1500, help="snippets to encode")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each figure")
    options = parser.parse_args()
    settings = load_settings({"name": options.name})
    questions = [question.text for question in load_dataset(options.questions).questions][: options.limit]
    repetition = Repetition(len(questions), 3, options.seconds)
    with open_index(settings.replace(mode="bm25", rerank=False)) as opened:
        files = encoder_files(settings, opened.manifest)
        encoder = load_encoder(files, opened.manifest.similarity, settings.retrieval.precision, settings.exports)
        texts = [snippet.contents for snippet in sampled(opened.index, options.encoded, settings.seed)]
        rows = [
            *bm25_rows(opened, questions, repetition),
            dense_row(opened, encoder.encode_queries(questions), repetition),
            *encoding_rows(encoder, files, questions, texts, repetition),
        ]
    sys.stdout.write(markdown(HEADER, rows))


if __name__ == "__main__":
    main()
