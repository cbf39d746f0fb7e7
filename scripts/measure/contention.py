"""What takes processor time away from a process: busy neighbours, fewer cores, a quota of a control group."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SPIN, PRODUCT = "spinning", "a matrix product"
_LOOPS = {
    SPIN: "while True: pass",
    PRODUCT: "import numpy\nmatrix = numpy.ones((1024, 1024), numpy.float32)\nwhile True: matrix @ matrix",
}
PERIOD = 100_000  # microseconds, the kernel's default
MOUNTS = Path("/proc/mounts")
_ENTER = 'echo $$ > "$0" && exec "$@"'


class UnavailableError(Exception):
    """The system does not have the means, as its message says."""


@contextmanager
def neighbours(kind: str, count: int) -> Iterator[None]:
    """Keep that many processes of one thread each busy."""
    one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-c", _LOOPS[kind]]
    processes = [subprocess.Popen(command, env={**os.environ, **one_thread}) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def pinned(command: Sequence[str]) -> list[str]:
    """Return a command that runs on the first core that this process may use.

    Raises
    ------
    UnavailableError
        Where there is no `taskset`.
    """
    if shutil.which("taskset") is None:
        raise UnavailableError("there is no taskset")
    return ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]


class ControlGroup:
    """A control group whose processes together get so many cores' time; removed by `close`, when they have ended.

    cgroup v2 where it has the cpu controller (`cpu.max`), else v1 (`cpu.cfs_quota_us`); this takes root.

    Raises
    ------
    UnavailableError
        Where neither can be made, saying why.
    """

    def __init__(self, cores: float, mounts: Path = MOUNTS) -> None:
        self.version, parent = _hierarchy(mounts)
        self.folder = parent / f"measure-{os.getpid()}"
        quota = int(cores * PERIOD)
        try:
            if self.version == 2:
                (parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
            self.folder.mkdir()
            if self.version == 2:
                (self.folder / "cpu.max").write_text(f"{quota} {PERIOD}", encoding="ascii")
            else:
                (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD), encoding="ascii")
                (self.folder / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
        except OSError as error:
            self.close()
            raise UnavailableError(f"no control group with a quota can be made in {parent}: {error}") from error

    def within(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs in the group."""
        return ["sh", "-c", _ENTER, str(self.folder / "cgroup.procs"), *command]

    def close(self) -> None:
        """Remove the group."""
        if self.folder.is_dir():
            self.folder.rmdir()


def _hierarchy(mounts: Path) -> tuple[int, Path]:
    """Return the version and the folder of the control groups that have the cpu controller."""
    lines = mounts.read_text(encoding="utf-8").splitlines() if mounts.is_file() else []
    for _, folder, kind, flags, *_ in (line.split() for line in lines):
        controllers = Path(folder, "cgroup.controllers")
        if kind == "cgroup2" and controllers.is_file() and "cpu" in controllers.read_text(encoding="ascii").split():
            return 2, Path(folder)
        if kind == "cgroup" and "cpu" in flags.split(","):
            return 1, Path(folder)
    raise UnavailableError("no mounted control groups have the cpu controller")
