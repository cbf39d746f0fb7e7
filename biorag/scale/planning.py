"""What a corpus takes on given machines: time, memory, disk, machines and money of each stage; pure formulas.

The formulas stand in docs/scale.md too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from biorag.errors import BadInputError
from biorag.models.resources import FORWARD, WEIGHT_BYTES
from biorag.scale.machine import GIGABYTE, Machine, Measured
from biorag.scale.sizes import FLOAT, Sizes, Workload, sizes

Source = Literal["measured", "given", "computed"]
MEASURED: Source = "measured"
GIVEN: Source = "given"
COMPUTED: Source = "computed"

USABLE = 0.8  # of a machine's memory; the rest is the system's and the page cache's. An assumption.
ALIKE = 0.05  # relative difference of texts up to which a measurement counts as one of them
MERGING = 2  # times the disk of an index while its segments are merged
STARTER_PARAMETERS = 22_713_728
ENCODING_BYTES = 1_397_000_000  # of a process that indexes by the starter (docs/results/performance.md, Indexing)
# Of a process that writes an embedded index, with the segment that it builds: its peak at three million snippets,
# without what it keeps of each (docs/results/growth.md).
WRITING_BYTES = 1_100_000_000
EXPORTING_BYTES = 45_000_000  # of a process that reads a corpus: 42 MiB measured on 14,448 records, rounded up
BUSY = 0.5  # load for each core from which on other programs are in the way
HOURS_OF_A_MONTH = 730
SECONDS_OF_AN_HOUR = 3600

EXPORTING, PREPARING = "export_snippets_per_second", "prepare_snippets_per_second"
ENCODING = "encode_snippets_per_second"
LOADING, BUILDING = "load_snippets_per_second", "build_snippets_per_second"
OF_TEXT = (EXPORTING, PREPARING, LOADING)  # whose time grows with the length of texts
EXPORT, ENCODE, LOAD, BUILD = "export", "encode", "load", "build"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, and what it rests on: measured on that machine, given by the user, or computed, and from what."""

    value: float
    source: Source
    basis: str


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage on all machines of a kind: seconds, bytes on each machine that takes part, and its money."""

    name: str
    rate: Figure
    seconds: Figure
    memory_bytes: Figure
    disk_bytes: Figure
    cost: Figure | None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Searching: memory and disk in all, milliseconds and rate of questions, money of a month."""

    memory_bytes: Figure
    disk_bytes: Figure
    question_ms: Figure
    questions_per_second: Figure
    cost_per_month: Figure | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one kind of machine takes.

    `machines` are those needed by searching memory, by disk, and by questions if a rate is wanted.
    """

    machine: Machine
    stages: tuple[StagePlan, ...]
    search: SearchPlan
    machines: dict[str, Figure]
    seconds: Figure
    cost: Figure | None
    bottleneck: str
    notes: tuple[str, ...]

    @property
    def needed(self) -> int:
        """The machines of this kind that are needed."""
        return int(max(figure.value for figure in self.machines.values()))


def computed(value: float, basis: str) -> Figure:
    """Return a figure that a formula gives."""
    return Figure(value, COMPUTED, basis)


def plan(workload: Workload, machine: Machine, reference: Measured) -> Plan:
    """Return what indexing and searching take on machines of one kind.

    Parameters
    ----------
    reference : a measurement, of another machine perhaps, for the rates that the machine's file does not give

    Raises
    ------
    BadInputError
        If a rate cannot be told.
    """
    size = sizes(workload)
    stages = _stages(workload, machine, reference, size)
    machines = _machines(workload, machine, reference, size)
    needed = int(max(figure.value for figure in machines.values()))
    seconds = computed(sum(stage.seconds.value for stage in stages), "the stages one after another")
    slowest = max(stages, key=lambda stage: stage.seconds.value)
    return Plan(
        machine,
        stages,
        _search(workload, machine, reference, size, needed),
        machines,
        seconds,
        _cost(machine, machine.count, seconds.value / SECONDS_OF_AN_HOUR),
        f"{slowest.name}: {slowest.rate.basis}",
        tuple(_notes(workload, machine, reference, stages, needed)),
    )


# --- rates ----------------------------------------------------------------------------------------------------


def rate_of(name: str, workload: Workload, machine: Machine, reference: Measured) -> Figure:
    """Return a rate of the cores of one machine: given, measured on it, or computed from a measurement.

    It is in proportion to the cores, but for loading, which is one process. Rates of texts are in inverse proportion
    to their tokens.
    """
    given = getattr(machine.rates, name)
    if given is not None:
        return Figure(given, GIVEN, f"{name} under [rates]")
    measured = machine.measured or reference
    value, ratio = _measured_rate(name, workload, measured), 1.0
    if name in OF_TEXT and not _alike(measured.tokens, workload.tokens):
        ratio = measured.tokens / workload.tokens
    if machine.measured and measured.cores == machine.cores and ratio == 1:
        return Figure(value, MEASURED, f"{name} under [measured]")
    by_cores = 1.0 if name == LOADING else machine.cores / measured.cores
    basis = f"measured on {measured.cores} cores of {measured.processor}"
    basis += ", one process" if name == LOADING else ", by cores"
    if ratio != 1:
        basis += f" and by tokens, which were {measured.tokens:g} a snippet"
    return computed(value * ratio * by_cores, basis)


def _measured_rate(name: str, workload: Workload, measured: Measured) -> float:
    plain = measured.load_without_tokens_snippets_per_second
    if name == LOADING and workload.store_tokens == "none" and plain is not None:
        return plain
    value: float = getattr(measured, name)
    return value


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=ALIKE)


def encoding_rate(workload: Workload, machine: Machine, reference: Measured) -> Figure:
    """Return the snippets a second that one machine encodes.

    With GPUs that is their number times one GPU's rate, and no more than the cores tokenize.
    """
    measured = machine.measured or reference
    if machine.gpus == 0:
        if measured.gpus and machine.rates.encode_snippets_per_second is None:
            raise BadInputError(
                f"machine {machine.name!r} has no GPU, and one was measured: add {ENCODING} under [rates]"
            )
        rate = rate_of(ENCODING, workload, machine, reference)
        return rate if rate.source == GIVEN else _for_model(rate, workload, measured)
    one = _gpu_rate(workload, machine)
    feeding = rate_of(PREPARING, workload, machine, reference)
    if feeding.value < machine.gpus * one.value:
        return computed(feeding.value, f"{machine.cores} cores tokenize no faster; {feeding.basis}")
    return one if machine.gpus == 1 else computed(machine.gpus * one.value, f"{machine.gpus} GPUs: {one.basis}")


def _for_model(rate: Figure, workload: Workload, measured: Measured) -> Figure:
    """Return an encoding rate for another encoder or other lengths, in inverse proportion to the operations."""
    ratio = (measured.multiplied * measured.tokens) / (workload.multiplied * workload.tokens)
    if _alike(ratio, 1):
        return rate
    basis = f"by operations from {measured.multiplied:,} parameters and {measured.tokens:g} tokens; {rate.basis}"
    return computed(rate.value * ratio, basis)


def _gpu_rate(workload: Workload, machine: Machine) -> Figure:
    """Return the snippets a second of one GPU."""
    if (given := machine.rates.encode_snippets_per_second) is not None:
        return Figure(given, GIVEN, "encode_snippets_per_second under [rates]")
    if machine.measured and machine.measured.gpus:
        rate = Figure(machine.measured.encode_snippets_per_second, MEASURED, "one GPU")
        return _for_model(rate, workload, machine.measured)
    if machine.gpu_tflops is None:
        raise BadInputError(f"machine {machine.name!r} has GPUs of unknown speed: add gpu_tflops to its file")
    operations = FORWARD * workload.multiplied * workload.tokens
    speed = machine.gpu_tflops * 1e12 * machine.gpu_utilisation
    return computed(
        speed / operations, f"{machine.gpu_tflops:g} TFLOPS × {machine.gpu_utilisation:g} / {operations:.3g} operations"
    )


def building_rate(workload: Workload, machine: Machine, reference: Measured) -> Figure:
    """Return the snippets a second whose graph one machine builds: `rate · ln(built) / ln(snippets of a shard)`."""
    rate = rate_of(BUILDING, workload, machine, reference)
    if rate.source == GIVEN:
        return rate
    built = (machine.measured or reference).built
    points = max(built, workload.snippets / shards_of(workload, machine))
    return computed(
        rate.value * math.log(built) / math.log(points), f"graph of {built:,}, growing as n ln n; {rate.basis}"
    )


def shards_of(workload: Workload, machine: Machine) -> int:
    """Return the number of shards: as asked, else one for each machine."""
    return workload.shards or machine.count


def holders_of(workload: Workload, machine: Machine) -> int:
    """Return how many machines hold a part of the index; a shard or its replica lies on one machine."""
    return min(machine.count, shards_of(workload, machine) * workload.replicas)


# --- stages ---------------------------------------------------------------------------------------------------


def _stages(workload: Workload, machine: Machine, reference: Measured, size: Sizes) -> tuple[StagePlan, ...]:
    count, holders = machine.count, holders_of(workload, machine)
    share = workload.snippets / count
    held = workload.snippets * workload.replicas / holders  # on each machine that holds a part
    workers = machine.gpus or machine.cores
    encoding = workers * (ENCODING_BYTES + WEIGHT_BYTES * max(0, workload.parameters - STARTER_PARAMETERS))
    loading = _through_network(rate_of(LOADING, workload, machine, reference), machine, size)
    merging = computed(held * size.indexed * MERGING, "of the index twice, while segments are merged")
    basis = f"{WRITING_BYTES / 1e9:g} GB and {size.written:,.0f} B a snippet, as in an embedded index"
    memory = computed(WRITING_BYTES + held * size.written, basis)
    return (
        _stage(
            EXPORT,
            machine,
            rate_of(EXPORTING, workload, machine, reference),
            share,
            computed(machine.cores * EXPORTING_BYTES, "one process a core"),
            computed(share * size.exported, f"{size.exported:,.0f} B a snippet, without Parquet's compression"),
        ),
        _stage(
            ENCODE,
            machine,
            encoding_rate(workload, machine, reference),
            share,
            computed(encoding, f"{workers} workers, one a GPU or core, as on Ray"),
            computed(share * size.encoded, f"{size.encoded:,.0f} B a snippet, without Parquet's compression"),
        ),
        _stage(LOAD, machine, loading, workload.snippets, memory, merging),
        _stage(BUILD, machine, building_rate(workload, machine, reference), held, memory, merging),
    )


def _stage(name: str, machine: Machine, rate: Figure, snippets: float, memory: Figure, disk: Figure) -> StagePlan:
    seconds = computed(snippets / rate.value, f"{snippets:,.0f} snippets / {rate.value:,.4g} a second")
    cost = _cost(machine, machine.count, seconds.value / SECONDS_OF_AN_HOUR)
    return StagePlan(name, rate, seconds, memory, disk, cost)


def _through_network(rate: Figure, machine: Machine, size: Sizes) -> Figure:
    """Return a rate of loading, no more than the network brings."""
    if machine.network_gb_per_second is None:
        return rate
    network = machine.network_gb_per_second * GIGABYTE / size.sent
    if network >= rate.value:
        return rate
    return computed(network, f"a network of {machine.network_gb_per_second:g} GB a second")


def _cost(machine: Machine, count: int, hours: float) -> Figure | None:
    if machine.price_per_hour is None:
        return None
    basis = f"{count} × {hours:,.4g} h × {machine.price_per_hour:g} {machine.currency}"
    return computed(count * hours * machine.price_per_hour, basis)


# --- searching ------------------------------------------------------------------------------------------------


def _question(workload: Workload, machine: Machine, reference: Measured) -> tuple[float, float, str]:
    """Return a question's milliseconds beside the first stage, those of the first stage, and what they rest on."""
    parts = []
    for name in ("question_milliseconds", "first_stage_milliseconds_per_million"):
        tables = (machine.rates, machine.measured, reference)
        found = (getattr(table, name) for table in tables if table)
        value = next((value for value in found if value is not None), None)
        if value is None:
            raise BadInputError(f"machine {machine.name!r}: {name} is not known: add it under [rates]")
        parts.append(value)
    fixed, slope = parts
    return fixed, slope * workload.snippets / 1e6, f"{fixed:g} ms + {slope:g} ms for each million snippets"


