"""Every hostile file of tests/hostile in a process of its own: exit code, seconds, peak memory and message.

    python scripts/faults/hostile.py --out hostile.json [--only GGUF]

A file is measured against the clean command of its family, on a clean file: seconds above and memory as a multiple.
The limits are no traceback, no code run, under 5 seconds, under twice the clean command's memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hostile"))

from tests.hostile.hostile_files import CANARY, CASES, MIRAGE, QUESTION, SNIPPETS, Case  # noqa: E402
from tests.hostile.tiny_gguf import tiny_llama  # noqa: E402

SECONDS, TIMES = 5.0, 2.0
ENDLESS = 120  # seconds after which a process is ended


@dataclass(frozen=True, slots=True)
class Measured:
    """One process: what it gave, took and said."""

    name: str
    family: str
    code: int
    seconds: float
    megabytes: float
    message: str
    traceback: bool
    executed: bool


def measured(name: str, family: str, arguments: Sequence[str], folder: Path) -> Measured:
    """Run one command in `folder` and measure its process and those that it started."""
    said = folder / "said"
    environment = {**os.environ, "BIORAG_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "COLUMNS": "1000"}
    started = time.perf_counter()
    with said.open("wb") as stream:
        command = [sys.executable, "-m", "biorag", *arguments]
        process = subprocess.Popen(command, cwd=folder, stdout=stream, stderr=subprocess.STDOUT, env=environment)
        killer = subprocess.Popen(["sh", "-c", f"sleep {ENDLESS} && kill -9 {process.pid}"], stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        killer.kill()
        killer.wait()
    text = said.read_text(encoding="utf-8", errors="replace")
    errors = re.findall(r"^error: (.*)", text, re.MULTILINE)
    return Measured(
        name=name,
        family=family,
        code=os.waitstatus_to_exitcode(status),
        seconds=round(time.perf_counter() - started, 2),
        megabytes=round(usage.ru_maxrss / 1024, 1),
        message=errors[-1].replace(f"{folder}/", "") if errors else "",
        traceback="Traceback" in text or "internal error" in text,
        executed=any(folder.rglob(CANARY)),
    )


def made(case: Case, folder: Path) -> list[str]:
    """Make a case's files in a process of its own: what this one held would count as the peak of those it starts."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(case.make(folder)))
    child.start()
    arguments: list[str] = ours.recv()
    child.join()
    return arguments


def clean_commands(folder: Path) -> dict[str, list[str]]:
    """Return the command of each family on a clean file, written into `folder`."""
    corpus, benchmark, settings = folder / "corpus.jsonl", folder / "benchmark.json", folder / "x.toml"
    corpus.write_bytes(SNIPPETS)
    benchmark.write_text(json.dumps({"task": {"q": QUESTION}}), encoding="utf-8")
    settings.write_text("k = 3\n", encoding="utf-8")
    qrels, run = folder / "qrels.tsv", folder / "run.trec"
    qrels.write_bytes(b"q1\ts1\t1\n")
    run.write_bytes(b"q1 Q0 s1 1 1.0 tag\n")
    gguf = tiny_llama().write(folder / "tiny.gguf")
    places = {"{}": str(benchmark), "{folder}/out": str(folder / "out"), "none": str(gguf)}
    mirage = [places.get(word, word) for word in MIRAGE]
    return {
        "corpus": ["index", str(corpus), "--name", "clean"],
        "encoder": ["index", str(corpus), "--name", "clean2", "--encoder", "starter"],
        "generator": ["ask", "Why?", "--llm", str(gguf), "--mode", "bm25", "--no-rerank"],
        "search": ["search", "fever", "--mode", "bm25", "--no-rerank"],
        "settings": ["--config", str(settings), "info", "--settings"],
        "benchmark": [*mirage, "--mode", "bm25", "--no-rerank"],
        "dataset": ["bench", "retrieval", "--qrels", str(qrels), "--run", str(run)],
    }


def run(cases: Sequence[Case]) -> tuple[dict[str, Measured], list[Measured]]:
    """Return what the clean command of each family took, and every case."""
    with tempfile.TemporaryDirectory(prefix="biorag-hostile-") as scratch:
        clean_folder = Path(scratch) / "clean"
        clean_folder.mkdir()
        commands = clean_commands(clean_folder)
        measured("index", "", ["index", str(clean_folder / "corpus.jsonl")], clean_folder)
        families = {case.family for case in cases}
        clean = {
            family: measured("clean", family, command, clean_folder)
            for family, command in commands.items()
            if family in families
        }
        found = []
        for place, case in enumerate(cases):
            folder = Path(scratch) / str(place)
            folder.mkdir()
            if case.indexed:
                shutil.copytree(clean_folder / "home", folder / "home")
            found.append(measured(case.name, case.family, made(case, folder), folder))
            shutil.rmtree(folder)
    return clean, found


def summary(cases: Sequence[Case], clean: dict[str, Measured], found: Sequence[Measured]) -> dict[str, object]:
    """Return how many keep to each limit, and the largest figures."""
    times = [one.megabytes / clean[one.family].megabytes for one in found]
    return {
        "files": len(found),
        "as_expected": sum(one.code == case.code for case, one in zip(cases, found, strict=True)),
        "tracebacks": sum(one.traceback for one in found),
        "code_run": sum(one.executed for one in found),
        f"over_{SECONDS:g}_seconds": sum(one.seconds > SECONDS for one in found),
        "longest_seconds": max(one.seconds for one in found),
        f"over_{TIMES:g}_times_the_memory": sum(share > TIMES for share in times),
        "largest_share_of_memory": round(max(times), 2),
    }


def main() -> None:
    """Run it as a script; ends with 1 if a limit was passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON report")
    parser.add_argument("--only", default="", help="only the files whose name or family holds this")
    asked = parser.parse_args()
    cases = [case for case in CASES if asked.only in f"{case.family} {case.name}"]
    clean, found = run(cases)
    lines = [*clean.values(), *found]
    for one in lines:
        row = f"{one.family:10} {ascii(one.name)[1:-1]:45.45} {one.code:3} {one.seconds:6.2f} {one.megabytes:7.1f}"
        print(f"{row}  {one.message[:100]}")  # noqa: T201
    totals = summary(cases, clean, found)
    print(json.dumps(totals, indent=2))  # noqa: T201
    report = {"summary": totals, "clean": [asdict(one) for one in clean.values()], "files": [asdict(o) for o in found]}
    asked.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    kept = totals["as_expected"] == len(cases) and not any(
        totals[limit] for limit in totals if limit.startswith(("over", "tracebacks", "code_run"))
    )
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
