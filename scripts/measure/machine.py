"""What a figure was measured on: the processor, its flags, and its speed of matrix products.

`python -m scripts.measure.machine` prints one JSON document; `described` runs it in a process of its own, because it
loads torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.measure.checkouts import Checkout
from scripts.measure.processes import run

FACTS = ("cpu", "flags", "cores", "memory_bytes", "system", "python", "versions")


def described(checkout: Checkout) -> dict[str, Any]:
    """Return the machine's facts, with its load before any of this ran."""
    load = [round(value, 2) for value in os.getloadavg()]
    output = run([sys.executable, "-m", "scripts.measure.machine"], checkout.environment()).stdout
    return {**json.loads(output), "load": load}


def heading(machine: Mapping[str, Any], checkouts: Sequence[Checkout]) -> str:
    """Return the lines that stand above a table."""
    speeds = "; ".join(
        f"{kind} {' and '.join(f'{value:,.0f} ({threads} threads)' for threads, value in by_threads.items())}"
        for kind, by_threads in machine["gflops"].items()
    )
    commits = ", ".join(f"{checkout.name} {checkout.commit}" for checkout in checkouts)
    load = ", ".join(map(str, machine["load"]))
    return (
        f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['flags'])}); GFLOPS of a matrix product: "
        f"{speeds}; load before: {load}. {commits}.\n\n"
    )


def _facts() -> dict[str, Any]:
    """Return the facts, with the speed of a matrix product of 1024 × 1024 in GFLOPS by type and number of threads."""
    import torch

    from biorag.benchmarks.latency.machine import describe
    from biorag.models.resources import operations

    machine = describe()
    gflops: dict[str, dict[int, float]] = {"fp32": {}, "bf16": {}}
    for threads in sorted({1, machine["cores"]}):
        torch.set_num_threads(threads)
        for name, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            gflops[name][threads] = round(operations("cpu", kind) / 1e9, 1)
    return {**{name: machine[name] for name in FACTS}, "gflops": gflops}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_facts()))
