"""The report of `bench latency` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

MEGABYTE = 1 << 20
TIMES = ("mean", "p50", "p95", "p99")
ONE_BY_ONE = ("fetch", "rerank", "total_without_generator", "total_with_generator")

LatencyTable: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # title, columns, rows as shown


def tables(report: Mapping[str, Any]) -> Iterator[LatencyTable]:
    """Yield the report as tables: the conditions, indexing, batches of questions, one question at a time."""
    machine, index, settings, stages = (report[part] for part in ("machine", "index", "settings", "stages"))
    conditions = [
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, load before {machine['load']}"),
        ("index", f"{index['name']}: {index['snippets']:,} snippets, encoder {index['encoder']['id']}"),
        ("questions", f"{settings['questions']:,}, {settings['questions_from']}"),
        ("memory at most", f"{report['memory']['peak_bytes'] / MEGABYTE:,.0f} MB"),
    ]
    yield "Measured", ["", ""], conditions

    indexed = [
        (part, f"{cost['ms_per_snippet']:.3f}", f"{cost['snippets_per_s']:,.0f}")
        for part, cost in stages["index"].items()
    ]
    title = f"Indexing {settings['index_snippets']:,} snippets (bm25 is a part of write)"
    yield title, ["part", "ms/snippet", "snippets/s"], indexed

    batches = [
        (name, size, *_times(timing), f"{timing['ms_per_query']:.3f}", str(timing["n"]))
        for name, timings in {"encode": stages["encode_queries"], **stages["first_stage"]}.items()
        for size, timing in timings.items()
    ]
    columns = ["stage", "batch", *TIMES, "mean/query", "calls"]
    yield "Encoding questions, and the first stage: ms per batch", columns, batches

    timings = {name: stages[name] for name in ONE_BY_ONE} | {"generate": (stages["generation"] or {}).get("generate")}
    single = [(name, *_times(timing), str(timing["n"])) for name, timing in timings.items() if timing]
    title = f"One question at a time, {settings['mode']}, k_init {settings['k_init']}: ms"
    yield title, ["stage", *TIMES, "calls"], single


def _times(timing: Mapping[str, float]) -> list[str]:
    return [f"{timing[name]:,.3f}" if timing[name] < 10 else f"{timing[name]:,.1f}" for name in TIMES]