def _search(workload: Workload, machine: Machine, reference: Measured, size: Sizes, needed: int) -> SearchPlan:
    fixed, growing, basis = _question(workload, machine, reference)
    points = workload.snippets * workload.replicas
    at_once = min(shards_of(workload, machine), machine.count * machine.cores)
    return SearchPlan(
        computed(points * size.searched, f"{size.searched:,.0f} B a snippet and replica"),
        computed(points * size.indexed, f"{size.indexed:,.0f} B a snippet and replica"),
        computed(fixed + growing / at_once, f"{basis}, {at_once} shards at once"),
        computed(machine.count * machine.cores * 1000 / (fixed + growing), f"{basis}, all cores"),
        _cost(machine, needed, HOURS_OF_A_MONTH),
    )


def _machines(workload: Workload, machine: Machine, reference: Measured, size: Sizes) -> dict[str, Figure]:
    points = workload.snippets * workload.replicas
    memory, disk = machine.memory_gb * GIGABYTE * USABLE, machine.disk_gb * GIGABYTE
    taken = workload.snippets * (size.exported + size.encoded) + points * size.indexed * MERGING
    usable = f"{USABLE:.0%} of {machine.memory_gb:g} GB"
    found = {
        "memory, searching": computed(math.ceil(points * size.searched / memory), usable),
        "disk": computed(math.ceil(taken / disk), f"snippets, vectors and the index twice on {machine.disk_gb:g} GB"),
    }
    if workload.queries_per_second is not None:
        fixed, growing, basis = _question(workload, machine, reference)
        cores = workload.queries_per_second * (fixed + growing) / 1000
        found["questions"] = computed(math.ceil(cores / machine.cores), f"{cores:,.1f} cores; {basis}")
    return found


