"""The steps of a recipe: commands of biorag, each run once and identified by a hash of its dependencies."""

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
from types import MappingProxyType
from typing import Any, NoReturn

from typing_extensions import TypedDict

from biorag.errors import BadInputError, MismatchError, MissingError, ServiceError, UsageError
from biorag.settings.sources import PREFIX, for_children
from biorag.types import OnProgress, Progress
from biorag.utils.cores import usable_cores
from biorag.utils.files import make_folder, write_json, write_text
from biorag.utils.parsing import parse_json, parsed, read_regular
from biorag.utils.runs import RunDirectory

logger = logging.getLogger(__name__)

METRICS = "metrics."  # before a measure's name, in the path of its figure in a report
# In a step's arguments: its own folder, the folder of files that are written for it, the name of the index it makes.
OUT, FILES, TITLE = "{out}", "{files}", "{name}"
WORD = re.compile(r"[a-z0-9]+")
ERRORS = {kind.exit_code: kind for kind in (UsageError, BadInputError, MissingError, MismatchError, ServiceError)}


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
        depends = [self.arguments, [step.key for step in self.needs], self.inputs, self.files]
        object.__setattr__(self, "key", hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:16])

    @property
    def place(self) -> str:
        """The blank for this step's folder in the arguments of steps that need it."""
        return f"{{{self.key}}}"

    @property
    def title(self) -> str:
        """The name of the index that this step makes; a changed step makes another."""
        return f"{'-'.join(WORD.findall(self.name.lower()))}-{self.key[:8]}"

    @property
    def title_place(self) -> str:
        """The blank for that name in the arguments of steps that need it."""
        return f"{{{self.key}.name}}"


class StepsRun(RunDirectory):
    """The directory of a run of steps; it has the record of each finished step in place of a manifest."""

    kind = "run of steps"
    manifest_name = "steps"


class StepRecord(TypedDict):
    """The record of a finished step."""

    name: str
    command: list[str]
    seconds: float
    report: dict[str, Any]


class Workshop:
    """Runs steps in a folder; finished ones are found again by their key.

    A step's result is `steps/KEY.json`, what it makes lies in `work/KEY/`, what is written for it in `files/KEY/`, its
    messages in `logs/KEY.txt`. All steps read `settings`, which stand in `biorag.toml`.
    """

    def __init__(self, folder: Path, jobs: int = 1, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        self._folder = folder.resolve()
        self._jobs = jobs
        self._settings = settings
        self._live: set[subprocess.Popen[bytes]] = set()
        # Settings are the run's alone: a variable of the user's would change results behind a step's key.
        self._environment = {**for_children(os.environ, settings), f"{PREFIX}HOME": str(self._folder / "home")}
        if jobs > 1:
            threads = max(1, usable_cores() // jobs)
            self._environment |= {"OMP_NUM_THREADS": str(threads), "BIORAG_THREADS": str(threads)}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder, made if needed, with the settings of all steps in it.

        Raises MismatchError if it holds something else; ServiceError if another process writes into it.
        """
        run = StepsRun(self._folder, {})
        run.check_nothing_else()
        with run.locked():
            run.check_nothing_else()
            make_folder(run.manifest)
            lines = [f"{name} = {json.dumps(value)}\n" for name, value in self._settings.items()]
            write_text(self._config_file, "".join(lines))
            yield

    @property
    def _config_file(self) -> Path:
        return self._folder / "biorag.toml"

    def out(self, step: Step) -> Path:
        """Return the folder of a step's files."""
        return self._folder / "work" / step.key

    def finished(self, step: Step) -> StepRecord | None:
        """Return the record of a finished step; None if it has not finished.

        Raises MismatchError if the record is damaged.
        """
        path = self._record_file(step)
        try:
            record: StepRecord = parsed(StepRecord, read_regular(path), extra="ignore")
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise MismatchError(f"{path} is damaged ({error}): delete it, then run the command again") from None
        return record

    def record(self, step: Step) -> StepRecord:
        """Return the record of a finished step."""
        record = self.finished(step)
        assert record is not None, "a step is recorded when it ends"
        return record

    def run(self, steps: Iterable[Step], progress: Progress) -> dict[str, Any]:
        """Run all steps and their dependencies, each once, `jobs` at a time; return the seconds now and in all.

        Raises a BioragError with the sentence and the exit code of the first step that failed; the others under way
        finish first.
        """
        needed, started = unique(steps), time.perf_counter()
        with progress("Steps", len(needed)) as advance:
            self._run_all(needed, advance)
        return {
            "seconds_now": round(time.perf_counter() - started, 3),
            "seconds_of_steps": round(sum(self.record(step)["seconds"] for step in needed), 3),
            "cpus": os.cpu_count(),
        }

    def _run_all(self, steps: Iterable[Step], on_progress: OnProgress) -> None:
        waiting = {step.key: step for step in steps}
        done = {key for key, step in waiting.items() if self.finished(step)}
        on_progress(len(done))
        waiting = {key: step for key, step in waiting.items() if key not in done}
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(self._jobs) as pool, self._ending_together():
            while waiting or running:
                ready = [step for step in waiting.values() if all(need.key in done for need in step.needs)]
                for step in ready[: self._jobs - len(running)]:
                    running[pool.submit(self._run, step)] = waiting.pop(step.key).key
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    done.add(running.pop(future))
                    future.result()
                    on_progress(1)

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
        """Return a text with its blanks filled."""
        blanks = {OUT: str(self.out(step)), FILES: str(self._files(step)), TITLE: step.title}
        for need in step.needs:
            blanks |= {need.place: str(self.out(need)), need.title_place: need.title}
        for blank, value in blanks.items():
            text = text.replace(blank, value)
        return text

    def _files(self, step: Step) -> Path:
        return self._folder / "files" / step.key

    def _record_file(self, step: Step) -> Path:
        return self._folder / StepsRun.manifest_name / f"{step.key}.json"

    def _run(self, step: Step) -> None:
        logger.debug("%s", step.name)
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
            kind = ERRORS.get(process.returncode, ServiceError)
            raise kind(f"{step.name!r} failed: {last.removeprefix('error: ')} (all messages: {log})")
        seconds = round(time.perf_counter() - started, 3)
        record = StepRecord(name=step.name, command=command, seconds=seconds, report=parse_json(reply))
        write_json(self._record_file(step), record)


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def unique(steps: Iterable[Step]) -> list[Step]:
    """Return the steps and their dependencies, each once, dependencies first."""
    ordered: dict[str, Step] = {}
    for step in steps:
        ordered.update({need.key: need for need in unique(step.needs)})
        ordered[step.key] = step
    return list(ordered.values())
