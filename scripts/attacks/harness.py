"""What the seeded attacks on biorag share: cases, the process that each is run in, what is held of it, and mutations.

An attack is a module with a function `cases(count, seed, work)` that yields `Case`s and ends in

    if __name__ == "__main__":
        main("manifests", cases)

It is run as `python -m scripts.attacks.NAME --cases 300 --seed 0 --out FILE [--only PART]`. `Case.make(folder)` writes
the files of the case into its own empty folder and returns the arguments of biorag; it runs in the warmed process, so
it starts no thread and loads no index.

Each case runs in a process forked from one that has loaded the libraries, in its folder, with HOME there,
BIORAG_HOME=FOLDER/home, one thread and no network but loopback. Held of it are its exit code (one of ours), what it
writes (no traceback, no internal error, no panic; with --json and exit code 0 one valid JSON document), its seconds,
and its memory above that of a process that does nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from biorag.utils.parsing import parse_json
from scripts.faults.runs import load_libraries

ROOT = Path(__file__).resolve().parents[2]
OURS = frozenset({0, 2, 3, 4, 5, 6, 7, 130, 143})  # documented exit codes; 1 is an internal error
FAULTY = ("Traceback", "internal error", "panicked at", "PanicException", "Segmentation", "core dumped")
SECONDS, MEGABYTES = 30.0, 512.0  # of one case; the memory above that of a process that does nothing
ADDRESS_SPACE = 16 << 30  # above that of the warmed process: what a runaway process may ask for at most
SAID = 2000  # characters of a faulty case's output in the report
VARIABLES = {
    **{"BIORAG_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    **{"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
}
CORPUS = "".join(
    json.dumps({"id": f"s{n}", "title": f"Title {n}", "content": f"Asthma is treated with drug {n}.", "PMID": n}) + "\n"
    for n in range(1, 9)
)

Make = Callable[[Path], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One attempt: its files and arguments, its variables (None: not set), limits, and the codes it may end with."""

    name: str
    make: Make
    environment: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    codes: frozenset[int] = OURS
    seconds: float = SECONDS
    megabytes: float = MEGABYTES


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one process gave, took and wrote."""

    name: str
    arguments: tuple[str, ...]
    code: int | None  # None: it was ended after its time
    seconds: float
    megabytes: float
    stdout: str
    stderr: str
    fault: str = ""


Cases = Callable[[int, int, Path], Iterable[Case]]


def draws(count: int, seed: int, label: str) -> Iterator[tuple[int, random.Random]]:
    """Yield the number and the source of random choices of each case, which do not depend on those before."""
    for number in range(count):
        yield number, random.Random(f"{label}/{seed}/{number}")


def warm() -> None:
    """Load what commands take seconds to load, so that a forked process starts at once; starts no thread."""
    os.environ.update(VARIABLES)
    load_libraries()
    gc.collect()
    gc.freeze()


def variables(folder: Path, more: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment of a case: little of this one's, its own folders, and its own variables."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "HF_HOME") if name in os.environ}
    ours = {"HOME": str(folder), "BIORAG_HOME": str(folder / "home"), "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    wanted: dict[str, str | None] = {**kept, **ours, **VARIABLES, "COLUMNS": "200", **more}
    return {name: value for name, value in wanted.items() if value is not None}


def ran(case: Case, folder: Path) -> Outcome:
    """Run a case in its folder, which is made, and measure its process."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = tuple(case.make(folder))
    output, environment = folder.with_name(f"{folder.name}.said"), variables(folder, case.environment)
    output.mkdir(exist_ok=True)
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _become(arguments, folder, output, environment)
    handle = os.pidfd_open(pid)
    in_time = bool(select.select([handle], [], [], 2 * case.seconds)[0])
    if not in_time:
        _end(pid)
    _, status, usage = os.wait4(pid, 0)
    os.close(handle)
    seconds = time.perf_counter() - started
    _end(pid)  # what it started and left behind
    said = {name: (output / name).read_bytes().decode("utf-8", "replace") for name in ("stdout", "stderr")}
    shutil.rmtree(output)
    code = os.waitstatus_to_exitcode(status) if in_time else None
    megabytes = usage.ru_maxrss / 1024 - _floor()
    outcome = Outcome(case.name, arguments, code, round(seconds, 2), round(megabytes, 1), **said)
    return replace(outcome, fault=fault_of(case, outcome))


