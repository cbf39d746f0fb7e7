"""Time, memory, disk, machines and cost of a corpus on machines of one kind, by the formulas of docs/scale.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from biorag.errors import BadInputError, MissingError
from biorag.indexes.estimating import index_bytes
from biorag.models.resources import FORWARD, WEIGHT_BYTES
from biorag.settings.index import COMPACT_DIMENSION, TokenStorage
from biorag.utils.parsing import parse_toml, read_regular, validated

GIGABYTE = 1e9
FLOAT, HALF, BYTE = 4, 2, 1
TERM = 8  # bytes of a BM25 term and its weight
KEYS = 64 + 8  # bytes of a digest in hexadecimal and of a key
TEXT_BYTES, TERMS = 1466 / 295.7, 86 / 295.7  # of a token: means of PubMedQA's 500 abstracts
# Bytes of a snippet beside its vector in a process that has searched a million (docs/experiments/growth.md):
# (2,351 MB − 55 MB) / 1,000,000 − 4 · 384, for graph, ids, BM25 and the pages read.
SEARCHED = 760
WRITTEN = 429  # bytes of a snippet in a process that writes an embedded index (docs/experiments/growth.md)
USABLE = 0.8  # of a machine's memory, an assumption: the rest is the system's and the page cache's
MERGING = 2  # times the disk of an index while its segments are merged
STARTER_PARAMETERS = 22_713_728
ENCODING_BYTES = 1_397_000_000  # of a process that indexes by the starter (docs/experiments/performance.md)
WRITING_BYTES = 1_100_000_000  # of a process that writes an index, without `WRITTEN` (docs/experiments/growth.md)
EXPORTING_BYTES = 45_000_000  # of a process that reads a corpus: 42 MiB measured on 14,448 records, rounded up


RateName = Literal[
    "export_snippets_per_second",
    "prepare_snippets_per_second",
    "encode_snippets_per_second",
    "load_snippets_per_second",
    "build_snippets_per_second",
    "question_milliseconds",
    "first_stage_milliseconds_per_million",
]
# Measured on two cores of an AMD EPYC with `TOKENS` a snippet, for machines whose files give none (docs/scale.md).
MEASURED: Mapping[RateName, float] = {
    "export_snippets_per_second": 15_025.0,
    "prepare_snippets_per_second": 3854.0,
    "encode_snippets_per_second": 50.04,
    "load_snippets_per_second": 573.4,
    "build_snippets_per_second": 6667.0,
    "question_milliseconds": 6.7,
    "first_stage_milliseconds_per_million": 8.6,
}
CORES, TOKENS = 2, 238.0
MULTIPLIED = 10_764_288  # parameters of the encoder's linear layers
BUILT = 16_384  # snippets in the graph
LOADED_WITHOUT_TOKENS = 7746.0  # snippets a second


class MachineKind(BaseModel):
    """A kind of machine, and how many there are; a gigabyte is 10^9 bytes.

    `rates` are its measured speeds; with GPUs, `encode_snippets_per_second` is one GPU's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=100_000)
    cores: PositiveInt
    memory_gb: PositiveFloat
    disk_gb: PositiveFloat
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gb: PositiveFloat | None = None  # of each, for recipes
    gpu_tflops: PositiveFloat | None = None
    gpu_utilisation: float = Field(default=0.2, gt=0, le=1)  # an assumption: small encoders reach a small share
    price_per_hour: float | None = Field(default=None, ge=0)
    currency: str = "USD"
    rates: Mapping[RateName, PositiveFloat] = {}

    @property
    def gpu_speed(self) -> float | None:
        """The operations of a GPU in a second."""
        return self.gpu_tflops * 1e12 * self.gpu_utilisation if self.gpus and self.gpu_tflops else None

    def cost(self, seconds: float) -> float | None:
        """Return the price of all such machines for so long."""
        return None if self.price_per_hour is None else self.count * seconds / 3600 * self.price_per_hour

    def rate(self, name: RateName, scale: float = 1.0) -> Rate:
        """Return a rate as the machine's file gives it, else the measured one times `scale`."""
        in_file = name in self.rates
        return Rate(self.rates[name], "given") if in_file else Rate(MEASURED[name] * scale, "computed")


@dataclass(frozen=True, slots=True)
class Workload:
    """A corpus, its encoder, and how the index is kept."""

    snippets: int
    tokens: float  # of a snippet, on average, cut at the encoder's window
    dimension: int
    parameters: int
    multiplied: int  # parameters that every token is multiplied with: those of linear layers
    store_tokens: TokenStorage = "compact"
    quantized: bool = False


class SnippetSizes(NamedTuple):
    """Bytes of one snippet as Parquet, before compression, in the index, and in memory."""

    exported: float
    encoded: float
    indexed: float
    searched: float
    written: float


class Rate(NamedTuple):
    """Snippets a second: given in the machine's file, or computed from those measured."""

    value: float
    source: Literal["given", "computed"]


