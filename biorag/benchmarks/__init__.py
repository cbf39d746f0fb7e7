"""Benchmarks: what biorag measures, and how."""