def _notes(
    workload: Workload, machine: Machine, reference: Measured, stages: tuple[StagePlan, ...], needed: int
) -> Iterator[str]:
    if needed > machine.count:
        yield f"{machine.name}: {needed} machines are needed, and count = {machine.count}: raise it, or --quantize"
    if (holders := holders_of(workload, machine)) < machine.count:
        yield f"{machine.name}: {holders} of {machine.count} machines hold a shard: raise --shards or --replicas"
    memory = machine.memory_gb * GIGABYTE * USABLE
    if stages[1].memory_bytes.value > memory:
        yield f"{machine.name}: encoding takes more memory than a machine has: give 'biorag embed' fewer --workers"
    if stages[2].memory_bytes.value > memory:
        yield f"{machine.name}: loading takes more memory than a machine has: raise memory_gb or count"
    weights = FLOAT * workload.parameters
    if machine.gpu_memory_gb is not None and weights > machine.gpu_memory_gb * GIGABYTE:
        yield f"{machine.name}: the encoder's weights alone take {weights / GIGABYTE:,.1f} GB of a GPU's memory"
    measured = machine.measured or reference
    if measured.load is not None and measured.load > BUSY * measured.cores:
        load = f"a load of {measured.load:g} on {measured.cores} cores"
        yield f"{machine.name}: rates were measured beside other programs ({load}): measure an idle machine"
    if workload.store_tokens != "none" and not measured.store_tokens and machine.rates.load_snippets_per_second is None:
        yield f"{machine.name}: loading was measured without token vectors, which take longer: measure it with them"
    if workload.on_disk and not workload.quantized:
        yield f"{machine.name}: with vectors on disk alone, questions read from disk; their times are of memory"
