"""The parts of `bench latency`, each against an obvious reference."""

from __future__ import annotations

from itertools import pairwise

import pytest

from biorag.benchmarks.latency import machine, stages
from biorag.indexes.bm25 import LengthCounter
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Bm25Parameters, Manifest
from tests.fakes import HashEncoder, encoding_snippets

pytestmark = pytest.mark.models

FEW = stages.Repetition(repetitions=4, warm_up=1, seconds=5.0)


def test_warm_up_calls_do_not_count_and_share_the_numbering():
    turns = []

    def sample(turn):
        turns.append(turn)
        return {"a": float(turn), **({"b": 2.0} if turn % 2 else {})}

    timings = stages.collect(sample, stages.Repetition(3, 2, 10))
    assert timings == {"a": stages.summary([2.0, 3.0, 4.0]), "b": stages.summary([2.0])}
    assert turns == [0, 1, 2, 3, 4]


def test_calls_end_with_the_seconds_but_not_before_the_third():
    turns = []
    timings = stages.collect(lambda turn: turns.append(turn) or {"a": 1.0}, stages.Repetition(1000, 10, 0.0))
    assert timings["a"].n == stages.LEAST
    assert turns == [0, 10, 11, 12], "one call warms up"


@pytest.mark.parametrize("count", [2, 10, 15])
@pytest.mark.parametrize("size", [1, 2, 20])
def test_every_batch_differs_from_the_last_and_all_questions_have_their_turn(count, size):
    questions = [str(number) for number in range(count)]
    batches = [stages.batch_of(questions, size, turn) for turn in range(count)]
    assert all(len(batch) == size and set(batch) <= set(questions) for batch in batches)
    assert all(one != next_ for one, next_ in pairwise(batches))
    if size == 1:
        assert sorted(batch[0] for batch in batches) == sorted(questions)


def test_processor_and_memory_are_read_from_proc(tmp_path, monkeypatch):
    text = (
        "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu fma avx2 sse\n\nprocessor\t: 1\nmodel name\t: Other\n"
    )
    (tmp_path / "self").mkdir()
    (tmp_path / "cpuinfo").write_text(text)
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 1 kB\n")
    (tmp_path / "self" / "status").write_text("VmHWM:\t      30 kB\nVmRSS:\t      20 kB\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    facts = machine.describe()
    assert (facts["cpu"], facts["flags"], facts["memory_bytes"]) == ("Some CPU", ["avx2", "fma"], 2048 * 1024)
    assert {"biorag", "numpy", "torch"} <= set(facts["versions"])
    assert (machine.resident_bytes(), machine.peak_bytes()) == (20 * 1024, 30 * 1024)


@pytest.fixture
def subject(tmp_path, settings, snippets):
    """The conftest's snippets in an Edge index, their titles as questions."""
    encoder, length = HashEncoder(), LengthCounter()
    avg_len = sum(length(snippet.contents) for snippet in snippets) / len(snippets)
    manifest = Manifest(
        "test", encoder.identity, "cosine", False, Bm25Parameters(0.9, 0.4, avg_len), {"kind": "edge"}, "", ""
    )
    index = EdgeIndex(tmp_path / "index", manifest, writable=True)
    index.upsert(snippets, encoder.encode_snippets([snippet.contents for snippet in snippets]))
    questions = [snippet.title or "hypertension" for snippet in snippets]
    yield stages.Subject(settings, manifest, index, encoder, encoding_snippets(encoder), questions)
    index.close()


def test_indexing_costs_are_per_snippet_and_add_up(subject, snippets, tmp_path):
    done = []
    costs = stages.indexing(subject, snippets, tmp_path / "new", done.append)
    assert list(costs) == ["encode", "bm25", "write", "optimize", "total"]
    parts = sum(costs[part].ms_per_snippet for part in ("encode", "write", "optimize"))
    assert costs["total"].ms_per_snippet == pytest.approx(parts, abs=1e-3)
    assert costs["total"].snippets_per_s == pytest.approx(1000 / costs["total"].ms_per_snippet, rel=0.01)
    assert sum(done) == len(snippets)
    index = EdgeIndex(tmp_path / "new", subject.manifest)
    assert index.count() == len(snippets)
    index.close()


def test_an_exact_search_is_timed_with_the_encoding_before_it(subject, monkeypatch):
    """The time of both is the sum of each call's, and the store compares with all vectors."""
    probes, search = [], subject.index.search
    monkeypatch.setattr(subject.index, "search", lambda asked: probes.append(list(asked)) or search(asked))
    timings = stages.exact(subject, 3, [1, 4], stages.Repetition(5, 1, 60))
    assert {size: list(parts) for size, parts in timings.items()} == {
        size: ["encode", "search", "total"] for size in (1, 4)
    }
    assert [len(asked) for asked in probes] == [1] * 6 + [4] * 6
    assert {(probe.exact, probe.limit) for asked in probes for probe in asked} == {(True, 3)}
    for parts in timings.values():
        assert parts["total"].mean == pytest.approx(parts["encode"].mean + parts["search"].mean, abs=2e-3)
        assert parts["total"].n == 5


def test_the_baseline_searches_all_snippets_as_rank_bm25_scores_them(subject):
    ids = ["liver", "lung", "both"]
    texts = ["The liver, the liver.", "A lung.", "A lung and a liver are organs of the body and have many cells."]
    search = stages.rank_bm25_search(ids, texts, 2)
    assert search("LIVER?") == ["liver", "both"]
    cost, timings = stages.rank_bm25(subject.index, subject.questions, 5, FEW)
    assert list(timings) == [1]
    assert timings[1].p50 > 0
    assert cost.snippets_per_s == pytest.approx(1000 / cost.ms_per_snippet, rel=0.01)
