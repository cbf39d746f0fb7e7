"""scripts/measure: costs of processes, workers, order, ratios, synthetic snippets, growth, other packages."""

from __future__ import annotations

import gzip
import json
import os
import sys
from argparse import Namespace
from statistics import median

import numpy as np
import pytest

from biorag.benchmarks.latency.stages import KnownVectors
from biorag.benchmarks.latency.timing import Repetition, collect
from biorag.corpus.sentences import sentences
from biorag.indexes.manifest import Bm25Parameters, Manifest
from scripts.measure import growth, peers, synthetic
from scripts.measure.checkouts import ROOT, Checkout, data_of, python_command
from scripts.measure.indexing import COMPACT, WITHOUT, Indexed
from scripts.measure.indexing import rows_of as indexing_rows
from scripts.measure.paired import rows_of as paired_rows
from scripts.measure.processes import Cost, Worker, alternate, run
from scripts.measure.summary import markdown, ratio
from scripts.measure.warm import System, ask_all, stage_rows
from scripts.measure.warm import rows_of as warm_rows
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


def test_sleeping_takes_no_processor_time():
    cost = run([*PYTHON, "import time; time.sleep(1)"], ENVIRONMENT).cost
    assert cost.wall_s >= 1 > cost.cpu_s


def test_output_of_a_process_and_its_error():
    finished = run([*PYTHON, "import sys; print('out'); sys.stderr.write('err')"], ENVIRONMENT)
    assert (finished.stdout, finished.stderr) == ("out\n", "err")
    with pytest.raises(RuntimeError, match="exited with 3:\nthe reason"):
        run([*PYTHON, "import sys; sys.stderr.write('the reason'); sys.exit(3)"], ENVIRONMENT)


def test_worker_answers_and_keeps_what_libraries_print_apart():
    with Worker([*PYTHON, ECHO], ENVIRONMENT) as worker:
        assert [worker.ask(number=number) for number in (1, 2)] == [{"twice": 2}, {"twice": 4}]


def test_worker_that_fails_says_why():
    with Worker([*PYTHON, ECHO], ENVIRONMENT) as worker, pytest.raises(RuntimeError, match="no such question"):
        worker.ask(fail=True)


def test_tasks_run_once_a_round_in_turning_order():
    order: list[str] = []
    tasks = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    assert alternate(tasks, 3) == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}
    assert "".join(order) == "abccbaabc"


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


def test_markdown_rounds_numbers():
    assert markdown(["a", "b"], [["x", 1234.5], [3, 0.012345]]) == (
        "| a | b |\n| --- | --- |\n| x | 1,234 |\n| 3 | 0.0123 |\n"
    )


def test_checkout_is_imported_before_this_one_and_its_bytecode_is_kept_apart(tmp_path):
    package = tmp_path / "other" / "biorag"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import os, biorag; print(biorag.__file__, os.environ['BIORAG_HOME'])")
    checkout = Checkout("base", package.parent, tmp_path / "work")
    home = tmp_path / "home"
    printed = checkout.run(["biorag"], home).stdout
    assert printed == f"{package / '__init__.py'} {home}\n"
    assert checkout.run(["python", "-c", "import scripts.measure as m; print(m.__file__)"], home).stdout == (
        f"{ROOT / 'scripts' / 'measure' / '__init__.py'}\n"
    )
    assert not list(package.rglob("*.pyc"))


def test_commands_of_other_programs_stay():
    assert python_command(["ls", "-l"]) == ["ls", "-l"]
    assert python_command(["biorag", "search"]) == [sys.executable, "-m", "biorag", "search"]


