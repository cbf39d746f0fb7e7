"""How BM25 changes when a collection has several shards, each of which counts its own terms.

    python -m scripts.measure.shard_idf CORPUS FOLDER --queries 300

Qdrant computes the IDF of a sparse vector within a shard. This computes the ranking of a corpus whole and
with the points spread over shards as hashes spread them, and prints how much of the ten best hits is the same, and the
nDCG@10 of both. The scores are computed here, by the formula of `tests/indexes/test_contract.py`; no server is asked.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from biorag.corpus.datasets import load_dataset
from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import find_sources
from biorag.indexes.bm25 import Bm25Encoder, LengthCounter
from biorag.indexes.manifest import COMPARABLE, Bm25Parameters
from biorag.indexes.points import point_id

K = 10


def main() -> None:
    """Print a line for each number of shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="snippets, in any format that is indexed")
    parser.add_argument("folder", type=Path, help="questions and judgements, as BEIR has them")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 3, 6, 12, 24])
    asked = parser.parse_args()
    (source,) = find_sources([asked.corpus], Path("stdin"), Path())
    snippets = list(read_snippets(source, refuse))
    length_of = LengthCounter()
    mean = float(np.mean([length_of(snippet.contents) for snippet in snippets]))
    encoder = Bm25Encoder(Bm25Parameters(0.9, 0.4, mean, text=COMPARABLE))
    rows: dict[int, list[int]] = defaultdict(list)
    weights: dict[int, list[float]] = defaultdict(list)
    for row, snippet in enumerate(snippets):
        for term, weight in zip(*encoder.document(snippet.contents), strict=True):
            rows[term].append(row)
            weights[term].append(weight)
    dataset = load_dataset(asked.folder)
    questions = dataset.questions[: asked.queries]
    terms = [encoder.query(question.text).indices for question in questions]
    postings = {
        term: (np.array(rows[term]), np.array(weights[term])) for each in terms for term in each if term in rows
    }
    ids = [snippet.id for snippet in snippets]
    hashes = np.array([point_id(id).int % (1 << 62) for id in ids])
    whole = [best(each, postings, np.zeros(len(ids), int), 1) for each in terms]
    for shards in [1, *asked.shards]:
        found = [best(each, postings, hashes % shards, shards) for each in terms]
        same = np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(whole, found, strict=True) if a])
        gains = [
            ndcg([ids[row] for row in hits], dataset.qrels[question.id])
            for question, hits in zip(questions, found, strict=True)
        ]
        sys.stdout.write(
            f"{shards} shards of {len(ids) // shards:,} snippets, {len(questions):,} questions: {same:.1%} of the ten "
            f"best hits are the same, nDCG@10 {np.mean(gains):.4f}\n"
        )


def best(terms: list[int], postings: dict, shard_of: np.ndarray, shards: int) -> list[int]:
    """Return the rows of the best hits, where each shard weighs terms by its own counts."""
    sizes = np.bincount(shard_of, minlength=shards)
    scores = np.zeros(len(shard_of))
    for term in terms:
        if term in postings:
            rows, weights = postings[term]
            having = np.bincount(shard_of[rows], minlength=shards)
            idf = np.log(1 + (sizes - having + 0.5) / (having + 0.5))
            scores[rows] += idf[shard_of[rows]] * weights
    order = np.argsort(-scores, kind="stable")[:K]
    return [int(row) for row in order if scores[row] > 0]


def ndcg(ids: list[str], judged: dict[str, int]) -> float:
    """Return nDCG@10 with linear gains."""
    gains = [judged.get(id, 0) / math.log2(rank + 2) for rank, id in enumerate(ids)]
    ideal = sorted(judged.values(), reverse=True)[:K]
    return sum(gains) / sum(gain / math.log2(rank + 2) for rank, gain in enumerate(ideal))


if __name__ == "__main__":
    main()
