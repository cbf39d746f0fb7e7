"""`biorag plan`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.settings.settings import Settings


@expanded
def plan(
    snippets: Annotated[int, typer.Option(min=1, max=10**12, help="Snippets of the corpus.")],
    settings: Annotated[Settings, Flags("encoder", "store_tokens", "quantize")],
    machine: Annotated[list[Path], typer.Option(help="TOML file of a machine; repeat to compare.")],
    tokens: Annotated[
        float, typer.Option(min=1, help="Tokens of a snippet on average, cut at the encoder's window.")
    ] = 295.7,
    as_json: options.Json = False,
) -> None:
    """Compute time, memory, disk, machines and cost of indexing and searching a large corpus.

    Rates are marked: (g) given in the machine's file, (c) computed from a packaged measurement. docs/scale.md has the
    formulas.

    Examples:

      biorag plan --snippets 24000000 --machine docs/machines/one-gpu.toml
      biorag plan --snippets 24000000 --machine one-gpu.toml --machine cpus.toml --quantize --json
    """
    from biorag.engine import encoder_files
    from biorag.lab.scale import planning
    from biorag.models.resources import model_shape

    machines = [planning.load_machine(path) for path in machine]
    size, index = model_shape(encoder_files(settings, None)), settings.index
    workload = planning.Workload(
        snippets, tokens, size.hidden, size.parameters, size.multiplied, index.store_tokens or "compact", index.quantize
    )
    plans = [planning.plan(workload, kind) for kind in machines]
    if as_json:
        bytes_of = {f"{name}_bytes": value for name, value in planning.sizes(workload)._asdict().items()}
        show.print_json({"workload": asdict(workload), "sizes": bytes_of, "machines": plans})
        return
    show.table(
        f"{snippets:,} snippets: (g) given, (c) computed",
        ["", *(f"{kind.count} × {kind.name}" for kind in machines)],
        [[rows[0][0], *(text for _, text in rows)] for rows in zip(*map(_rows, plans), strict=True)],
    )


def _rows(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a plan: title and text."""
    rows = []
    for stage in plan["stages"]:
        rows += [
            (f"{stage['name']}: snippets/s a machine", f"{_number(stage['rate'])} ({stage['source'][0]})"),
            (f"{stage['name']}: time", _time(stage["seconds"])),
            (f"{stage['name']}: memory a machine", _bytes(stage["memory_bytes"])),
            (f"{stage['name']}: disk a machine", _bytes(stage["disk_bytes"])),
        ]
    search, currency = plan["search"], plan["machine"]["currency"]
    return [
        *rows,
        ("all stages: time", _time(plan["seconds"])),
        ("all stages: cost", f"{plan['cost']:,.2f} {currency}" if plan["cost"] else "no price_per_hour"),
        ("bottleneck", plan["bottleneck"]),
        ("search: memory of all machines", _bytes(search["memory_bytes"])),
        ("search: disk of all machines", _bytes(search["disk_bytes"])),
        ("search: ms a question", _number(search["question_ms"])),
        *((f"machines for {need}", str(count)) for need, count in plan["machines"].items()),
        ("machines needed", str(plan["needed"])),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"