def fault_of(case: Case, outcome: Outcome) -> str:
    """Return what is wrong with a case's end, in a few words; nothing if it is as it must be."""
    written = outcome.stdout + outcome.stderr
    errors = [line for line in outcome.stderr.splitlines() if "error" in line.casefold()]
    checks = [
        (outcome.code is None, f"no end after {2 * case.seconds:g} seconds"),
        (outcome.code is not None and outcome.code not in case.codes, f"exit code {outcome.code}"),
        (any(word in written for word in FAULTY), "a traceback, a panic or an internal error"),
        (outcome.seconds > case.seconds, f"{outcome.seconds:g} seconds"),
        (outcome.megabytes > case.megabytes, f"{outcome.megabytes:g} MB"),
        (bool(outcome.code) and not errors, "no error message"),
        ("--json" in outcome.arguments and outcome.code == 0 and not _is_json(outcome.stdout), "stdout is not JSON"),
    ]
    return "; ".join(fault for is_so, fault in checks if is_so)


def clean(arguments: Sequence[str], work: Path) -> Outcome:
    """Run a command that must succeed, in the folder `work`, whose home it may write into."""
    outcome = ran(Case("clean", lambda _: arguments, seconds=300, megabytes=8192), work)
    if outcome.code != 0:
        raise RuntimeError(f"biorag {' '.join(arguments)} failed: {outcome.stderr}")
    return outcome


def index_of(work: Path, *options: str) -> Path:
    """Make the index "default" of eight snippets in the home of `work`, unless it is there; return its folder."""
    folder = work / "home" / "indexes" / "default"
    if not folder.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        (work / "corpus.jsonl").write_text(CORPUS, encoding="utf-8")
        clean(["index", "corpus.jsonl", *options], work)
    return folder


def copy_home(work: Path, folder: Path) -> Path:
    """Copy the home of `work` into a case's folder, holes kept; return the folder of its index "default"."""
    subprocess.run(["cp", "-a", "--sparse=always", str(work / "home"), str(folder / "home")], check=True)
    return folder / "home" / "indexes" / "default"


def run(cases: Iterable[Case], work: Path) -> Iterator[Outcome]:
    """Run each case in an empty folder below `work`."""
    for number, case in enumerate(cases):
        folder = work / f"case{number}"
        yield ran(case, folder)
        shutil.rmtree(folder, ignore_errors=True)


