"""Fit biorag/models/starter.safetensors: scripts/fit_starter.py ../shared/data WORK [--jobs 2].

Train all-MiniLM-L6-v2 by `biorag train retriever --lora`, once per seed, each on rows that the seed draws, and write
the mean change of the weights in low-rank factors. Finished steps in WORK are skipped. The new file's SHA-256 goes into
`TRAINED_STARTER` of biorag/models/finding.py; docs/starter.md has the sources, their licences and the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bm25s
import Stemmer
from safetensors.numpy import load_file

from biorag.models import finding
from biorag.models.adapter import write_adapter
from biorag.models.finding import PLAIN_STARTER, TRAINED_STARTER, WEIGHTS, find_encoder
from biorag.training.rows import is_held_out, read_records
from biorag.types import Snippet

HELD_OUT, SPLIT_SEED = 0.2, 0  # of the BioASQ and PubMedQA questions, for measuring
DRAWN = {"citint": 1500, "conclusions": 1200, "titles": 800}  # rows of a seed; of other sources all
CLAIMS = ("check_covid", "citation_integrity", "scifact")
HARDEST = 20  # passages of BM25's list from which a negative is drawn
SEEDS, RANK = (1, 2), 32
ADAPTER = Path(finding.__file__).with_name(TRAINED_STARTER.weights)
GUARDS = ("mirage/benchmark.json", "scifact/queries.jsonl")
TRAINING = (
    *("--base", PLAIN_STARTER, "--lora", "--lora-rank", str(RANK), "--lora-alpha", "64", "--lora-layers", "4"),
    *("--token-loss", "1", "--learning-rate", "4e-4", "--batch-size", "48", "--max-tokens", "160"),
    *("--max-positives", "4", "--validation", "0", "--epochs", "1", "--evaluations", "1"),
)


def biorag(work: Path, *arguments: str | Path) -> None:
    """Run a command, one thread, with a home of its own."""
    environment = os.environ | {"BIORAG_HOME": str(work / "home"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "biorag", *map(str, arguments)], env=environment, check=True)


def prepare(data: Path, work: Path) -> None:
    """Convert the claims, and the abstracts of SciFact that no claim of BEIR's test cites, to rows."""
    corpus, claims = data / "scifact/corpus.jsonl.gz", data / "claims/train"
    biorag(
        work, "data", "convert", "claims", *(claims / f"{name}.jsonl.gz" for name in CLAIMS), "--out", work / "claims"
    )
    cited = len({line.split("\t")[1] for line in (data / "scifact/qrels/test.tsv").read_text().splitlines()[1:]})
    keep = ("--keep", data / "scifact")
    biorag(work, "data", "sample", corpus, "--sizes", str(cited), *keep, "--out", work / "cited")
    others = sum(1 for _ in read(corpus)) - cited
    left_out = ("--exclude", work / "cited/sample-1")
    biorag(work, "data", "sample", corpus, "--sizes", str(others), *left_out, "--out", work / "free")
    free = work / "free/sample-1/corpus.jsonl"
    biorag(work, "data", "convert", "title-abstract", free, "--out", work / "titles")
    biorag(work, "data", "convert", "conclusions", free, "--out", work / "conclusions")


class Negatives:
    """Draws negatives from the first `depth` passages that BM25 finds for a query.

    A relevant passage is known by its first `opening` characters; None for all of them.
    """

    def __init__(self, passages: Iterable[str], depth: int, opening: int | None = None) -> None:
        self._passages, self._depth, self._opening = list(passages), depth, opening
        self._stemmer = Stemmer.Stemmer("english")
        self._bm25 = bm25s.BM25(k1=0.9, b=0.4)
        self._bm25.index(self._tokens(self._passages), show_progress=False)

    def rows(self, pairs: Sequence[tuple[str, str]], rng: random.Random) -> Iterator[dict[str, str]]:
        """Yield training rows of pairs of a query and a relevant passage."""
        relevant: dict[str, set[str]] = {}
        for query, passage in pairs:
            relevant.setdefault(query, set()).add(passage[: self._opening])
        numbers, _ = self._bm25.retrieve(self._tokens(list(relevant)), k=self._depth, show_progress=False)
        lists = dict(zip(relevant, numbers, strict=True))
        for query, passage in pairs:
            found = (self._passages[number] for number in lists[query])
            others = [text for text in found if text[: self._opening] not in relevant[query]]
            yield {"query": query, "positive": passage, "negative": rng.choice(others[:HARDEST]), "kind": "bm25"}

    def _tokens(self, texts: Sequence[str]) -> Any:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=self._stemmer, show_progress=False)


