"""Encoders measured by mteb, on its named tasks and on tasks from local folders."""

import signal

import mteb  # noqa: F401

# polars, which mteb imports, handles Ctrl-C in a way that wakes no waiting thread.
signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
