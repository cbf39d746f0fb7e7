"""Facts of this machine, and the memory of this process; imports nothing heavy."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from pathlib import Path
from typing import Any

from biorag.utils.cores import usable_cores
from biorag.utils.versions import PACKAGES, installed_versions

PROC = Path("/proc")
# Processor flags that decide which matrix kernels run: fused products, 512-bit vectors, int8 and bfloat16 units.
FLAGS = (
    *("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    *("asimd", "sve", "bf16", "i8mm"),
)


def describe() -> dict[str, Any]:
    """Return processor, flags of interest, memory, accelerators and software of this machine; None if unknown.

    `cores` are those this process may use, `load` the mean number of running processes in the minute before.
    """
    import torch

    model, flags = _processor()
    return {
        "cpu": model,
        "flags": flags,
        "cores": usable_cores(),
        "memory_bytes": kilobytes(PROC / "meminfo", "MemTotal"),
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": installed_versions((*PACKAGES, "numpy", "scipy")),
    }


def threads() -> dict[str, int | str | None]:
    """Return how many threads PyTorch computes with, and the variables that set them."""
    import torch

    variables = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
    return {"torch": torch.get_num_threads(), **variables}


def _processor() -> tuple[str, list[str]]:
    """Return the processor's name and its flags of interest; Linux spells the latter `flags` or `Features`."""
    path = PROC / "cpuinfo"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    line = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    flags = set(line[1].split()) if line else set()
    return name[1] if name else platform.processor() or platform.machine(), sorted(flags & set(FLAGS))


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None where the system does not report it."""
    return kilobytes(PROC / "self" / "status", "VmRSS")


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    peak = kilobytes(PROC / "self" / "status", "VmHWM")
    if peak is not None:
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def kilobytes(path: Path, field: str) -> int | None:
    """Return a field of a file of /proc that is given in kB, in bytes."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    line = re.search(rf"^{field}:\s*(\d+) kB$", text, re.MULTILINE)
    return int(line[1]) * 1024 if line else None
