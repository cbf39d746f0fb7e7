"""The formulas of `biorag plan` against numbers worked out by hand, the files of machines, and the command."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from biorag.errors import BadInputError, MissingError
from biorag.lab.scale import planning
from biorag.lab.scale.planning import MachineKind, Rates, load_machine, plan, sizes, stage_rates
from tests.cli import done, invoke, succeeded

WORK = planning.Workload(1_000_000, tokens=100, dimension=384, parameters=22_713_728, multiplied=10_000_000)
MACHINE = MachineKind(name="m", cores=4, memory_gb=10.0, disk_gb=100.0)
LEAST = 'name = "m"\ncores = 4\nmemory_gb = 16\ndisk_gb = 100\n'


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """Round rates in place of the packaged ones."""
    rates = {"export": 1000.0, "prepare": 500.0, "encode": 50.0, "load": 200.0, "build": 4000.0}
    named = {f"{name}_snippets_per_second": rate for name, rate in rates.items()}
    questions = {"question_milliseconds": 5.0, "first_stage_milliseconds_per_million": 10.0}
    monkeypatch.setattr(planning, "MEASURED", Rates(**named, **questions))
    replaced = {
        "MULTIPLIED": 10_000_000,
        "TOKENS": 100.0,
        "BUILT": 10_000,
        "LOADED_WITHOUT_TOKENS": 900,
        "TEXT_BYTES": 10,
        "TERMS": 0.5,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(planning, name, value)


def rates_of(machine=None, **work):
    """Rates of the workload with changes on the machine with changes."""
    return stage_rates(replace(WORK, **work), MACHINE.model_copy(update=machine or {}))


@pytest.mark.parametrize(
    ("changes", "dense", "searched", "tokens", "stored_tokens"),
    [
        ({}, 4 * 384, 4 * 384, 2 * 128 * 100, 128 * 100 / 2),
        ({"quantized": True, "store_tokens": "none"}, 5 * 384, 384, 0, 0),
        ({"store_tokens": "full"}, 4 * 384, 4 * 384, 768 * 100, 768 * 100),
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
    """Vectors · dimension · 4 bytes · 1.5; docs/experiments/growth.md measured 2,351 MB less 55 MB before opening."""
    assert sizes(WORK).searched == 2_351 - 55
    assert sizes(WORK).searched == pytest.approx(384 * 4 * 1.5, rel=0.01)


def test_a_rate_is_given_or_in_proportion_to_cores_tokens_and_parameters():
    assert rates_of({"rates": Rates(encode_snippets_per_second=7)})["encode"] == (7, "given")
    assert rates_of()["encode"] == (100, "computed")
    assert rates_of({"cores": 8}, tokens=50, multiplied=40_000_000)["encode"].value == 50 * 4 * 2 / 4
    assert rates_of({"cores": 64}, tokens=200)["export"].value == 500, "one process"
    assert [rates_of(store_tokens=kind)["load"].value for kind in ("none", "compact")] == pytest.approx([900, 200])


def test_a_gpu_encodes_by_its_operations_and_no_faster_than_the_cores_tokenize():
    gpus = {"gpus": 2, "gpu_tflops": 1.0, "gpu_utilisation": 0.5}
    assert rates_of({**gpus, "cores": 400})["encode"] == (2 * 1e12 * 0.5 / (2 * 10_000_000 * 100), "computed")
    assert rates_of({**gpus, "cores": 1})["encode"].value == 250
    assert rates_of({**gpus, "rates": Rates(encode_snippets_per_second=7)})["encode"] == (14, "given")


def test_a_graph_takes_n_log_n():
    assert rates_of()["build"].value == pytest.approx(8000 * math.log(10_000) / math.log(1_000_000))
    assert rates_of({"count": 100})["build"].value == pytest.approx(8000)


def test_a_plan_worked_out_by_hand():
    computed = plan(WORK, MACHINE.model_copy(update={"count": 2, "price_per_hour": 3.6, "memory_gb": 1.0}))
    seconds = {stage.name: stage.seconds for stage in computed.stages}
    assert seconds == {
        "export": 1_000_000 / 1000,
        "encode": 500_000 / 100,
        "load": 1_000_000 / 200,
        "build": pytest.approx(500_000 / (8000 * math.log(10_000) / math.log(500_000))),
    }
    assert computed.bottleneck == "encode"
    assert computed.seconds == sum(seconds.values())
    assert computed.cost == pytest.approx(sum(seconds.values()) / 3600 * 2 * 3.6)
    assert [stage.memory_bytes for stage in computed.stages[1:]] == [4 * 1.397e9, *([1.1e9 + 500_000 * 429] * 2)]
    assert computed.search.memory_bytes == 1_000_000 * 2296
    assert computed.search.question_ms == 5 + 10 / 2
    assert computed.machines == {"memory": math.ceil(2.296 / 0.8), "disk": 1}
    assert computed.needed == 3


def test_examples_are_read():
    examples = sorted((Path(__file__).parents[3] / "docs" / "machines").glob("*.toml"))
    assert [load_machine(path).count for path in examples] == [8, 8, 1, 1, 1]


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("memry_gb = 3\n", ["memry_gb"]),
        ("[rates]\nencode_per_second = 3\n", ["rates.encode_per_second"]),
        ("count = 0\n", ["count", "greater than or equal to 1"]),
        ("gpus = 2\n", ["gpus = 2", "gpu_tflops"]),
    ],
)
def test_a_faulty_file_is_refused(tmp_path, lines, parts):
    path = tmp_path / "m.toml"
    path.write_text(LEAST + lines)
    with pytest.raises(BadInputError) as error:
        load_machine(path)
    assert [part for part in [str(path), *parts] if part not in str(error.value)] == [], str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingError, match=r"--machine .*none\.toml is not there: docs/machines"):
        load_machine(tmp_path / "none.toml")


def test_the_command_as_json_and_as_a_table(tmp_path):
    machine = tmp_path / "m.toml"
    machine.write_text(LEAST + "price_per_hour = 2\n[rates]\nexport_snippets_per_second = 1000\n")
    arguments = ("plan", "--snippets", 36_000, "--machine", machine)
    report = done(invoke(*arguments, "--quantize", "--json", home=tmp_path))
    assert report["workload"]["dimension"] == 384
    export = report["machines"][0]["stages"][0]
    assert (export["rate"], export["source"], export["seconds"], export["cost"]) == (1000, "given", 36, 0.02)
    assert report["machines"][0]["search"]["memory_bytes"] == 36_000 * (384 + 760)
    lines = [line.split("\t") for line in succeeded(invoke(*arguments, home=tmp_path)).stdout.splitlines()]
    rows = {title: cells for title, *cells in lines[2:]}
    assert rows["export: snippets/s a machine"] == ["1,000 (g)"]
    assert rows["export: time"] == ["36 s"]
