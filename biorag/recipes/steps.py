"""Steps that are commands of biorag: done once, known by a hash of all they depend on, run side by side."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from typing_extensions import TypedDict

from biorag.errors import BadInputError, MismatchError, MissingError, ServiceError, UsageError
from biorag.settings.sources import PREFIX, for_children
from biorag.types import OnProgress, Progress
from biorag.utils.cores import usable_cores
from biorag.utils.files import make_folder, write_json, write_text
from biorag.utils.parsing import parse_json
from biorag.utils.runs import ResumableRun, RunDirectory

logger = logging.getLogger(__name__)

PER_QUESTION = "per-question.jsonl"  # in a step's folder: its measures question by question
# In a step's arguments: its own folder, the folder of files that are written for it, the name of the index it makes.
OUT, FILES, TITLE = "{out}", "{files}", "{name}"
WORD = re.compile(r"[a-z0-9]+")
KINDS = {kind.exit_code: kind for kind in (UsageError, BadInputError, MissingError, MismatchError, ServiceError)}


@dataclass(frozen=True, slots=True)
class Step:
    """One command with `--json`.

    In its arguments `{out}` is its own folder and `{KEY}` that of a step it needs, so that keys do not depend on where
    a run lies; `{name}` is the name of the index that it makes and `{KEY.name}` that of a step it needs. `files` are
    written for it, with the same blanks filled, into the folder `{files}`. `inputs` are hashes of files it reads: a
    changed file makes it another step.
    """

    name: str
    arguments: tuple[str, ...]
    needs: tuple[Step, ...] = ()
    inputs: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    key: str = field(init=False, default="")

    def __post_init__(self) -> None:
        depends = [
            self.arguments,
            [step.key for step in self.needs],
            self.inputs,
            *([self.files] if self.files else []),
        ]
        object.__setattr__(self, "key", hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:16])

    @property
    def place(self) -> str:
        """Return what stands for this step's folder in the arguments of steps that need it."""
        return f"{{{self.key}}}"

    @property
    def title(self) -> str:
        """Return the name of the index that this step makes; a changed step makes another."""
        return f"{'-'.join(WORD.findall(self.name.lower()))}-{self.key[:8]}"

    @property
    def title_place(self) -> str:
        """Return what stands for that name in the arguments of steps that need it."""
        return f"{{{self.key}.name}}"


class StepsRun(RunDirectory):
    """The directory of a run of steps; it has the record of each finished step in place of a manifest."""

    kind = "run of steps"
    manifest_name = "steps"

    def claim(self) -> None:
        """Make the directory the run's; see `check_nothing_else`."""
        self.check_nothing_else()
        make_folder(self.manifest)


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Keep a run's directory, making it if it is not there.

    Raises
    ------
    MismatchError
        If it holds something else.
    ServiceError
        If another process writes into it.
    """
    run = StepsRun(out, {})
    run.check_nothing_else()
    with run.locked():
        run.claim()
        yield


class StepRecord(TypedDict):
    """The record of a finished step."""

    name: str
    command: list[str]
    seconds: float
    report: dict[str, Any]


class StepRun(ResumableRun[dict[str, Any]]):
    """A step of the run at `path`: its record is there once it is finished, under the hash of its identity."""

    head = StepRecord

    @property
    def manifest(self) -> Path:
        """Where the record is kept."""
        return self.path / StepsRun.manifest_name / f"{self.identity['key']}.json"

    def result(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record."""
        return dict(values)

    def changed(self, values: Mapping[str, Any]) -> list[str]:
        """Return nothing: another identity would have another name."""
        return []


