"""The steps of a recipe: commands of biorag, each run once and identified by a hash of its dependencies."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from biorag.errors import BadInputError, BioragError, MismatchError, MissingError, ServiceError, UsageError
from biorag.lab.recipes.recipe import SettingValue
from biorag.settings.sources import PREFIX, for_children
from biorag.types import OnProgress, Progress
from biorag.utils.cores import usable_cores, visible_gpus
from biorag.utils.files import make_folder, write_json, write_text
from biorag.utils.parsing import parse_json, parsed, read_regular
from biorag.utils.runs import RunDirectory

logger = logging.getLogger(__name__)

SETTINGS = "biorag.toml"
HOME, WORK = "home", "work"  # where the indexes of steps are, and what else they make
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node")
METRICS = "metrics."  # before a measure's name, in the path of its figure in a report
# In a step's arguments: its own folder, the folder of files that are written for it, the name of the index it makes.
OUT, FILES, TITLE = "{out}", "{files}", "{name}"
FIGURE = re.compile(r"\{([0-9a-f]{16}):([\w.@+-]+)\}")  # a number in the report of a step
SERVER = re.compile(r"\{server:([^{}]+)\}")
WORD = re.compile(r"[a-z0-9]+")
ERRORS = {kind.exit_code: kind for kind in (UsageError, BadInputError, MissingError, MismatchError, ServiceError)}


@dataclass(frozen=True, slots=True)
class Step:
    """One command with `--json`.

    In its arguments `{out}` is its own folder and `{KEY}` that of a step it needs, so that keys do not depend on where
    a run lies; `{name}` is the name of the index that it makes and `{KEY.name}` that of a step it needs. `files` are
    written for it, with the same blanks filled, into the folder `{files}`. `inputs` are hashes of what it reads: a
    changed file makes it another step. `settings` are its own, beside those of all steps; they are not in the key,
    where `inputs` has those that decide the result. `{server:NAME}` is the URL of a server. Several `processes`, each
    on a GPU of its own, share a training; rows that do not fill a batch are then left out: it is another step.
    """

    name: str
    arguments: tuple[str, ...]
    needs: tuple[Step, ...] = ()
    inputs: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, SettingValue], ...] = ()
    processes: int = 1
    key: str = field(init=False, default="")

    def __post_init__(self) -> None:
        depends: list[Any] = [self.arguments, [step.key for step in self.needs], self.inputs, self.files]
        depends += [self.processes] if self.processes > 1 else []
        object.__setattr__(self, "key", hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:16])

    @property
    def servers(self) -> list[str]:
        """The names of the servers that it asks."""
        return [match[1] for word in self.arguments for match in SERVER.finditer(word)]

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

    def figure_place(self, path: str) -> str:
        """Return the blank for a number in this step's report, by its keys joined by dots."""
        return f"{{{self.key}:{path}}}"


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


