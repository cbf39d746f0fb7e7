"""`biorag`, and `python -m biorag`: a signal while the program loads ends it without a traceback."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command line and run it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from biorag.cli import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(number: int, frame: object) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
