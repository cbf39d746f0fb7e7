"""What a corpus takes on machines of one kind, by the formulas of docs/scale.md: time, memory, disk, machines, cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from biorag.errors import BadInputError
from biorag.indexes.estimating import index_bytes
from biorag.models.resources import FORWARD, WEIGHT_BYTES
from biorag.scale.machine import GIGABYTE, MachineKind, Rates
from biorag.settings.index import COMPACT_DIMENSION, TokenStorage

FLOAT, HALF, BYTE = 4, 2, 1
TERM = 8  # bytes of a BM25 term and its weight
KEYS = 64 + 8  # bytes of a digest in hexadecimal and of a key
# Bytes of a snippet beside its vector in a process that has searched a million (docs/results/performance.md, Growth):
# (2,351 MB − 55 MB) / 1,000,000 − 4 · 384, for graph, ids, BM25 and the pages read.
SEARCHED = 760
WRITTEN = 429  # bytes of a snippet in a process that writes an embedded index (docs/results/growth.md)
USABLE = 0.8  # of a machine's memory, an assumption: the rest is the system's and the page cache's
ALIKE = 0.05  # relative difference of texts up to which a measurement counts as one of them
MERGING = 2  # times the disk of an index while its segments are merged
STARTER_PARAMETERS = 22_713_728
ENCODING_BYTES = 1_397_000_000  # of a process that indexes by the starter (docs/results/performance.md, Indexing)
WRITING_BYTES = 1_100_000_000  # of a process that writes an index, without `WRITTEN` (docs/results/growth.md)
EXPORTING_BYTES = 45_000_000  # of a process that reads a corpus: 42 MiB measured on 14,448 records, rounded up
HOURS_OF_A_MONTH = 730
SECONDS_OF_AN_HOUR = 3600

EXPORTING, PREPARING = "export_snippets_per_second", "prepare_snippets_per_second"
ENCODING = "encode_snippets_per_second"
LOADING, LOADING_PLAIN = "load_snippets_per_second", "load_without_tokens_snippets_per_second"
BUILDING = "build_snippets_per_second"
ONE_PROCESS = (EXPORTING, LOADING, LOADING_PLAIN)


@dataclass(frozen=True, slots=True)
class Workload:
    """A corpus, its encoder, and how the index is kept.

    Attributes
    ----------
    tokens : of a snippet, on average, cut at the encoder's window
    text_bytes : of a snippet with id, title, metadata and digest as JSON
    terms : distinct BM25 terms of a snippet
    multiplied : parameters that every token is multiplied with: those of linear layers
    shards : None for one on each machine
    """

    snippets: int
    tokens: float
    text_bytes: float
    terms: float
    dimension: int
    parameters: int
    multiplied: int
    store_tokens: TokenStorage = "compact"
    quantized: bool = False
    on_disk: bool = False
    replicas: int = 1
    shards: int | None = None
    queries_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class SnippetSizes:
    """Bytes of one snippet as Parquet, before compression, in the index, and in memory."""

    exported: float
    encoded: float
    indexed: float
    searched: float
    written: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Snippets a second, and the basis: measured on that machine, given in its file, or computed."""

    value: float
    source: Literal["measured", "given", "computed"]
    basis: str


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage on all machines of a kind: seconds, bytes on each machine that takes part, and its cost."""

    name: str
    rate: Rate
    seconds: float
    memory_bytes: float
    disk_bytes: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Searching: memory and disk of all machines, milliseconds a question, questions a second, cost of a month."""

    memory_bytes: float
    disk_bytes: float
    question_ms: float
    questions_per_second: float
    cost_per_month: float | None


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """What one kind of machine takes; `machines` are those needed for memory, for disk, and for questions if asked."""

    machine: MachineKind
    stages: tuple[StagePlan, ...]
    search: SearchPlan
    machines: dict[str, int]
    needed: int
    seconds: float
    cost: float | None
    bottleneck: str
    notes: tuple[str, ...]


