"""Results of earlier runs, and the data that benchmarks read, damaged or forged; the command that reads them follows.

    python -m scripts.attacks.result_files --cases 300 --out result_files.json

Each case copies a folder in which every command has run to its end, changes one file, marks the run as incomplete in
half of the cases, so that its rows are read again, and runs the command again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.attacks.harness import Case, clean, damaged, draws, index_of, main, mutated
from scripts.faults.runs import apart

BM25 = ("--mode", "bm25", "--no-rerank", "--json")
MIRAGE = ("bench", "mirage", "--benchmark", "benchmark.json", "--answer", "evidence")
TUNE = ("tune", "data", "--param", "lambda", "--no-rerank", "--values", "0,0.1", "--no-write")
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "--claims", "claims.jsonl", "--out", "verdicts.jsonl", *BM25),
    "mirage": (*MIRAGE, "--out", "mirage", *BM25),
    "compare": (*MIRAGE, "--out", "other", "--compare", "mirage", *BM25),
    "mine": ("mine", "pairs.jsonl", "--negatives", "bm25", "--out", "mined.jsonl", "--json"),
    "answers": ("bench", "answers", "data", "--answer", "bm25-sentences", "--out", "answers", *BM25),
    "verification": ("bench", "verification", "data", "--out", "verification", "--json"),
    "tune": (*TUNE, "--out", "tuned", "--json"),
    "score": ("bench", "retrieval", "data", "--run", "run.trec", "--json"),
    "measure": ("bench", "retrieval", "data", "--run-file", "run.trec", *BM25),
    "bioasq": ("bench", "bioasq", "golden.json", "--system", "bm25", "--out", "bioasq", "--json"),
    "ask": ("ask", "Which drug treats asthma?", "--no-rerank", "--json"),
}
FILES = {  # command -> what it reads, as patterns
    "verify": ("claims.jsonl", "verdicts.jsonl", "verdicts.jsonl.manifest.json"),
    "mirage": ("benchmark.json", "mirage/run.json", "mirage/timings.jsonl", "mirage/demo/**/*.json"),
    "compare": ("mirage/report.json", "mirage/demo/**/*.json"),
    "mine": ("pairs.jsonl", "mined.jsonl", "mined.jsonl.manifest.json"),
    "answers": ("data/queries.jsonl", "data/answers.jsonl", "answers/answers.jsonl", "answers/manifest.json"),
    "verification": ("data/answers.jsonl", "verification/claims.jsonl", "verification/manifest.json"),
    "tune": ("data/qrels/test.tsv", "tuned/points.json"),
    "score": ("data/queries.jsonl", "data/qrels/test.tsv", "run.trec"),
    "measure": ("data/queries.jsonl", "data/qrels/test.tsv", "run.trec"),
    "bioasq": ("golden.json", "bioasq/report.json", "bioasq/bm25/golden.json"),
    "ask": ("home/indexes/default/abstention.json",),
}
NOT_FILES = ("pipe", "folder", "zero", "loop", "empty", "missing")


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases: a command, one of the files that it reads, and what is made of it."""
    _prepare(work)
    for number, draw in draws(count, seed, "result files"):
        command = draw.choice(list(COMMANDS))
        paths = [path.relative_to(work) for pattern in FILES[command] for path in sorted(work.glob(pattern))]
        path = draw.choice(paths)
        yield Case(f"{number} {command} {path}", _made(command, path, draw.getrandbits(64), work))


def _prepare(work: Path) -> None:
    """Run every command once; afterwards a second run reads what the first wrote."""
    index_of(work)
    ids = [f"s{n}" for n in range(1, 9)]
    questions = [{"_id": f"q{n}", "text": f"Which drug {n} treats asthma?"} for n in range(1, 9)]
    answers = [
        {"_id": f"q{n}", "type": "summary", "ideal_answer": [f"Asthma is treated with drug {n}."]} for n in range(1, 9)
    ]
    benchmark = {
        "demo": {f"m{n}": {"question": f"Drug {n}?", "options": {"A": "yes", "B": "no"}, "answer": "A"} for n in (1, 2)}
    }
    golden = {
        "questions": [
            {"id": "g1", "body": "Which drug treats asthma?", "type": "factoid", "documents": ["http://x/pubmed/3"]}
        ]
    }
    claims = [{"id": f"c{n}", "claim": f"Asthma is treated with drug {n}."} for n in range(1, 4)]
    pairs = [{"query": f"drug {n} asthma", "positive": f"Asthma is treated with drug {n}."} for n in range(1, 4)]
    (work / "data" / "qrels").mkdir(parents=True)
    judged = "".join(f"q{n}\t{id}\t1\n" for n, id in enumerate(ids, 1))
    (work / "data" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    for name, rows in (("data/queries", questions), ("data/answers", answers), ("claims", claims), ("pairs", pairs)):
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, document in (("benchmark", benchmark), ("golden", golden)):
        (work / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    apart(_write_coefficients, str(work / "home" / "indexes" / "default" / "abstention.json"))
    for name in ("measure", *(name for name in COMMANDS if name != "measure")):
        clean(COMMANDS[name], work)


def _write_coefficients(path: str) -> None:
    from biorag.answering.abstention.estimator import starter_coefficients

    starter_coefficients().save(Path(path))


def _made(command: str, path: Path, seed: int, work: Path) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        draw = random.Random(seed)
        folder.rmdir()
        subprocess.run(["cp", "-a", "--sparse=always", str(work), str(folder)], check=True)
        if draw.random() < 0.5:
            _reopen(folder, path)
        if draw.random() < 0.1:
            _replace(draw.choice(NOT_FILES), folder / path)
        else:
            (folder / path).write_bytes(_changed(draw, folder / path))
        return list(COMMANDS[command])

    return make


def _reopen(folder: Path, path: Path) -> None:
    """Mark the run of a file as incomplete."""
    beside = (folder / f"{path}.manifest.json", (folder / path).parent / "manifest.json")
    for manifest in (one for one in beside if one.is_file() and "indexes" not in one.parts):
        manifest.write_text(manifest.read_text(encoding="utf-8").replace('"complete": true', '"complete": false'))


def _changed(draw: random.Random, path: Path) -> bytes:
    """Return the content of a file with its JSON, or that of one of its lines, changed, or its bytes damaged."""
    content = path.read_bytes()
    if draw.random() < 0.2 or path.suffix not in (".json", ".jsonl"):
        return damaged(draw, content)
    if path.suffix == ".json":
        return mutated(draw, json.loads(content))
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    lines[place] = mutated(draw, json.loads(lines[place])) + b"\n"
    return b"".join(lines)


def _replace(kind: str, path: Path) -> None:
    """Put something that is not a file with content in the place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("zero", "loop"):
        path.symlink_to("/dev/zero" if kind == "zero" else path.name)
    elif kind == "empty":
        path.touch()


if __name__ == "__main__":
    main("result_files", cases)
