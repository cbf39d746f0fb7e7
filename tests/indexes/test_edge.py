"""The embedded store on disk: reopening, locking between processes, quantization, and being killed."""

import math
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biorag.errors import ServiceError
from biorag.indexes import edge
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import PAYLOAD_INDEXES
from biorag.indexes.shard_files import SHARD
from biorag.types import FieldFilter, IndexQuery, Snippet
from tests.indexes.test_contract import manifest as made_manifest

DIMENSION = 16
DEEP = 1024  # the engine builds a graph from 10 MB of vectors on, here 2,560

# What the child processes begin with.
COMMON = """
import os, signal, sys
from tests.indexes.test_edge import *
folder = Path(sys.argv[1])
"""


def manifest(dimension: int = DIMENSION, quantized: bool = False) -> Manifest:
    made = made_manifest(avg_len=8.0)
    return replace(made, encoder=replace(made.encoder, dimension=dimension), quantized=quantized)


def snippet(n: int) -> Snippet:
    return Snippet(f"k{n}", f"Title {n}", f"liver term{n} naïve", n + 1, {"year": 1900 + n, "half": n / 2})


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=DIMENSION).astype(np.float32)


def write(index: EdgeIndex, numbers: range) -> None:
    index.upsert([snippet(n) for n in numbers], np.stack([vector(n) for n in numbers]))


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "test"


@pytest.fixture
def written(folder) -> Path:
    """A closed index of thirty snippets."""
    index = EdgeIndex(folder, manifest(), writable=True)
    write(index, range(30))
    index.optimize()
    index.close()
    return folder