def sizes(workload: Workload) -> SnippetSizes:
    """Return the bytes of one snippet."""
    dimension, full = workload.dimension, workload.store_tokens == "full"
    width = {"none": 0, "compact": min(dimension, COMPACT_DIMENSION), "full": dimension}[workload.store_tokens]
    numbers = workload.tokens * width
    in_memory = BYTE if workload.quantized else 0 if workload.on_disk else FLOAT
    token_bytes = numbers * (16 if full else 4) / 8
    return SnippetSizes(
        exported=workload.text_bytes + KEYS,
        encoded=FLOAT * dimension + TERM * workload.terms + KEYS + HALF * numbers,
        indexed=index_bytes(dimension, workload.quantized, workload.terms, workload.text_bytes, token_bytes),
        searched=in_memory * dimension + SEARCHED,
        written=WRITTEN + (BYTE * dimension if workload.quantized else 0),
    )


@dataclass(frozen=True, slots=True)
class Planner:
    """A workload on machines of one kind, with a measurement for the rates that the machine's file does not give."""

    workload: Workload
    machine: MachineKind
    reference: Rates

    def plan(self) -> ScalePlan:
        """Return the plan; raises BadInputError if a rate is not known."""
        stages, machines = self._stages(), self._machines()
        seconds, needed = sum(stage.seconds for stage in stages), max(machines.values())
        slowest = max(stages, key=lambda stage: stage.seconds)
        return ScalePlan(
            self.machine,
            stages,
            self._search(needed),
            machines,
            needed,
            seconds,
            self._cost(self.machine.count, seconds / SECONDS_OF_AN_HOUR),
            f"{slowest.name}: {slowest.rate.basis}",
            tuple(self._notes(stages, needed)),
        )

    @property
    def shards(self) -> int:
        """Shards as asked, else one for each machine."""
        return self.workload.shards or self.machine.count

    @property
    def holders(self) -> int:
        """Machines that hold a part of the index; a shard or its replica lies on one machine."""
        return min(self.machine.count, self.shards * self.workload.replicas)

    def rate(self, name: str) -> Rate:
        """Return a rate of one machine's cores: its own, or in proportion to the cores and the work measured.

        Exporting and loading are one process each, whatever the cores.
        """
        own = getattr(self.machine.rates, name) is not None
        table = self.machine.rates if own else self.reference
        value: float | None = getattr(table, name)
        if value is None:
            raise BadInputError(f"machine {self.machine.name!r}: {name} is not known: add it under [rates]")
        if table.cores is None:
            return Rate(value, "given", f"{name} under [rates]")
        work = self._work(name, table)
        work = 1.0 if math.isclose(work, 1, rel_tol=ALIKE) and name != BUILDING else work
        cores = 1.0 if name in ONE_PROCESS else self.machine.cores / table.cores
        if own and work * cores == 1:
            return Rate(value, "measured", f"{name} under [rates]")
        basis = f"measured on {table.cores} cores" + (", one process" if cores == 1.0 else "")
        if work != 1:
            parameters = f" and {table.multiplied:,} parameters" if name == ENCODING else ""
            basis += (
                f", of {table.built:,} snippets" if name == BUILDING else f", with {table.tokens:g} tokens{parameters}"
            )
        return Rate(value * work * cores, "computed", basis)

    def _work(self, name: str, table: Rates) -> float:
        """Return the measured work of a snippet over that of this workload."""
        if name == BUILDING:  # a graph of n points takes n ln n
            points = max(table.built, self.workload.snippets / self.shards)
            return math.log(table.built) / math.log(points)
        tokens = table.tokens / self.workload.tokens
        return tokens * table.multiplied / self.workload.multiplied if name == ENCODING else tokens

    def loading_rate(self) -> Rate:
        """Return the snippets a second that are loaded, of an index without token vectors by a rate of its own."""
        plain = self.workload.store_tokens == "none"
        known = self.machine.rates.load_snippets_per_second is None or self.machine.rates.cores
        return self.rate(LOADING_PLAIN if plain and known else LOADING)

    def encoding_rate(self) -> Rate:
        """Return the snippets a second that one machine encodes: with GPUs no more than its cores tokenize."""
        gpus = self.machine.gpus
        if gpus == 0:
            return self.rate(ENCODING)
        one = self._gpu_rate()
        feeding = self.rate(PREPARING)
        if feeding.value < gpus * one.value:
            return Rate(feeding.value, "computed", f"{self.machine.cores} cores tokenize no faster; {feeding.basis}")
        return one if gpus == 1 else Rate(gpus * one.value, "computed", f"{gpus} GPUs: {one.basis}")

    def _gpu_rate(self) -> Rate:
        machine, rates = self.machine, self.machine.rates
        if rates.encode_snippets_per_second is not None:
            work = self._work(ENCODING, rates) if rates.cores else 1.0
            return Rate(work * rates.encode_snippets_per_second, "given", f"{ENCODING} under [rates]")
        if machine.gpu_tflops is None:
            raise BadInputError(f"machine {machine.name!r} has GPUs of unknown speed: add gpu_tflops to its file")
        operations = FORWARD * self.workload.multiplied * self.workload.tokens
        basis = f"{machine.gpu_tflops:g} TFLOPS × {machine.gpu_utilisation:g} / {operations:.3g} operations"
        return Rate(machine.gpu_tflops * 1e12 * machine.gpu_utilisation / operations, "computed", basis)

    def _stages(self) -> tuple[StagePlan, ...]:
        workload, machine, size = self.workload, self.machine, sizes(self.workload)
        share = workload.snippets / machine.count
        held = workload.snippets * workload.replicas / self.holders  # on each machine that holds a part
        worker = ENCODING_BYTES + WEIGHT_BYTES * max(0, workload.parameters - STARTER_PARAMETERS)
        writing, merging = WRITING_BYTES + held * size.written, held * size.indexed * MERGING
        return (
            self._stage(
                "export", self.rate(EXPORTING), workload.snippets, EXPORTING_BYTES, workload.snippets * size.exported
            ),
            self._stage(
                "encode", self.encoding_rate(), share, (machine.gpus or machine.cores) * worker, share * size.encoded
            ),
            self._stage("load", self.loading_rate(), workload.snippets, writing, merging),
            self._stage("build", self.rate(BUILDING), held, writing, merging),
        )

    def _stage(self, name: str, rate: Rate, snippets: float, memory: float, disk: float) -> StagePlan:
        seconds = snippets / rate.value
        cost = self._cost(self.machine.count, seconds / SECONDS_OF_AN_HOUR)
        return StagePlan(name, rate, seconds, memory, disk, cost)

    def _cost(self, count: int, hours: float) -> float | None:
        price = self.machine.price_per_hour
        return None if price is None else count * hours * price

    def _question(self) -> tuple[float, float]:
        """Return a question's milliseconds beside the first stage, and those of the first stage."""
        fixed, slope = (
            getattr(self.machine.rates, name) or getattr(self.reference, name)
            for name in ("question_milliseconds", "first_stage_milliseconds_per_million")
        )
        return fixed, slope * self.workload.snippets / 1e6

    def _search(self, needed: int) -> SearchPlan:
        size, points = sizes(self.workload), self.workload.snippets * self.workload.replicas
        fixed, growing = self._question()
        cores = self.machine.count * self.machine.cores
        return SearchPlan(
            points * size.searched,
            points * size.indexed,
            fixed + growing / min(self.shards, cores),
            cores * 1000 / (fixed + growing),
            self._cost(needed, HOURS_OF_A_MONTH),
        )

    def _machines(self) -> dict[str, int]:
        workload, machine, size = self.workload, self.machine, sizes(self.workload)
        points = workload.snippets * workload.replicas
        disk = workload.snippets * (size.exported + size.encoded) + points * size.indexed * MERGING
        machines = {
            "memory, searching": math.ceil(points * size.searched / self._memory),
            "disk": math.ceil(disk / (machine.disk_gb * GIGABYTE)),
        }
        if workload.queries_per_second is not None:
            cores = workload.queries_per_second * sum(self._question()) / 1000
            machines["questions"] = math.ceil(cores / machine.cores)
        return machines

    @property
    def _memory(self) -> float:
        return self.machine.memory_gb * GIGABYTE * USABLE

    def _notes(self, stages: tuple[StagePlan, ...], needed: int) -> Iterator[str]:
        machine = self.machine
        if needed > machine.count:
            yield f"{machine.name}: {needed} machines are needed, and count = {machine.count}: raise it, or --quantize"
        if self.holders < machine.count:
            yield f"{machine.name}: {self.holders} of {machine.count} machines hold a shard: raise --shards, --replicas"
        if stages[1].memory_bytes > self._memory:
            yield f"{machine.name}: encoding takes more memory than a machine has: give 'biorag embed' fewer --workers"
        if stages[2].memory_bytes > self._memory:
            yield f"{machine.name}: loading takes more memory than a machine has: raise memory_gb or count"
        if self.workload.on_disk and not self.workload.quantized:
            yield f"{machine.name}: with vectors on disk alone, questions read from disk; their times are of memory"
