"""The formulas of `biorag plan` against numbers worked out by hand, the files of machines, and the command."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from biorag.errors import BadInputError, MissingError
from biorag.scale import planning
from biorag.scale.machine import MachineKind, Rates, load_machine
from biorag.scale.planning import Planner, Workload, sizes
from tests.cli import done, invoke, succeeded

WORK = Workload(
    snippets=1_000_000,
    tokens=100,
    text_bytes=1000,
    terms=50,
    dimension=384,
    parameters=22_713_728,
    multiplied=10_000_000,
)
MACHINE = MachineKind(name="m", cores=4, memory_gb=10.0, disk_gb=100.0)
LEAST = 'name = "m"\ncores = 4\nmemory_gb = 16\ndisk_gb = 100\n'


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """Round rates in place of the packaged ones."""
    rates = {"export": 1000.0, "prepare": 500.0, "encode": 50.0, "load": 200.0, "build": 4000.0}
    named = {f"{name}_snippets_per_second": rate for name, rate in rates.items()}
    questions = {"question_milliseconds": 5.0, "first_stage_milliseconds_per_million": 10.0}
    monkeypatch.setattr(planning, "MEASURED", Rates(**named, **questions))
    for name, value in (
        ("MULTIPLIED", 10_000_000),
        ("TOKENS", 100.0),
        ("BUILT", 10_000),
        ("LOADED_WITHOUT_TOKENS", 900),
    ):
        monkeypatch.setattr(planning, name, value)


def planner(work: Workload = WORK, **machine) -> Planner:
    return Planner(work, MACHINE.model_copy(update=machine))


# --- formulas ---


@pytest.mark.parametrize(
    ("changes", "dense", "searched", "tokens", "stored_tokens"),
    [
        ({}, 4 * 384, 4 * 384, 2 * 128 * 100, 128 * 100 / 2),
        ({"quantized": True, "store_tokens": "none"}, 5 * 384, 384, 0, 0),
        ({"on_disk": True, "store_tokens": "full"}, 4 * 384, 0, 768 * 100, 768 * 100),
    ],
)
def test_bytes_of_a_snippet(changes, dense, searched, tokens, stored_tokens):
    size = sizes(replace(WORK, **changes))
    assert size.exported == 1000 + 64 + 8
    assert size.encoded == 4 * 384 + 8 * 50 + 72 + tokens
    assert size.indexed == dense + 120 + 16 * 50 + 1000 + stored_tokens
    assert size.searched == searched + 760
    assert size.written == 429 + 384 * bool(changes.get("quantized"))


def test_memory_is_that_of_qdrants_rule_and_of_a_measured_million():
    """Vectors · dimension · 4 bytes · 1.5; docs/results/performance.md measured 2,351 MB less 55 MB before opening."""
    assert sizes(WORK).searched == 2_351 - 55
    assert sizes(WORK).searched == pytest.approx(384 * 4 * 1.5, rel=0.01)


def test_a_rate_is_given_or_in_proportion_to_cores_and_tokens():
    given = planner(rates=Rates(encode_snippets_per_second=7)).encode_rate()
    rates = [planner(replace(WORK, tokens=tokens), cores=cores).encode_rate() for tokens, cores in ((100, 4), (200, 8))]
    assert (given.value, given.source) == (7, "given")
    assert [(rate.value, rate.source) for rate in rates] == [(100, "computed"), (100, "computed")]
    assert planner(replace(WORK, tokens=200), cores=64).export_rate().value == 500, "one process"


def test_loading_is_one_process_and_faster_without_token_vectors():
    kept = {kind: planner(replace(WORK, store_tokens=kind)).load_rate().value for kind in ("none", "compact")}
    assert kept == {"none": 900, "compact": 200}


def test_a_cpu_encodes_in_inverse_proportion_to_the_operations():
    assert planner().encode_rate().value == 100
    assert planner(replace(WORK, multiplied=40_000_000, tokens=50)).encode_rate().value == 100 / 4 * 2


def test_a_gpu_encodes_by_its_operations_and_no_faster_than_the_cores_tokenize():
    gpus = {"gpus": 2, "gpu_tflops": 1.0, "gpu_utilisation": 0.5}
    rate = planner(**gpus, cores=400).encode_rate()
    assert (rate.value, rate.source) == (2 * 1e12 * 0.5 / (2 * 10_000_000 * 100), "computed")
    slow = planner(**gpus, cores=1).encode_rate()
    assert slow.value == 250
    assert "tokenize" in slow.basis


def test_a_graph_takes_n_log_n():
    whole, shards = planner()._stages()[3], planner(replace(WORK, shards=100))._stages()[3]
    assert whole.rate.value == pytest.approx(8000 * math.log(10_000) / math.log(1_000_000))
    assert shards.rate.value == pytest.approx(8000)


def test_a_plan_worked_out_by_hand():
    plan = planner(replace(WORK, queries_per_second=1000.0), count=2, price_per_hour=3.6).plan()
    seconds = {stage.name: stage.seconds for stage in plan.stages}
    assert seconds == {
        "export": 1_000_000 / 1000,
        "encode": 500_000 / 100,
        "load": 1_000_000 / 200,
        "build": pytest.approx(500_000 / (8000 * math.log(10_000) / math.log(500_000))),
    }
    assert plan.bottleneck.startswith("encode")
    assert plan.seconds == sum(seconds.values())
    assert plan.cost == pytest.approx(sum(seconds.values()) / 3600 * 2 * 3.6)
    assert [stage.memory_bytes for stage in plan.stages[2:]] == [1.1e9 + 500_000 * 429] * 2
    assert plan.search.memory_bytes == 1_000_000 * 2296
    assert plan.search.question_ms == 5 + 10 / 2
    assert plan.search.questions_per_second == pytest.approx(8 * 1000 / 15)
    assert plan.machines == {"memory, searching": 1, "disk": 1, "questions": math.ceil(1000 * 0.015 / 4)}
    assert plan.needed == 4
    assert [note for note in plan.notes if "4 machines are needed" in note]


def test_replicas_are_built_and_held_too():
    one, two = (planner(replace(WORK, replicas=replicas)).plan() for replicas in (1, 2))
    assert two.stages[3].seconds == 2 * one.stages[3].seconds
    assert two.search.memory_bytes == 2 * one.search.memory_bytes
    assert [stage.seconds for stage in two.stages[:3]] == [stage.seconds for stage in one.stages[:3]]


@pytest.mark.parametrize(
    ("machine", "work", "note"),
    [({"memory_gb": 1.0}, {}, "loading takes more memory"), ({"count": 3}, {"shards": 1}, "1 of 3 machines hold")],
)
def test_machines_that_do_not_fit_are_noted(machine, work, note):
    assert [line for line in planner(replace(WORK, **work), **machine).plan().notes if note in line]
    assert not [line for line in planner().plan().notes if note in line]


# --- files of machines ---


def test_examples_are_read():
    examples = sorted((Path(__file__).parents[2] / "docs" / "machines").glob("*.toml"))
    assert [load_machine(path).count for path in examples] == [8, 8, 1]


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("memry_gb = 3\n", ["'memry_gb'", "did you mean memory_gb?"]),
        ("[rates]\nencode_per_second = 3\n", ["'rates.encode_per_second'", "did you mean encode_snippets_per_second?"]),
        ("count = 0\n", ["count = 0", "greater than or equal to 1"]),
        ("gpus = 2\n", ["gpus = 2", "gpu_tflops"]),
    ],
)
def test_a_faulty_file_is_refused(tmp_path, lines, parts):
    path = tmp_path / "m.toml"
    path.write_text(LEAST + lines)
    with pytest.raises(BadInputError) as error:
        load_machine(path)
    assert [part for part in [str(path), *parts] if part not in str(error.value)] == [], str(error.value)


def test_a_missing_key_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "m.toml").write_text('name = "m"\n')
    with pytest.raises(BadInputError, match="cores is missing"):
        load_machine(tmp_path / "m.toml")
    with pytest.raises(MissingError, match=r"--machine .*none\.toml is not there: docs/machines"):
        load_machine(tmp_path / "none.toml")


# --- the command ---


def test_the_command_as_json_and_as_a_table(tmp_path):
    machine = tmp_path / "m.toml"
    machine.write_text(LEAST + "price_per_hour = 2\n[rates]\nexport_snippets_per_second = 1000\n")
    arguments = ("plan", "--snippets", 36_000, "--machine", machine)
    report = done(invoke(*arguments, "--parameters", 1e8, "--quantize", "--json", home=tmp_path))
    assert (report["workload"]["dimension"], report["workload"]["parameters"]) == (384, 1e8)
    export = report["machines"][0]["stages"][0]
    assert export["rate"] == {"value": 1000, "source": "given", "basis": "export_snippets_per_second under [rates]"}
    assert (export["seconds"], export["cost"]) == (36, 0.02)
    assert report["machines"][0]["search"]["memory_bytes"] == 36_000 * (384 + 760)
    lines = [line.split("\t") for line in succeeded(invoke(*arguments, home=tmp_path)).stdout.splitlines()]
    rows = {title: cells for title, *cells in lines[2:]}
    assert rows["export: snippets/s a machine"] == ["1,000 (g)"]
    assert rows["export: time"] == ["36 s"]
