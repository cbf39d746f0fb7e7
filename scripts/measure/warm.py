"""A question asked of an open index, in two checkouts by turns: p50 and p99 with 20 and 100 candidates.

    python -m scripts.measure.warm --base ../before --data DATA

Each checkout, index and number of candidates has a process of its own, which loads its models once. Every question goes
to all of them, one after the other, in an order that turns from question to question. The base reranks by its default,
the new checkout by its default index and by one made with `--plain` flags, whose snippets are encoded on the fly.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

from scripts.measure import machine
from scripts.measure.checkouts import Checkout, add_data, all_facts, checkouts_of, data_of, index_name, parser_of
from scripts.measure.processes import Worker, log
from scripts.measure.summary import markdown, ratio, report

CANDIDATES = (20, 100)
PLAIN = "--store-tokens none"
WARM_UP = 5  # questions that do not count
PAUSE = 0.02  # seconds between two questions, in which threads stop spinning


class System(NamedTuple):
    """A checkout's way of reranking so many candidates."""

    label: str
    k_init: int

    def __str__(self) -> str:
        return f"{self.label}, {self.k_init} candidates"


def worker_command(**settings: Any) -> list[str]:
    """Return the command of a worker with these settings."""
    return [sys.executable, "-m", "scripts.measure.worker", json.dumps(settings)]


def ask_all(workers: Mapping[System, Worker], questions: Sequence[str]) -> dict[System, list[dict[str, Any]]]:
    """Return each system's answers, without those of the questions that warm it up."""
    answers: dict[System, list[dict[str, Any]]] = {system: [] for system in workers}
    warm_up = questions[-WARM_UP:]
    for turn, question in enumerate([*warm_up, *questions]):
        systems = list(workers)
        start = turn % len(systems)
        for system in systems[start:] + systems[:start]:
            time.sleep(PAUSE)
            (answer,) = workers[system].ask(questions=[question])["answers"]
            if turn >= len(warm_up):
                answers[system].append({key: answer[key] for key in ("ms", "cpu_ms", "stages")})
    return answers


def rows_of(answers: Mapping[System, Sequence[Mapping[str, Any]]], base: str) -> list[list[Any]]:
    """Return one row a system: percentiles, CPU time, and ratios to the base and to 20 candidates."""
    import numpy as np

    def times(system: System) -> list[float]:
        return [answer["ms"] for answer in answers[system]]

    rows: list[list[Any]] = []
    for system in answers:
        p50, p99 = (float(value) for value in np.percentile(times(system), [50, 99]))
        cpu = median(answer["cpu_ms"] for answer in answers[system])
        to_base = ratio(times(System(base, system.k_init)), times(system))
        to_few = ratio(times(System(system.label, CANDIDATES[0])), times(system))
        rows.append([system.label, system.k_init, p50, p99, cpu, to_base, to_few])
    return rows


def stage_rows(answers: Mapping[System, Sequence[Mapping[str, Any]]]) -> list[list[Any]]:
    """Return one row a system: the median of each stage's milliseconds."""
    stages = dict.fromkeys(stage for of_system in answers.values() for stage in of_system[0]["stages"])
    rows: list[list[Any]] = [["", "", *stages]]
    for system, of_system in answers.items():
        medians = (median(answer["stages"].get(stage, 0.0) for answer in of_system) for stage in stages)
        rows.append([system.label, system.k_init, *medians])
    return rows


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__, rounds=1)
    add_data(parser, questions=100)
    parser.add_argument("--plain", default=PLAIN, help=f"flags of the index without tokens (default: {PLAIN})")
    parser.add_argument("--compact", default="", help="flags of the index with tokens (default: none)")
    options = parser.parse_args()
    base, new = checkouts_of(options)
    data, name = data_of(options), index_name(options.snippets)
    described = machine.described(new)
    indexes: list[tuple[str, Checkout, str, str]] = [
        ("base", base, name, ""),
        ("new", new, name, options.compact),
        ("new, on the fly", new, f"{name}-plain", options.plain),
    ]
    for _, checkout, index, flags in indexes:
        checkout.require_index(index, data.corpus(options.snippets), shlex.split(flags))
    with ExitStack() as stack:
        workers = {}
        for label, checkout, index, _ in indexes:
            for k_init in CANDIDATES:
                system = System(label, k_init)
                log(f"opening: {system}")
                worker = Worker(worker_command(name=index, k_init=k_init), checkout.environment())
                workers[system] = stack.enter_context(worker)
        answers = ask_all(workers, data.questions(options.questions) * options.rounds)
    header = ["system", "candidates", "p50, ms", "p99, ms", "CPU, ms", "p50 / base's", f"p50 / of {CANDIDATES[0]}"]
    stages, *of_systems = stage_rows(answers)
    tables = (
        markdown(header, rows_of(answers, "base")),
        markdown(["system", "candidates", *(f"{stage}, ms" for stage in stages[2:])], of_systems),
    )
    record = {
        "machine": described,
        "checkouts": all_facts((base, new)),
        "answers": {str(system): of_system for system, of_system in answers.items()},
    }
    report(machine.heading(described, (base, new)) + "\n".join(tables), record, options.json)


if __name__ == "__main__":
    main()