@pytest.fixture
def child(tmp_path):
    """Starts a Python process on a script after COMMON, with pipes; ends all of them."""
    started = []

    def start(script: str, folder: Path) -> subprocess.Popen:
        path = tmp_path / f"child{len(started)}.py"
        path.write_text(COMMON + script, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, str(path), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def holds_exactly(index: EdgeIndex, numbers: range) -> None:
    """Every point is there whole, by id, by vector and by its own word, and there is no other."""
    assert index.count() == len(numbers)
    assert index.fetch([f"k{n}" for n in range(500)]) == {f"k{n}": snippet(n) for n in numbers}
    assert index.digests([f"k{n}" for n in range(500)]) == {f"k{n}": snippet(n).digest for n in numbers}
    by_vector = index.search([IndexQuery(vector(n), 1) for n in numbers])
    assert [(hits[0].id, round(hits[0].score, 4)) for hits in by_vector] == [(f"k{n}", 1.0) for n in numbers]
    by_word = index.search([IndexQuery(f"term{n}", 5) for n in numbers])
    assert [[hit.id for hit in hits] for hits in by_word] == [[f"k{n}"] for n in numbers]


# --- opening and closing


def test_payload_indexes_that_a_killed_run_did_not_make_are_made_by_the_next(folder, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(edge, "PAYLOAD_INDEXES", {"pmid": "integer"})
        with closing(EdgeIndex(folder, manifest(), writable=True)) as index:
            write(index, range(30))
            assert set(index._shard.info().payload_schema) == {"pmid"}
    with closing(EdgeIndex(folder, manifest(), writable=True)):
        pass
    with closing(EdgeIndex(folder, manifest())) as index:
        assert set(index._shard.info().payload_schema) == set(PAYLOAD_INDEXES)
        holds_exactly(index, range(30))


# --- who may open it


def test_a_panic_while_reading_is_one_error_without_what_rust_prints(written, monkeypatch, capfd):
    def panics(*_: object) -> None:
        os.write(2, b"thread '<unnamed>' panicked at segment.rs:1:2\n")
        raise type("PanicException", (BaseException,), {})("index out of bounds")

    monkeypatch.setattr(EdgeIndex, "_answers", panics)
    with closing(EdgeIndex(written, manifest())) as index, pytest.raises(ServiceError, match=r"failed \(index out"):
        index.search([IndexQuery(vector(1), 1)])
    assert capfd.readouterr().err == ""


def test_a_second_writer_and_a_reader_are_refused_naming_the_writer(folder, child):
    script = "index = EdgeIndex(folder, manifest(), writable=True); print('open', flush=True); sys.stdin.read()"
    writer = child(script, folder)
    assert writer.stdout.readline() == "open\n"
    for writable in (True, False):
        with pytest.raises(ServiceError) as caught:
            EdgeIndex(folder, manifest(), writable)
        assert re.search(rf"'test' is being written by process {writer.pid} on \S+ since \d{{4}}-", str(caught.value))
        assert caught.value.exit_code == 6
    writer.communicate("", timeout=30)
    index = EdgeIndex(folder, manifest(), writable=True)  # it ended without closing: the kernel freed the lock
    write(index, range(2))
    index.close()


def test_two_processes_read_an_index_at_once(written, child):
    reader = child("index = EdgeIndex(folder, manifest()); print('open', flush=True); sys.stdin.read()", written)
    assert reader.stdout.readline() == "open\n"
    with closing(EdgeIndex(written, manifest())) as index:
        holds_exactly(index, range(30))


# --- quantization


def test_a_quantized_index_gives_the_same_best_with_exact_scores(folder):
    """Beyond 10 MB of vectors `optimize` builds the graph and the int8 copies; rescoring makes scores exact."""
    count, dimension = 700, 4096
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(count, dimension)).astype(np.float32)
    queries = vectors[::35] + 0.5 * rng.normal(size=(20, dimension)).astype(np.float32)
    index = EdgeIndex(folder, manifest(dimension, quantized=True), writable=True)
    index.upsert([Snippet(f"q{n}", "", "text") for n in range(count)], vectors)
    index.optimize()
    assert list(folder.rglob("quantized.data")), "nothing was quantized"
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ unit.T
    found = index.search([IndexQuery(query, 5) for query in queries])
    assert [hits[0].id for hits in found] == [f"q{n}" for n in scores.argmax(axis=1)]
    for hits, row in zip(found, scores, strict=True):
        assert [hit.score for hit in hits] == pytest.approx([row[int(hit.id[1:])] for hit in hits], abs=1e-4)
    among = index.search([IndexQuery(queries[0], 5, among=frozenset({"q0", "q5", "q6"}))])[0]
    assert {hit.id: hit.score for hit in among} == pytest.approx(
        {f"q{n}": float(scores[0, n]) for n in (0, 5, 6)}, abs=1e-4
    )
    index.close()


# --- conditions


@pytest.mark.slow
def test_a_search_with_a_condition_finds_what_an_exact_one_does(folder):
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(200, DEEP)).astype(np.float32)
    vectors = np.repeat(middles, 25, axis=0) + 0.5 * rng.normal(size=(5000, DEEP)).astype(np.float32)
    snippets = [Snippet(f"k{n}", "", "text", None, {"year": 2000 + int(rng.integers(10))}) for n in range(5000)]
    with closing(EdgeIndex(folder, manifest(DEEP), writable=True)) as index:
        index.upsert(snippets, vectors)
        index.optimize()
        assert index._shard.info().indexed_vectors_count == 2 * 5000, "there is no graph beside BM25"
        probes = [IndexQuery(vector, 50, (FieldFilter("year", ">=", 2004),)) for vector in vectors[::100]]
        exact = index.search([replace(probe, exact=True) for probe in probes])
        found = index.search(probes)
        shares = [len(set(some) & set(best)) / 50 for some, best in zip(found, exact, strict=True)]
        assert np.mean(shares) > 0.995, "0.987 are found by the graph's own links"


# --- being killed


@pytest.mark.parametrize("delay", [0.02, *(pytest.param(delay, marks=pytest.mark.long) for delay in (0, 0.1, 0.5))])
def test_killed_at_any_time_the_index_opens_and_goes_on(folder, child, delay):
    """Making the shard, writing and optimizing are all interrupted somewhere among these delays."""
    script = """
print("ready", flush=True)
index = EdgeIndex(folder, manifest(), writable=True)
for batch in range(30):
    write(index, range(batch * 10, batch * 10 + 10))
    print(batch, flush=True)
    if batch % 5 == 4:
        index.optimize()
"""
    process = child(script, folder)
    assert process.stdout.readline() == "ready\n"
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
    acknowledged = len(process.communicate()[0].splitlines()) * 10
    index = EdgeIndex(folder, manifest(), writable=True)
    found = index.fetch([f"k{n}" for n in range(300)])
    assert set(found) >= {f"k{n}" for n in range(acknowledged)}
    assert set(found) <= {f"k{n}" for n in range(acknowledged + 10)}
    assert all(held == snippet(int(id[1:])) for id, held in found.items())
    write(index, range(300))
    index.optimize()
    holds_exactly(index, range(300))
    index.close()


