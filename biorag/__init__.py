"""Answers biomedical questions from PubMed evidence."""

import os

# Read when torch, llama.cpp and NumPy are loaded. Threads that spin while they wait take cores from other processes,
# and from one another; NumPy's products are small, or run side by side.
if "GOMP_SPINCOUNT" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# ONNX Runtime reports its use to Microsoft from 1.29 on, in native code that offline mode does not see. Only this
# variable stops it, and only before it is loaded: `disable_telemetry_events` leaves the first report.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
