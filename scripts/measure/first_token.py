"""How long `biorag ask --llm starter` takes to its first token, for two checkouts in alternation.

Run as `python -m scripts.measure.first_token BASE NEW --index HOME/indexes/NAME --question "..." [--times 5]`.

Each run has a fresh home with a copy of the index: a first question, then a second one in another process that finds
what the first one kept, then a third one in that same process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Asks the questions of its arguments in one process, and prints for each the seconds to the first token.
ASKING = """
import json, sys, time
from contextlib import suppress

class FirstToken(Exception): pass

def stop(text): raise FirstToken

def seconds(): return time.perf_counter(), time.process_time()

start = seconds()
import biorag.commands.ask
from biorag.engine import named_generator, open_index
from biorag.settings.settings import Settings
from biorag.types import Question

try:
    from biorag.utils.background import in_background
except ImportError:  # a checkout that loads the generator after the index
    from contextlib import contextmanager
    from functools import cache

    @contextmanager
    def in_background(work):
        yield cache(work)

options, *questions = sys.argv[1:]
settings = Settings.of(**json.loads(options), llm="starter", cache=False, answer_anyway=True)
def ask_all(start):
    with in_background(lambda: named_generator(settings)) as loaded, open_index(settings) as index:
        for text in questions:
            question = Question("ask", text)
            ranking = index.retriever.search_all([text], wheres=[()])[0]
            answerer = index.answerer(loaded())
            with suppress(FirstToken):
                answerer.answer_or_withhold(question, ranking, on_text=stop)
            wall, cpu = (round(now - then, 3) for now, then in zip(seconds(), start))
            print(json.dumps({"wall": wall, "cpu": cpu}), flush=True)
            start = seconds()

ask_all(start)
"""
STAGES = ("first question, new process", "second question, new process", "third question, same process")


def first_tokens(checkout: Path, options: Mapping[str, Any], questions: Sequence[str]) -> list[Any]:
    """Return the seconds to the first token of each question, asked in one process."""
    command = [sys.executable, "-c", ASKING, json.dumps(options), *questions]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, env=environment, cwd=options["home"], stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measured(checkout: Path, index: Path, options: Mapping[str, Any], question: str) -> Mapping[str, Any]:
    """Return the seconds of each stage in a fresh home with a copy of the index."""
    with tempfile.TemporaryDirectory(prefix="biorag-") as home:
        shutil.copytree(index, Path(home) / "indexes" / index.name)
        options = {**options, "name": index.name, "home": home}
        (first,) = first_tokens(checkout, options, [question])
        second, third = first_tokens(checkout, options, [question, question + " Why?"])
    return dict(zip(STAGES, (first, second, third), strict=True))


def main() -> None:
    """Print each run, and the medians of the paired runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--question", required=True)
    parser.add_argument("--set", default="{}", help='settings of both checkouts, as JSON: {"threads": 1}')
    parser.add_argument("--set-new", default="{}", help='settings of the new checkout: {"sentences": 3}')
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    common = json.loads(asked.set)
    changed = {**common, **json.loads(asked.set_new)}
    runs: dict[str, list[Mapping[str, Any]]] = {"base": [], "new": []}
    for _ in range(asked.times):
        for name, checkout, options in (("base", asked.base, common), ("new", asked.new, changed)):
            runs[name].append(measured(checkout, asked.index, options, asked.question))
            sys.stdout.write(f"{json.dumps({name: runs[name][-1]})}\n")
            sys.stdout.flush()
    for stage in STAGES:
        for unit in ("cpu", "wall"):
            base, new = (statistics.median(run[stage][unit] for run in runs[name]) for name in ("base", "new"))
            sys.stdout.write(f"{stage}, {unit} s: {base:.2f} -> {new:.2f} (ratio {new / base:.2f})\n")


if __name__ == "__main__":
    main()
