"""`biorag plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Panel, expanded
from biorag.corpus.sources import DEMO
from biorag.errors import UsageError
from biorag.settings.settings import Settings
from biorag.utils.versions import require

if TYPE_CHECKING:
    from biorag.scale.machine import Machine, Measured
    from biorag.scale.planning import Figure, Plan
    from biorag.scale.sizes import Workload

SAVED = "# Measured by biorag plan.\n"


@dataclass(frozen=True, slots=True)
class Texts:
    """The snippets and the encoder, where they are not the defaults."""

    tokens: Annotated[
        float, typer.Option(min=1, help="Tokens of a snippet on average, cut at the encoder's window.")
    ] = 241.3
    text_bytes: Annotated[float, typer.Option(min=1, help="Bytes of a snippet as JSON, on average.")] = 1466.0
    terms: Annotated[float, typer.Option(min=1, help="Distinct BM25 terms of a snippet, on average.")] = 86.0
    dimension: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="Dimension of vectors; by default the encoder's.")
    ] = None
    parameters: Annotated[
        float | None,
        typer.Option(min=1, help="Parameters of the encoder, all multiplied with each token; by default its own."),
    ] = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the index is spread, and what is asked of it."""

    replicas: Annotated[int, typer.Option(min=1, max=100, help="Copies of each shard.")] = 1
    shards: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Parts of the index.", show_default="one a machine")
    ] = None
    on_disk: Annotated[bool, typer.Option("--on-disk", help="Keep the vectors on disk, not in memory.")] = False
    queries_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="Rate of questions for which machines are counted.")
    ] = None


@dataclass(frozen=True, slots=True)
class Measuring:
    """The measurement of this machine."""

    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine, under a minute, for rates that no file gives.")
    ] = False
    save: Annotated[Path | None, typer.Option(help="Write this machine and its rates as a machine's TOML file.")] = None