def draw(data: Path, work: Path, seed: int) -> Path:
    """Write the rows of a seed, one file per source, and return the file that names them."""
    rng = random.Random(seed)
    snippets = {row["id"]: contents(row) for row in read(data / "pubmed/snippets.jsonl.gz")}
    negatives = Negatives(snippets.values(), 2 * HARDEST)
    sources = {name: list(negatives.rows(judged(data / name, snippets), rng)) for name in ("bioasq", "pubmedqa")}
    pairs: dict[str, list[tuple[str, str]]] = {"scifact": [], "checkcovid": [], "citint": []}
    for row in read(work / "claims/rows.jsonl"):
        pairs[row["positive_id"].partition("-")[0]].append((row["query"], row["positive"]))
    free = Negatives(map(contents, read(work / "free/sample-1/corpus.jsonl")), HARDEST, opening=60)
    sources["scifact"] = list(free.rows(pairs.pop("scifact"), rng))
    for name in ("conclusions", "titles"):
        pairs[name] = [(row["query"], row["positive"]) for row in read(work / name / "rows.jsonl")]
    for name, texts in pairs.items():
        if name in DRAWN:
            rng.shuffle(texts)
        drawn = texts[: DRAWN.get(name)]
        sources[name] = [{"query": query, "positive": passage} for query, passage in drawn]
    folder = work / f"rows-{seed}"
    folder.mkdir(exist_ok=True)
    for name, rows in sources.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mix = folder / "mix.toml"
    mix.write_text("".join(f'[[sets]]\nname = "{name}"\nrows = ["{name}.jsonl"]\n' for name in sources))
    return mix


def judged(questions: Path, snippets: dict[str, str]) -> list[tuple[str, str]]:
    """Return a set's questions, those held out left out, each with the passages that people judged relevant."""
    texts = {row["_id"]: row["text"] for row in read(questions / "queries.jsonl")}
    relevant: dict[str, list[str]] = {}
    for line in (questions / "qrels/test.tsv").read_text().splitlines():
        question, passage, _ = line.split("\t")
        if question in texts and passage in snippets and not is_held_out(texts[question], HELD_OUT, SPLIT_SEED):
            relevant.setdefault(question, []).append(snippets[passage])
    return [(texts[question], passage) for question, passages in relevant.items() for passage in passages]


def train(data: Path, work: Path, seed: int) -> None:
    """Train an encoder on the rows of a seed; rows near MIRAGE's questions or BEIR's test claims are dropped."""
    guards = [part for path in GUARDS for part in ("--guard", data / path)]
    out = ("--drop-contaminated", "--seed", str(seed), "--out", work / f"encoder-{seed}")
    biorag(work, "train", "retriever", draw(data, work, seed), *TRAINING, *guards, *out)


def merge(work: Path) -> float:
    """Write the mean change that the seeds made to the weights; return the part that its factors leave out."""
    plain = load_file(find_encoder(PLAIN_STARTER).path / WEIGHTS)
    trained = [load_file(work / f"encoder-{seed}" / WEIGHTS) for seed in SEEDS]
    changes = {name: sum(model[name] for model in trained) / len(SEEDS) - plain[name] for name in trained[0]}
    changes = {name: change for name, change in changes.items() if change.any()}
    return write_adapter(ADAPTER, changes, RANK * len(SEEDS))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of JSON lines, compressed or not."""
    for _, row in read_records(path):
        yield row


def contents(row: dict[str, Any]) -> str:
    """Return the text of a snippet, which the encoder reads."""
    return Snippet("", row.get("title") or "", row.get("content") or row["text"]).contents


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
