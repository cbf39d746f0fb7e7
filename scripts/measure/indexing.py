"""Indexing with and without compact token vectors, in two checkouts by turns.

    python -m scripts.measure.indexing --base ../before --data DATA [--snippets 2000]

indexes the snippets in a process and a home of its own each time: in the new checkout by default and with `--plain`
flags, and in the base as it is by default. Rates are of the seconds that indexing reports, after the model was loaded.
Processor time and peak memory are of the whole process.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from scripts.measure import machine
from scripts.measure.checkouts import Checkout, add_data, all_facts, checkouts_of, data_of, parser_of
from scripts.measure.processes import Cost, alternate
from scripts.measure.summary import markdown, ratio, report
from scripts.measure.warm import PLAIN

COMPACT, WITHOUT, BEFORE = "compact tokens", "no tokens", "base"


class Indexed(NamedTuple):
    """One run: what the process cost, its snippets, the seconds that indexing them took, and bytes of the index."""

    cost: Cost
    snippets: int
    seconds: float
    index_bytes: int

    @property
    def rate(self) -> float:
        """Snippets a second."""
        return self.snippets / self.seconds


def index(checkout: Checkout, corpus: Path, flags: Sequence[str]) -> Indexed:
    """Index a corpus in a new home."""
    home = checkout.work / "indexing"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    finished = checkout.run(["biorag", "index", str(corpus), "--name", "measured", "--json", *flags], home)
    reported = json.loads(finished.stdout)
    index_bytes = sum(path.stat().st_blocks * 512 for path in home.rglob("*") if path.is_file())
    shutil.rmtree(home)
    return Indexed(finished.cost, reported["snippets"], reported["seconds"], index_bytes)


def rows_of(runs: Mapping[str, Sequence[Indexed]]) -> list[list[Any]]:
    """Return one row a way of indexing, with its rate as a multiple of that without tokens."""
    rows: list[list[Any]] = []
    for label, of_rounds in runs.items():
        rates = [run.rate for run in of_rounds]
        snippets = of_rounds[0].snippets
        rows.append(
            [
                label,
                snippets,
                median(rates),
                median(run.cost.cpu_s for run in of_rounds),
                median(1000 * run.cost.cpu_s / run.snippets for run in of_rounds),
                median(run.cost.peak_mb for run in of_rounds),
                median(run.index_bytes for run in of_rounds) / snippets,
                ratio([run.rate for run in runs[WITHOUT]], rates),
            ]
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__, rounds=3)
    add_data(parser)
    parser.add_argument("--plain", default=PLAIN, help=f"flags that leave out the tokens (default: {PLAIN})")
    parser.add_argument("--compact", default="", help="flags of the index with tokens (default: none)")
    options = parser.parse_args()
    base, new = checkouts_of(options)
    data = data_of(options)
    described = machine.described(new)
    corpus = data.corpus(options.snippets)
    tasks: dict[str, Callable[[], Indexed]] = {
        COMPACT: partial(index, new, corpus, shlex.split(options.compact)),
        WITHOUT: partial(index, new, corpus, shlex.split(options.plain)),
        BEFORE: partial(index, base, corpus, ()),
    }
    for task in (partial(index, new, data.corpus(100), ()), partial(index, base, data.corpus(100), ())):
        task()
    runs = alternate(tasks, options.rounds)
    columns = ["snippets/s", "CPU, s", "CPU ms a snippet", "peak memory, MB", "bytes a snippet"]
    header = ["indexing", "snippets", *columns, "rate / without tokens (95 %)"]
    record = {
        "machine": described,
        "checkouts": all_facts((base, new)),
        "runs": {
            label: [{**run._asdict(), "cost": asdict(run.cost)} for run in of_rounds]
            for label, of_rounds in runs.items()
        },
    }
    report(machine.heading(described, (base, new)) + markdown(header, rows_of(runs)), record, options.json)


if __name__ == "__main__":
    main()
