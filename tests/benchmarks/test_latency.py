"""What `bench latency` measures with: each part against an obvious reference, and the peers against brute force."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest

from biorag.benchmarks.latency import (
    baselines,
    doubling,
    growth,
    machine,
    memory,
    peers,
    report,
    stages,
    synthetic,
    timing,
)
from biorag.corpus.sentences import sentences
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.indexes.bm25 import LengthCounter
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Bm25Parameters, Manifest
from biorag.retrieval.retriever import Retriever
from biorag.types import FieldFilter, IndexQuery, Scores, Snippet
from biorag.utils.plots import PlotPanel, write_plot
from tests.fakes import HashEncoder, OverlapReranker, ScriptedGenerator, encoding_snippets

pytestmark = pytest.mark.models

EFFORT = timing.Effort(repetitions=4, warm_up=1, seconds=5.0)


# --- timing -------------------------------------------------------------------------------------------------


def test_a_summary_is_numpys():
    times = np.random.default_rng(3).exponential(size=57)
    found = timing.summary(times.tolist())
    expected = [57, times.mean(), *np.percentile(times, [50, 95, 99])]
    assert list(asdict(found).values()) == pytest.approx(expected, abs=1e-4)


def test_warm_up_calls_do_not_count_and_are_numbered_on():
    turns = []

    def sample(turn):
        turns.append(turn)
        return {"a": float(turn)}

    assert timing.collect(sample, timing.Effort(3, 2, 10))["a"] == timing.summary([2.0, 3.0, 4.0])
    assert turns == [0, 1, 2, 3, 4]


def test_calls_end_with_the_seconds_but_not_before_the_third():
    turns = []
    found = timing.collect(lambda turn: turns.append(turn) or {"a": 1.0}, timing.Effort(1000, 10, 0.0))
    assert found["a"].n == timing.LEAST
    assert turns == [0, 10, 11, 12], "one call warms up"


def test_a_name_that_comes_now_and_then_has_the_times_it_came():
    found = timing.collect(lambda turn: {"a": 1.0, **({"b": 2.0} if turn % 2 else {})}, timing.Effort(4, 0, 10))
    assert (found["a"].n, found["b"].n) == (4, 2)


def test_functions_take_turns_at_being_first_and_each_is_timed():
    calls = []

    def wait(name, seconds):
        def function(turn):
            calls.append((turn, name))
            time.sleep(seconds)

        return function

    found = timing.collect(
        timing.alternating({"quick": wait("quick", 0.001), "slow": wait("slow", 0.02)}), timing.Effort(4, 0, 10)
    )
    assert [name for _, name in calls] == ["quick", "slow", "slow", "quick"] * 2
    assert 1 <= found["quick"].p50 < 20 <= found["slow"].p50


@pytest.mark.parametrize("count", [2, 3, 10, 15])
@pytest.mark.parametrize("size", [1, 2, 10, 20, 30])
def test_every_batch_is_another_than_the_last_and_all_questions_have_their_turn(count, size):
    batches = [timing.places(count, size, turn) for turn in range(count)]
    assert all(len(batch) == size and set(batch) <= set(range(count)) for batch in batches)
    assert all(one != next_ for one, next_ in pairwise(batches))
    if size == 1:
        assert sorted(place for batch in batches for place in batch) == list(range(count))


# --- the machine --------------------------------------------------------------------------------------------


def test_the_machine_is_described():
    found = machine.describe()
    assert found.cpu
    assert found.cores >= 1
    assert set(found.flags) <= set(machine.FLAGS)
    assert {"biorag", "numpy", "torch"} <= set(found.versions)
    assert machine.threads()["torch"] >= 1
    assert replace(found, load=found.cores * 0.6).busy
    assert not replace(found, load=found.cores * 0.4).busy
    assert not replace(found, load=None).busy


def test_processor_of_cpuinfo(tmp_path, monkeypatch):
    text = (
        "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu fma avx2 sse\n\nprocessor\t: 1\nmodel name\t: Other\n"
    )
    (tmp_path / "cpuinfo").write_text(text)
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 1 kB\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    found = machine.describe()
    assert (found.cpu, found.flags, found.memory_bytes) == ("Some CPU", ("avx2", "fma"), 2048 * 1024)


def test_without_proc_nothing_is_made_up(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert (machine.describe().memory_bytes, memory.resident_bytes(), memory.reset_peak()) == (None, None, False)
    assert memory.peak_bytes() > 1_000_000, "from getrusage"


@pytest.mark.skipif(not memory.PROC.is_dir(), reason="no /proc")
def test_memory_that_is_taken_is_seen():
    """In a process of its own: elsewhere the system may have kept pages that were freed, and gives those."""
    script = """
