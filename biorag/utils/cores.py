"""The cores and addresses that this process may use, and the control groups whose limits hold for it.

Source: cgroups(7); the kernel's cgroup-v2.rst, cgroup-v1/memory.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from biorag.errors import ServiceError

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LEAST = 3 << 30  # bytes of addresses that the engine and the packaged models take: with less they abort or hang


class ControlGroup(NamedTuple):
    """The folder of a control group that may limit this process, and the version (1 or 2) of its files' names."""

    folder: Path
    version: int

    def read(self, name: str) -> str:
        """Return the text of a file of the group, without the line's end; "" if it cannot be read."""
        try:
            return (self.folder / name).read_text().strip()
        except OSError:
            return ""


def control_groups(controller: str, proc: Path = PROC, mount: Path = CGROUPS) -> Iterator[ControlGroup]:
    """Yield the groups of a controller ("cpu", "memory") that the process is in, and those above, seen here or not."""
    listing = proc / "self" / "cgroup"
    for line in listing.read_text().splitlines() if listing.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, homes = 2, [mount, mount / "unified"]
        elif controller in controllers.split(","):
            version, homes = 1, [mount / controller]
        else:
            continue
        below = PurePosixPath(path.lstrip("/"))
        for home in homes:
            for folder in (below, *below.parents):
                yield ControlGroup(home / folder, version)


def usable_cores(proc: Path = PROC, mount: Path = CGROUPS) -> int:
    """Return the whole cores, at least one, that affinity and control groups' CPU quotas allow this process."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *_quotas(proc, mount)]))


def check_addresses() -> None:
    """Raise `ServiceError` where this shell leaves a program fewer addresses than `LEAST`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST:
        takes = f"biorag takes {LEAST >> 20:,} MiB of addresses and this shell allows {limit >> 20:,}"
        raise ServiceError(f"{takes}: raise the limit (ulimit -v {LEAST >> 10})")


def visible_gpus(dev: Path = Path("/dev")) -> list[str]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, else the numbers of all of NVIDIA's, without loading PyTorch."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    numbers = (path.name.removeprefix("nvidia") for path in dev.glob("nvidia[0-9]*"))
    return sorted(filter(str.isdigit, numbers), key=int)


def _quotas(proc: Path, mount: Path) -> Iterator[int]:
    """Yield the whole cores that each quota allows: microseconds of CPU time in a period."""
    for group in control_groups("cpu", proc, mount):
        if group.version == 2:
            quota, _, period = group.read("cpu.max").partition(" ")
        else:
            quota, period = group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):  # no quota is "max" or -1
            yield int(quota) // int(period)