@expanded
def plan(
    snippets: Annotated[int, typer.Option(min=1, max=10**12, help="Snippets of the corpus.")],
    settings: Annotated[Settings, Flags("encoder", "revision", "store_tokens", "quantize")],
    texts: Annotated[Texts, Panel("Texts and encoder")],
    cluster: Annotated[Cluster, Panel("Cluster")],
    measuring: Annotated[Measuring, Panel("Measuring")],
    corpus: Annotated[
        list[str] | None, typer.Argument(help="Corpus to measure with, as 'biorag index' takes it; none: demo.")
    ] = None,
    machine: Annotated[
        list[Path] | None,
        typer.Option(help="TOML file of a machine; repeat to compare. None, with --measure: this machine."),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Compute time, memory, disk, machines and money of indexing and searching a large corpus.

    Each figure is marked: (m) measured on that machine, (g) given in its file, (c) computed; docs/scale.md has the
    formulas. Rates that no file gives are those of a packaged measurement, by cores, or with --measure this machine's.

    Examples:

      biorag plan --snippets 24000000 --machine docs/machines/one-gpu.toml

      biorag plan --snippets 24000000 --machine one-gpu.toml --machine cpus.toml --quantize --json

      biorag plan --snippets 24000000 --measure --save here.toml pubmed/chunk/
    """
    from biorag.scale.machine import load_machine, reference
    from biorag.scale.planning import plan

    _check(measuring, corpus, machine)
    machines = [load_machine(path) for path in machine or ()]
    workload = _workload(snippets, settings, texts, cluster)
    rates = reference()
    if measuring.measure:
        measured = _measured(settings, corpus or [DEMO], measuring.save, machine or [], force)
        rates = measured.measured or rates
        machines = machines or [measured]
    plans = [plan(workload, each, _with_questions(rates, reference())) for each in machines]
    if as_json:
        show.print_json({"workload": asdict(workload), "sizes": _sizes(workload), "machines": list(map(_json, plans))})
        return
    columns = ["", *(f"{each.machine.count} × {each.machine.name}" for each in plans)]
    show.table(
        f"{snippets:,} snippets: (m) measured, (g) given, (c) computed",
        columns,
        [[rows[0][0], *(text for _, text in rows)] for rows in zip(*map(_rows, plans), strict=True)],
    )
    for note in (note for each in plans for note in each.notes):
        show.err.print(note, soft_wrap=True)


def _check(measuring: Measuring, corpus: Sequence[str] | None, machines: Sequence[Path] | None) -> None:
    if not measuring.measure and (measuring.save or corpus):
        named = f"--save {measuring.save}" if measuring.save else f"CORPUS {corpus[0]!r}" if corpus else ""
        raise UsageError(f"{named} is for a measurement: add --measure")
    if measuring.measure:
        require("parquet")
    elif not machines:
        raise UsageError("no machine is described: give --machine FILE.toml, or --measure for this machine")


def _workload(snippets: int, settings: Settings, texts: Texts, cluster: Cluster) -> Workload:
    from biorag.engine import encoder_files
    from biorag.scale.sizes import Workload, encoder_size

    size = encoder_size(encoder_files(settings, None))
    dimension = texts.dimension or size.dimension
    return Workload(
        snippets=snippets,
        tokens=texts.tokens,
        text_bytes=texts.text_bytes,
        terms=texts.terms,
        dimension=dimension,
        parameters=int(texts.parameters or size.parameters),
        multiplied=int(texts.parameters or size.multiplied),
        store_tokens=settings.index.store_tokens or "compact",
        quantized=settings.index.quantize,
        on_disk=cluster.on_disk,
        replicas=cluster.replicas,
        shards=cluster.shards,
        queries_per_second=cluster.queries_per_second,
    )


def _measured(settings: Settings, corpus: list[str], save: Path | None, inputs: Sequence[Path], force: bool) -> Machine:
    from biorag.scale.machine import write_machine
    from biorag.scale.measuring import measure
    from biorag.utils.files import check_replaceable

    if save:
        check_replaceable(
            save, "file of a machine", lambda beginning: beginning.startswith(SAVED.encode()), inputs, force
        )
    measured = measure(settings, corpus, progress=show.progress)
    if save:
        write_machine(save, measured, SAVED)
    return measured


def _with_questions(rates: Measured, packaged: Measured) -> Measured:
    """Return rates with the times of questions, which are not measured here, of the packaged measurement."""
    names = ("question_milliseconds", "first_stage_milliseconds_per_million")
    return rates.model_copy(update={name: getattr(packaged, name) for name in names if getattr(rates, name) is None})


def _sizes(workload: Workload) -> dict[str, float]:
    from biorag.scale.sizes import sizes

    return {f"{name}_bytes": value for name, value in asdict(sizes(workload)).items()}


def _json(plan: Plan) -> dict[str, Any]:
    values = asdict(plan)
    return {"name": plan.machine.name, **values, "machine": plan.machine.model_dump(), "needed": plan.needed}


def _rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of a plan: title and text."""
    rows = []
    for stage in plan.stages:
        rows += [
            (f"{stage.name}: snippets/s a machine", _cell(stage.rate, _number)),
            (f"{stage.name}: time", _cell(stage.seconds, _time)),
            (f"{stage.name}: memory a machine", _cell(stage.memory_bytes, _bytes)),
            (f"{stage.name}: disk a machine", _cell(stage.disk_bytes, _bytes)),
            (f"{stage.name}: money", _money(plan, stage.cost)),
        ]
    search = plan.search
    return [
        *rows,
        ("all stages: time", _cell(plan.seconds, _time)),
        ("all stages: money", _money(plan, plan.cost)),
        ("bottleneck", plan.bottleneck),
        ("search: memory in all", _cell(search.memory_bytes, _bytes)),
        ("search: disk in all", _cell(search.disk_bytes, _bytes)),
        ("search: ms a question", _cell(search.question_ms, _number)),
        ("search: questions/s at most", _cell(search.questions_per_second, _number)),
        *((f"machines for {need}", _cell(figure, _number)) for need, figure in plan.machines.items()),
        ("machines needed", f"{plan.needed} (c)"),
        ("search: money a month", _money(plan, search.cost_per_month)),
    ]


def _cell(figure: Figure, words: Callable[[float], str]) -> str:
    return f"{words(figure.value)} ({figure.source[0]})"


def _money(plan: Plan, cost: Figure | None) -> str:
    currency = plan.machine.currency
    return _cell(cost, lambda value: f"{value:,.2f} {currency}") if cost else "no price_per_hour"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"
