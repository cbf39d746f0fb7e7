"""Latency: what each stage takes on this machine, beside other packages, and how it grows with the index."""
