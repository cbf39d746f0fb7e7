"""A question from a cold start, in two checkouts by turns, and what it imports.

    python -m scripts.measure.cold --base ../before --data DATA

runs `biorag search` as it is by default, `biorag search --mode bm25 --no-rerank`, and `biorag ask` with the extract,
each in a process of its own with a warm page cache. It reports the medians of wall time, CPU time and peak memory, the
CPU time of each command as a multiple of the BM25 search's in the same round, and which heavy libraries
`-X importtime` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from statistics import median
from typing import Any

from scripts.measure import machine
from scripts.measure.checkouts import (
    BASE,
    NEW,
    Checkout,
    add_data,
    all_facts,
    checkouts_of,
    data_of,
    index_name,
    parser_of,
)
from scripts.measure.paired import FIGURES
from scripts.measure.processes import Cost, alternate, log
from scripts.measure.summary import markdown, ratio, report

HEAVY = ("torch", "transformers", "scipy", "sklearn", "sentence_transformers", "onnxruntime")
SEARCH, BM25, ASK = "search", "search --mode bm25 --no-rerank", "ask"
QUESTION = "Which vitamin is given with isoniazid to prevent neuropathy?"


def commands(name: str) -> dict[str, list[str]]:
    """Return the command lines by what the table calls them."""
    index = ["--name", name, "--json"]
    return {
        SEARCH: ["biorag", "search", QUESTION, *index],
        BM25: ["biorag", "search", QUESTION, "--mode", "bm25", "--no-rerank", *index],
        ASK: ["biorag", "ask", QUESTION, *index],
    }


def heavy_imports(import_times: str) -> list[str]:
    """Return the heavy libraries in the output of `python -X importtime`."""
    lines = (line for line in import_times.splitlines() if line.startswith("import time:"))
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in lines}
    return [library for library in HEAVY if library in imported]


def imports_of(checkout: Checkout, command: Sequence[str]) -> list[str]:
    """Return the heavy libraries that a `biorag` command imports."""
    return heavy_imports(checkout.run(["python", "-X", "importtime", "-m", *command]).stderr)


def rows_of(costs: Mapping[tuple[str, str], Sequence[Cost]]) -> list[list[Any]]:
    """Return one row for each command and figure: both medians and their ratio."""
    rows: list[list[Any]] = []
    for command in dict.fromkeys(command for _, command in costs):
        for field in fields(Cost):
            base, new = ([getattr(cost, field.name) for cost in costs[name, command]] for name in (BASE, NEW))
            rows.append([f"`{command}`", FIGURES[field.name], median(base), median(new), ratio(base, new)])
    return rows


def multiples_of(costs: Mapping[tuple[str, str], Sequence[Cost]]) -> list[list[Any]]:
    """Return one row for each checkout and command: its CPU time as a multiple of the BM25 search's."""
    rows: list[list[Any]] = []
    for name, command in costs:
        if command != BM25:
            bm25, other = ([cost.cpu_s for cost in costs[name, which]] for which in (BM25, command))
            rows.append([name, f"`{command}`", ratio(bm25, other)])
    return rows


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__, rounds=7)
    add_data(parser)
    options = parser.parse_args()
    checkouts, name = checkouts_of(options), index_name(options.snippets)
    described = machine.described(checkouts[1])
    for checkout in checkouts:
        checkout.require_index(name, data_of(options).corpus(options.snippets))
    imported: dict[str, dict[str, list[str]]] = {checkout.name: {} for checkout in checkouts}
    for checkout in checkouts:
        for label, command in commands(name).items():
            log(f"imports and warm-up: {checkout.name} {label}")
            imported[checkout.name][label] = imports_of(checkout, command)

    def cost(checkout: Checkout, command: Sequence[str]) -> Cost:
        return checkout.run(command).cost

    tasks = {
        (checkout.name, label): partial(cost, checkout, command)
        for label, command in commands(name).items()
        for checkout in checkouts
    }
    costs = alternate(tasks, options.rounds)
    tables = (
        markdown(["command", "figure", BASE, NEW, "new / base (95 %)"], rows_of(costs)),
        markdown(["checkout", "command", "CPU time / that of the BM25 search (95 %)"], multiples_of(costs)),
        markdown(
            ["checkout", "command", "heavy libraries imported"],
            [
                [checkout, f"`{label}`", ", ".join(libraries) or "none"]
                for checkout, by_command in imported.items()
                for label, libraries in by_command.items()
            ],
        ),
    )
    record = {
        "machine": described,
        "checkouts": all_facts(checkouts),
        "imported": imported,
        "costs": {" ".join(key): [asdict(cost) for cost in of_rounds] for key, of_rounds in costs.items()},
    }
    report(machine.heading(described, checkouts) + "\n".join(tables), record, options.json)


if __name__ == "__main__":
    main()