class Workshop:
    """Runs steps in a folder; finished ones are found again by their key.

    A step's result is `steps/KEY.json`, what it makes lies in `work/KEY/`, what is written for it in `files/KEY/`, its
    messages in `logs/KEY.txt`.
    """

    def __init__(self, folder: Path, config_file: Path, jobs: int) -> None:
        self._folder = folder.resolve()
        self._config_file = config_file.resolve()
        self._jobs = jobs
        self._live: set[subprocess.Popen[bytes]] = set()
        # Settings are the run's alone: a variable of the user's would change results behind a step's key.
        self._environment = {**for_children(os.environ), f"{PREFIX}HOME": str(self._folder / "home")}
        if jobs > 1:
            threads = max(1, usable_cores() // jobs)
            self._environment |= {"OMP_NUM_THREADS": str(threads), "BIORAG_THREADS": str(threads)}

    def out(self, step: Step) -> Path:
        """Return the folder of a step's files."""
        return self._folder / "work" / step.key

    def finished(self, step: Step) -> bool:
        """Return whether a step has been done."""
        return self._run_of(step).finished() is not None

    def record(self, step: Step) -> dict[str, Any]:
        """Return a finished step's name, command, seconds and report."""
        record = self._run_of(step).finished()
        assert record is not None, "a step is recorded when it ends"
        return record

    def run(self, steps: Iterable[Step], on_progress: OnProgress) -> None:
        """Run all steps and what they need, each once, `jobs` at a time.

        Raises
        ------
        BioragError
            With the sentence and the exit code of the first step that failed; others that run are let finish.
        """
        waiting = {step.key: step for step in unique(steps)}
        done = {key for key, step in waiting.items() if self.finished(step)}
        on_progress(len(done))
        waiting = {key: step for key, step in waiting.items() if key not in done}
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(self._jobs) as pool, self._ending_together():
            while waiting or running:
                ready = [step for step in waiting.values() if all(need.key in done for need in step.needs)]
                for step in ready[: self._jobs - len(running)]:
                    running[pool.submit(self._run, step)] = waiting.pop(step.key).key
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    done.add(running.pop(future))
                    future.result()
                    on_progress(1)

    def run_timed(self, steps: Iterable[Step], progress: Progress) -> dict[str, Any]:
        """Run all steps as `run` does; return the seconds this took now, those of the steps, and the cores."""
        needed, started = unique(steps), time.perf_counter()
        with progress("Steps", len(needed)) as advance:
            self.run(needed, advance)
        return {
            "seconds_now": round(time.perf_counter() - started, 3),
            "seconds_of_steps": round(sum(record["seconds"] for record in map(self.record, needed)), 3),
            "cpus": os.cpu_count(),
        }

    @contextmanager
    def _ending_together(self) -> Iterator[None]:
        """End the commands that run when this process is interrupted or terminated."""
        before = signal.signal(signal.SIGTERM, _interrupted)
        try:
            yield
        except KeyboardInterrupt:
            for process in self._live:
                process.terminate()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)

    def command(self, step: Step) -> list[str]:
        """Return the words of a step's command."""
        words = [self._filled(step, word) for word in step.arguments]
        return ["biorag", "--config", str(self._config_file), *words, "--json"]

    def _filled(self, step: Step, text: str) -> str:
        """Return a text with folders and names in place of what stands for them."""
        places = {OUT: str(self.out(step)), FILES: str(self._files(step)), TITLE: step.title}
        for need in step.needs:
            places |= {need.place: str(self.out(need)), need.title_place: need.title}
        for mark, value in places.items():
            text = text.replace(mark, value)
        return text

    def _files(self, step: Step) -> Path:
        return self._folder / "files" / step.key

    def _run(self, step: Step) -> None:
        logger.info("%s", step.name)
        for name, text in step.files:
            make_folder(self._files(step))
            write_text(self._files(step) / name, self._filled(step, text))
        log = self._folder / "logs" / f"{step.key}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        self.out(step).parent.mkdir(parents=True, exist_ok=True)
        command, started = self.command(step), time.perf_counter()
        with log.open("w", encoding="utf-8") as messages:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=messages, env=self._environment
            )
            self._live.add(process)
            reply, _ = process.communicate()
            self._live.discard(process)
        if process.returncode:
            last = (log.read_text(encoding="utf-8").strip().splitlines() or ["no message"])[-1]
            kind = KINDS.get(process.returncode, ServiceError)
            raise kind(f"{step.name!r} failed: {last.removeprefix('error: ')} (all of it: {log})")
        record: Mapping[str, Any] = {
            "name": step.name,
            "command": command,
            "seconds": round(time.perf_counter() - started, 3),
            "report": parse_json(reply),
        }
        write_json(self._run_of(step).manifest, record)

    def _run_of(self, step: Step) -> StepRun:
        return StepRun(self._folder, {"key": step.key})


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def unique(steps: Iterable[Step]) -> list[Step]:
    """Return the steps and all that they need, each once, needs before what needs them."""
    found: dict[str, Step] = {}
    for step in steps:
        found.update({need.key: need for need in unique(step.needs)})
        found[step.key] = step
    return list(found.values())
