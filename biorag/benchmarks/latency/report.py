"""The results of `bench latency`: as JSON, as tables, and as a plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from biorag.benchmarks.latency.machine import MachineFacts
from biorag.benchmarks.latency.stages import Cost
from biorag.benchmarks.latency.timing import Timing
from biorag.utils.files import write_json
from biorag.utils.plots import PlotPanel, write_plot

MEGABYTE = 1 << 20
MEMORY = {
    "before_bytes": "before the index was opened",
    "opened_bytes": "with it and the encoder",
    "peak_bytes": "at most",
}
TIMES = ("mean", "p50", "p95", "p99")

LatencyTable: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # title, columns, rows as shown


@dataclass(frozen=True, slots=True)
class StageTimings:
    """Times of the stages; `encode_queries` and `first_stage` by size of batch, `one_by_one` with its "total".

    `answer` is the whole with the generator, None without one.
    """

    index: Mapping[str, Cost]
    encode_queries: Mapping[int, Timing]
    first_stage: Mapping[str, Mapping[int, Timing]]
    one_by_one: Mapping[str, Timing]
    generation: Timing | None = None
    answer: Timing | None = None

    def to_json(self, k_init: int) -> dict[str, Any]:
        """Return the stages as JSON values."""
        rerank, generated = self.one_by_one.get("rerank"), self.generation
        return {
            "index": {stage: asdict(cost) for stage, cost in self.index.items()},
            "encode_queries": _batched(self.encode_queries),
            "first_stage": {mode: _batched(timings) for mode, timings in self.first_stage.items()},
            "rerank": {**asdict(rerank), "k_init": k_init} if rerank else None,
            "fetch": asdict(self.one_by_one["fetch"]),
            "generation": {"questions": generated.n, "generate": asdict(generated)} if generated else None,
            "total_without_generator": asdict(self.one_by_one["total"]),
            "total_with_generator": asdict(self.answer) if self.answer else None,
        }


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """Everything that one run measured; `index`, `settings` and `memory` are facts as JSON values."""

    machine: MachineFacts
    index: Mapping[str, Any]
    settings: Mapping[str, Any]
    stages: StageTimings
    memory: Mapping[str, int | None]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "stages": self.stages.to_json(self.settings["k_init"])}

    def write(self, out: Path) -> None:
        """Write `latency.json` and `latency.png`, the time per question by size of batch."""
        write_json(out / "latency.json", self.to_json())
        named = {"encoding": self.stages.encode_queries, **self.stages.first_stage}
        lines = {
            name: [(size, timing.p50 / size) for size, timing in sorted(timings.items())]
            for name, timings in named.items()
        }
        axes = ("questions in a batch", "ms per question (median)")
        write_plot(out / "latency.png", [PlotPanel("Batches of questions", *axes, lines, log_x=True, log_y=True)])


def facts(report: LatencyReport) -> list[str]:
    """Return lines about the machine, the index, the questions and the memory."""
    machine, index, settings, memory = report.machine, report.index, report.settings, report.memory
    total = f"{machine.memory_bytes / (1 << 30):.1f} GB" if machine.memory_bytes else "unknown memory"
    threads = ", ".join(f"{name} {count}" for name, count in settings["threads"].items() if count is not None)
    bytes_each = f", {index['bytes_per_snippet']:,.0f} bytes each" if index["bytes_per_snippet"] is not None else ""
    values = [(memory[key], text) for key, text in MEMORY.items()]
    used = ", ".join(f"{value / MEGABYTE:,.0f} {text}" for value, text in values if value is not None)
    return [
        f"Machine: {machine.cpu}, {machine.cores} cores, {total}, GPU: {', '.join(machine.gpus) or 'none'}, "
        f"load before {machine.load}",
        f"CPU flags: {', '.join(machine.flags) or 'unknown'}; threads: {threads}",
        f"Index {index['name']}: {index['snippets']:,} snippets{bytes_each}, encoder {index['encoder']['id']}",
        f"Questions: {settings['questions']:,}, {settings['questions_from']}; up to {settings['repetitions']} calls "
        f"or {settings['seconds']:g} s a figure after {settings['warm_up']} to warm up",
        f"Memory of this process in MB: {used}",
    ]


def _batched(timings: Mapping[int, Timing]) -> dict[str, dict[str, float]]:
    return {
        str(size): {**asdict(timing), "ms_per_query": round(timing.mean / size, 4)} for size, timing in timings.items()
    }


def tables(report: LatencyReport) -> Iterator[LatencyTable]:
    """Yield the report as tables: indexing, batches of questions, one question at a time."""
    stages, settings = report.stages, report.settings
    indexed = [
        (stage, f"{cost.ms_per_snippet:.3f}", f"{cost.snippets_per_s:,.0f}") for stage, cost in stages.index.items()
    ]
    title = f"Indexing {settings['index_snippets']:,} snippets (bm25 is a part of write)"
    yield title, ["part", "ms/snippet", "snippets/s"], indexed

    batches = [
        (name, str(size), *_times(timing), f"{timing.mean / size:.3f}", str(timing.n))
        for name, timings in {"encode": stages.encode_queries, **stages.first_stage}.items()
        for size, timing in timings.items()
    ]
    columns = ["stage", "batch", *TIMES, "mean/query", "calls"]
    yield "Encoding questions, and the first stage: ms per batch", columns, batches

    named = dict(stages.one_by_one)
    if stages.generation and stages.answer:
        named |= {"generator": stages.generation, "total with the generator": stages.answer}
    single = [(name, *_times(timing), str(timing.n)) for name, timing in named.items()]
    title = f"One question at a time, {settings['mode']}, k_init {settings['k_init']}: ms"
    yield title, ["stage", *TIMES, "calls"], single


def _times(timing: Timing) -> list[str]:
    values = [getattr(timing, name) for name in TIMES]
    return [f"{value:,.3f}" if value < 10 else f"{value:,.1f}" for value in values]