# --- deleted points


def best(index: EdgeIndex, query: str) -> dict[str, float]:
    return {hit.id: hit.score for hit in index.search([IndexQuery(query, 3000)])[0]}


def rare(n: int) -> Snippet:
    return Snippet(f"k{n}", "", f"rareword liver term{n}" if n < 300 else f"common heart term{n}")


def filled(folder: Path, numbers: range, dimension: int = DIMENSION, quantized: bool = False) -> EdgeIndex:
    """An index of these snippets, optimized."""
    index = EdgeIndex(folder, manifest(dimension, quantized), writable=True)
    vectors = np.random.default_rng(1).normal(size=(2000, dimension)).astype(np.float32)
    index.upsert([rare(n) for n in numbers], vectors[numbers.start : numbers.stop])
    index.optimize()
    return index


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "quantized"),
    [
        (DIMENSION, False),
        pytest.param(1700, False, id="graph", marks=pytest.mark.long),
        pytest.param(1700, True, id="graph-quantized"),
    ],
)
def test_after_deletions_scores_are_those_of_a_fresh_index(tmp_path, dimension, quantized):
    """The issue's case: of 300 snippets with a rare word 295 go; the engine would count them all the same."""
    index = filled(tmp_path / "changed", range(2000), dimension, quantized)
    vectors = index.dense_vectors(["k298", "k1999"])
    index.delete([f"k{n}" for n in range(295)])
    assert index.deleted_share() == pytest.approx(295 / 2000)
    index.optimize()
    assert (index.deleted_share(), index.count()) == (0.0, 1705)
    fresh = filled(tmp_path / "fresh", range(295, 2000), dimension, quantized)
    for query in ("rareword", "common heart", "rareword term1998 liver"):
        assert best(index, query) == pytest.approx(best(fresh, query), rel=1e-6)
    kept = index.dense_vectors(["k298", "k1999"])
    assert all((kept[id] == vector).all() for id, vector in vectors.items())
    for opened in (index, fresh):
        opened.seal()
        opened.close()
    with closing(EdgeIndex(tmp_path / "changed", manifest(dimension, quantized))) as reader:
        assert reader.deleted_share() == 0.0


# --- segments of bounded size

SEGMENTED = 4096  # the engine builds a graph from 10 MB of vectors on, here 640


@pytest.mark.slow
def test_graphs_are_built_while_snippets_are_written_and_every_snippet_is_found(tmp_path, monkeypatch):
    """Each writer takes up what another has left in the segment that is written to."""
    monkeypatch.setattr(edge, "segment_points", lambda manifest: 700)
    count, batch = 1500, 350
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(count, SEGMENTED)).astype(np.float32)
    queries = vectors[::75] + 0.5 * rng.normal(size=(20, SEGMENTED)).astype(np.float32)
    folder, sizes = tmp_path / "test", []
    index = EdgeIndex(folder, manifest(SEGMENTED), writable=True)
    for start in range(0, count, batch):
        rows = range(start, min(start + batch, count))
        index.upsert([Snippet(f"s{row}", "", f"liver term{row}") for row in rows], vectors[rows.start : rows.stop])
        sizes.append(sorted(edge.segment_sizes(folder / SHARD)))
        index.close()
        index = EdgeIndex(folder, manifest(SEGMENTED), writable=True)
    assert [[size for size in found if size] for found in sizes] == [
        [350],
        [700],
        [350, 700],
        [700, 700],
        [100, 700, 700],
    ]
    index.optimize()
    index.close()
    with closing(EdgeIndex(folder, manifest(SEGMENTED))) as reader:
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
