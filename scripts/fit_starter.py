"""Fit biorag/models/starter.safetensors: scripts/fit_starter.py ../shared/data WORK [--jobs 2].

Train all-MiniLM-L6-v2 by `biorag train retriever --lora`, once per seed, each on rows that the seed draws, and write
a part of the mean change of the weights in low-rank factors. The new file's SHA-256 goes into `TRAINED_STARTER` of
biorag/models/finding.py; docs/starter.md has the sources, their licences and the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer
from safetensors.numpy import load_file, save_file

from biorag.benchmarks.golden import read_expert_answers
from biorag.corpus.datasets import Dataset, load_dataset
from biorag.models import finding
from biorag.models.adapter import DOWN, UP
from biorag.models.finding import PLAIN_STARTER, TRAINED_STARTER, WEIGHTS, find_encoder
from biorag.training.contamination import HELD_OUT, TRAINING, HeldOutSplit
from biorag.training.rows import normalised, read_records
from biorag.types import Snippet, Vectors

SHARE, SPLIT_SEED = 0.2, 0  # held out of the BioASQ and PubMedQA questions, for measuring
QUESTIONS = ("bioasq", "pubmedqa")
SNIPPETS = "pubmed/snippets.jsonl.gz"
DRAWN = {  # a seed; of other sources all
    **{"citint": 1500, "conclusions": 600, "titles": 400, "pubmed_conclusions": 500, "whole_titles": 1000},
    **{"bioasq_1_6": 4000, "medquad": 2000, "covidqa": 800, "evidence_inference_qa": 800},
}
MOST = {"bioasq": 4, "written": 2, "bioasq_1_6": 2}  # passages of a question
ASKED = ("bioasq_1_6", "medquad", "covidqa", "evidence_inference_qa")  # questions with passages
WHOLE = ("evidence_inference", "med1250", "ncbi_disease")  # abstracts with titles
NEAR = 0.8  # likeness to a held-out question from which one is left out
LONGEST = 1500  # characters of a passage
CLAIMS = ("check_covid", "citation_integrity", "scifact")
HARDEST, NEGATIVES = 20, 2  # passages of BM25's list from which negatives are drawn, and how many
ANSWER = 500  # characters of a written answer
SEEDS, RANK, KEPT = (1, 2), 64, 64
PART = 0.7  # of the mean change: less forgets less, see docs/starter.md
ADAPTER = Path(finding.__file__).with_name(TRAINED_STARTER.weights)
HELD_OUT_QUESTIONS = "held-out.jsonl"
GUARDS = ("mirage/benchmark.json", "scifact/queries.jsonl")
OPTIONS = (
    *("--base", PLAIN_STARTER, "--lora", "--lora-rank", str(RANK), "--lora-alpha", str(2 * RANK)),
    *("--token-loss", "1", "--learning-rate", "8e-4", "--batch-size", "48", "--max-tokens", "160"),
    *("--hard-negatives", str(NEGATIVES), "--validation", "0", "--epochs", "3", "--evaluations", "1"),
)


def biorag(work: Path, *arguments: str | Path) -> None:
    """Run a command, one thread, with a home of its own."""
    environment = os.environ | {"BIORAG_HOME": str(work / "home"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "biorag", *map(str, arguments)], env=environment, check=True)


def prepare(data: Path, work: Path) -> None:
    """Convert the claims to rows, and the texts of SciFact and PubMed that nothing cites which is measured on."""
    corpus, claims = data / "scifact/corpus.jsonl.gz", data / "claims/train"
    biorag(
        work, "data", "convert", "claims", *(claims / f"{name}.jsonl.gz" for name in CLAIMS), "--out", work / "claims"
    )
    cited = len({id for judged in load_dataset(data / "scifact").qrels.values() for id in judged})
    keep = ("--keep", data / "scifact")
    biorag(work, "data", "sample", corpus, "--sizes", str(cited), *keep, "--out", work / "cited")
    others = sum(1 for _ in read(corpus)) - cited
    left_out = ("--exclude", work / "cited/sample-1")
    biorag(work, "data", "sample", corpus, "--sizes", str(others), *left_out, "--out", work / "free")
    free = work / "free/sample-1/corpus.jsonl"
    biorag(work, "data", "convert", "title-abstract", free, "--out", work / "titles")
    biorag(work, "data", "convert", "conclusions", free, "--out", work / "conclusions")
    judged = {id for name in QUESTIONS for ids in part_of(data, name, HELD_OUT).qrels.values() for id in ids}
    rows = (json.dumps({"_id": question.id, "text": question.text}) + "\n" for question in held_out_questions(data))
    (work / HELD_OUT_QUESTIONS).write_text("".join(rows))
    rest = work / "unjudged.jsonl"
    rest.write_text("".join(json.dumps(row) + "\n" for row in read(data / SNIPPETS) if row["id"] not in judged))
    biorag(work, "data", "convert", "conclusions", rest, "--out", work / "pubmed_conclusions")


class Negatives:
    """Draws negatives from the passages that BM25 finds for a query: `HARDEST` of its first `depth`.

    A relevant passage is known by its first `opening` characters, `normalised`; None for all of them.
    """

    def __init__(self, passages: Iterable[str], depth: int, opening: int | None = None) -> None:
        self._passages, self._depth, self._opening = list(passages), depth, opening
        self._keys = [self._key(passage) for passage in self._passages]
        self._stemmer = Stemmer.Stemmer("english")
        self._bm25 = bm25s.BM25(k1=0.9, b=0.4)
        self._bm25.index(self._tokens(self._passages), show_progress=False)

    def rows(
        self, pairs: Sequence[tuple[str, str]], judged: Iterable[tuple[str, str]], rng: random.Random
    ) -> Iterator[dict[str, str]]:
        """Yield training rows of pairs of a query and a relevant passage; `judged` are all there are."""
        relevant: dict[str, set[str]] = {}
        for query, passage in judged:
            relevant.setdefault(query, set()).add(self._key(passage))
        queries = list(dict(pairs))
        numbers, _ = self._bm25.retrieve(self._tokens(queries), k=self._depth, show_progress=False)
        lists = dict(zip(queries, numbers, strict=True))
        for query, passage in pairs:
            others = [self._passages[number] for number in lists[query] if self._keys[number] not in relevant[query]]
            drawn = rng.sample(others[:HARDEST], NEGATIVES)
            names = ["negative", *(f"negative_{number}" for number in range(1, NEGATIVES))]
            yield {"query": query, "positive": passage, **dict(zip(names, drawn, strict=True)), "kind": "bm25"}

    def _key(self, text: str) -> str:
        return normalised(text)[: self._opening]

    def _tokens(self, texts: Sequence[str]) -> Any:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=self._stemmer, show_progress=False)


def draw(data: Path, work: Path, seed: int) -> Path:
    """Write the rows of a seed, one file per source, and return the file that names them."""
    rng = random.Random(seed)
    texts = {row["id"]: contents(row) for row in read(data / SNIPPETS)}
    passages = Negatives(texts.values(), 2 * HARDEST)
    abstracts = Negatives(map(contents, read(work / "free/sample-1/corpus.jsonl")), HARDEST, opening=60)
    training, answers = {name: part_of(data, name, TRAINING) for name in QUESTIONS}, written(data)
    pairs: dict[str, list[tuple[str, str]]] = {
        name: [(question.text, texts[id]) for question in own.questions for id in own.qrels[question.id] if id in texts]
        for name, own in training.items()
    }
    pairs["written"] = [
        (answers[question], passage) for name in QUESTIONS for question, passage in pairs[name] if question in answers
    ]
    for row in read(work / "claims/rows.jsonl"):
        pairs.setdefault(row["positive_id"].partition("-")[0], []).append((row["query"], row["positive"]))
    pairs["scifact_again"] = pairs["scifact"]  # with other negatives, in a set of its own: a set has no row twice
    for name in ("conclusions", "titles", "pubmed_conclusions"):
        pairs[name] = [(row["query"], row["positive"]) for row in read(work / name / "rows.jsonl")]
    pairs |= {name: list(asked(data, name)) for name in ASKED}
    pairs["whole_titles"] = [
        (row["title"], row["content"])
        for name in WHOLE
        for row in read(data / f"qa/{name}_docs.jsonl.gz")
        if row["title"]
    ]
    negatives = dict.fromkeys((*QUESTIONS, "written"), passages) | dict.fromkeys(
        ("scifact", "scifact_again"), abstracts
    )
    negatives["bioasq_1_6"] = Negatives(map(contents, read(data / "qa/bioasq_1_6_docs.jsonl.gz")), 2 * HARDEST)
    folder = work / f"rows-{seed}"
    folder.mkdir(exist_ok=True)
    for name, own in pairs.items():
        drawn = sample(own, MOST.get(name), DRAWN.get(name), rng)
        alone = ({"query": query, "positive": passage} for query, passage in drawn)
        rows = negatives[name].rows(drawn, own, rng) if name in negatives else alone
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mix = folder / "mix.toml"
    mix.write_text("".join(f'[[sets]]\nname = "{name}"\nrows = ["{name}.jsonl"]\n' for name in pairs))
    return mix


@cache
def part_of(data: Path, name: str, part: str) -> Dataset:
    """Return the questions of a set to train on, or those that are held out or near one of `GUARDS`."""
    split = HeldOutSplit(SHARE, SPLIT_SEED, tuple(data / path for path in GUARDS), part)
    return split.select(load_dataset(data / name))


def held_out_questions(data: Path) -> Iterator[Any]:
    """Yield the questions that are held out for measuring."""
    return (question for name in QUESTIONS for question in part_of(data, name, HELD_OUT).questions)


def asked(data: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the questions of a file with their passages; none that is held out, or nearly one that is."""
    held_out = {normalised(one.text) for one in held_out_questions(data)}
    for row in read(data / f"qa/{name}.jsonl.gz"):
        likeness, *_ = row.get("near_heldout") or [0]
        if not row.get("boilerplate") and likeness < NEAR and normalised(row["question"]) not in held_out:
            yield from ((row["question"], one["text"][:LONGEST]) for one in row["passages"])