from biorag.benchmarks.latency import memory
before = memory.resident_bytes()
block = bytearray(b"1") * 64_000_000
taken = memory.resident_bytes() - before
del block
assert memory.peak_bytes() >= before + taken - 1_000_000
print(taken)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000_000


# --- synthetic snippets -------------------------------------------------------------------------------------


@pytest.fixture
def corpus(snippets):
    return synthetic.Corpus(snippets, HashEncoder(), seed=1, encoded=10, on_progress=lambda _: None)


def test_synthetic_snippets_are_made_of_sentences_of_the_corpus(corpus, snippets):
    known = {sentence for snippet in snippets for sentence in sentences(snippet.content)}
    lengths = {len(sentences(snippet.content)) for snippet in snippets}
    made = list(corpus.snippets(300))
    assert [snippet.id for snippet in made] == [str(number) for number in range(300)]
    assert {snippet.title for snippet in made} <= {snippet.title for snippet in snippets}
    told = [sentences(snippet.content) for snippet in made]
    assert {sentence for found in told for sentence in found} <= known
    assert {len(found) for found in told} <= lengths
    assert len({snippet.content for snippet in made}) > 1


def test_a_smaller_corpus_is_the_start_of_a_larger_one(corpus, snippets):
    again = synthetic.Corpus(snippets, HashEncoder(), seed=1, encoded=10, on_progress=lambda _: None)
    other = synthetic.Corpus(snippets, HashEncoder(), seed=2, encoded=10, on_progress=lambda _: None)
    large, size = 2 * synthetic.BATCH + 7, synthetic.BATCH + 5
    assert list(corpus.snippets(large))[:size] == list(again.snippets(size)) != list(other.snippets(size))
    whole, part = np.concatenate(list(corpus.vectors(large))), np.concatenate(list(again.vectors(size)))
    assert whole.shape == (large, 64)
    np.testing.assert_array_equal(whole[:size], part)


def test_the_first_vectors_are_the_snippets_own_and_the_others_near_one_of_them(corpus):
    vectors = np.concatenate(list(corpus.vectors(500)))
    own = HashEncoder().encode_snippets([snippet.contents for snippet in corpus.snippets(10)])
    np.testing.assert_array_equal(vectors[:10], own)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    nearest = (vectors[10:] @ own.T).max(axis=1)
    assert 0.8 < nearest.mean() < 0.95, "1 / sqrt(1 + 0.5²) is 0.89"
    assert len(np.unique(vectors[10:], axis=0)) == 490


def test_vectors_beyond_the_copies_lie_between_two_encoded_ones(corpus):
    """The first batch is of copies, the second of points farther from the nearest and nearer to the next."""
    vectors = np.concatenate(list(corpus.vectors(2 * synthetic.BATCH)))
    own = vectors[:10]
    plain, mixed = (vectors[10 : synthetic.BATCH] @ own.T), vectors[synthetic.BATCH :] @ own.T
    assert mixed.max(axis=1).mean() < plain.max(axis=1).mean() - 0.02
    assert np.sort(mixed, axis=1)[:, -2].mean() > np.sort(plain, axis=1)[:, -2].mean() + 0.02
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_point_between_two_vectors_is_in_the_nearer_half_at_the_left_ones_length():
    rng = np.random.default_rng(2)
    left, right = 3 * rng.standard_normal((200, 8)), rng.standard_normal((200, 8))
    found = synthetic.between(left, right, np.random.default_rng(5))
    parts = np.random.default_rng(5).uniform(0.5, 1, (200, 1)).astype(np.float32)
    for row, (one, other, part) in enumerate(zip(left, right, parts[:, 0], strict=True)):
        point = part * one + (1 - part) * other
        np.testing.assert_allclose(found[row], point * np.linalg.norm(one) / np.linalg.norm(point), rtol=1e-5)


