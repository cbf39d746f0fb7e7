"""Commands in processes that are forked from one which has the libraries loaded: importing them takes seconds."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NoReturn, Self

PRELOADED = (
    *("biorag.cli", "biorag.training.retriever", "biorag.training.reranker", "biorag.training.cross_encoder"),
    *("biorag.engine", "biorag.indexes.edge", "biorag.models.colbert", "biorag.models.cross_encoder"),
    *(
        "biorag.lab.merging.weights",
        "biorag.benchmarks.retrieval",
        "biorag.benchmarks.mirage.run",
        "biorag.lab.conversion.run",
    ),
    *("biorag.lab.synthesis.questions", "tests.lab.recipes.rehearsal.models", "httpx", "lxml.etree"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "colbert.modeling.checkpoint", "onnxruntime", "peft"),
)
MTEB = "tests.lab.recipes.rehearsal.tasks"  # which imports mteb
KILLED = 128  # and the signal's number: the exit code of a process that a signal ends


class Forker:
    """Runs functions of one argument, a JSON value, each in a process of its own; several threads may ask at a time."""

    def __init__(self, environment: Mapping[str, str], log: Path, also: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", __name__, str(log), *PRELOADED, *also]
        own = {**environment, "PYTHONPATH": str(Path(__file__).parents[4])}  # which holds the package `tests`
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own)
        self.cpu_seconds = 0.0  # of all that ended
        self._codes: dict[int, Future[int]] = {}
        self._numbers, self._lock = count(), Lock()
        Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def run(self, function: str, argument: Any, log: Path, output: Path) -> int:
        """Call `module:name` with the argument; its messages and its output go into files. Return the exit code."""
        assert self._process.stdin is not None
        code: Future[int] = Future()
        with self._lock:
            self._codes[number := next(self._numbers)] = code
            request = [number, function, argument, str(log), str(output)]
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return code.result()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, code, milliseconds = map(int, line.split())
            self.cpu_seconds += milliseconds / 1000
            self._codes.pop(number).set_result(code)
        for waiting in self._codes.values():
            waiting.set_result(KILLED + signal.SIGTERM)


def command(words: Sequence[str]) -> None:
    """Be `python -m` of a module and its arguments; ends the process."""
    sys.argv = list(words)
    if "mteb" in words:
        import_module(MTEB).use_stand_ins()
    runpy.run_module(words[0], run_name="__main__")


def serve() -> None:
    """Fork for each line of standard input, and answer with its number, exit code and milliseconds of CPU."""
    answers, messages = os.dup(1), os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):  # libraries print when they are imported
        os.dup2(messages, stream)
    for module in sys.argv[2:]:
        with suppress(ImportError):  # of an extra that these steps do not need
            import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    for line in sys.stdin.buffer:
        if not os.fork():
            _wait_for(json.loads(line), answers)


def _wait_for(request: Sequence[Any], answers: int) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    number, *call = request
    if not (child := os.fork()):
        _call(*call)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    milliseconds = round(1000 * (used.ru_utime + used.ru_stime))
    os.write(answers, f"{number} {code if code >= 0 else KILLED - code} {milliseconds}\n".encode())
    os._exit(0)


def _call(function: str, argument: Any, log: str, output: str) -> NoReturn:
    for stream, path in ((1, output), (2, log)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code: Any = 0
    try:
        module, _, name = function.partition(":")
        getattr(import_module(module), name)(argument)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve()