def written(data: Path) -> dict[str, str]:
    """Return the beginning of the answer that people wrote to each question; none that is of one measured on."""
    experts = {name: read_expert_answers(data / name) for name in QUESTIONS}

    def answers(part: str) -> dict[str, str]:
        return {
            question.text: experts[name][question.id].ideal[0][:ANSWER]
            for name in QUESTIONS
            for question in part_of(data, name, part).questions
        }

    measured = {normalised(answer) for answer in answers(HELD_OUT).values()}
    return {question: answer for question, answer in answers(TRAINING).items() if normalised(answer) not in measured}


def sample(
    pairs: Sequence[tuple[str, str]], most: int | None, count: int | None, rng: random.Random
) -> list[tuple[str, str]]:
    """Return `count` pairs, or all, in a random order, and at most so many of each query."""
    shuffled = rng.sample(pairs, len(pairs))
    seen: Counter[str] = Counter()
    drawn = []
    for query, passage in shuffled:
        seen[query] += 1
        if most is None or seen[query] <= most:
            drawn.append((query, passage))
    return drawn[:count]


def train(data: Path, work: Path, seed: int) -> None:
    """Train an encoder on the rows of a seed; rows near MIRAGE's questions or BEIR's test claims are dropped."""
    files = [*(data / path for path in GUARDS), work / HELD_OUT_QUESTIONS]
    guards = [part for file in files for part in ("--guard", file)]
    out = ("--drop-contaminated", "--seed", str(seed), "--out", work / f"encoder-{seed}")
    biorag(work, "train", "retriever", draw(data, work, seed), *OPTIONS, *guards, *out)