def test_years_and_headings_are_as_frequent_as_they_say(corpus):
    facts = [snippet.metadata for snippet in corpus.snippets(8 * synthetic.BATCH)]
    assert np.mean([fact["year"] >= 2015 for fact in facts]) == pytest.approx(0.36, abs=0.02)
    assert np.mean(["Heading 12" in fact["mesh"] for fact in facts]) == pytest.approx(0.05, abs=0.01)
    assert np.mean(["Heading 1" in fact["mesh"] for fact in facts]) == pytest.approx(0.6, abs=0.03)


def test_perturbed_vectors_keep_their_length():
    vectors = np.random.default_rng(0).standard_normal((50, 32)).astype(np.float32) * 7
    moved = synthetic.perturbed(vectors, np.random.default_rng(1))
    assert moved.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), np.linalg.norm(vectors, axis=1), rtol=1e-5)
    assert not np.allclose(moved, vectors)
    np.testing.assert_allclose(synthetic.perturbed(vectors, np.random.default_rng(1), noise=0.0), vectors, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_the_exact_search_is_a_full_sort(chunk):
    rng = np.random.default_rng(5)
    vectors, queries = (rng.standard_normal((count, 8)).astype(np.float32) for count in (100, 6))
    expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :10].tolist()
    assert synthetic.exact_top(vectors, queries, 10, chunk) == expected
    assert [sorted(rows) for rows in synthetic.exact_top(vectors[:4], queries, 10, chunk)] == [[0, 1, 2, 3]] * 6


def test_recall_is_the_mean_share_found():
    assert synthetic.recall([["a", "b"], ["c", "x"]], [["b", "a"], ["c", "d"]]) == 0.75
    assert synthetic.recall([[], ["c"]], [["a"], ["c"]]) == 0.5


# --- peers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", peers.BM25_PEERS)
def test_bm25_peers_find_the_snippet_of_a_title(name, snippets):
    peer = peers.BM25_PEERS[name]([snippet.id for snippet in snippets], [snippet.contents for snippet in snippets])
    assert [peer.search(snippet.contents, 3)[0] for snippet in snippets] == [snippet.id for snippet in snippets]
    assert len(peer.search("aspirin", 3)) == 3
    assert len(peer.search("aspirin", 100)) == len(snippets)


def test_rank_bm25_ranks_as_its_scores_do(snippets):
    from rank_bm25 import BM25Okapi

    words = [snippet.contents.lower().replace(".", "").replace(",", "").split() for snippet in snippets]
    ids, query = [snippet.id for snippet in snippets], "heart failure and the kidney"
    scores = BM25Okapi(words).get_scores(query.split())
    found = peers.RankBm25(ids, [" ".join(listed) for listed in words]).search(query, 3)
    assert [scores[ids.index(id)] for id in found] == sorted(scores, reverse=True)[:3]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_qdrants_local_mode_finds_what_brute_force_finds(tmp_path, stored, similarity):
    rng = np.random.default_rng(0)
    vectors, queries = (rng.standard_normal((count, 16)).astype(np.float32) for count in (300, 5))
    if similarity == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    snippets = [Snippet(f"s{row}", "", "text") for row in range(300)]
    peer = peers.QdrantLocal(tmp_path / "peer" if stored else None, 16, similarity)
    peer.upsert(snippets[:100], vectors[:100])
    peer.upsert(snippets[100:], vectors[100:])
    expected = [[f"s{row}" for row in rows] for rows in synthetic.exact_top(vectors, queries, 10)]
    assert [peer.search(query, 10) for query in queries] == expected
    peer.close()
    assert (tmp_path / "peer").exists() == stored