def report(attack: str, seed: int, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of an attack, and its faulty cases in full."""
    faulty = [asdict(outcome) for outcome in outcomes if outcome.fault]
    for row in faulty:
        row |= {stream: row[stream][-SAID:] for stream in ("stdout", "stderr")}
    return {
        "attack": attack,
        "seed": seed,
        "cases": len(outcomes),
        "faults": len(faulty),
        "codes": dict(sorted(Counter(str(outcome.code) for outcome in outcomes).items())),
        "slowest_seconds": max((outcome.seconds for outcome in outcomes), default=0.0),
        "most_megabytes": max((outcome.megabytes for outcome in outcomes), default=0.0),
        "faulty": faulty,
    }


def main(attack: str, cases: Cases) -> None:
    """Run an attack as a script; ends with 1 if a case is faulty."""
    parser = argparse.ArgumentParser(description=f"Seeded attack on {attack}: exit codes, messages, time and memory.")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON report; by default it is only printed")
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    asked = parser.parse_args()
    warm()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix=f"biorag-{attack}-", ignore_cleanup_errors=True) as scratch:
        work = Path(scratch)
        chosen = (case for case in cases(asked.cases, asked.seed, work / "clean") if asked.only in case.name)
        for outcome in run(chosen, work):
            outcomes.append(outcome)
            if outcome.fault or asked.only:
                _print(outcome)
    found = report(attack, asked.seed, outcomes)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in found.items() if name != "faulty"}, indent=2))  # noqa: T201
    sys.exit(1 if found["faults"] else 0)


# Mutations: every choice is drawn from the `Random` given.

RAW = (  # JSON values, and what pretends to be one, as text
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "1e-320", "-0.0", "0.5", "0", "-1", "1", "true"),
    *("false", "null", "[]", "{}", '""', "9" * 400, "9" * 5000, "18446744073709551616", "-9223372036854775809"),
    *("9007199254740993", "2147483648", "1.0", '"1"', '"NaN"', '"\\ud800"', '"\\u0000"', '"\\u001b[31m"', '"a\\nb"'),
    *('"../../../etc/passwd"', '"/dev/zero"', '"/"', '"."', '"~"', '"-"', '"file:///etc/passwd"', '"http://[::1"'),
    *('"%s%n{0}"', '"[bold]"', '"\\u202e"', '" "', '{"": {}}', '{"__class__": "x"}', "[[]]", "[null]", "[{}]", "[NaN]"),
    *('"' + "x" * 1_000_000 + '"', '"' + "é" * 70_000 + '"', "[" * 300 + "]" * 300, "[" * 100_000 + "]" * 100_000),
    *('{"a":' * 300 + "1" + "}" * 300, "[" * 100_000, "[" + "0," * 200_000 + "0]", "{" + '"a":1,' * 1000 + '"a":2}'),
    *("01", "+1", ".5", "1.", "0x10", "'a'", "undefined", "", ",", '"', "//", "\x00"),
)
BYTES = (
    *(b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\n"),
    *(b"{", b"[", b'"', b"\\", b"}", b"\x1b[2J"),
)
_MARK = "\ue000raw\ue000"


def hostile(draw: random.Random) -> str:
    """Return one JSON value as text, or what only looks like one."""
    return draw.choice(RAW)


def mutated(draw: random.Random, document: Any) -> bytes:
    """Return the JSON of a document with one to three of its values changed, or its bytes damaged."""
    if draw.random() < 0.15:
        return damaged(draw, json.dumps(document).encode())
    document = json.loads(json.dumps(document))
    raw: list[str] = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            return hostile(draw).encode("utf-8", "surrogatepass")
        _change(draw, *draw.choice(places), raw)
    text = json.dumps(document)
    for value in raw:
        text = text.replace(json.dumps(_MARK), value, 1)
    if draw.random() < 0.05:
        text = text.replace(": ", f': {json.dumps(draw.choice(["", 0]))}, "twice": ', 1)
    return text.encode("utf-8", "surrogatepass")


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Return bytes cut, with some flipped, put in, repeated or left out."""
    if not content:
        return draw.choice(BYTES)
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.choice((1, 1, 2, 8, 64, 1024)))
    kind = draw.choice(("cut", "flip", "insert", "repeat", "drop", "append", "empty", "reverse"))
    if kind == "flip":
        flipped = bytes(byte ^ 1 << draw.randrange(8) for byte in content[start:end])
        return content[:start] + flipped + content[end:]
    return {
        "cut": content[:start],
        "insert": content[:start] + draw.choice(BYTES) * draw.choice((1, 3, 5000)) + content[start:],
        "repeat": content[:end] + content[start:],
        "drop": content[:start] + content[end:],
        "append": content + draw.choice(BYTES),
        "empty": b"",
        "reverse": content[::-1],
    }[kind]


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every object or array with each of its keys or positions."""
    if isinstance(values, dict | list):
        for key in list(values) if isinstance(values, dict) else range(len(values)):
            yield values, key
            yield from _places(values[key])


def _change(draw: random.Random, holder: Any, key: Any, raw: list[str]) -> None:
    """Change what an object or array has at one place."""
    value = holder[key]
    kind = draw.choice(("replace", "replace", "replace", "remove", "rename", "add", "wrap", "kin", "swap"))
    if kind == "remove":
        del holder[key]
    elif kind in ("rename", "add") and isinstance(holder, dict):
        name = draw.choice(("", "extra", f"{key} ", str(key).upper(), "\u202e", "x" * 10_000, "\ud800"))
        holder[name] = holder.pop(key) if kind == "rename" else value
    elif kind == "add":
        holder *= draw.choice((2, 100))
    elif kind == "wrap":
        holder[key] = draw.choice(([value], {"value": value}, [value] * 1000))
    elif kind == "kin" and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = draw.choice((-value, value + 1, value * 1_000_003, float(value), str(value), 2**63, 10**18))
    elif kind == "kin" and isinstance(value, str):
        holder[key] = draw.choice((value + "\x00", value[::-1], value.upper(), value * 1000, f"../{value}", value[:-1]))
    elif kind == "swap" and isinstance(holder, dict):
        other = draw.choice(list(holder))
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = _MARK
        raw.append(hostile(draw))


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _print(outcome: Outcome) -> None:
    told = (outcome.stderr.strip().splitlines() or [""])[-1]
    line = (
        f"{outcome.name}: {outcome.fault or 'held'} (code {outcome.code}, {outcome.seconds} s, {outcome.megabytes} MB) "
    )
    print(ascii(line + told[-300:])[1:-1], flush=True)  # noqa: T201


@cache
def _floor() -> float:
    """Return the megabytes that are measured of a process forked from this one that does nothing."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.wait4(pid, 0)[2].ru_maxrss / 1024


def _end(group: int) -> None:
    """End the processes of a case, which are a group of their own."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _become(arguments: Sequence[str], folder: Path, output: Path, environment: dict[str, str]) -> None:
    """Be the process of a case from here on."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        code = _command(arguments)
    finally:
        os._exit(code)


def _command(arguments: Sequence[str]) -> int:
    """Run biorag in this process; return its exit code."""
    from biorag.cli import main as biorag

    sys.argv = ["biorag", *arguments]
    code = 0
    try:
        biorag()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code
