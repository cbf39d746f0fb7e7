"""The machine: what a figure of speed means nothing without."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from biorag.benchmarks.latency.memory import PROC, kilobytes
from biorag.utils.cores import usable_cores
from biorag.utils.versions import installed_versions

# Those that decide which matrix kernels run: fused products, 512-bit vectors, int8 and bfloat16 units.
FLAGS = (
    *("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    *("asimd", "sve", "bf16", "i8mm"),
)
BUSY = 0.5  # load for each core from which on other programs are in the way
ALSO = ("numpy", "scipy", "numba", "rank-bm25", "bm25s", "PyStemmer")


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor, its flags of interest, memory, accelerators and software; None where it cannot be known.

    `cores` are those this process may use, `load` the mean number of running processes in the minute before.
    """

    cpu: str
    flags: tuple[str, ...]
    cores: int
    memory_bytes: int | None
    gpus: tuple[str, ...]
    system: str
    python: str
    load: float | None
    versions: dict[str, str]

    @property
    def busy(self) -> bool:
        """Whether other programs took much of the processor just before."""
        return self.load is not None and self.load > BUSY * self.cores


def describe() -> Machine:
    """Return what this process runs on."""
    model, flags = _processor()
    return Machine(
        cpu=model,
        flags=flags,
        cores=usable_cores(),
        memory_bytes=kilobytes(PROC / "meminfo", "MemTotal"),
        gpus=tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())),
        system=platform.platform(terse=True),
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        versions={**installed_versions(), **_versions(ALSO)},
    )


def threads() -> dict[str, int | str | None]:
    """Return how many threads PyTorch computes with, and what the environment asked for."""
    asked = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
    return {"torch": torch.get_num_threads(), **asked}


def _processor() -> tuple[str, tuple[str, ...]]:
    """Return the processor's name and its flags of interest; Linux spells the latter `flags` or `Features`."""
    path = PROC / "cpuinfo"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(found[1].split()) if found else set()
    return name[1] if name else platform.processor() or platform.machine(), tuple(sorted(known & set(FLAGS)))


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
