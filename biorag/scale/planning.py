"""What a corpus takes on machines of one kind, by the formulas of docs/scale.md: time, memory, disk, machines, cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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

# Rates measured on two cores of an AMD EPYC, for machines whose files give none (docs/scale.md).
CORES = 2
MULTIPLIED = 10_764_288  # parameters of the encoder's linear layers
TOKENS = 238.0  # of a snippet
BUILT = 16_384  # snippets in the graph
MEASURED = Rates(
    export_snippets_per_second=15_025.0,  # a corpus is read twice; two processes that read once made 60,100
    prepare_snippets_per_second=3854.0,
    encode_snippets_per_second=50.04,
    load_snippets_per_second=573.4,
    build_snippets_per_second=6667.0,
    question_milliseconds=6.7,
    first_stage_milliseconds_per_million=8.6,
)
LOADED_WITHOUT_TOKENS = 7746.0  # snippets a second


@dataclass(frozen=True, slots=True)
class Workload:
    """A corpus, its encoder, and how the index is kept."""

    snippets: int
    tokens: float  # of a snippet, on average, cut at the encoder's window
    text_bytes: float  # of a snippet with id, title, metadata and digest as JSON
    terms: float  # distinct BM25 terms of a snippet
    dimension: int
    parameters: int
    multiplied: int  # parameters that every token is multiplied with: those of linear layers
    store_tokens: TokenStorage = "compact"
    quantized: bool = False
    on_disk: bool = False
    replicas: int = 1
    shards: int | None = None  # None for one on each machine
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
    """Snippets a second: given in the machine's file, or computed, and from what."""

    value: float
    source: Literal["given", "computed"]
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
    """A workload on machines of one kind."""

    workload: Workload
    machine: MachineKind

    def plan(self) -> ScalePlan:
        """Return the plan."""
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

    def _rate(self, name: str, scale: float, basis: str) -> Rate:
        """Return a rate as the machine's file gives it, else the measured one times `scale`."""
        key = f"{name}_snippets_per_second"
        own: float | None = getattr(self.machine.rates, key)
        if own is not None:
            return Rate(own, "given", f"{key} under [rates]")
        return Rate(getattr(MEASURED, key) * scale, "computed", f"measured on {CORES} cores, {basis}")

    @property
    def _text(self) -> float:
        """Tokens of a snippet measured over those of this workload's; alike ones count as equal."""
        ratio = TOKENS / self.workload.tokens
        return 1.0 if math.isclose(ratio, 1, rel_tol=ALIKE) else ratio

    @property
    def _cores(self) -> float:
        return self.machine.cores / CORES

    def export_rate(self) -> Rate:
        """Return the snippets a second that one process exports."""
        return self._rate("export", self._text, "one process, by tokens")

    def load_rate(self) -> Rate:
        """Return the snippets a second that one process loads; an index without token vectors loads faster."""
        plain = self.workload.store_tokens == "none"
        faster = LOADED_WITHOUT_TOKENS / (MEASURED.load_snippets_per_second or 1) if plain else 1.0
        return self._rate("load", faster * self._text, "one process, by tokens")

    def build_rate(self) -> Rate:
        """Return the snippets a second whose graph one machine builds: a graph of n points takes n ln n."""
        points = max(BUILT, self.workload.snippets / self.shards)
        return self._rate("build", self._cores * math.log(BUILT) / math.log(points), f"by cores, n ln n from {BUILT:,}")

    def encode_rate(self) -> Rate:
        """Return the snippets a second that one machine encodes: with GPUs no more than its cores tokenize."""
        gpus, workload = self.machine.gpus, self.workload
        if gpus == 0:
            work = MULTIPLIED * TOKENS / (workload.multiplied * workload.tokens)
            work = 1.0 if math.isclose(work, 1, rel_tol=ALIKE) else work
            return self._rate("encode", self._cores * work, "by cores, parameters and tokens")
        one = self._gpu_rate()
        feeding = self._rate("prepare", self._cores * self._text, "by cores and tokens")
        if feeding.value < gpus * one.value:
            return Rate(feeding.value, "computed", f"{self.machine.cores} cores tokenize no faster; {feeding.basis}")
        return one if gpus == 1 else Rate(gpus * one.value, "computed", f"{gpus} GPUs: {one.basis}")

    def _gpu_rate(self) -> Rate:
        machine = self.machine
        if machine.gpu_tflops is None or machine.rates.encode_snippets_per_second:
            return self._rate("encode", 1.0, "one GPU")
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
                "export", self.export_rate(), workload.snippets, EXPORTING_BYTES, workload.snippets * size.exported
            ),
            self._stage(
                "encode", self.encode_rate(), share, (machine.gpus or machine.cores) * worker, share * size.encoded
            ),
            self._stage("load", self.load_rate(), workload.snippets, writing, merging),
            self._stage("build", self.build_rate(), held, writing, merging),
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
            getattr(self.machine.rates, name) or getattr(MEASURED, name)
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
