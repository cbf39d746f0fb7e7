r"""One command run in two checkouts by turns: medians of wall time, CPU time and peak memory, and their ratios.

    python -m scripts.measure.paired --base ../before --prepare "biorag index demo --name demo" -- \
        biorag search "isoniazid neuropathy" --name demo

The page cache is warm: each checkout runs the command once before the rounds. `biorag` and `python` at the start of a
command are run by this interpreter.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from statistics import median
from typing import Any

from scripts.measure import machine
from scripts.measure.checkouts import BASE, NEW, Checkout, all_facts, checkouts_of, parser_of
from scripts.measure.processes import Cost, alternate
from scripts.measure.summary import markdown, ratio, report

FIGURES = {"wall_s": "wall, s", "cpu_s": "CPU, s", "peak_mb": "peak memory, MB"}


def costs_of(checkouts: Sequence[Checkout], command: Sequence[str], rounds: int) -> dict[str, list[Cost]]:
    """Return the costs of each round by the checkout's name, after one run of each that does not count."""
    for checkout in checkouts:
        checkout.run(command)

    def cost(checkout: Checkout) -> Cost:
        return checkout.run(command).cost

    return alternate({checkout.name: partial(cost, checkout) for checkout in checkouts}, rounds)


def rows_of(costs: Mapping[str, Sequence[Cost]]) -> list[list[Any]]:
    """Return one row a figure: its name, both medians and their ratio."""
    rows: list[list[Any]] = []
    for field in fields(Cost):
        base, new = ([getattr(cost, field.name) for cost in costs[name]] for name in (BASE, NEW))
        rows.append([FIGURES[field.name], median(base), median(new), ratio(base, new)])
    return rows


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__, rounds=9)
    parser.add_argument("--prepare", action="append", default=[], metavar="COMMAND", help="run once in each checkout")
    parser.add_argument("command", nargs="+", help="the command that is measured, after --")
    options = parser.parse_args()
    checkouts = checkouts_of(options)
    described = machine.described(checkouts[1])
    for checkout in checkouts:
        for command in options.prepare:
            checkout.run(shlex.split(command))
    costs = costs_of(checkouts, options.command, options.rounds)
    table = markdown([shlex.join(options.command), BASE, NEW, "new / base (95 %)"], rows_of(costs))
    record = {
        "machine": described,
        "checkouts": all_facts(checkouts),
        "costs": {name: [asdict(cost) for cost in of_rounds] for name, of_rounds in costs.items()},
    }
    report(machine.heading(described, checkouts) + table, record, options.json)


if __name__ == "__main__":
    main()
