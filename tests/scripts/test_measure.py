"""What the measurements share: costs of processes, workers, order, ratios, imports, control groups."""

from __future__ import annotations

import gzip
import json
import os
import sys
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from scripts.measure.busy import IDLE, PINNED, QUOTA, Rates, rows_of
from scripts.measure.checkouts import ROOT, Checkout, data_of, python_command
from scripts.measure.cold import BM25, heavy_imports, multiples_of
from scripts.measure.contention import SPIN, ControlGroup, UnavailableError, neighbours
from scripts.measure.indexing import COMPACT, WITHOUT, Indexed
from scripts.measure.indexing import rows_of as indexing_rows
from scripts.measure.paired import rows_of as paired_rows
from scripts.measure.peers import rerank_all, rerank_rows
from scripts.measure.processes import Cost, Worker, alternate, run
from scripts.measure.summary import markdown, ratio
from scripts.measure.warm import System, ask_all, stage_rows
from scripts.measure.warm import rows_of as warm_rows

PYTHON = [sys.executable, "-c"]
ORDER = [("ours", "one"), ("theirs", "one"), ("theirs", "two"), ("ours", "two")]
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


def test_heavy_libraries_are_read_from_import_times():
    shown = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:        12 |         12 |   torch._C\n"
        "import time:         3 |          3 | torchvision\n"
        "a line of the program | with scipy | scipy\n"
        "import time:         5 |          5 |     sklearn\n"
    )
    assert heavy_imports(shown) == ["torch", "sklearn"]


def test_multiples_are_of_the_bm25_search():
    costs = {("new", BM25): [Cost(1, 0.5, 90)], ("new", "search"): [Cost(1, 1.0, 90)]}
    assert [(name, command, cell.value) for name, command, cell in multiples_of(costs)] == [("new", "`search`", 2.0)]


def test_rows_of_a_busy_machine_have_each_their_reference():
    results = {(IDLE, "new"): [Rates(100, 10)], (PINNED, "new"): [Rates(50, 8)], (QUOTA, "new"): [Rates(25, 8)]}
    assert rows_of(results, ["new"]) == [
        [IDLE, IDLE, 100, 1, 10, 1],
        [PINNED, IDLE, 50, 0.5, 8, 0.8],
        [QUOTA, PINNED, 25, 0.5, 8, 1],
    ]


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


def test_rerankers_get_the_same_candidates_in_turning_order():
    seen: list[tuple[str, str, tuple[str, ...]]] = []

    def reranker(name: str):
        def rerank(question, texts):
            seen.append((name, question, tuple(texts)))
            return {name: float(len(seen))}

        return rerank

    times = rerank_all(Answering([], "first stage"), [reranker("ours"), reranker("theirs")], ["one", "two"])
    assert seen[:4] == [(name, question, ("a", "b")) for name, question in ORDER]
    assert times == {"ours": [5.0, 8.0], "theirs": [6.0, 7.0]}


def test_rows_of_rerankers_are_multiples_of_the_default():
    times = {"biorag, its default index": [2.0, 4.0, 3.0], "PyLate": [30.0, 33.0, 36.0]}
    assert [(row[0], row[1], row[2], row[4]) for row in rerank_rows(times)] == [
        ("biorag, its default index", 3, 3.0, 1.0),
        ("PyLate", 3, 33.0, 11.0),
    ]


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_neighbours_run_within_the_block_alone():
    before = children()
    with neighbours(SPIN, 2):
        assert len(children() - before) == 2
    assert children() == before


@contextmanager
def hierarchy(folder: Path, kind: str, flags: str, controllers: str | None):
    folder.mkdir()
    if controllers is not None:
        (folder / "cgroup.controllers").write_text(controllers)
    mounts = folder.parent / "mounts"
    mounts.write_text(f"tmpfs /tmp tmpfs rw 0 0\ncgroup {folder} {kind} {flags} 0 0\n")
    yield mounts


def test_control_group_of_version_2(tmp_path):
    with hierarchy(tmp_path / "unified", "cgroup2", "rw", "cpuset cpu memory") as mounts:
        group = ControlGroup(1.5, mounts)
    assert (group.folder / "cpu.max").read_text() == "150000 100000"
    assert (tmp_path / "unified" / "cgroup.subtree_control").read_text() == "+cpu"
    assert group.within(["true"])[-2:] == [str(group.folder / "cgroup.procs"), "true"]


def test_control_group_of_version_1(tmp_path):
    with hierarchy(tmp_path / "cpu", "cgroup", "rw,relatime,cpu,cpuacct", None) as mounts:
        group = ControlGroup(1, mounts)
    assert (group.folder / "cpu.cfs_quota_us").read_text() == "100000"


def test_no_control_group_without_the_controller(tmp_path):
    with (
        hierarchy(tmp_path / "unified", "cgroup2", "rw", "memory") as mounts,
        pytest.raises(UnavailableError, match="no mounted control groups have the cpu controller"),
    ):
        ControlGroup(1, mounts)
