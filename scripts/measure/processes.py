"""Processes whose cost is measured, and workers that answer one JSON line with another.

Imports nothing heavy: the peak memory that the kernel reports of a process is at least that of the one that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")
Answer = Callable[[dict[str, Any]], dict[str, Any]]
TAIL = 4000  # characters of stderr that an error shows


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took: seconds from start to end, seconds of user and system CPU, and peak resident megabytes."""

    wall_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended well."""

    cost: Cost
    stdout: str
    stderr: str


def run(command: Sequence[str], environment: Mapping[str, str]) -> Finished:
    """Run a command to its end.

    Raises
    ------
    RuntimeError
        If it fails, with the end of its stderr.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = _content(stdout), _content(stderr)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{errors[-TAIL:]}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Finished(Cost(wall, usage.ru_utime + usage.ru_stime, peak_bytes / 1e6), output, errors)


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


class Worker:
    """A process that loads what it needs once, and then answers requests.

    Raises
    ------
    RuntimeError
        If the process ends before it is ready or before it has answered, with the end of its stderr.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )
        self._read()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RuntimeError(f"a worker ended:\n{_content(self._stderr)[-TAIL:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._stderr.close()


def serve(opened: AbstractContextManager[Answer]) -> None:
    """Be a worker: answer the requests on stdin, one a line, until it ends.

    What libraries print goes to stderr, so that stdout holds answers alone.
    """
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1) as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        with opened as answer:
            answers.write("{}\n")
            for line in sys.stdin:
                answers.write(json.dumps(answer(json.loads(line))) + "\n")


def alternate(tasks: Mapping[K, Callable[[], T]], rounds: int) -> dict[K, list[T]]:
    """Run every task once a round, in their order and every other round in the opposite one; return the results."""
    results: dict[K, list[T]] = {name: [] for name in tasks}
    for turn in range(rounds):
        for name in list(tasks)[:: 1 if turn % 2 == 0 else -1]:
            log(f"round {turn + 1} of {rounds}: {name}")
            results[name].append(tasks[name]())
    return results


def log(message: str) -> None:
    """Say on stderr what is being done."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {message}\n")
