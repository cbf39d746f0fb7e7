"""How long `biorag --help` takes: the median of a few runs. What it imports is held by tests/test_command_line.py.

Run as `python -m scripts.start_up [--times 9]`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def seconds_of_help() -> float:
    """Return how long one run takes, the start of Python included."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "biorag", "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    seconds = [seconds_of_help() for _ in range(parser.parse_args().times)]
    median, fastest = statistics.median(seconds), min(seconds)
    sys.stdout.write(f"biorag --help: median {median:.2f} s, fastest {fastest:.2f} s of {len(seconds)}\n")


if __name__ == "__main__":
    main()