class StepRunner:
    """Runs steps in a folder; finished ones are found again by their key.

    A step's result is `steps/KEY.json`, what it makes lies in `work/KEY/`, its index in `home/`, what is written for it
    in `files/KEY/`, its messages in `logs/KEY.txt`. `jobs` steps run at a time. All read the settings, which stand in
    `biorag.toml`; `servers` are the URLs of servers.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, SettingValue] | None = None,
        servers: Mapping[str, str] | None = None,
        jobs: int = 1,
    ) -> None:
        self.folder, self.settings, self.servers, self.jobs = folder.resolve(), settings or {}, servers or {}, jobs
        self._live: set[subprocess.Popen[bytes]] = set()
        self._gpus = visible_gpus() if jobs > 1 else []
        # Settings are the run's alone: a variable of the user's would change results behind a step's key.
        self.environment = {**for_children(os.environ, self.settings), f"{PREFIX}HOME": str(self.folder / HOME)}
        if jobs > 1:
            threads = max(1, usable_cores() // jobs)
            self.environment |= {"OMP_NUM_THREADS": str(threads), "BIORAG_THREADS": str(threads)}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder, made if needed, with the settings of all steps in it.

        Raises MismatchError if it holds something else; ServiceError if another process writes into it.
        """
        run = StepsRun(self.folder, {})
        run.check_nothing_else()
        with run.locked():
            run.check_nothing_else()
            make_folder(run.manifest)
            self._write_settings(self.folder, {})
            yield

    def _write_settings(self, folder: Path, own: Mapping[str, SettingValue]) -> None:
        settings = {**self.settings, **own}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        write_text(folder / SETTINGS, "".join(lines))

    def standing(self, step: Step) -> Step:
        """Return the step whose results count as a step's: its own."""
        return step

    def out(self, step: Step) -> Path:
        """Return the folder of a step's files."""
        return self.folder / WORK / self.standing(step).key

    def finished(self, step: Step) -> StepRecord | None:
        """Return the record of a finished step; None if it has not finished.

        Raises MismatchError if the record is damaged.
        """
        path = self._record_file(self.standing(step))
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

    def reported(self, step: Step, path: str) -> float | None:
        """Return a number of a finished step's report, or None where that says null; its path is keys joined by dots.

        Raises BadInputError if the report does not have it.
        """
        value: Any = self.record(step)["report"]
        *folders, last = path.split(".")
        for key in folders:
            if isinstance(value, list):  # rows by their number, of `bench mteb` by task, of `bench bioasq` by batch
                rows = [(str(number), row) for number, row in enumerate(value) if isinstance(row, dict)]
                value = next((row for n, row in rows if key in (n, row.get("task"), row.get("batch"))), None)
            else:
                value = value.get(key) if isinstance(value, dict) else None
        value = value[last] if isinstance(value, dict) and last in value else ""  # which is no number
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadInputError(f"the report of step {step.name!r} has no number at {path!r}")
        return float(value)

    def run(self, steps: Iterable[Step], progress: Progress) -> dict[str, Any]:
        """Run all steps and their dependencies, each once, `jobs` at a time; return the seconds now and in all.

        Raises a BioragError with the sentence and the exit code of the first step that failed; the others under way
        finish first.
        """
        needed, started = unique(steps), time.perf_counter()
        with progress("Steps", len(needed)) as advance:
            self.run_all(needed, advance)
        return {
            "seconds_now": round(time.perf_counter() - started, 3),
            "seconds_of_steps": round(sum(self.record(step)["seconds"] for step in needed), 3),
            "cpus": os.cpu_count(),
        }

    def run_all(self, steps: Iterable[Step], on_progress: OnProgress) -> None:
        """Run steps, each after those that it needs; what asks a server waits for what does not.

        Raises as `run`, unless `failed` takes the error.
        """
        waiting = {step.key: step for step in steps}
        done = {key for key, step in waiting.items() if self.finished(step)}
        on_progress(len(done))
        waiting = {key: step for key, step in waiting.items() if key not in done}
        running: dict[Future[None], tuple[Step, list[str]]] = {}
        # A place for each job, with its GPU; without GPUs, or for one job alone, all have all.
        places = [self._gpus[job % len(self._gpus)] if self._gpus else "" for job in range(self.jobs)]
        with ThreadPoolExecutor(self.jobs) as pool, self._ending_together():
            while waiting or running:
                ready = [
                    step for step in waiting.values() if all(self.standing(need).key in done for need in step.needs)
                ]
                for step in sorted(ready, key=lambda step: bool(step.servers)):
                    if (width := self._width(step)) > len(places):
                        break
                    held, places = places[:width], places[width:]
                    running[pool.submit(self.run_step, step, held)] = waiting.pop(step.key), held
                if not running:
                    return  # what waits needs a step that failed
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    step, held = running.pop(future)
                    places += held
                    try:
                        future.result()
                        done.add(step.key)
                    except BioragError as error:
                        self.failed(step, error)
                    on_progress(1)

    def failed(self, step: Step, error: BioragError) -> None:
        """End the run at a step that failed; the others under way finish first."""
        raise error

    @contextmanager
    def _ending_together(self) -> Iterator[None]:
        """End the commands that run when this process is interrupted or terminated."""
        try:
            yield
        except KeyboardInterrupt:  # which SIGTERM raises too
            for process in self._live:
                process.terminate()
            raise

    def command(self, step: Step) -> list[str]:
        """Return the words of a step's command, after `python -m`."""
        words = [self.filled(step, word) for word in step.arguments]
        folder = self._files(step) if step.settings else self.folder
        launcher = [*TORCHRUN, str(step.processes), "-m"] if step.processes > 1 else []
        return [*launcher, "biorag", "--config", str(folder / SETTINGS), *words, "--json"]

    def filled(self, step: Step, text: str) -> str:
        """Return a text with its blanks filled."""
        blanks = {OUT: str(self.out(step)), FILES: str(self._files(step)), TITLE: step.title}
        for need in step.needs:
            blanks |= {need.place: str(self.out(need)), need.title_place: self.standing(need).title}
        for blank, value in blanks.items():
            text = text.replace(blank, value)
        needed = {need.key: need for need in step.needs if FIGURE.search(text) and self.finished(need)}
        text = FIGURE.sub(
            lambda match: f"{self.reported(needed[match[1]], match[2]):g}" if match[1] in needed else match[0], text
        )
        return SERVER.sub(lambda match: self.servers[match[1]], text)

    def _files(self, step: Step) -> Path:
        return self.folder / "files" / step.key

    def log(self, step: Step) -> Path:
        """Return the file of a step's messages."""
        return self.folder / "logs" / f"{step.key}.txt"

    def _record_file(self, step: Step) -> Path:
        return self.folder / StepsRun.manifest_name / f"{step.key}.json"

    def run_step(self, step: Step, gpus: Sequence[str]) -> None:
        """Run a step on these GPUs and record it; raises a BioragError if its command fails."""
        logger.debug("%s", step.name)
        if step.files or step.settings:
            make_folder(self._files(step))
        for name, text in step.files:
            write_text(self._files(step) / name, self.filled(step, text))
        if step.settings:
            self._write_settings(self._files(step), dict(step.settings))
        for folder in (self.log(step).parent, self.out(step).parent):
            folder.mkdir(parents=True, exist_ok=True)
        command, started = self.command(step), time.perf_counter()
        named = dict.fromkeys(filter(None, gpus))
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(named)} if named else {}
        code, reply = self.execute(command, self.log(step), variables)
        if code:
            lines = self.log(step).read_text(encoding="utf-8").strip().splitlines() or ["no message"]
            # After the sentence of a process torchrun ends the others, which say so, and says that one failed.
            last = next((line for line in lines if line.startswith("error: ")), lines[-1])
            kind = ERRORS.get(code, ServiceError)
            raise kind(f"{step.name!r} failed: {last.removeprefix('error: ')} (all messages: {self.log(step)})")
        seconds = round(time.perf_counter() - started, 3)
        record = StepRecord(name=step.name, command=command, seconds=seconds, report=parse_json(reply))
        write_json(self._record_file(step), record)

    def _width(self, step: Step) -> int:
        """Return how many of the jobs' places a step takes: one for each process, all where jobs share GPUs."""
        alone = step.processes > 1 and len(self._gpus) < self.jobs
        return self.jobs if alone else min(step.processes, self.jobs)

    def execute(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> tuple[int, bytes]:
        """Run a command in a process of its own, its messages into a file; return its exit code and its output."""
        with log.open("w", encoding="utf-8") as messages:
            words, environment = [sys.executable, "-m", *command], {**self.environment, **variables}
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=messages, env=environment)
            self._live.add(process)
            reply, _ = process.communicate()
            self._live.discard(process)
        return process.returncode, reply


def unique(steps: Iterable[Step]) -> list[Step]:
    """Return the steps and their dependencies, each once, dependencies first."""
    ordered: dict[str, Step] = {}
    for step in steps:
        ordered.update({need.key: need for need in unique(step.needs)})
        ordered[step.key] = step
    return list(ordered.values())