def test_sentence_transformers_gives_the_encoders_vectors(tiny_encoder):
    from biorag.models.bi_encoder import BiEncoder
    from biorag.models.finding import find_encoder

    ours, texts = BiEncoder(find_encoder(str(tiny_encoder)), precision="fp32"), ["heart pain", "fever of the liver"]
    theirs = peers.SentenceTransformers(tiny_encoder)
    for mine, other in (
        (ours.encode_queries(texts), theirs.encode_queries(texts)),
        (ours.encode_snippets(texts), theirs.encode_snippets(texts)),
    ):
        np.testing.assert_allclose(mine, other / np.linalg.norm(other, axis=1, keepdims=True), atol=1e-5)


def test_unknown_and_missing_peers_are_refused(monkeypatch):
    peers.require_peers(peers.PEERS)
    with pytest.raises(UsageError, match=r"unknown baseline 'elastic': use one of bm25s, qdrant-local, rank_bm25"):
        peers.require_peers(["bm25s", "elastic"])
    monkeypatch.setitem(peers.PEERS, "bm25s", "no_such_module")
    with pytest.raises(MissingError, match=r"'bm25s' is not installed: run pip install 'biorag\[bench\]'"):
        peers.require_peers(["bm25s"])


# --- stages -------------------------------------------------------------------------------------------------


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


def asked_of(subject) -> baselines.Asked:
    return baselines.Asked(subject.questions, subject.encoder.encode_queries(subject.questions))


def terms(*names: str, limit: int = 100) -> baselines.Terms:
    return baselines.Terms(names, EFFORT, limit)


def test_a_sample_is_of_the_index_and_seeded(subject, snippets):
    everything = stages.sampled(subject.index, 100, seed=0)
    assert sorted(everything, key=lambda snippet: snippet.id) == sorted(snippets, key=lambda snippet: snippet.id)
    drawn = stages.sampled(subject.index, 3, seed=0)
    assert drawn == stages.sampled(subject.index, 3, seed=0)
    assert len(drawn) == 3
    assert [snippet for snippet in everything if snippet in drawn] == drawn


def test_titles_stand_in_for_questions(subject, snippets):
    untitled = next(snippet for snippet in snippets if not snippet.title)
    expected = {snippet.title for snippet in snippets if snippet.title} | {sentences(untitled.content)[0]}
    assert sorted(stages.titles(subject.index, 100, 0)) == sorted(expected)
    assert len(stages.titles(subject.index, 3, 0)) == 3


def test_one_question_is_too_few():
    assert stages.checked(["a", "b", "a"]) == ["a", "b"]
    with pytest.raises(BadInputError, match=r"fewer than two different questions .* --questions"):
        stages.checked(["a", "a"])


def test_indexing_costs_are_per_snippet_and_add_up(subject, snippets, tmp_path):
    done = []
    costs = stages.indexing(subject, snippets, tmp_path / "new", done.append)
    assert list(costs) == ["encode", "bm25", "write", "optimize", "total"]
    parts = sum(costs[part].ms_per_snippet for part in ("encode", "write", "optimize"))
    assert costs["total"].ms_per_snippet == pytest.approx(parts, abs=1e-3)
    assert costs["total"].snippets_per_s == pytest.approx(1000 / costs["total"].ms_per_snippet, rel=0.01)
    assert sum(done) == len(snippets)
    with_all = EdgeIndex(tmp_path / "new", subject.manifest)
    assert with_all.count() == len(snippets)
    with_all.close()


def test_a_cost_is_time_by_number():
    assert asdict(stages.cost(2.0, 500)) == {"ms_per_snippet": 4.0, "snippets_per_s": 250.0}


def test_batches_of_the_sizes_asked_for_are_encoded(subject):
    class Counting(HashEncoder):
        sizes: list[int] = []  # noqa: RUF012

        def encode_queries(self, texts):
            self.sizes.append(len(texts))
            return super().encode_queries(texts)

    found = stages.encoding(Counting(), subject.questions, [1, 10], EFFORT)
    assert {size: timed.n for size, timed in found.items()} == {1: 4, 10: 4}
    assert Counting.sizes == [1] * 5 + [10] * 5


