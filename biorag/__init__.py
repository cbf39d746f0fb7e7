"""Answers biomedical questions from PubMed evidence.

import biorag

with biorag.open("pubmed") as index:
index.search("GDF15", k=10).to_pandas()
print(index.ask("What is the function of GFRAL?"))
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biorag.api.library import Session, bench_retrieval, index, list_indexes, open

__all__ = ["Session", "bench_retrieval", "index", "list_indexes", "open"]

# Read when torch, llama.cpp and NumPy are loaded. Threads that spin while they wait take cores from other processes,
# and from one another; NumPy's products are small, or run side by side.
if "GOMP_SPINCOUNT" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# ONNX Runtime reports its use to Microsoft from 1.29 on, in native code that offline mode does not see. Only this
# variable stops it, and only before it is loaded: `disable_telemetry_events` leaves the first report.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def __getattr__(name: str) -> Any:
    """Import what Python uses when it is asked for: the command line starts without it."""
    if name in __all__:
        return getattr(import_module("biorag.api.library"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what Python uses, and no module of ours."""
    return list(__all__)
