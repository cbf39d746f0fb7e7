"""`biorag`, and `python -m biorag`: a signal while the program loads ends it without a traceback."""

import os
from _signal import SIGINT, SIGTERM, default_int_handler, signal  # type: ignore[import-not-found]  # `signal` loads enum first


def _end(number: int, frame: object) -> None:
    os.write(2, b"error: interrupted; run the same command again\n")
    os._exit(128 + number)


signal(SIGINT, _end)
signal(SIGTERM, _end)


def main() -> None:
    """Load the command line and run it."""
    from biorag.cli import main as run

    signal(SIGINT, default_int_handler)
    run()


if __name__ == "__main__":
    main()
