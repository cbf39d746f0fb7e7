"""The formulas of `biorag plan` against numbers worked out by hand, the files of machines, and the command."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from biorag.errors import BadInputError, MissingError
from biorag.scale.machine import MachineKind, Rates, load_machine, reference, write_machine
from biorag.scale.planning import Planner, Workload, sizes
from tests.cli import done, failed, invoke, succeeded

WORK = Workload(
    snippets=1_000_000,
    tokens=100,
    text_bytes=1000,
    terms=50,
    dimension=384,
    parameters=22_713_728,
    multiplied=10_000_000,
)
MEASURED = Rates(
    cores=2,
    multiplied=10_000_000,
    tokens=100.0,
    built=10_000,
    export_snippets_per_second=1000.0,
    prepare_snippets_per_second=500.0,
    encode_snippets_per_second=50.0,
    load_snippets_per_second=200.0,
    load_without_tokens_snippets_per_second=900.0,
    build_snippets_per_second=4000.0,
    question_milliseconds=5.0,
    first_stage_milliseconds_per_million=10.0,
)
MACHINE = MachineKind(name="m", cores=4, memory_gb=10.0, disk_gb=100.0)
LEAST = 'name = "m"\ncores = 4\nmemory_gb = 16\ndisk_gb = 100\n'
PREPARING = "prepare_snippets_per_second"


def planner(work: Workload = WORK, **machine) -> Planner:
    return Planner(work, MACHINE.model_copy(update=machine), MEASURED)


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


def test_a_rate_is_given_measured_or_in_proportion_to_cores_and_tokens():
    given = planner(rates=Rates(prepare_snippets_per_second=7)).rate(PREPARING)
    here = planner(rates=MEASURED, cores=2).rate(PREPARING)
    scaled = planner().rate(PREPARING)
    longer = planner(replace(WORK, tokens=200)).rate(PREPARING)
    rates = [(rate.value, rate.source) for rate in (given, here, scaled, longer)]
    assert rates == [(7, "given"), (500, "measured"), (1000, "computed"), (500, "computed")]


def test_loading_is_one_process_and_faster_without_token_vectors():
    kept = {kind: planner(replace(WORK, store_tokens=kind)).loading_rate().value for kind in ("none", "compact")}
    assert kept == {"none": 900, "compact": 200}


def test_a_cpu_encodes_in_inverse_proportion_to_the_operations():
    assert planner().encoding_rate().value == 100
    assert planner(replace(WORK, multiplied=40_000_000, tokens=50)).encoding_rate().value == 100 / 4 * 2


def test_a_gpu_encodes_by_its_operations_and_no_faster_than_the_cores_tokenize():
    gpus = {"gpus": 2, "gpu_tflops": 1.0, "gpu_utilisation": 0.5}
    rate = planner(**gpus, cores=400).encoding_rate()
    assert (rate.value, rate.source) == (2 * 1e12 * 0.5 / (2 * 10_000_000 * 100), "computed")
    slow = planner(**gpus, cores=1).encoding_rate()
    assert slow.value == 250
    assert "tokenize" in slow.basis
    with pytest.raises(BadInputError, match="gpu_tflops"):
        planner(gpus=1).encoding_rate()


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


def test_examples_and_the_packaged_measurement_are_read():
    examples = sorted((Path(__file__).parents[2] / "docs" / "machines").glob("*.toml"))
    assert [load_machine(path).count for path in examples] == [8, 8, 1]
    assert None not in reference().model_dump().values()


def test_a_written_machine_is_read_again(tmp_path):
    machine = MACHINE.model_copy(update={"name": 'quoted "name" é', "rates": MEASURED})
    write_machine(tmp_path / "m.toml", machine, "# heading\n")
    assert load_machine(tmp_path / "m.toml") == machine
    assert (tmp_path / "m.toml").read_text(encoding="utf-8").startswith("# heading\n")


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


@pytest.mark.models
def test_this_machine_is_measured_and_saved(tmp_path, tiny_encoder):
    saved = tmp_path / "here.toml"
    arguments = ("plan", "--snippets", 1000, "--encoder", tiny_encoder, "--measure", "--save", saved, "--json")
    (here,) = done(invoke(*arguments, home=tmp_path))["machines"]
    rates = load_machine(saved).rates
    assert (here["name"], rates.cores) == ("this machine", here["machine"]["cores"])
    assert here["stages"][2]["rate"]["basis"].startswith("measured on")
    assert rates.encode_snippets_per_second
    saved.write_text("of the user")
    failed(invoke(*arguments, home=tmp_path), 2, str(saved), "--force")


def test_wrong_usage_is_one_sentence(tmp_path):
    failed(invoke("plan", "--snippets", 5, home=tmp_path), 2, "--machine FILE.toml", "--measure")
    failed(invoke("plan", "--snippets", 5, "--save", "x", home=tmp_path), 2, "--save x", "add --measure")
