"""Many clients at once against `biorag serve`, and a slow one beside them: errors, times, memory.

    python -m scripts.faults.serve_load --name demo --clients 50 --seconds 60 --leave 3

It starts the server itself, on the index that is named, and prints one JSON document.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from biorag.corpus.sources import demo_file

MEGABYTE = 1024


def questions() -> list[str]:
    """Return the demonstration's questions."""
    tasks = json.loads(demo_file("benchmark.json").read_text(encoding="utf-8"))
    return [row["question"] for task in tasks.values() for row in task.values()]


class Load:
    """What clients met with: seconds of answers, and what else came."""

    def __init__(self, port: int, end: float) -> None:
        self.port, self.end = port, end
        self.left = self.refused = 0
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.slow_connections = 0

    def ask(self, texts: list[str], first: int, patience: float | None) -> None:
        """Ask one question after the other until the end; leave each after `patience` seconds, if any are given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience or 120)
        number = first
        while time.monotonic() < self.end:
            body = json.dumps({"question": texts[number % len(texts)]})
            number += 1
            start = time.monotonic()
            try:
                connection.request("POST", "/api/ask", body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                content = reply.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if patience and isinstance(error, TimeoutError):
                    self.left += 1
                else:
                    self.errors.append(type(error).__name__)
                continue
            if reply.status == 200 and b'"answer"' in content:
                self.seconds.append(time.monotonic() - start)
            elif reply.status == 503:  # the queue is full: it says when to ask again
                self.refused += 1
                connection.close()
                time.sleep(float(reply.headers["Retry-After"]))
            else:
                self.errors.append(str(reply.status))

    def drip(self) -> None:
        """Send a request byte by byte, and begin again whenever the server gives it up."""
        while time.monotonic() < self.end:
            self.slow_connections += 1
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                    for byte in b"POST /api/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 1000:
                        connection.sendall(bytes([byte]))
                        time.sleep(0.5)
                        if time.monotonic() > self.end:
                            return
            except OSError:
                continue


def memory(pid: int) -> int:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) // MEGABYTE


def measured(pid: int, port: int, clients: int, seconds: int, leave: int) -> dict[str, object]:
    """Return what so many clients meet with in so many seconds; every `leave`th has little patience."""
    texts, started = questions(), time.monotonic()
    load = Load(port, started + seconds)
    patience = [0.05 + 0.01 * number if leave and number % leave == 0 else None for number in range(clients)]
    threads = [threading.Thread(target=load.ask, args=(texts, n * 7, most)) for n, most in enumerate(patience)]
    threads.append(threading.Thread(target=load.drip))
    for thread in threads:
        thread.start()
    resident = {}
    for second in (10, seconds):
        time.sleep(max(0.0, started + second - time.monotonic()))
        resident[f"{second} s"] = memory(pid)
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles(load.seconds, n=20)
    return {
        "clients": clients,
        "seconds": seconds,
        "answers": len(load.seconds),
        "left": load.left,
        "refused": load.refused,
        "errors": len(load.errors),
        "kinds_of_errors": sorted(set(load.errors)),
        "p50_s": round(statistics.median(load.seconds), 3),
        "p95_s": round(cuts[-1], 3),
        "slow_client_connections": load.slow_connections,
        "resident_mb": resident,
    }


def main() -> None:
    """Start the server, load it, print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="demo")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--leave", type=int, default=0, help="every how manyth client leaves in mid-answer")
    options = parser.parse_args()
    command = [sys.executable, "-m", "biorag", "serve", "--name", options.name, "--port", "0", "--rate", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        address = None
        while address is None:
            address = re.search(r"ready at http://127\.0\.0\.1:(\d+)/", process.stderr.readline())
        try:
            result = measured(process.pid, int(address[1]), options.clients, options.seconds, options.leave)
        finally:
            process.terminate()
    print(json.dumps(result, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
