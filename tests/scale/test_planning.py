"""The formulas of `biorag plan`, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from biorag.errors import BadInputError
from biorag.scale.machine import Machine, Measured, Rates
from biorag.scale.planning import building_rate, encoding_rate, plan, rate_of
from biorag.scale.sizes import Workload, sizes

WORK = Workload(
    snippets=1_000_000,
    tokens=100,
    text_bytes=1000,
    terms=50,
    dimension=384,
    parameters=22_713_728,
    multiplied=10_000_000,
)
MEASURED = Measured(
    processor="CPU",
    cores=2,
    multiplied=10_000_000,
    tokens=100.0,
    store_tokens=True,
    built=10_000,
    export_snippets_per_second=1000.0,
    prepare_snippets_per_second=500.0,
    encode_snippets_per_second=50.0,
    load_snippets_per_second=200.0,
    build_snippets_per_second=4000.0,
    question_milliseconds=5.0,
    first_stage_milliseconds_per_million=10.0,
)
MACHINE = Machine(name="m", cores=4, memory_gb=10.0, disk_gb=100.0)


def test_bytes_of_a_snippet():
    size = sizes(WORK)
    assert size.exported == 1000 + 64 + 8
    assert size.encoded == 4 * 384 + 8 * 50 + 72 + 2 * 128 * 100
    assert size.sent == pytest.approx(1000 + 20 * (384 + 2 * 50) + 9.4 * 128 * 100)
    assert size.indexed == 4 * 384 + 120 + 16 * 50 + 1000 + 128 * 100 / 2
    assert size.searched == 4 * 384 + 760
    assert size.written == 429


@pytest.mark.parametrize(
    ("changes", "searched"),
    [
        ({"quantized": True}, 384 + 760),
        ({"on_disk": True}, 760),
        ({"on_disk": True, "quantized": True}, 384 + 760),
    ],
)
def test_memory_holds_vectors_their_copies_or_neither(changes, searched):
    assert sizes(replace(WORK, **changes)).searched == searched


@pytest.mark.parametrize(("kept", "encoded", "indexed"), [("none", 0, 0), ("full", 768 * 100, 768 * 100)])
def test_bytes_of_token_vectors(kept, encoded, indexed):
    size = sizes(replace(WORK, store_tokens=kept))
    assert size.encoded == 4 * 384 + 8 * 50 + 72 + encoded
    assert size.indexed == 4 * 384 + 120 + 16 * 50 + 1000 + indexed


def test_memory_is_that_of_qdrants_rule_and_of_a_measured_million():
    """Vectors · dimension · 4 bytes · 1.5; docs/results/performance.md measured 2,351 MB less 55 MB before opening."""
    assert sizes(WORK).searched == 2_351 - 55
    assert sizes(WORK).searched == pytest.approx(384 * 4 * 1.5, rel=0.01)


def test_a_rate_is_given_measured_or_in_proportion_to_cores_and_tokens():
    name = "export_snippets_per_second"
    given = rate_of(name, WORK, MACHINE.model_copy(update={"rates": Rates(export_snippets_per_second=7)}), MEASURED)
    here = rate_of(name, WORK, MACHINE.model_copy(update={"measured": MEASURED, "cores": 2}), MEASURED)
    scaled = rate_of(name, WORK, MACHINE, MEASURED)
    longer = rate_of(name, replace(WORK, tokens=200), MACHINE, MEASURED)
    assert rate_of("load_snippets_per_second", WORK, MACHINE, MEASURED).value == 200, "one process loads"
    found = [(figure.value, figure.source) for figure in (given, here, scaled, longer)]
    assert found == [(7, "given"), (1000, "measured"), (2000, "computed"), (1000, "computed")]


def test_loading_without_token_vectors_has_a_rate_of_its_own():
    measured = MEASURED.model_copy(update={"load_without_tokens_snippets_per_second": 900.0})
    kept = {kind: replace(WORK, store_tokens=kind) for kind in ("none", "compact", "full")}
    rates = {kind: rate_of("load_snippets_per_second", work, MACHINE, measured).value for kind, work in kept.items()}
    assert rates == {"none": 900, "compact": 200, "full": 200}


def test_a_cpu_encodes_in_inverse_proportion_to_the_operations():
    assert encoding_rate(WORK, MACHINE, MEASURED).value == 100
    other = replace(WORK, multiplied=40_000_000, tokens=50)
    assert encoding_rate(other, MACHINE, MEASURED).value == 100 / 4 * 2


def test_a_gpu_encodes_by_its_operations_and_no_faster_than_the_cores_tokenize():
    machine = MACHINE.model_copy(update={"gpus": 2, "gpu_tflops": 1.0, "gpu_utilisation": 0.5, "cores": 400})
    rate = encoding_rate(WORK, machine, MEASURED)
    assert (rate.value, rate.source) == (2 * 1e12 * 0.5 / (2 * 10_000_000 * 100), "computed")
    slow = encoding_rate(WORK, machine.model_copy(update={"cores": 1}), MEASURED)
    assert slow.value == 250
    assert "tokenize" in slow.basis


def test_the_rate_of_a_gpu_is_needed():
    with pytest.raises(BadInputError, match="gpu_tflops"):
        encoding_rate(WORK, MACHINE.model_copy(update={"gpus": 1}), MEASURED)


def test_a_graph_takes_n_log_n():
    rate = building_rate(WORK, MACHINE, MEASURED)
    assert rate.value == pytest.approx(8000 * math.log(10_000) / math.log(1_000_000))
    shards = building_rate(replace(WORK, shards=100), MACHINE, MEASURED)
    assert shards.value == pytest.approx(8000)


def test_a_plan_worked_out_by_hand():
    machine = MACHINE.model_copy(update={"count": 2, "price_per_hour": 3.6})
    found = plan(replace(WORK, queries_per_second=1000.0), machine, MEASURED)
    seconds = {stage.name: stage.seconds.value for stage in found.stages}
    assert seconds == {
        "export": 500_000 / 2000,
        "encode": 500_000 / 100,
        "load": 1_000_000 / 200,
        "build": pytest.approx(500_000 / (8000 * math.log(10_000) / math.log(500_000))),
    }
    assert found.bottleneck.startswith("encode")
    assert found.seconds.value == sum(seconds.values())
    assert found.cost is not None
    assert found.cost.value == pytest.approx(sum(seconds.values()) / 3600 * 2 * 3.6)
    assert [stage.memory_bytes.value for stage in found.stages[2:]] == [1.1e9 + 500_000 * 429] * 2
    assert found.search.memory_bytes.value == 1_000_000 * 2296
    assert found.search.question_ms.value == 5 + 10 / 2
    assert found.search.questions_per_second.value == pytest.approx(8 * 1000 / 15)
    assert {name: figure.value for name, figure in found.machines.items()} == {
        "memory, searching": 1,
        "disk": 1,
        "questions": math.ceil(1000 * 0.015 / 4),
    }
    assert found.needed == 4
    assert [note for note in found.notes if "4 machines are needed" in note]


def test_replicas_are_built_and_held_too():
    one, two = (plan(replace(WORK, replicas=replicas), MACHINE, MEASURED) for replicas in (1, 2))
    assert two.stages[3].seconds.value == 2 * one.stages[3].seconds.value
    assert two.search.memory_bytes.value == 2 * one.search.memory_bytes.value
    assert [stage.seconds for stage in two.stages[:3]] == [stage.seconds for stage in one.stages[:3]]


def test_a_network_bounds_loading():
    machine = MACHINE.model_copy(update={"network_gb_per_second": 0.001})
    size = sizes(WORK)
    assert plan(WORK, machine, MEASURED).stages[2].rate.value == pytest.approx(1e6 / size.sent)


def test_a_machine_too_small_to_load_is_said():
    small = MACHINE.model_copy(update={"memory_gb": 1.0})
    assert [note for note in plan(WORK, small, MEASURED).notes if "loading takes more memory" in note]
    assert not [note for note in plan(WORK, MACHINE, MEASURED).notes if "loading takes more memory" in note]


def test_machines_without_a_shard_are_said():
    found = plan(replace(WORK, shards=1), MACHINE.model_copy(update={"count": 3}), MEASURED)
    assert [note for note in found.notes if "1 of 3 machines hold a shard" in note]
