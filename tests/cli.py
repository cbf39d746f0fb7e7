"""The command line as tests use it: in this process unless signals, locks, imports or start-up are what is tested."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from biorag.cli import app, main
from biorag.settings.settings import Settings

SECONDS = 240
FORKING = multiprocessing.get_context("forkserver")
PRELOADED = [
    *("pytest", "tests.cli", "qdrant_client", "sentence_transformers", "biorag.models.colbert"),
    *("biorag.models.cross_encoder", "biorag.indexes.edge", "biorag.generators.llama", "biorag.training.loop"),
]


def environment(home: Path | None, variables: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a command, with its home among them."""
    return ({} if home is None else {"BIORAG_HOME": str(home)}) | {
        name: str(value) for name, value in variables.items()
    }


def invoke(
    *arguments: object, home: Path | None = None, input: str | bytes | None = None, **variables: object
) -> Result:
    """Run `biorag ARGUMENTS` in this process."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, env=environment(home, variables), input=input)


def options_of(words: Sequence[str]) -> set[str]:
    """Return the options of the command that these words begin with."""
    command, rest = get_command(app), list(words)
    while hasattr(command, "commands"):
        name = rest.pop(0)
        name = f"{name} {rest.pop(0)}" if f"{name} {rest[0]}" in command.commands else name
        command = command.commands[name]
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def succeeded(result: Result) -> Result:
    """Hold that a command ended well."""
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def done(result: Result) -> Any:
    """Return the one JSON document that a command's stdout is."""
    return json.loads(succeeded(result).stdout)


def failed(result: Result, code: int, *parts: object) -> str:
    """Hold that a command failed with a code and one sentence, last on stderr, that has these parts; return it."""
    assert (result.exit_code, result.stdout) == (code, ""), (result.output, result.exception)
    assert "Traceback" not in result.stderr
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.stderr.rstrip().endswith(sentence), "the sentence is one line, and the last"
    assert "internal error" not in sentence
    assert [str(part) for part in parts if str(part) not in sentence] == [], sentence
    return sentence


def run(*arguments: object, code: int = 0, **settings: Any) -> Ended:
    """Run `biorag ARGUMENTS` in a process of its own and hold its exit code; `settings` are those of `start`."""
    with start(*arguments, **settings) as process:
        ended = process.communicate()
    assert (ended.code, "Traceback" in ended.stderr) == (code, False), ended
    return ended


def start(*arguments: object, home: Path | None = None, input: bytes = b"", **variables: object) -> Running:
    """Start `biorag ARGUMENTS` in a process of its own, forked from one that has the libraries loaded."""
    with_exports(home or Path(os.environ["BIORAG_HOME"]))
    return Running([str(argument) for argument in arguments], environment(home, variables), input)


def with_exports(home: Path) -> Path:
    """Let other processes use this one's exports of encoders: making one takes ten seconds."""
    if (shared := Settings.of(home=home).exports) != (own := home / "exports") and not own.exists():
        home.mkdir(parents=True, exist_ok=True)
        own.symlink_to(shared)
    return home


def forked(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """Return a process that calls a function, started from one that has the libraries loaded."""
    FORKING.set_forkserver_preload(PRELOADED)
    with chdir(Path(__file__).parents[1]):  # where the server, if this starts it, finds what it loads
        ensure_running()
    process = FORKING.Process(target=target, args=arguments)
    process.start()
    return process


def wait_until(process: Running, happened: Callable[[], object]) -> None:
    """Wait for something to happen while a process runs."""
    end = time.monotonic() + SECONDS
    while not happened():
        assert process.poll() is None, f"the process ended too early: {process.communicate()}"
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


class Ended(NamedTuple):
    """The exit code of a process, negative for a signal, and what it wrote."""

    code: int
    stdout: str
    stderr: str


class Running:
    """A process that runs a command; leaving its context ends it."""

    def __init__(self, words: list[str], variables: dict[str, str], input: bytes) -> None:
        self._folder = tempfile.TemporaryDirectory()
        Path(self._folder.name, "stdin").write_bytes(input)
        self._process = forked(_main, words, dict(os.environ) | variables, Path.cwd(), self._folder.name)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._folder.cleanup()

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sent: int) -> None:
        os.kill(self._process.pid, sent)

    def communicate(self) -> Ended:
        """Wait for the end."""
        self._process.join(SECONDS)
        code = self._process.exitcode
        assert code is not None, "the process does not end"
        stdout, stderr = (Path(self._folder.name, name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return Ended(code, stdout, stderr)


def _main(words: list[str], variables: dict[str, str], cwd: Path, folder: str) -> None:
    """Be the process of a command: its files, variables, folder and arguments."""
    for stream, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(Path(folder, name), os.O_RDWR | os.O_CREAT), stream)
    sys.stdin = os.fdopen(0)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["biorag", *words]
    main()
