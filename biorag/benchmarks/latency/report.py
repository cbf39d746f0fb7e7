"""What was measured: as JSON, as tables, and as plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.benchmarks.latency.baselines import Compared
from biorag.benchmarks.latency.doubling import doublings
from biorag.benchmarks.latency.growth import Grown
from biorag.benchmarks.latency.machine import Machine
from biorag.benchmarks.latency.stages import Cost, Generated
from biorag.benchmarks.latency.synthetic import COMMON
from biorag.benchmarks.latency.timing import Timing
from biorag.utils.files import write_json
from biorag.utils.plots import PlotPanel, write_plot

MEGABYTE = 1 << 20
MEMORY = {
    "before_bytes": "before the index was opened",
    "opened_bytes": "with it and the encoder",
    "peak_bytes": "at most",
}
SPEEDS = ("prompt_tokens", "prompt_tokens_per_s", "output_tokens", "output_tokens_per_s")
TIMES = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Stages:
    """biorag's own stages; `encode_queries` and `first_stage` by size of batch, `one_by_one` with its "total".

    `answer` is the whole with the generator, None without one.
    """

    index: Mapping[str, Cost]
    encode_queries: Mapping[int, Timing]
    first_stage: Mapping[str, Mapping[int, Timing]]
    one_by_one: Mapping[str, Timing]
    generation: Generated | None = None
    answer: Timing | None = None

    def to_json(self, k_init: int) -> dict[str, Any]:
        """Return the stages as JSON values."""
        rerank = self.one_by_one.get("rerank")
        return {
            "index": {stage: asdict(cost) for stage, cost in self.index.items()},
            "encode_queries": _batched(self.encode_queries),
            "first_stage": {mode: _batched(timings) for mode, timings in self.first_stage.items()},
            "rerank": {**asdict(rerank), "k_init": k_init} if rerank else None,
            "fetch": asdict(self.one_by_one["fetch"]),
            "generation": asdict(self.generation) if self.generation else None,
            "total_without_generator": asdict(self.one_by_one["total"]),
            "total_with_generator": asdict(self.answer) if self.answer else None,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run measured; `index`, `settings` and `memory` are facts as JSON values."""

    machine: Machine
    index: Mapping[str, Any]
    settings: Mapping[str, Any]
    stages: Stages
    memory: Mapping[str, int | None]
    baselines: Sequence[Compared] = ()
    growth: Sequence[Grown] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "machine": asdict(self.machine),
            "index": dict(self.index),
            "settings": dict(self.settings),
            "stages": self.stages.to_json(self.settings["k_init"]),
            "memory": dict(self.memory),
            "baselines": [asdict(compared) for compared in self.baselines],
            "growth": [asdict(grown) for grown in self.growth],
            "doublings": [asdict(doubling) for doubling in doublings(self.growth)],
        }


