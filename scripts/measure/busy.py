"""Indexing and searching on a busy machine, pinned to one core and under a quota, in two checkouts by turns.

    python -m scripts.measure.busy --base ../before --data DATA

A worker of each checkout indexes `--snippets` snippets and searches `--questions` questions: alone; beside one and two
busy processes of one thread, which spin or multiply matrices; pinned to one core; and in a control group with a quota
of one core. Libraries are loaded before the neighbours start; pinned and limited workers start pinned and limited.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from scripts.measure import machine
from scripts.measure.checkouts import Checkout, add_data, all_facts, checkouts_of, data_of, index_name, parser_of
from scripts.measure.contention import PRODUCT, SPIN, ControlGroup, UnavailableError, neighbours, pinned
from scripts.measure.processes import Worker, alternate
from scripts.measure.summary import markdown, report
from scripts.measure.warm import WARM_UP, worker_command

IDLE, PINNED, QUOTA = "alone, all cores", "pinned to one core", "a quota of one core"
NUMBERS = {1: "one process", 2: "two processes"}
Within = Callable[[Sequence[str]], list[str]]


class Rates(NamedTuple):
    """Snippets indexed and questions searched in a second."""

    indexing: float
    searching: float


class Work(NamedTuple):
    """What every worker does."""

    corpus: Path
    few: Path  # indexed first, to warm up
    questions: Sequence[str]
    searched: str  # name of the index


def rates(worker: Worker, work: Work) -> Rates:
    """Index the corpus into a new index and search all questions."""
    report = worker.ask(corpus=str(work.corpus), name="measured")
    started = time.perf_counter()
    worker.ask(questions=work.questions)
    return Rates(report["snippets"] / report["seconds"], len(work.questions) / (time.perf_counter() - started))


def measured(
    checkouts: Sequence[Checkout],
    within: Within,
    conditions: Mapping[str, Callable[[], AbstractContextManager[None]]],
    work: Work,
    rounds: int,
) -> dict[tuple[str, str], list[Rates]]:
    """Return the rates of each round by condition and checkout; all conditions share a checkout's worker."""
    with ExitStack() as stack:
        workers = {}
        for checkout in checkouts:
            command = within(worker_command(name=work.searched))
            worker = stack.enter_context(Worker(command, checkout.environment()))
            worker.ask(corpus=str(work.few), name="measured")
            worker.ask(questions=work.questions[:WARM_UP])
            workers[checkout.name] = worker

        def under(condition: str, name: str) -> Rates:
            with conditions[condition]():
                return rates(workers[name], work)

        tasks = {(condition, name): partial(under, condition, name) for condition in conditions for name in workers}
        return alternate(tasks, rounds)


def of_one_core(
    checkouts: Sequence[Checkout], work: Work, rounds: int
) -> tuple[dict[tuple[str, str], list[Rates]], str]:
    """Return the rates of pinned workers and of limited ones, as far as the system has the means, and what it has."""
    results: dict[tuple[str, str], list[Rates]] = {}
    try:
        results |= measured(checkouts, pinned, {PINNED: nullcontext}, work, rounds)
        with closing(ControlGroup(cores=1)) as group:
            results |= measured(checkouts, group.within, {QUOTA: nullcontext}, work, rounds)
            return results, f"The quota is that of a control group, cgroup v{group.version}."
    except UnavailableError as error:
        return results, f"Left out: {error}."


def conditions_of(kinds: Sequence[str]) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """Return what makes the machine busy, by the name of the condition; idle is the first."""
    conditions: dict[str, Callable[[], AbstractContextManager[None]]] = {IDLE: nullcontext}
    for kind in kinds:
        for count, number in NUMBERS.items():
            conditions[f"beside {number}, {kind}"] = partial(neighbours, kind, count)
    return conditions


def rows_of(results: Mapping[tuple[str, str], Sequence[Rates]], names: Sequence[str]) -> list[list[Any]]:
    """Return one row a condition: medians of the rates in each checkout, and their ratio to the reference.

    The reference of a quota is one core, of everything else the idle machine.
    """
    rows: list[list[Any]] = []
    for condition in dict.fromkeys(condition for condition, _ in results):
        reference = PINNED if condition == QUOTA else IDLE
        row: list[Any] = [condition, reference]
        for figure in Rates._fields:
            for name in names:
                value, of_reference = (
                    median(getattr(rate, figure) for rate in results[which, name]) for which in (condition, reference)
                )
                row += [value, value / of_reference]
        rows.append(row)
    return rows


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__, rounds=2)
    add_data(parser, questions=50)
    parser.set_defaults(snippets=1000)
    parser.add_argument("--flags", default="", help="flags of the new checkout's index that is searched")
    parser.add_argument(
        "--neighbours", nargs="+", choices=[SPIN, PRODUCT], default=[SPIN, PRODUCT], help="what is busy"
    )
    options = parser.parse_args()
    base, new = checkouts_of(options)
    data, described = data_of(options), machine.described(new)
    work = Work(
        data.corpus(options.snippets), data.corpus(50), data.questions(options.questions), index_name(options.snippets)
    )
    base.require_index(work.searched, work.corpus)
    new.require_index(work.searched, work.corpus, shlex.split(options.flags))
    conditions = conditions_of(options.neighbours)
    results = measured((base, new), list, conditions, work, options.rounds)
    of_one, means = of_one_core((base, new), work, options.rounds)
    results |= of_one
    names = [base.name, new.name]
    header = ["condition", "reference"]
    for figure in ("snippets/s", "questions/s"):
        for name in names:
            header += [f"{name}: {figure}", "of the reference"]
    record = {
        "machine": described,
        "quota": means,
        "checkouts": all_facts((base, new)),
        "rates": {" / ".join(key): [rate._asdict() for rate in of_rounds] for key, of_rounds in results.items()},
    }
    table = markdown(header, rows_of(results, names))
    report(f"{machine.heading(described, (base, new))}{table}\n{means}\n", record, options.json)


if __name__ == "__main__":
    main()
