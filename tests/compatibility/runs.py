"""Runs that `write.py` kills halfway with the frozen code, and that the tests take up where they stopped.

Of each run `files/half/NAME` holds what a kill left, `files/finished/NAME` what the frozen code made of it when the
same command was given again, and `files/finished/NAME.json` those values of its report that are the same everywhere.

Identities that biorag compares hold the versions of installed packages, and manifests tell absolute paths. So that
the files fit any machine, `frozen.copied` puts the installed versions in the place of those in every `versions`
object, and the folder of the test in the place of `@FOLDER@`. Nothing else is changed: what the frozen code took
for the identity of a run, the code of today must compute too. One thing cannot be frozen: a generated file's identity
holds the hash of the generator's source, and the URL of its server. The test takes these, and these alone, from a run
of today.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.compatibility.documents import INPUTS, SERVER, TINY
from tests.compatibility.frozen import copied, lines_of, report_of

FROZEN = ("--name", "frozen")
SUFFIXES = (".manifest.json", ".drafts", ".drafts.manifest.json")
EPOCHS = (*TINY, "--epochs", "20")


@dataclass(frozen=True)
class Run:
    """A command, when it is to be killed, and what is compared in the end."""

    name: str
    words: tuple[str, ...]
    halfway: Callable[[Path], bool]
    values: tuple[str, ...]

    def arguments(self, server: str) -> list[str]:
        """Return the command's words, with the output beside the inputs."""
        return [word.replace("{server}", server).replace("{out}", self.name) for word in self.words]

    def parts(self, folder: Path) -> list[Path]:
        """Return the files and folders of the run that are there."""
        names = (self.name, *(f"{self.name}{suffix}" for suffix in SUFFIXES))
        return [folder / name for name in names if (folder / name).exists()]

    def adopt(self, folder: Path, server: str) -> None:
        """Put the generator as it is now into the identity of a generated file that is not complete."""
        manifest = folder / f"{self.name}.drafts.manifest.json"
        if not manifest.is_file():
            return
        words = ("generate", "queries", "corpus.jsonl", *SERVER, "--limit", "1", "--out", "one.jsonl")
        report_of(*(word.replace("{server}", server) for word in words), folder=folder)
        now = json.loads((folder / "one.jsonl.manifest.json").read_bytes())["identity"]["generator"]
        held = json.loads(manifest.read_bytes())
        assert held["identity"]["generator"].keys() == now.keys()
        held["identity"]["generator"] = now
        manifest.write_text(json.dumps(held), encoding="utf-8")


def _lines(count: int, suffix: str = "") -> Callable[[Path], bool]:
    def written(out: Path) -> bool:
        path = out.with_name(out.name + suffix)
        return path.is_file() and path.read_bytes().count(b"\n") >= count

    return written


def _points(count: int) -> Callable[[Path], bool]:
    def measured(out: Path) -> bool:
        path = out / "points.json"
        return path.is_file() and len(json.loads(path.read_bytes())["points"]) >= count

    return measured


def _checkpoint(out: Path) -> bool:
    return any(out.glob("checkpoints/checkpoint-*/trainer_state.json")) and not (out / "model.safetensors").exists()


def _answered(count: int) -> Callable[[Path], bool]:
    return lambda out: (out / "timings.jsonl").is_file() and len(lines_of(out / "timings.jsonl")) >= count


TRAINED = ("identity", "rows", "steps", "resumed_from_step", "final_loss", "best")
RUNS = {
    run.name: run
    for run in (
        Run(
            "retriever",
            ("train", "retriever", "pairs.jsonl", *EPOCHS, "--similarity", "cosine", "--out", "{out}"),
            _checkpoint,
            TRAINED,
        ),
        Run("reranker", ("train", "reranker", "mined.jsonl", *EPOCHS, "--out", "{out}"), _checkpoint, TRAINED),
        Run(
            "cross-encoder",
            ("train", "cross-encoder", "mined.jsonl", *EPOCHS, "--out", "{out}"),
            _checkpoint,
            TRAINED,
        ),
        Run(
            "mirage",
            (
                *("bench", "mirage", "--benchmark", "demo", "--limit", "2", *FROZEN, *SERVER, "--k-init", "3"),
                *("-k", "2", "--exclude-source", "--filter", "not retracted", "--out", "{out}"),
            ),
            _answered(4),
            ("tasks", "average", "manifest.resumed", "manifest.answered", "manifest.layout", "manifest.prompts"),
        ),
        Run(
            "mined.rows.jsonl",
            (
                *("mine", "questions", "--negatives", "retriever", *FROZEN, "--ranks", "2-9", "--margin", "0.02"),
                *("--per-row", "3", "--seed", "5", "--out", "{out}"),
            ),
            _lines(3),
            ("rows", "negatives", "without", "resumed", "input"),
        ),
        Run(
            "questions.jsonl",
            ("generate", "queries", "corpus.jsonl", *SERVER, "--per-snippet", "2", "--seed", "4", "--out", "{out}"),
            _lines(3, ".drafts"),
            ("snippets", "generated", "rows", "resumed", "prompt_tokens"),
        ),
        Run(
            "tuned",
            (
                *("tune", "questions", "--param", "k_init", "--values", "2,4,6", *FROZEN, "--interpolation", "0.1"),
                *("--no-write", "--out", "{out}"),
            ),
            _points(2),
            ("points", "best", "current", "datasets"),
        ),
        Run(
            "searched",
            (
                *("merge", "a", "b", "--method", "ties", "--base", "base", "--density", "0.4", "--scale", "1.1"),
                *("--search", "questions", "--corpus", "corpus.jsonl", "--out", "{out}"),
            ),
            _points(4),
            ("identity", "weights", "density", "search.points", "experts[].sha256"),
        ),
    )
}
MERGED = (
    *("merge", "a", "b", "--method", "ties", "--base", "base", "--weights", "1,2", "--density", "0.6"),
    *("--out", "merged"),
)
MERGED_VALUES = ("identity", "method", "weights", "density", "scale", "experts[].sha256", "base.sha256")
# What is asked of the home that the frozen code wrote, and the values that are compared.
HITS = ("mode", "hits[].rank", "hits[].id", "hits[].score", "hits[].title", "hits[].pmid")
ASKED = {
    "info": (("info", "frozen"), ("encoder", "similarity", "bm25", "tokens", "blocks", "store", "sources", "snippets")),
    "info papers": (("info", "papers"), ("similarity", "bm25", "quantized", "snippets", "format", "complete")),
    "hybrid": (("search", "What is given for hyperkalaemia?", *FROZEN, "-k", "6"), HITS),
    "bm25": (("search", "isoniazid neuropathy", *FROZEN, "--mode", "bm25", "--no-rerank"), HITS),
    "papers": (("search", "aspirin in the liver", "--name", "papers"), HITS),
    "graph": (("graph", "info", "--graph", "papers", "--name", "papers"), ("citing", "papers", "edges", "index")),
    "measured": (("bench", "retrieval", "questions", *FROZEN, "--k-init", "5"), ("questions", "metrics")),
}
SWEPT = ("datasets.questions[].configuration", "datasets.questions[].questions", "datasets.questions[].metrics")


def lay_out(folder: Path) -> None:
    """Copy the inputs into a folder."""
    for name in INPUTS:
        copied(name, folder)
