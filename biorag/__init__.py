"""Answers biomedical questions from PubMed evidence."""

import os

# Read when torch, llama.cpp and NumPy are loaded. Threads that spin while they wait take cores from other processes,
# and from one another; NumPy's products are small, or run side by side.
if "GOMP_SPINCOUNT" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