@pytest.mark.parametrize("mode", stages.MODES)
def test_the_first_stage_is_timed_without_encoding(subject, mode):
    asked = asked_of(subject)
    known = stages.Known(subject.encoder.identity, *asdict_of(asked))
    searching = subject.settings.replace(mode=mode, rerank=False)
    found = stages.first_stage(subject.index, known, searching, subject.questions, [1, 20], EFFORT)
    assert {size: timed.n for size, timed in found.items()} == {1: 4, 20: 4}
    assert all(timed.p50 > 0 for timed in found.values())
    assert found[20].p50 > found[1].p50


def asdict_of(asked):
    return asked.questions, asked.vectors


def test_known_vectors_are_given_in_the_order_asked():
    known = stages.Known(HashEncoder().identity, ["a", "b"], np.eye(2, dtype=np.float32))
    assert known.encode_queries(["b", "a", "b"]).tolist() == [[0, 1], [1, 0], [0, 1]]


def test_one_by_one_has_every_stage(subject):
    retriever = Retriever(subject.index, subject.encoder, [OverlapReranker()], subject.settings.retrieval)
    found = stages.one_by_one(retriever, subject.questions, EFFORT)
    assert set(found) == {"encode", "first_stage", "fetch", "rerank", "total"}
    assert found["total"].mean == pytest.approx(sum(found[s].mean for s in found if s != "total"), abs=0.01)


class SlowGenerator(ScriptedGenerator):
    """Evaluates 1,000 tokens of a prompt a second, and writes a word every 20 ms."""

    def generate(self, request, on_text=None):
        self.prompts.append(request.prompt)
        words = ["{answer:", "one", "two", "three", "four,", "citations:", "1}"]
        for count in range(1, len(words) + 1):
            time.sleep(0.02)
            on_text(" ".join(words[:count]))
        return super().generate(request)

    def score(self, prompt, choices):
        time.sleep(self.count_tokens(prompt) / 1000)
        found = super().score(prompt, choices)
        return found if isinstance(found, Scores) else Scores(found)


def test_a_local_generators_speeds(subject):
    retriever, generator = Retriever(subject.index, subject.encoder, None, subject.settings.retrieval), SlowGenerator()
    found, whole = stages.generation(retriever, generator, subject.settings, subject.questions, EFFORT, local=True)
    assert found.questions == found.generate.n == whole.n == 4
    assert 120 < found.generate.p50 < whole.p50 + 1
    assert found.prompt_tokens_per_s == pytest.approx(1000, rel=0.2)
    assert found.output_tokens == 7
    assert found.output_tokens_per_s == pytest.approx(50, rel=0.2)
    scored = generator.prompts[-5:]
    assert len({prompt.system for prompt in scored}) == 5, "no prompt starts as another did"


def test_of_a_server_the_seconds_are_all_that_is_said(subject):
    retriever = Retriever(subject.index, subject.encoder, None, subject.settings.retrieval)
    found, _ = stages.generation(
        retriever, ScriptedGenerator(), subject.settings, subject.questions, EFFORT, local=False
    )
    assert (found.prompt_tokens_per_s, found.output_tokens_per_s) == (None, None)


# --- beside other packages ----------------------------------------------------------------------------------


@pytest.fixture
def collection(subject, snippets):
    """The index with vectors of which no two are as near to a question."""
    drawn = np.random.default_rng(0).standard_normal((len(snippets), 64)).astype(np.float32)
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    subject.index.upsert(snippets, vectors)
    return baselines.Collection([snippet.id for snippet in snippets], lambda: iter(snippets), subject.index, vectors)


def test_searches_are_compared_with_each_peer_that_is_named(subject, collection, snippets):
    asked = asked_of(subject)
    named = terms("bm25s", "rank_bm25", "qdrant-local")
    found = [
        *baselines.compare_bm25(collection, asked.questions, named),
        *baselines.compare_dense(collection, asked, named, "cosine"),
    ]
    assert [(each.baseline, each.task) for each in found] == [
        ("rank_bm25", "search, bm25"),
        ("bm25s", "search, bm25"),
        ("qdrant-local", "search, dense"),
    ]
    for each in found:
        assert (each.unit, each.snippets) == ("ms", len(snippets))
        assert (each.ours, each.theirs) == (each.timings["ours"].p50, each.timings["theirs"].p50)
        assert each.ratio == pytest.approx(each.theirs / each.ours, abs=0.006)
        assert each.built_s is not None
    assert (found[2].ours_recall, found[2].theirs_recall) == (1.0, 1.0)
    assert found[0].ours_recall is None


