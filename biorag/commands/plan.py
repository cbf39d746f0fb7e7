"""`biorag plan`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.scale.planning import ScalePlan, Workload


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


@expanded
def plan(
    snippets: Annotated[int, typer.Option(min=1, max=10**12, help="Snippets of the corpus.")],
    settings: Annotated[Settings, Flags("encoder", "revision", "store_tokens", "quantize")],
    average: Annotated[AverageSnippet, "Texts and encoder"],
    spread: Annotated[Spread, "Cluster"],
    machine: Annotated[list[Path], typer.Option(help="TOML file of a machine; repeat to compare.")],
    as_json: options.Json = False,
) -> None:
    """Compute time, memory, disk, machines and cost of indexing and searching a large corpus.

    Rates are marked: (g) given in the machine's file, (c) computed from a packaged measurement. docs/scale.md has the
    formulas.

    Examples:

      biorag plan --snippets 24000000 --machine docs/machines/one-gpu.toml
      biorag plan --snippets 24000000 --machine one-gpu.toml --machine cpus.toml --quantize --json
    """
    from biorag.scale.machine import load_machine
    from biorag.scale.planning import Planner, sizes

    machines = [load_machine(path) for path in machine]
    workload = _workload(snippets, settings, average, spread)
    plans = [Planner(workload, kind).plan() for kind in machines]
    if as_json:
        bytes_of = {f"{name}_bytes": value for name, value in asdict(sizes(workload)).items()}
        show.print_json({"workload": asdict(workload), "sizes": bytes_of, "machines": list(map(_json, plans))})
        return
    show.table(
        f"{snippets:,} snippets: (g) given, (c) computed",
        ["", *(f"{kind.count} × {kind.name}" for kind in machines)],
        [[rows[0][0], *(text for _, text in rows)] for rows in zip(*map(_rows, plans), strict=True)],
    )
    for note in (note for computed in plans for note in computed.notes):
        show.err.print(note, soft_wrap=True)


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