@dataclass(frozen=True, slots=True)
class Table:
    """One table to show; cells are as they are shown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def facts(report: Report) -> list[str]:
    """Return lines that say what was measured, and on what."""
    machine, index, settings, memory = report.machine, report.index, report.settings, report.memory
    total = f"{machine.memory_bytes / (1 << 30):.1f} GB" if machine.memory_bytes else "unknown memory"
    threads = ", ".join(f"{name} {count}" for name, count in settings["threads"].items() if count is not None)
    bytes_each = f", {index['bytes_per_snippet']:,.0f} bytes each" if index["bytes_per_snippet"] is not None else ""
    used = ", ".join(f"{_megabytes(memory[key])} {text}" for key, text in MEMORY.items() if memory[key] is not None)
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


def tables(report: Report) -> list[Table]:
    """Return the report as tables."""
    found = [_index_table(report), _batch_table(report.stages), _single_table(report)]
    if report.stages.generation:
        found.append(_generation_table(report.stages.generation))
    if report.baselines:
        found.append(_baseline_table("biorag beside other packages", report.baselines))
    if report.growth:
        found += [_growth_table(report.growth), _growth_memory_table(report.growth)]
        found += [_growth_search_table(report.growth), _doubling_table(report.growth)]
    if compared := [compared for grown in report.growth for compared in grown.baselines]:
        found.append(_baseline_table("Beside other packages as the index grows", compared))
    return found


def _index_table(report: Report) -> Table:
    rows = [
        (stage, f"{cost.ms_per_snippet:.3f}", f"{cost.snippets_per_s:,.0f}")
        for stage, cost in report.stages.index.items()
    ]
    title = f"Indexing {report.settings['index_snippets']:,} snippets (bm25 is a part of write)"
    return Table(title, ["part", "ms/snippet", "snippets/s"], rows)


def _batch_table(stages: Stages) -> Table:
    named = {"encode": stages.encode_queries, **stages.first_stage}
    rows = [
        (name, str(size), *_times(timing), f"{timing.mean / size:.3f}", str(timing.n))
        for name, timings in named.items()
        for size, timing in timings.items()
    ]
    columns = ["stage", "batch", *TIMES, "mean/query", "calls"]
    return Table("Encoding questions, and the first stage: ms a batch", columns, rows)


def _single_table(report: Report) -> Table:
    stages = report.stages
    named = {**stages.one_by_one, **({"total with the generator": stages.answer} if stages.answer else {})}
    rows = [(name, *_times(timing), str(timing.n)) for name, timing in named.items()]
    title = f"One question at a time, {report.settings['mode']}, k_init {report.settings['k_init']}: ms"
    return Table(title, ["stage", *TIMES, "calls"], rows)


def _generation_table(found: Generated) -> Table:
    values = {"answers": found.questions, "seconds an answer (median)": round(found.generate.p50 / 1000, 2)}
    values |= {name.replace("_per_s", "/s").replace("_", " "): asdict(found)[name] for name in SPEEDS}
    rows = [(name, f"{value:,}") for name, value in values.items() if value is not None]
    return Table("Generation", ["", ""], rows)


def _baseline_table(title: str, listed: Sequence[Compared]) -> Table:
    rows = [
        (
            found.baseline,
            found.task,
            f"{found.snippets:,}" if found.snippets else "",
            f"{_figure(found.ours)} {found.unit}",
            f"{_figure(found.theirs)} {found.unit}",
            f"{found.ratio:,.1f}×",
            *(_or_blank(value, ".3f") for value in (found.ours_recall, found.theirs_recall)),
            _or_blank(found.built_s, ",.2f"),
        )
        for found in listed
    ]
    columns = ["baseline", "task", "snippets", "biorag", "theirs", "times as fast"]
    return Table(title, [*columns, "recall@10", "theirs", "theirs built in s"], rows)


def _growth_table(listed: Sequence[Grown]) -> Table:
    rows = [
        (
            *_variant(grown),
            f"{grown.write_s:.1f}",
            f"{grown.optimize_s:.1f}",
            f"{grown.write_cpu_s:.1f}",
            f"{grown.optimize_cpu_s:.1f}",
            f"{grown.snippets_per_s:,.0f}",
            f"{grown.bytes_per_snippet:,.0f}",
        )
        for grown in listed
    ]
    columns = ["write s", "optimize s", "write CPU s", "optimize CPU s", "snippets/s", "bytes/snippet"]
    return Table("Growth on synthetic snippets: writing and disk", ["snippets", "vectors", *columns], rows)


def _growth_memory_table(listed: Sequence[Grown]) -> Table:
    rows = [
        (
            *_variant(grown),
            *map(_megabytes, (grown.writing_peak, grown.writing_anonymous, grown.writing_file_backed)),
            *map(_megabytes, (memory.before, memory.opened, memory.opened_anonymous)),
            *map(_megabytes, (memory.searched, memory.searched_anonymous, memory.peak)),
        )
        for grown in listed
        for memory in [grown.memory]
    ]
    writer = ["writer, peak", "anonymous", "files"]
    reader = ["reader before", "opened", "anonymous", "searched", "anonymous", "peak"]
    return Table("Growth on synthetic snippets: memory in MB", ["snippets", "vectors", *writer, *reader], rows)


def _doubling_table(listed: Sequence[Grown]) -> Table:
    rows = [
        (f"{found.start:,} to {found.end:,}", "int8" if found.quantized else "fp32", name, f"{factor:.2f}")
        for found in doublings(listed)
        for name, factor in found.factors.items()
    ]
    return Table("Growth: factor for each doubling (2 is linear)", ["snippets", "vectors", "figure", "factor"], rows)


def _growth_search_table(listed: Sequence[Grown]) -> Table:
    rows = [
        (*_variant(grown), mode, *_times(timing), *(_recalls(grown) if mode == "dense" else ("", "")))
        for grown in listed
        for mode, timing in grown.search.items()
    ]
    condition = " and ".join(f"{each.field}{each.op}{each.value}" for each in COMMON)
    columns = ["snippets", "vectors", "first stage", *TIMES, "recall@10", f"recall@10, {condition}"]
    return Table("Growth on synthetic snippets: ms a question", columns, rows)


def _recalls(grown: Grown) -> tuple[str, str]:
    return f"{grown.recall:.3f}", _or_blank(grown.filtered_recall, ".3f")


def _variant(grown: Grown) -> tuple[str, str]:
    return f"{grown.snippets:,}", "int8" if grown.quantized else "fp32"


def _times(timing: Timing) -> list[str]:
    return [_figure(getattr(timing, name)) for name in TIMES]


def _figure(value: float) -> str:
    return f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def _or_blank(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _megabytes(value: int | None) -> str:
    return "" if value is None else f"{value / MEGABYTE:,.0f}"


def write_report(out: Path, report: Report) -> None:
    """Write `latency.json`, `latency.png` (time a question by size of batch), and `growth.png` if that was measured."""
    write_json(out / "latency.json", report.to_json())
    write_plot(out / "latency.png", [_batch_panel(report.stages)])
    if report.growth:
        write_plot(out / "growth.png", growth_panels(report.growth))


def _batch_panel(stages: Stages) -> PlotPanel:
    named = {"encoding": stages.encode_queries, **stages.first_stage}
    lines = {
        name: [(size, timing.p50 / size) for size, timing in sorted(timings.items())] for name, timings in named.items()
    }
    return PlotPanel("Batches of questions", "questions in a batch", "ms a question (median)", lines, logarithmic=True)


def growth_panels(listed: Sequence[Grown]) -> list[PlotPanel]:
    """Return medians of searches, seconds of writing, and memory, each against the number of snippets."""
    search: dict[str, list[tuple[float, float]]] = {}
    write: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, list[tuple[float, float]]] = {}
    for grown in sorted(listed, key=lambda grown: grown.snippets):
        kind = "int8" if grown.quantized else "fp32"
        for mode, timing in grown.search.items():
            if mode != "bm25" or not grown.quantized:  # int8 is of the vectors
                name = mode if mode == "bm25" else f"{mode}, {kind}"
                search.setdefault(name, []).append((grown.snippets, timing.p50))
        for found in grown.baselines:
            search.setdefault(found.baseline, []).append((grown.snippets, found.theirs))
        write.setdefault(f"write and optimize, {kind}", []).append((grown.snippets, grown.write_s + grown.optimize_s))
        memory.setdefault(f"writing, {kind}", []).append((grown.snippets, grown.writing_peak / MEGABYTE))
        if grown.writing_anonymous is not None:
            own = (grown.snippets, grown.writing_anonymous / MEGABYTE)
            memory.setdefault(f"writing, anonymous, {kind}", []).append(own)
        if grown.memory.opened is not None and grown.memory.searched is not None:
            memory.setdefault(f"opened, {kind}", []).append((grown.snippets, grown.memory.opened / MEGABYTE))
            memory.setdefault(f"searched, {kind}", []).append((grown.snippets, grown.memory.searched / MEGABYTE))
    return [
        PlotPanel("Search", "snippets", "ms a question (median)", search, logarithmic=True),
        PlotPanel("Indexing without encoding", "snippets", "seconds", write, logarithmic=True),
        PlotPanel("Memory of a process", "snippets", "MB", memory, logarithmic=True),
    ]
