"""scripts/measure: costs of processes, workers, order, ratios, synthetic snippets, growth."""

from __future__ import annotations

import json
import os
import sys
from statistics import median

import numpy as np
import pytest

from biorag.benchmarks.latency.stages import KnownVectors
from biorag.benchmarks.latency.timing import Repetition
from biorag.corpus.sentences import sentences
from biorag.indexes.manifest import Bm25Parameters, Manifest
from scripts.measure import growth, synthetic
from scripts.measure.checkouts import ROOT
from scripts.measure.processes import Worker, run
from scripts.measure.summary import ratio
from scripts.measure.warm import System, ask_all
from tests.fakes import HashEncoder

PYTHON = [sys.executable, "-c"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
ECHO = """
from contextlib import nullcontext
from scripts.measure.processes import serve

def answer(request):
    print("a library's chatter")
    if request.get("fail"):
        raise ValueError("no such question")
    return {"twice": 2 * request["number"]}

serve(nullcontext(answer))
"""


def test_cost_counts_the_processor_time_and_the_memory_of_the_process():
    burn = "import time\nblock = bytearray(200_000_000)\nwhile time.process_time() < 0.5: pass"
    cost = run([*PYTHON, burn], ENVIRONMENT).cost
    assert 0.5 <= cost.cpu_s < 5
    assert cost.wall_s >= 0.5 - 0.05
    assert cost.peak_mb >= 200  # no less; of a process whose parent is large, that one counts too


def test_worker_answers_and_keeps_what_libraries_print_apart():
    with Worker([*PYTHON, ECHO], ENVIRONMENT) as worker:
        assert [worker.ask(number=number) for number in (1, 2)] == [{"twice": 2}, {"twice": 4}]


def test_ratio_is_that_of_the_medians_and_its_interval_that_of_redrawn_rounds():
    base, new = [10.0, 12.0, 11.0, 30.0, 10.5], [2.0, 2.6, 2.2, 6.5, 2.0]
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(4000):
        rounds = rng.integers(0, 5, size=5)
        drawn.append(median(new[row] for row in rounds) / median(base[row] for row in rounds))
    low, high = np.quantile(drawn, [0.025, 0.975])
    found = ratio(base, new)
    assert found.value == 2.2 / 11
    assert found.low == pytest.approx(low, abs=0.004)
    assert found.high == pytest.approx(high, abs=0.004)
    assert ratio([2.0], [1.0]).low == ratio([2.0], [1.0]).high == 0.5


class Answering:
    """A worker that counts what it is asked, and takes as many milliseconds as it was asked questions."""

    def __init__(self, asked: list[str], name: str):
        self.asked, self.name, self.count = asked, name, 0

    def ask(self, **request):
        self.asked.append(self.name)
        self.count += 1
        return {"answers": [{"ms": self.count, "cpu_ms": 1.0, "stages": {"rerank": 2.0}, "texts": ["a", "b"]}]}


def test_every_question_goes_to_all_systems_in_turning_order():
    asked: list[str] = []
    systems = [System("base", 20), System("new", 20), System("new", 100)]
    workers = {system: Answering(asked, str(system)) for system in systems}
    answers = ask_all(workers, ["one", "two"])
    assert asked[:9] == [str(systems[place]) for place in (0, 1, 2, 1, 2, 0, 2, 0, 1)]
    assert [[answer["ms"] for answer in answers[system]] for system in systems] == [[3, 4]] * 3  # 1 and 2 warm up


@pytest.fixture
def corpus(snippets):
    return synthetic.SyntheticCorpus(snippets, HashEncoder(), seed=1, encoded=10)


def test_synthetic_snippets_are_made_of_sentences_of_the_corpus(corpus, snippets):
    known = {sentence for snippet in snippets for sentence in sentences(snippet.content)}
    made = list(corpus.snippets(300))
    assert [snippet.id for snippet in made] == [str(number) for number in range(300)]
    assert {snippet.title for snippet in made} <= {snippet.title for snippet in snippets}
    assert {sentence for snippet in made for sentence in sentences(snippet.content)} <= known
    years = [snippet.metadata["year"] for snippet in corpus.snippets(8 * synthetic.BATCH)]
    assert np.mean([year >= 2015 for year in years]) == pytest.approx(0.36, abs=0.02)


def test_the_first_vectors_are_the_snippets_own_then_copies_then_points_between(corpus):
    vectors = np.concatenate(list(corpus.vectors(2 * synthetic.BATCH)))
    own = HashEncoder().encode_snippets([snippet.contents for snippet in corpus.snippets(10)])
    np.testing.assert_array_equal(vectors[:10], own)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    copies, mixed = (vectors[10 : synthetic.BATCH] @ own.T), vectors[synthetic.BATCH :] @ own.T
    assert 0.8 < copies.max(axis=1).mean() < 0.95, "1 / sqrt(1 + 0.5²) is 0.89"
    assert mixed.max(axis=1).mean() < copies.max(axis=1).mean() - 0.02


@pytest.mark.parametrize("chunk", [7, 1000])
def test_the_exact_search_is_a_full_sort(chunk):
    rng = np.random.default_rng(5)
    vectors, queries = (rng.standard_normal((count, 8)).astype(np.float32) for count in (100, 6))
    expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :10].tolist()
    assert synthetic.exact_top(vectors, queries, 10, chunk) == expected
    assert [sorted(rows) for rows in synthetic.exact_top(vectors[:4], queries, 10, chunk)] == [[0, 1, 2, 3]] * 6


@pytest.mark.long
def test_growth_is_measured_and_reported(corpus, snippets, settings, tmp_path):
    encoder, questions = HashEncoder(), [snippet.title or "hypertension" for snippet in snippets]
    known = KnownVectors(encoder, questions)
    bm25 = Bm25Parameters(0.9, 0.4, 20.0)
    manifest = Manifest("test", encoder.identity, "cosine", False, bm25, {"kind": "edge"}, "", "")
    sizes = []
    for size in (40, 80):
        (tmp_path / str(size)).mkdir()
        subject = growth.Subject(tmp_path / str(size) / "index", manifest, settings, known)
        sizes.append(growth.measured(subject, corpus, size, Repetition(4, 1, 5)))
    assert [size["recall"] for size in sizes] == [size["filtered_recall"] for size in sizes] == [1.0, 1.0]
    assert sizes[0]["bytes_per_snippet"] > 64 * 4
    assert sizes[0]["reader_before"] < 200_000_000, "torch is not loaded"
    growth.write_report(tmp_path, sizes)
    assert json.loads((tmp_path / "growth.json").read_text())["sizes"] == sizes
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
