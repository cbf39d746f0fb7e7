"""The checkouts that are compared, each with a home of its own, and the data that they are measured on."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from scripts.measure.processes import Finished, log, run

ROOT = Path(__file__).resolve().parents[2]
BASE, NEW = "base", "new"
SNIPPETS = Path("pubmed", "snippets.jsonl.gz")
QUESTIONS = Path("bioasq", "queries.jsonl")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout of biorag.

    Attributes
    ----------
    work : takes the homes, one for each commit, and the bytecode of all that is imported
    commit : with a plus sign where files differ from it
    """

    name: str
    path: Path
    work: Path
    commit: str = ""

    @classmethod
    def of(cls, name: str, path: Path, work: Path) -> Checkout:
        """Return the checkout in a folder as it is now."""
        git = ["git", "-C", str(path)]
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
        return cls(name, path, work, commit.stdout.strip() + ("+" if changes.stdout.strip() else ""))

    @property
    def home(self) -> Path:
        """The home of this checkout's indexes."""
        return self.work / f"{self.name}-{self.commit}"

    def environment(self, home: Path | None = None) -> dict[str, str]:
        """Return the variables with which Python imports this checkout, and `scripts` where it has none from here.

        Bytecode is kept, as where a package is installed, but not in the checkout.
        """
        ours = ("BIORAG_", "PYTHON")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "BIORAG_HOME": str(home or self.home),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join((str(self.path), str(ROOT))),
            "PYTHONPYCACHEPREFIX": str(self.work / "bytecode"),
            "PYTHONSAFEPATH": "1",
        }

    def run(self, command: Sequence[str], home: Path | None = None) -> Finished:
        """Run a command to its end; a first word of `biorag` or `python` is this checkout's."""
        return run(python_command(command), self.environment(home))

    def require_index(self, name: str, corpus: Path, flags: Sequence[str] = ()) -> None:
        """Index a corpus, if the home has no complete index of this name yet."""
        manifest = self.home / "indexes" / name / "manifest.json"
        if manifest.is_file() and json.loads(manifest.read_text(encoding="utf-8")).get("complete"):
            return
        log(f"{self.name}: indexing {corpus.name} as {name}")
        self.run(["biorag", "index", str(corpus), "--name", name, "--json", *flags])

    def facts(self) -> dict[str, str]:
        """Return what identifies the checkout."""
        return {"path": str(self.path), "commit": self.commit}


def python_command(command: Sequence[str]) -> list[str]:
    """Return a command line with the running interpreter for a first word of `biorag` or `python`."""
    first, *rest = command
    starts: Mapping[str, list[str]] = {"biorag": [sys.executable, "-m", "biorag"], "python": [sys.executable]}
    return [*starts.get(first, [first]), *rest]


@dataclass(frozen=True, slots=True)
class Data:
    """Snippets and questions in a folder that holds `pubmed/` and `bioasq/`."""

    folder: Path
    work: Path

    def corpus(self, count: int | None) -> Path:
        """Return the file of all snippets, or a new one of the first `count`."""
        source = self.folder / SNIPPETS
        if count is None:
            return source
        path = self.work / f"snippets-{count}.jsonl"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(source, "rt", encoding="utf-8") as lines:
                path.write_text("".join(islice(lines, count)), encoding="utf-8")
        return path

    def questions(self, count: int) -> list[str]:
        """Return `count` questions, spread evenly over all; all where there are fewer."""
        with (self.folder / QUESTIONS).open(encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        step = max(1, len(texts) // count)
        return texts[::step][:count]


def index_name(count: int | None) -> str:
    """Return the name of the index of so many snippets."""
    return "pubmed" if count is None else f"pubmed-{count}"


def parser_of(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the options that all measurements of two checkouts take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="checkout to compare with")
    parser.add_argument("--new", type=Path, default=ROOT, help="checkout that is measured (default: this one)")
    parser.add_argument("--work", type=Path, default=ROOT / "bench-results" / "measure", help="homes and indexes")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"runs of each, by turns (default: {rounds})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to FILE too")
    return parser


def add_data(parser: argparse.ArgumentParser, questions: int | None = None) -> None:
    """Add the options that say what is indexed and, where a default number of questions is given, what is asked."""
    parser.add_argument("--data", type=Path, required=True, help=f"folder that holds {SNIPPETS} and {QUESTIONS}")
    parser.add_argument("--snippets", type=int, help="snippets to index (default: all)")
    if questions is not None:
        parser.add_argument("--questions", type=int, default=questions, help=f"questions to ask (default: {questions})")


def checkouts_of(options: argparse.Namespace) -> tuple[Checkout, Checkout]:
    """Return the checkout to compare with and the one that is measured."""
    work = options.work.resolve()
    return Checkout.of(BASE, options.base.resolve(), work), Checkout.of(NEW, options.new.resolve(), work)


def data_of(options: argparse.Namespace) -> Data:
    """Return the data of `add_data`'s options."""
    return Data(options.data.resolve(), options.work.resolve())


def all_facts(checkouts: Iterable[Checkout]) -> dict[str, dict[str, str]]:
    """Return what identifies each checkout, by its name."""
    return {checkout.name: checkout.facts() for checkout in checkouts}
