"""The cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from biorag.utils.cgroups import CGROUPS, PROC, control_groups


def usable_cores(proc: Path = PROC, mount: Path = CGROUPS) -> int:
    """Return the number of cores that this process may use, by its affinity and its control groups' CPU quotas.

    A part of a core is not counted, as threads that share it would wait for one another; 1 is the least.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *_quotas(proc, mount)]))


def _quotas(proc: Path, mount: Path) -> Iterator[int]:
    """Yield the whole cores that each quota allows: microseconds of CPU time in a period."""
    for group in control_groups("cpu", proc, mount):
        if group.version == 2:
            quota, _, period = group.read("cpu.max").partition(" ")
        else:
            quota, period = group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):  # no quota is "max" or -1
            yield int(quota) // int(period)