def test_recall_is_against_the_vectors(subject, collection):
    queries = asked_of(subject).vectors
    exact = baselines.exact_ids(collection, queries)
    best = (queries @ collection.vectors.T).argmax(axis=1)
    assert [ids[0] for ids in exact] == [collection.ids[row] for row in best]
    assert baselines.dense_recall(subject.index, queries, exact) == 1.0
    assert baselines.dense_recall(subject.index, queries, [["nothing"]] * len(queries)) == 0.0


def test_filtered_recall_is_against_a_search_without_the_graph(subject):
    queries, searched = subject.encoder.encode_queries(subject.questions), []

    class Recording:
        def search(self, probes):
            searched.append([(probe.exact, probe.where) for probe in probes])
            found = subject.index.search(probes)
            return found if probes[0].exact else [hits[:5] for hits in found]

    assert baselines.filtered_recall(subject.index, queries, (FieldFilter("year", ">", 3000),)) is None
    where = (FieldFilter("year", ">", 3000, negated=True),)
    assert baselines.filtered_recall(Recording(), queries, where) == 0.5
    assert searched == [[(exact, where)] * len(queries) for exact in (True, False)]


def test_slow_peers_are_left_out_above_the_limit(subject, collection, caplog):
    asked, named = asked_of(subject), terms("rank_bm25", "bm25s", "qdrant-local", limit=2)
    found = [*baselines.compare_bm25(collection, asked.questions, named)]
    found += baselines.compare_dense(collection, asked, named, "cosine")
    assert [each.baseline for each in found] == ["bm25s"]
    assert [record.message.split()[1] for record in caplog.records] == ["rank_bm25", "qdrant-local"]
    assert "--peer-limit" in caplog.text


def test_indexing_is_compared_by_snippets_a_second(subject, snippets, tmp_path):
    class Slow(HashEncoder):
        def encode_snippets(self, texts):
            time.sleep(0.1)
            return super().encode_snippets(texts)

    rivals = baselines.Rivals(Slow(), peers.QdrantLocal(tmp_path / "theirs", 64, "cosine"))
    done = []
    encode, write, both = baselines.compare_indexing(subject, snippets, rivals, tmp_path / "ours", done.append)
    assert (encode.task, write.task, both.task) == ("encode", "write", "encode and write")
    assert both.baseline == "sentence-transformers + qdrant-local"
    assert 0 < encode.theirs <= len(snippets) / 0.1
    assert encode.ratio == pytest.approx(encode.ours / encode.theirs, rel=0.05)
    assert both.ours <= min(encode.ours, write.ours)
    assert sum(done) == len(snippets)
    rivals.store.close()


def test_queries_encoded_are_compared_by_size_of_batch(subject):
    found = list(baselines.compare_encoding_queries(subject, HashEncoder(), [1, 10], EFFORT))
    assert [each.task for each in found] == ["encode 1 questions", "encode 10 questions"]


def test_all_snippets_are_encoded_anew_for_a_comparison_of_vectors(subject, snippets, tmp_path):
    found = baselines.encoded_collection(subject, tmp_path / "all", lambda _: None)
    assert (found.index.count(), len(found.ids)) == (len(snippets), len(snippets))
    by_id = {snippet.id: snippet for snippet in snippets}
    expected = HashEncoder().encode_snippets([by_id[id].contents for id in found.ids])
    np.testing.assert_array_equal(found.vectors, expected)
    (top,) = found.index.search([IndexQuery(expected[0], 1)])
    assert top[0].id == found.ids[0]
    found.index.close()


class Failing(HashEncoder):
    """Encodes snippets once and then fails."""

    def encode_snippets(self, texts):
        if getattr(self, "asked", False):
            raise BadInputError("no more")
        self.asked = True
        return super().encode_snippets(texts)


