"""An embedded index in segments of bounded size: how many there are, and that what is in them is found."""

import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from biorag.indexes import edge, segments
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.checksums import SHARD
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import TokenParameters
from biorag.types import IndexQuery, Snippet
from tests.indexes.test_edge import manifest

DIMENSION = 4096  # the engine builds a graph from 10 MB of vectors on, here 640


@pytest.mark.parametrize(
    ("dimension", "points", "kilobytes"), [(384, 131_072, 294_912), (768, 65_536, 294_912), (4096, 20_000, 480_000)]
)
def test_a_segment_takes_192_mb_of_vectors_and_merges_with_half_as_many_again(dimension, points, kilobytes):
    made = manifest(dimension)
    assert (segments.segment_points(made), segments.segment_kilobytes(made)) == (points, kilobytes)


def test_token_vectors_count_where_they_are_the_larger():
    tokens = TokenParameters("encoder", "", "f" * 64, 128, 1)
    made = replace(manifest(384), tokens=tokens)
    assert segments.segment_kilobytes(made) == int(1.5 * 131_072 * 4 * 256 * 128 / 1024)


@pytest.mark.parametrize(("points", "number"), [(0, 2), (131_072, 2), (131_073, 3), (1_000_000, 9), (3_000_000, 24)])
def test_there_is_a_segment_for_each_full_one_and_one_to_write_to(points, number):
    assert segments.segment_number(manifest(384), points) == number


@pytest.mark.parametrize(
    ("sizes", "limit", "width"),
    [
        ([], 10, 128),
        ([15_000], 10, 244),
        ([10**6, 0], 10, 2000),
        ([125_000] * 8 + [0], 10, 250),
        ([10**6, 50_000], 10, 1950),
        ([40_000] * 4, 100, 200),
        ([10_000] * 50, 10, 128),
    ],
)
def test_segments_share_the_candidates_of_a_search(sizes, limit, width):
    assert segments.segment_width(sizes, limit) == pytest.approx(width, abs=1)


@pytest.mark.parametrize("closed", [False, True])
def test_graphs_are_built_while_snippets_are_written_and_every_snippet_is_found(tmp_path, monkeypatch, closed):
    """With `closed` a writer takes up what another has left in the segment that is written to."""
    monkeypatch.setattr(edge, "segment_points", lambda manifest: 700)
    count, batch = 1500, 350
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    queries = vectors[::75] + 0.5 * rng.normal(size=(20, DIMENSION)).astype(np.float32)
    folder, sizes = tmp_path / "test", []
    index = EdgeIndex(folder, manifest(DIMENSION), writable=True)
    for start in range(0, count, batch):
        rows = range(start, min(start + batch, count))
        index.upsert([Snippet(f"s{row}", "", f"liver term{row}") for row in rows], vectors[rows.start : rows.stop])
        sizes.append(sorted(segments.segment_sizes(folder / SHARD)))
        if closed:
            index.close()
            index = EdgeIndex(folder, manifest(DIMENSION), writable=True)
    assert [[size for size in found if size] for found in sizes] == [
        [350],
        [700],
        [350, 700],
        [700, 700],
        [100, 700, 700],
    ]
    index.optimize()
    index.close()
    with closing(EdgeIndex(folder, manifest(DIMENSION))) as reader:
        assert reader.count() == count
        found = reader.search([IndexQuery(query, 5) for query in queries])
        by_word = reader.search([IndexQuery(f"term{row}", 5) for row in range(count)])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    best = ((queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ unit.T).argmax(axis=1)
    assert [hits[0].id for hits in found] == [f"s{row}" for row in best]
    assert [[hit.id for hit in hits] for hits in by_word] == [[f"s{row}"] for row in range(count)]
    weights = Bm25Encoder(manifest().bm25).document("liver term5")
    weight = dict(zip(*weights, strict=True))[Bm25Encoder(manifest().bm25).query("term5").indices[0]]
    # A word of one snippet among all 1,500, whatever segment it is in.
    assert [hits[0].score for hits in by_word] == pytest.approx([math.log((count + 1) / 1.5) * weight] * count)
