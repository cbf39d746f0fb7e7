"""`biorag plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Panel, expanded
from biorag.corpus.sources import DEMO
from biorag.errors import UsageError
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.scale.machine import MachineKind
    from biorag.scale.planning import ScalePlan, Workload

SAVED = "# Measured by biorag plan.\n"


@dataclass(frozen=True, slots=True)
class AverageSnippet:
    """The snippets and the encoder, where they are not the defaults."""

    tokens: Annotated[
        float, typer.Option(min=1, help="Tokens of a snippet on average, cut at the encoder's window.")
    ] = 241.3
    text_bytes: Annotated[float, typer.Option(min=1, help="Bytes of a snippet as JSON, on average.")] = 1466.0
    terms: Annotated[float, typer.Option(min=1, help="Distinct BM25 terms of a snippet, on average.")] = 86.0
    dimension: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="Dimension of vectors. Default: the encoder's.")
    ] = None
    parameters: Annotated[
        float | None,
        typer.Option(min=1, help="Parameters of the encoder, all multiplied with each token. Default: its own."),
    ] = None


@dataclass(frozen=True, slots=True)
class Spread:
    """How the index is spread over machines, and how many questions it answers."""

    replicas: Annotated[int, typer.Option(min=1, max=100, help="Copies of each shard.")] = 1
    shards: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Parts of the index.", show_default="one a machine")
    ] = None
    on_disk: Annotated[bool, typer.Option("--on-disk", help="Keep the vectors on disk, not in memory.")] = False
    queries_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="Questions a second that the machines must answer.")
    ] = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of this machine."""

    measure: Annotated[
        bool, typer.Option("--measure", help="Measure how fast this machine encodes and loads, in under a minute.")
    ] = False
    save: Annotated[Path | None, typer.Option(help="Write this machine and its rates as a machine's TOML file.")] = None


@expanded
def plan(
    snippets: Annotated[int, typer.Option(min=1, max=10**12, help="Snippets of the corpus.")],
    settings: Annotated[Settings, Flags("encoder", "revision", "store_tokens", "quantize")],
    average: Annotated[AverageSnippet, Panel("Texts and encoder")],
    spread: Annotated[Spread, Panel("Cluster")],
    measurement: Annotated[Measurement, Panel("Measuring")],
    corpus: Annotated[
        list[str] | None, typer.Argument(help="Corpus to measure with, as for 'biorag index'. Default: demo.")
    ] = None,
    machine: Annotated[
        list[Path] | None,
        typer.Option(help="TOML file of a machine; repeat to compare. --measure adds this one."),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Compute time, memory, disk, machines and cost of indexing and searching a large corpus.

    Rates are marked: (m) measured on that machine, (g) given in its file, (c) computed from a packaged measurement, in
    proportion to the cores. docs/scale.md has the formulas.

    Examples:

      biorag plan --snippets 24000000 --machine docs/machines/one-gpu.toml

      biorag plan --snippets 24000000 --machine one-gpu.toml --machine cpus.toml --quantize --json

      biorag plan --snippets 24000000 --measure --save here.toml pubmed/chunk/
    """
    from biorag.scale.machine import load_machine, reference
    from biorag.scale.planning import Planner, sizes

    _check(measurement, corpus, machine)
    machines = [load_machine(path) for path in machine or ()]
    workload = _workload(snippets, settings, average, spread)
    if measurement.measure:
        machines.append(_measured(settings, corpus or [DEMO], measurement.save, machine or [], force))
    plans = [Planner(workload, kind, reference()).plan() for kind in machines]
    if as_json:
        bytes_of = {f"{name}_bytes": value for name, value in asdict(sizes(workload)).items()}
        show.print_json({"workload": asdict(workload), "sizes": bytes_of, "machines": list(map(_json, plans))})
        return
    show.table(
        f"{snippets:,} snippets: (m) measured, (g) given, (c) computed",
        ["", *(f"{kind.count} × {kind.name}" for kind in machines)],
        [[rows[0][0], *(text for _, text in rows)] for rows in zip(*map(_rows, plans), strict=True)],
    )
    for note in (note for computed in plans for note in computed.notes):
        show.err.print(note, soft_wrap=True)


def _check(measurement: Measurement, corpus: Sequence[str] | None, machines: Sequence[Path] | None) -> None:
    if not measurement.measure and (measurement.save or corpus):
        named = f"--save {measurement.save}" if measurement.save else f"CORPUS {corpus[0]!r}" if corpus else ""
        raise UsageError(f"{named} is for a measurement: add --measure")
    if not (measurement.measure or machines):
        raise UsageError("no machine is described: give --machine FILE.toml, or --measure for this machine")


def _workload(snippets: int, settings: Settings, average: AverageSnippet, spread: Spread) -> Workload:
    from biorag.engine import encoder_files
    from biorag.models.resources import model_size
    from biorag.scale.planning import Workload

    size = model_size(encoder_files(settings, None))
    return Workload(
        snippets=snippets,
        tokens=average.tokens,
        text_bytes=average.text_bytes,
        terms=average.terms,
        dimension=average.dimension or size.dimension,
        parameters=int(average.parameters or size.parameters),
        multiplied=int(average.parameters or size.multiplied),
        store_tokens=settings.index.store_tokens or "compact",
        quantized=settings.index.quantize,
        **asdict(spread),
    )


def _measured(
    settings: Settings, corpus: list[str], save: Path | None, inputs: Sequence[Path], force: bool
) -> MachineKind:
    from biorag.scale.machine import write_machine
    from biorag.scale.measuring import measure
    from biorag.utils.files import check_replaceable

    if save:
        check_replaceable(
            save, "file of a machine", lambda beginning: beginning.startswith(SAVED.encode()), inputs, force
        )
    machine = measure(settings, corpus)
    if save:
        write_machine(save, machine, SAVED)
    return machine


def _json(plan: ScalePlan) -> dict[str, Any]:
    return {"name": plan.machine.name, **asdict(plan), "machine": plan.machine.model_dump()}


def _rows(plan: ScalePlan) -> list[tuple[str, str]]:
    """Return the rows of a plan: title and text."""
    rows = []
    for stage in plan.stages:
        rows += [
            (f"{stage.name}: snippets/s a machine", f"{_number(stage.rate.value)} ({stage.rate.source[0]})"),
            (f"{stage.name}: time", _time(stage.seconds)),
            (f"{stage.name}: memory a machine", _bytes(stage.memory_bytes)),
            (f"{stage.name}: disk a machine", _bytes(stage.disk_bytes)),
            (f"{stage.name}: cost", _cost(plan, stage.cost)),
        ]
    search = plan.search
    return [
        *rows,
        ("all stages: time", _time(plan.seconds)),
        ("all stages: cost", _cost(plan, plan.cost)),
        ("bottleneck", plan.bottleneck),
        ("search: memory of all machines", _bytes(search.memory_bytes)),
        ("search: disk of all machines", _bytes(search.disk_bytes)),
        ("search: ms a question", _number(search.question_ms)),
        ("search: questions/s at most", _number(search.questions_per_second)),
        *((f"machines for {need}", str(count)) for need, count in plan.machines.items()),
        ("machines needed", str(plan.needed)),
        ("search: cost a month", _cost(plan, search.cost_per_month)),
    ]


def _cost(plan: ScalePlan, cost: float | None) -> str:
    return "no price_per_hour" if cost is None else f"{cost:,.2f} {plan.machine.currency}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"
