"""The formulas of `biorag plan` against numbers worked out by hand, the files of machines, and the command."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from biorag.errors import BadInputError, MissingError
from biorag.lab.scale import planning
from biorag.lab.scale.planning import MachineKind, load_machine, plan, sizes, stage_rates
from tests.cli import done, invoke, succeeded

WORK = planning.Workload(1_000_000, tokens=100, dimension=384, parameters=22_713_728, multiplied=10_000_000)
MACHINE = MachineKind(name="m", cores=4, memory_gb=10.0, disk_gb=100.0)
LEAST = 'name = "m"\ncores = 4\nmemory_gb = 16\ndisk_gb = 100\n'
ENCODE = "encode_snippets_per_second"


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """Round rates in place of the packaged ones."""
    rates = {"export": 1000.0, "prepare": 500.0, "encode": 50.0, "load": 200.0, "build": 4000.0}
    replaced = {
        "MEASURED": {
            **{f"{name}_snippets_per_second": rate for name, rate in rates.items()},
            **{"question_milliseconds": 5.0, "first_stage_milliseconds_per_million": 10.0},
        },
        **{"MULTIPLIED": 10_000_000, "TOKENS": 100.0, "BUILT": 10_000, "LOADED_WITHOUT_TOKENS": 900},
        **{"TEXT_BYTES": 10, "TERMS": 0.5},
    }
    for name, value in replaced.items():
        monkeypatch.setattr(planning, name, value)


@pytest.mark.parametrize(
    ("changes", "dense", "searched", "tokens", "stored_tokens"),
    [
        ({}, 4 * 384, 4 * 384, 2 * 128 * 100, 128 * 100 / 2),
        ({"quantized": True, "store_tokens": "none"}, 5 * 384, 384, 0, 0),
        ({"store_tokens": "full"}, 4 * 384, 4 * 384, 768 * 100, 768 * 100),
    ],
)
def test_bytes_of_a_snippet(changes, dense, searched, tokens, stored_tokens):
    """In memory a million took 2,351 MB less 55 MB before opening (docs/experiments/growth.md)."""
    size = sizes(replace(WORK, **changes))
    assert size.exported == 1000 + 64 + 8
    assert size.encoded == 4 * 384 + 8 * 50 + 72 + tokens
    assert size.indexed == dense + 120 + 16 * 50 + 1000 + stored_tokens
    assert size.searched == searched + 760
    assert size.written == 429 + 384 * bool(changes.get("quantized"))


GPUS = {"gpus": 2, "gpu_tflops": 1.0, "gpu_utilisation": 0.5}


@pytest.mark.parametrize(
    ("stage", "machine", "work", "rate"),
    [
        ("encode", {"rates": {ENCODE: 7}}, {}, (7, "given")),
        ("encode", {}, {}, (100, "computed")),
        ("encode", {"cores": 8}, {"tokens": 50, "multiplied": 40_000_000}, (100, "computed")),
        ("export", {"cores": 64}, {"tokens": 200}, (500, "computed")),
        ("load", {}, {"store_tokens": "none"}, (900, "computed")),
        ("load", {}, {"store_tokens": "compact"}, (200, "computed")),
        ("encode", {**GPUS, "cores": 400}, {}, (2 * 1e12 * 0.5 / (2 * 10_000_000 * 100), "computed")),
        ("encode", {**GPUS, "cores": 1}, {}, (250, "computed")),
        ("encode", {**GPUS, "rates": {ENCODE: 7}}, {}, (14, "given")),
        ("build", {}, {}, (8000 * math.log(10_000) / math.log(1_000_000), "computed")),
        ("build", {"count": 100}, {}, (8000, "computed")),
    ],
)
def test_a_rate_is_given_or_in_proportion_to_cores_tokens_and_operations(stage, machine, work, rate):
    """GPUs encode no faster than the cores tokenize; a graph takes n log n; exporting and loading are one process."""
    value, source = stage_rates(replace(WORK, **work), MACHINE.model_copy(update=machine))[stage]
    assert (value, source) == (pytest.approx(rate[0]), rate[1])


def test_a_plan_worked_out_by_hand():
    computed = plan(WORK, MACHINE.model_copy(update={"count": 2, "price_per_hour": 3.6, "memory_gb": 1.0}))
    seconds = {stage["name"]: stage["seconds"] for stage in computed["stages"]}
    assert seconds == {
        "export": 1_000_000 / 1000,
        "encode": 500_000 / 100,
        "load": 1_000_000 / 200,
        "build": pytest.approx(500_000 / (8000 * math.log(10_000) / math.log(500_000))),
    }
    assert (computed["bottleneck"], computed["seconds"]) == ("encode", sum(seconds.values()))
    assert computed["cost"] == pytest.approx(sum(seconds.values()) / 3600 * 2 * 3.6)
    memory = [stage["memory_bytes"] for stage in computed["stages"][1:]]
    assert memory == [4 * 1.397e9, *([1.1e9 + 500_000 * 429] * 2)]
    assert (computed["search"]["memory_bytes"], computed["search"]["question_ms"]) == (1_000_000 * 2296, 5 + 10 / 2)
    assert (computed["machines"], computed["needed"]) == ({"memory": math.ceil(2.296 / 0.8), "disk": 1}, 3)


def test_files_of_machines(tmp_path):
    examples = sorted((Path(__file__).parents[3] / "docs" / "machines").glob("*.toml"))
    assert [load_machine(path).count for path in examples] == [8, 8, 1, 1, 1]
    path = tmp_path / "m.toml"
    for lines, message in (
        ("memry_gb = 3\n", "memry_gb"),
        ("[rates]\nencode_per_second = 3\n", r"rates\.encode_per_second"),
        ("count = 0\n", "count.*greater than or equal to 1"),
        ("gpus = 2\n", "gpus = 2 .*gpu_tflops"),
    ):
        path.write_text(LEAST + lines)
        with pytest.raises(BadInputError, match=rf"--machine {path}.*{message}"):
            load_machine(path)
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