def test_subset_of_the_snippets_and_questions_spread_over_all(tmp_path):
    (tmp_path / "pubmed").mkdir()
    (tmp_path / "bioasq").mkdir()
    lines = [json.dumps({"id": str(n)}) + "\n" for n in range(9)]
    (tmp_path / "pubmed" / "snippets.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    questions = "".join(json.dumps({"_id": str(n), "text": f"question {n}"}) + "\n" for n in range(10))
    (tmp_path / "bioasq" / "queries.jsonl").write_text(questions)
    data = data_of(Namespace(data=tmp_path, work=tmp_path / "work"))
    assert data.corpus(4).read_text() == "".join(lines[:4])
    assert data.corpus(None) == tmp_path / "pubmed" / "snippets.jsonl.gz"
    assert data.questions(3) == ["question 0", "question 3", "question 6"]
    assert len(data.questions(20)) == 10


def test_rows_of_a_pair_are_medians_and_their_ratio():
    costs = {"base": [Cost(4, 2, 100), Cost(6, 4, 100)], "new": [Cost(1, 1, 50), Cost(3, 2, 50)]}
    rows = [(figure, base, new, cell.value) for figure, base, new, cell in paired_rows(costs)]
    assert rows == [("wall, s", 5, 2, 0.4), ("CPU, s", 3, 1.5, 0.5), ("peak memory, MB", 100, 50, 0.5)]


def test_rows_of_indexing_are_rates_costs_and_the_ratio_to_no_tokens():
    runs = {
        COMPACT: [Indexed(Cost(30, 40, 900), 1000, 20, 8_000_000)],
        WITHOUT: [Indexed(Cost(26, 36, 800), 1000, 16, 3_000_000)],
    }
    compact, without = indexing_rows(runs)
    assert [compact[:-1], compact[-1].value] == [[COMPACT, 1000, 50, 40, 40, 900, 8000], 0.8]
    assert [without[:-1], without[-1].value] == [[WITHOUT, 1000, 62.5, 36, 36, 800, 3000], 1]


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


def test_rows_of_warm_questions():
    def answers(*milliseconds: float):
        return [{"ms": ms, "cpu_ms": ms / 2, "stages": {"encode": 1.0, "rerank": ms - 1}} for ms in milliseconds]

    of_systems = {
        System("base", 20): answers(100, 110, 90),
        System("base", 100): answers(400, 400, 400),
        System("new", 20): answers(10, 12, 11),
        System("new", 100): answers(15, 12, 22),
    }
    *_, few, many = warm_rows(of_systems, "base")
    assert few[:5] == ["new", 20, 11, pytest.approx(float(np.percentile([10, 12, 11], 99))), 5.5]
    assert [few[5].value, few[6].value] == [0.11, 1]
    assert [many[5].value, many[6].value] == [15 / 400, 15 / 11]
    assert stage_rows(of_systems)[-1] == ["new", 100, 1.0, 14]


# --- synthetic snippets and growth ---


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


def test_a_smaller_corpus_is_the_start_of_a_larger_one(corpus, snippets):
    again = synthetic.SyntheticCorpus(snippets, HashEncoder(), seed=1, encoded=10)
    large, size = 2 * synthetic.BATCH + 7, synthetic.BATCH + 5
    assert list(corpus.snippets(large))[:size] == list(again.snippets(size))
    whole, part = np.concatenate(list(corpus.vectors(large))), np.concatenate(list(again.vectors(size)))
    assert whole.shape == (large, 64)
    np.testing.assert_array_equal(whole[:size], part)


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


def test_recall_is_the_mean_share_retrieved():
    assert synthetic.recall([["a", "b"], ["c", "x"]], [["b", "a"], ["c", "d"]]) == 0.75


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


def test_a_doubling_is_a_ratio_of_successive_sizes():
    """Of 10 to 80 snippets, three doublings, time grows eightfold and memory not at all."""
    sizes = [
        {"snippets": 10, "write_s": 3.0, "reader": 5, "recall": 1.0},
        {"snippets": 80, "write_s": 24.0, "reader": 5},
    ]
    assert growth.doublings(sizes) == [["write_s", pytest.approx(2.0)], ["reader", 1.0]]


# --- other packages ---


def test_functions_take_turns_at_being_first():
    calls = []
    functions = {name: lambda turn, name=name: calls.append((turn, name)) for name in ("ours", "theirs")}
    collect(peers.interleaved(functions), Repetition(4, 0, 10))
    assert [name for _, name in calls] == ["ours", "theirs", "theirs", "ours"] * 2


@pytest.mark.parametrize("build", [peers.rank_bm25_search, peers.bm25s_search])
def test_bm25_peers_find_each_snippet_by_its_text(build, snippets):
    search = build([snippet.id for snippet in snippets], [snippet.contents for snippet in snippets])
    assert [search(snippet.contents)[0] for snippet in snippets] == [snippet.id for snippet in snippets]


def test_qdrants_local_mode_is_brute_force():
    rng = np.random.default_rng(0)
    vectors, queries = (rng.standard_normal((count, 16)).astype(np.float32) for count in (300, 5))
    ids = [f"s{row}" for row in range(300)]
    peer = peers.QdrantLocal(ids, vectors, "dot")
    expected = [[ids[row] for row in rows] for rows in synthetic.exact_top(vectors, queries, 10)]
    assert [peer.search(query) for query in queries] == expected
