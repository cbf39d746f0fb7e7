"""The control groups that this process is in, whose limits hold for it.

Source: cgroups(7); the kernel's cgroup-v2.rst, cgroup-v1/memory.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


class ControlGroup(NamedTuple):
    """The folder of a control group that may limit this process, and the version (1 or 2) of its files' names."""

    folder: Path
    version: int

    def read(self, name: str) -> str:
        """Return what a file of the group says, without the line's end; "" where it cannot be read."""
        try:
            return (self.folder / name).read_text().strip()
        except OSError:
            return ""


def control_groups(controller: str, proc: Path = PROC, mount: Path = CGROUPS) -> Iterator[ControlGroup]:
    """Yield the groups of a controller ("cpu", "memory") that the process is in, and all above them.

    A container may not see its own path, so some folders may not be there.
    """
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
            for part in (below, *below.parents):
                yield ControlGroup(home / part, version)