def merge(work: Path) -> float:
    """Write a part of the mean change that the seeds made; return the part of it that the factors leave out."""
    plain = load_file(find_encoder(PLAIN_STARTER).path / WEIGHTS)
    trained = [load_file(work / f"encoder-{seed}" / WEIGHTS) for seed in SEEDS]
    changes = {name: sum(model[name] for model in trained) / len(SEEDS) - plain[name] for name in trained[0]}
    return write_adapter(ADAPTER, {name: PART * change for name, change in changes.items() if change.any()}, KEPT)


def write_adapter(path: Path, changes: Mapping[str, Vectors], rank: int) -> float:
    """Write the changes of weights, each (out, in), in their best `rank` factors as float16.

    Return the part of their squared sum that the factors leave out.
    """
    factors: dict[str, Vectors] = {}
    lost = whole = 0.0
    for name, change in changes.items():
        left, values, right = np.linalg.svd(change.astype(np.float64), full_matrices=False)
        root = np.sqrt(values[:rank])
        factors[name + UP] = (left[:, :rank] * root).astype(np.float16)
        factors[name + DOWN] = (root[:, None] * right[:rank]).astype(np.float16)
        lost, whole = lost + float((values[rank:] ** 2).sum()), whole + float((values**2).sum())
    save_file(factors, path)
    return lost / whole


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of JSON lines, compressed or not."""
    for _, row in read_records(path):
        yield row


def contents(row: dict[str, Any]) -> str:
    """Return the text of a snippet, which the encoder reads."""
    return Snippet("", row.get("title") or "", row.get("content") or row.get("text") or "").contents


def main() -> None:
    """Train the seeds, and write the adapter."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    prepare(arguments.data, arguments.work)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda seed: train(arguments.data, arguments.work, seed), SEEDS))
    sys.stderr.write(f"left out by the factors: {merge(arguments.work):.4f}\n")


if __name__ == "__main__":
    main()