def failing(subject) -> stages.Subject:
    """The subject with an encoder that fails once an index was begun."""
    encoder, settings = Failing(), subject.settings.replace(batch_size=1)
    return replace(subject, encoder=encoder, encode=encoding_snippets(encoder), settings=settings)


@pytest.mark.parametrize(
    "measure",
    [
        lambda subject, snippets, folder: stages.indexing(subject, snippets, folder),
        lambda subject, snippets, folder: baselines._indexing_ms(
            subject, snippets, baselines.Rivals(None, None), folder, lambda _: None
        ),
        lambda subject, snippets, folder: baselines.encoded_collection(subject, folder, lambda _: None),
    ],
    ids=["indexing", "comparing indexing", "collection"],
)
def test_an_index_is_closed_when_encoding_fails(subject, snippets, tmp_path, measure):
    with pytest.raises(BadInputError, match="no more") as caught:
        measure(failing(subject), snippets, tmp_path / "new")
    EdgeIndex(tmp_path / "new", subject.manifest, writable=True).close()
    assert caught.tb, "the error, which holds the failed call's variables, is still there"


@pytest.mark.parametrize("step", ["search_all", "first_stage", "compare_bm25"])
def test_growths_index_is_closed_when_measuring_fails(subject, corpus, here, monkeypatch, step):
    opened, closed = [], []
    opening, closing = EdgeIndex.__init__, EdgeIndex.close
    monkeypatch.setattr(EdgeIndex, "__init__", lambda self, *a, **b: opened.append(self) or opening(self, *a, **b))
    monkeypatch.setattr(EdgeIndex, "close", lambda self: closed.append(self) or closing(self))

    def fail(*_):
        raise BadInputError("no more")

    monkeypatch.setattr(growth, step, fail)
    with pytest.raises(BadInputError, match="no more"):
        list(growth.grow(subject, corpus, asked_of(subject), 50, terms(), False, lambda _: None))
    assert opened == closed
    assert len(opened) > 1


# --- growth -------------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch):
    """Indexes are written and opened in this process, which saves starting others."""
    monkeypatch.setattr(growth, "write_apart", growth._write)
    monkeypatch.setattr(growth, "memory_of_opening", growth._opened)


@pytest.fixture
def grown(subject, corpus, here):
    asked, done = asked_of(subject), []
    found = list(growth.grow(subject, corpus, asked, 50, terms("bm25s"), True, done.append))
    assert sum(done) == growth.written([50], True) == 100
    return found


def test_growth_measures_both_kinds_of_vectors(grown):
    assert [(each.snippets, each.quantized) for each in grown] == [(50, False), (50, True)]
    for each in grown:
        assert set(each.search) == set(growth.SEARCHES) == {*stages.MODES, "filtered hybrid"}
        assert each.bytes_per_snippet > 64 * 4
        assert each.writing_peak > 1_000_000
        assert each.recall > 0.9
        assert each.snippets_per_s == pytest.approx(50 / (each.write_s + each.optimize_s), rel=0.25), (
            "seconds are rounded"
        )
    assert [[found.baseline for found in each.baselines] for each in grown] == [["bm25s"], []]
    assert grown[0].recall == grown[0].filtered_recall == 1.0, "a search of fp32 vectors this few is exact"


def test_a_fresh_process_opens_the_index(subject, snippets, tmp_path):
    index = stages.scratch_index(tmp_path / "grown", subject.manifest)
    index.upsert(snippets, subject.encoder.encode_snippets([snippet.contents for snippet in snippets]))
    index.close()
    found = growth.memory_of_opening(tmp_path / "grown", subject.manifest, subject.settings, asked_of(subject))
    if found.before is not None:
        assert found.before < found.opened <= found.peak + 1_000_000
        assert found.before < 200_000_000, "torch is not loaded"


