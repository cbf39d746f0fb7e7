"""Latency: the time of each stage on this machine."""