def load_machine(path: Path) -> MachineKind:
    """Read a machine's file.

    Raises `MissingError` if it is not there; `BadInputError` if it is not valid TOML, a key is unknown or missing, or a
    value is not allowed.
    """
    try:
        machine: MachineKind = validated(MachineKind, parse_toml(read_regular(path), str(path)))
    except FileNotFoundError:
        raise MissingError(f"--machine {path} is not there: docs/machines has examples to copy") from None
    except ValueError as fault:
        raise BadInputError(f"--machine {path}: {fault}; docs/machines has examples to copy") from None
    if machine.gpus and not (machine.gpu_tflops or machine.rates.get("encode_snippets_per_second")):
        raise BadInputError(
            f"--machine {path} has gpus = {machine.gpus} of unknown speed: add gpu_tflops, or "
            "encode_snippets_per_second under [rates]"
        )
    return machine


def sizes(workload: Workload) -> SnippetSizes:
    """Return the bytes of one snippet."""
    dimension, tokens = workload.dimension, workload.tokens
    text_bytes, terms = TEXT_BYTES * tokens, TERMS * tokens
    width = {"none": 0, "compact": min(dimension, COMPACT_DIMENSION), "full": dimension}[workload.store_tokens]
    token_bytes = tokens * width * (16 if workload.store_tokens == "full" else 4) / 8
    return SnippetSizes(
        exported=text_bytes + KEYS,
        encoded=FLOAT * dimension + TERM * terms + KEYS + HALF * tokens * width,
        indexed=index_bytes(dimension, workload.quantized, terms, text_bytes, token_bytes),
        searched=(BYTE if workload.quantized else FLOAT) * dimension + SEARCHED,
        written=WRITTEN + (BYTE * dimension if workload.quantized else 0),
    )


def stage_rates(workload: Workload, machine: MachineKind) -> dict[str, Rate]:
    """Return the rate of each stage: export and load of one process, encode and build of one machine.

    A graph of n points takes n ln n. GPUs encode no faster than the machine's cores tokenize.
    """
    text, cores = TOKENS / workload.tokens, machine.cores / CORES
    points = max(BUILT, workload.snippets / machine.count)
    loaded = LOADED_WITHOUT_TOKENS / MEASURED["load_snippets_per_second"] if workload.store_tokens == "none" else 1
    encode = machine.rate("encode_snippets_per_second", cores * text * MULTIPLIED / workload.multiplied)
    if machine.gpus:
        if machine.gpu_speed and encode.source == "computed":
            encode = Rate(machine.gpu_speed / (FORWARD * workload.multiplied * workload.tokens), "computed")
        prepare = machine.rate("prepare_snippets_per_second", cores * text)
        encode = min(encode._replace(value=machine.gpus * encode.value), prepare, key=lambda rate: rate.value)
    return {
        "export": machine.rate("export_snippets_per_second", text),
        "encode": encode,
        "load": machine.rate("load_snippets_per_second", loaded * text),
        "build": machine.rate("build_snippets_per_second", cores * math.log(BUILT) / math.log(points)),
    }


def plan(workload: Workload, machine: MachineKind) -> dict[str, Any]:
    """Return the plan of a workload on machines of one kind, each holding one part of the index, as JSON.

    Seconds and cost are those of all machines, bytes of a stage each machine's, of searching those of all, whose parts
    are searched at once. `machines` are those that memory and disk need.
    """
    size, total, share = sizes(workload), workload.snippets, workload.snippets / machine.count
    worker = ENCODING_BYTES + WEIGHT_BYTES * max(0, workload.parameters - STARTER_PARAMETERS)
    writing, merging = WRITING_BYTES + share * size.written, share * size.indexed * MERGING
    needs = {  # snippets, bytes of memory and of disk
        "export": (total, EXPORTING_BYTES, total * size.exported),
        "encode": (share, (machine.gpus or machine.cores) * worker, share * size.encoded),
        "load": (total, writing, merging),
        "build": (share, writing, merging),
    }
    rates, stages = stage_rates(workload, machine), list[dict[str, Any]]()
    for name, (snippets, memory, disk) in needs.items():
        seconds = snippets / rates[name].value
        stage = {"name": name, "rate": rates[name].value, "source": rates[name].source, "seconds": seconds}
        stages.append({**stage, "memory_bytes": memory, "disk_bytes": disk, "cost": machine.cost(seconds)})
    disk = total * (size.exported + size.encoded + size.indexed * MERGING)
    machines = {
        "memory": math.ceil(total * size.searched / (machine.memory_gb * GIGABYTE * USABLE)),
        "disk": math.ceil(disk / (machine.disk_gb * GIGABYTE)),
    }
    seconds = sum(stage["seconds"] for stage in stages)
    slope = machine.rate("first_stage_milliseconds_per_million").value / machine.count
    question_ms = machine.rate("question_milliseconds").value + slope * total / 1e6
    searched = {"memory_bytes": total * size.searched, "disk_bytes": total * size.indexed, "question_ms": question_ms}
    return {
        "machine": machine.model_dump(),
        "stages": stages,
        "search": searched,
        "machines": machines,
        "needed": max(machines.values()),
        "seconds": seconds,
        "cost": machine.cost(seconds),
        "bottleneck": max(stages, key=lambda stage: stage["seconds"])["name"],
    }