def test_a_fresh_process_writes_the_index(subject, corpus, tmp_path):
    vectors, done = growth._stored_vectors(tmp_path / growth.VECTORS, corpus, 50), []
    making = growth.Making(tmp_path / "grown", tmp_path / growth.VECTORS, subject.manifest, subject.settings)
    written = growth.write_apart(making, corpus, 50, done.append)
    assert sum(done) == 50
    assert set(written.ms) == set(written.cpu_s) == {"write", "optimize"}
    if written.anonymous is not None:
        assert 0 < written.anonymous <= written.peak + 1_000_000
        assert 0 < written.file_backed <= written.peak + 1_000_000
    assert 1_000_000 < written.peak < 300_000_000, "torch is not loaded"
    with closing(EdgeIndex(tmp_path / "grown", subject.manifest)) as index:
        (found,) = index.search([IndexQuery(vectors[7], 1)])
    assert [scored.id for scored in found] == ["7"]


def test_a_writer_that_dies_is_an_error_and_no_wait(subject, corpus, tmp_path):
    making = growth.Making(tmp_path / "grown", tmp_path / "no vectors", subject.manifest, subject.settings)
    with pytest.raises(FileNotFoundError):
        growth.write_apart(making, corpus, 50, lambda _: None)


def test_vectors_alone_are_searched_by_vectors_alone(subject, snippets, here):
    corpus = synthetic.Corpus(snippets, HashEncoder(), 1, 10, lambda _: None, texts=False)
    (grown,) = growth.grow(subject, corpus, asked_of(subject), 50, terms(), False, lambda _: None)
    assert set(grown.search) == {"dense"}
    assert (grown.recall, grown.filtered_recall) == (1.0, None)


def test_baselines_are_left_out_where_they_would_fill_the_memory(subject, corpus, here, monkeypatch, caplog):
    monkeypatch.setattr(growth, "COMPARED", 49)
    (grown,) = growth.grow(subject, corpus, asked_of(subject), 50, terms("bm25s"), False, lambda _: None)
    assert grown.baselines == ()
    assert "baselines are left out at 50 snippets" in caplog.text


def test_a_doubling_is_a_ratio_of_successive_sizes():
    """Of 10 to 80 snippets, three doublings, time grows eightfold and memory not at all."""
    assert doubling.factor(3.0, 24.0, 8) == pytest.approx(2.0)
    assert doubling.factor(5.0, 5.0, 8) == 1.0
    memory_of = growth.Memory(1, 1, 7, 7)
    small = growth.Grown(10, False, 1.0, 0.0, 1.0, 4.0, memory_of, 7, {"dense": timing.summary([2.0])}, 1.0)
    large = replace(small, snippets=80, write_s=8.0, optimize_s=3.0, search={"dense": timing.summary([16.0])})
    other = replace(small, snippets=40, quantized=True)
    (found,) = doubling.doublings([large, other, small])
    assert (found.start, found.end, found.quantized) == (10, 80, False)
    assert found.factors == {
        "write": 2.0,
        "disk": 2.0,
        "writer": 1.0,
        "reader": 1.0,
        "dense p50": 2.0,
        "dense p99": 2.0,
    }


def test_growth_is_plotted_by_size(grown, tmp_path):
    search, write, used = report.growth_panels(grown)
    assert set(search.lines) == {"bm25", "dense, fp32", "dense, int8", "hybrid, fp32", "hybrid, int8", "bm25s"} | {
        "filtered hybrid, fp32",
        "filtered hybrid, int8",
    }
    assert search.lines["bm25"] == [(50, grown[0].search["bm25"].p50)]
    assert write.lines["write and optimize, int8"] == [(50, grown[1].write_s + grown[1].optimize_s)]
    assert used.logarithmic
    write_plot(tmp_path / "growth.png", [search, write, used])
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_a_panel_may_have_logarithmic_axes(monkeypatch, tmp_path):
    from biorag.utils import plots

    kept, make = [], plots._figure
    monkeypatch.setattr(plots, "_figure", lambda width: kept.append(make(width)) or kept[-1])
    lines = {"a": [(1, 1.0), (100, 3.0)]}
    write_plot(tmp_path / "plot.png", [PlotPanel("", "", "", lines, logarithmic=True), PlotPanel("", "", "", lines)])
    assert [(axes.get_xscale(), axes.get_yscale()) for axes in kept[0].axes] == [("log", "log"), ("linear", "linear")]
