"""The commands whose JSON documents and files are frozen, and the command lines that are refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compatibility.frozen import FILES, LanguageModel, lines_of, report_of, run, selected, shape

INPUTS = (
    *("corpus.jsonl", "papers.jsonl", "citations.csv", "golden.json", "pairs.jsonl", "mined.jsonl", "cited.jsonl"),
    *("questions", "base", "a", "b"),
)
QUESTION = "Why is pyridoxine given with isoniazid?"
OPTIONS = ("--option", "A=It prevents neuropathy", "--option", "B=It kills bacteria")
HITS = ("mode", "hits[].rank", "hits[].id", "hits[].score", "hits[].title")
METRICS = ("dataset", "questions", "metrics")
TRAINED = ("identity", "rows", "without_negatives", "batch_size", "steps", "final_loss", "best.value", "data")
TINY = (
    *("--base", "base", "--batch-size", "8", "--max-tokens", "32", "--evaluations", "2", "--validation", "0.2"),
    *("--seed", "3"),
)
SERVER = ("--llm", "{server}", "--llm-model", "m", "--no-cache")
ALL = "*"  # every value but paths
DEMO = ("--name", "demo")
SHALLOW = ("--k-init", "2", "-k", "2")


@dataclass(frozen=True)
class Case:
    """A command that prints a JSON document: which of its values are frozen, and of which files the shape is."""

    name: str
    words: tuple[str, ...]
    values: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    listed: str | None = None  # a folder whose file names are frozen
    variables: tuple[tuple[str, str], ...] = ()
    needed: bool = False  # by later cases
    may_grow: bool = False  # by settings and keys that are added

    def observed(self, folder: Path, server: str) -> dict[str, Any]:
        """Run the command and return the shape of what it prints and writes, and the values that are frozen."""
        words = [word.replace("{server}", server) for word in self.words]
        document = report_of(*words, folder=folder, **dict(self.variables))
        shapes = {"": shape(document), **{name: shape(_rows(folder / name)) for name in self.written}}
        keys: dict[str, Any] = {
            "shapes": {
                name: {path: sorted(types) for path, types in sorted(found.items())} for name, found in shapes.items()
            }
        }
        if self.listed is not None:
            place = folder / self.listed
            files = (path for path in place.rglob("*") if path.is_file())
            keys["files"] = sorted(str(path.relative_to(place)) for path in files)
        keys["shapes"][""].pop("machine.gpus", None)  # which differ from machine to machine
        values = [path for path in document if path != "home"] if self.values == (ALL,) else self.values
        return {"keys": keys, "values": selected(document, values)}


def _rows(path: Path) -> Any:
    """Return what a file holds: a JSON document, the rows of a JSONL file, or the words of a line."""
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if path.suffix == ".jsonl":
        return lines_of(path)
    return {"lines": [len(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]}


def prepared(folder: Path) -> None:
    """Lay out a folder of the inputs with a home of two indexes and a graph.

    What was frozen is of indexes that keep no token vectors, or full ones; new ones keep compact ones by default.
    """
    for name in INPUTS:
        source = FILES / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
    (folder / "short.txt").write_text("[system]\nAnswer in JSON.\n[user]\n{documents}\n{question}\n{options}\n")
    report_of("index", "demo", *DEMO, "--no-store-tokens", folder=folder)
    papers = ("--name", "papers", "--encoder", "base", "--no-store-tokens")
    report_of("index", "papers.jsonl", *papers, folder=folder)
    report_of("graph", "build", "citations.csv", "--graph", "papers", folder=folder)


CASES = (
    Case(
        "index",
        (
            *("index", "corpus.jsonl", "--name", "small", "--encoder", "base", "--block-tokens", "24"),
            *("--store-tokens", "full"),
        ),
        ("name", "added", "updated", "unchanged", "rejected", "snippets"),
        ("home/indexes/small/manifest.json",),
        needed=True,
    ),
    Case("index again", ("index", "papers.jsonl", "--name", "papers"), ("added", "updated", "unchanged", "snippets")),
    Case("index estimate", ("index", "papers.jsonl", "--name", "other", "--encoder", "base", "--estimate")),
    Case("search", ("search", QUESTION, *DEMO), HITS, may_grow=True),
    Case("search bm25", ("search", QUESTION, *DEMO, "--mode", "bm25", "--no-rerank", "-k", "3"), HITS, may_grow=True),
    Case("search dense", ("search", QUESTION, *DEMO, "--mode", "dense", "--no-rerank", "-k", "3"), HITS, may_grow=True),
    Case(
        "search rrf", ("search", QUESTION, *DEMO, "--fusion", "rrf", "--k-init", "10", "-k", "3"), HITS, may_grow=True
    ),
    Case("search blocks", ("search", QUESTION, "--name", "small", "-k", "4"), HITS, may_grow=True),
    Case(
        "search filtered",
        ("search", "aspirin", "--name", "papers", "--exclude-pmid", "2", "-k", "3"),
        HITS,
        may_grow=True,
    ),
    Case(
        "ask none",
        ("ask", QUESTION, *DEMO, "--llm", "none"),
        ("answer", "choice", "citations", "hits[].id"),
        may_grow=True,
    ),
    Case(
        "ask options none",
        ("ask", QUESTION, *DEMO, *OPTIONS, "--llm", "none"),
        ("choice", "options", "hits[].id"),
        may_grow=True,
    ),
    Case(
        "ask",
        ("ask", QUESTION, *DEMO, *SERVER),
        ("answer", "choice", "citations[].id", "hits[].id", "models"),
        may_grow=True,
    ),
    Case(
        "ask options",
        ("ask", QUESTION, *DEMO, *OPTIONS, *SERVER),
        ("choice", "reasoning", "relevant_context"),
        may_grow=True,
    ),
    Case(
        "ask starter",
        (
            *("ask", QUESTION, *DEMO, *OPTIONS, "--llm", "starter", "--max-tokens", "12", "-k", "1"),
            *("--prompt", "short.txt"),
        ),
        may_grow=True,
    ),
    Case("info", ("info",)),
    Case(
        "info of an index",
        ("info", "demo"),
        ("name", "encoder", "similarity", "quantized", "bm25", "store", "snippets", "format", "sources"),
        listed="home/graphs/papers",
        may_grow=True,
    ),
    Case("info settings", ("info", "--settings"), (ALL,), may_grow=True),
    Case("models", ("models",)),
    Case(
        "doctor",
        ("doctor",),
        ("ok", "checks[].name", "checks[].ok"),
        variables=(("BIORAG_ENCODER", "base"), ("BIORAG_LLM", "none"), ("BIORAG_RERANK", "false")),
    ),
    Case(
        "bench retrieval",
        (
            *("bench", "retrieval", "questions", *DEMO, "--k-init", "5"),
            *("--run-file", "run.trec", "--per-question", "each.jsonl"),
        ),
        (*METRICS, "config"),
        ("run.trec", "each.jsonl"),
    ),
    Case("bench retrieval bm25", ("bench", "retrieval", "questions", *DEMO, "--mode", "bm25", "--no-rerank"), METRICS),
    Case(
        "bench retrieval held out",
        ("bench", "retrieval", "questions", *DEMO, "--no-rerank", "--held-out", "--validation", "0.5"),
        METRICS,
    ),
    Case(
        "bench mirage",
        ("bench", "mirage", "--benchmark", "demo", "--limit", "2", *DEMO, *SERVER, *SHALLOW, "--out", "mirage"),
        ("tasks", "average"),
        ("mirage/report.json", "mirage/run.json", "mirage/timings.jsonl"),
        "mirage",
        needed=True,
    ),
    Case(
        "bench mirage closed book",
        (
            *("bench", "mirage", "--benchmark", "demo", "--limit", "1", "--task", "medqa", "--mode", "none"),
            *("--answer", "score", "--llm", "starter", "--out", "closed", "--no-cache"),
        ),
        ("tasks.medqa.n",),
        listed="closed",
    ),
    Case(
        "bench mirage compared",
        (
            *("bench", "mirage", "--benchmark", "demo", "--limit", "2", *DEMO, *SERVER, "--mode", "bm25"),
            *("--no-rerank", "-k", "1", "--out", "compared", "--compare", "mirage"),
        ),
        ("tasks", "average", "comparison.questions", "comparison.difference"),
    ),
    Case(
        "bench latency",
        (
            *("bench", "latency", "--name", "papers", "--repetitions", "2", "--warm-up", "0", "--seconds", "0.1"),
            *("--index-limit", "4", "--limit", "2", "--batch-sizes", "1,2", "--k-init", "3", "--out", "latency"),
            *("--baseline", "rank_bm25,qdrant-local"),
        ),
        listed="latency",
        may_grow=True,
    ),
    Case(
        "bench bioasq",
        ("bench", "bioasq", "golden.json", "--name", "papers", "--out", "bioasq"),
        ("questions", "coverage", "systems.bm25.mean.documents", "systems.bm25.batches"),
        ("bioasq/report.json", "bioasq/bm25/golden.json"),
        "bioasq",
    ),
    *(
        Case(
            f"mine {kind}",
            ("mine", rows, "--negatives", kind, "--name", index, "--per-row", "3", "--out", f"{kind}.jsonl", *more),
            ("kind", "rows", "negatives", "without", "resumed", "contaminated", "input"),
            (f"{kind}.jsonl", f"{kind}.jsonl.manifest.json"),
        )
        for kind, index, rows, more in (
            ("random", "demo", "questions", ()),
            ("bm25", "demo", "questions", ()),
            ("retriever", "demo", "questions", ("--ranks", "2-12", "--margin", "0.02")),
            ("citation", "papers", "cited.jsonl", ("--graph", "papers")),
        )
    ),
    Case(
        "generate queries",
        ("generate", "queries", "corpus.jsonl", *SERVER, "--limit", "4", "--per-snippet", "2", "--out", "q.jsonl"),
        ("snippets", "generated", "rows", "too_short", "duplicates"),
        ("q.jsonl", "q.jsonl.manifest.json"),
    ),
    Case(
        "generate negatives",
        ("generate", "negatives", "mined.jsonl", *SERVER, "--keep-mined", "--out", "n.jsonl"),
        ("pairs", "unmined", "negatives", "rows"),
        ("n.jsonl", "n.jsonl.manifest.json"),
    ),
    Case(
        "generate pairs",
        ("generate", "pairs", *SERVER, "--scenarios", "4", "--out", "p.jsonl"),
        ("scenarios", "generated", "rows"),
        ("p.jsonl", "p.jsonl.manifest.json"),
    ),
    Case(
        "generate filter",
        ("generate", "filter", "cited.jsonl", "--name", "papers", "--keep-top", "9", "--out", "f.jsonl"),
        ("read", "kept", "below", "absent", "share_kept"),
        ("f.jsonl",),
    ),
    Case("train retriever", ("train", "retriever", "pairs.jsonl", *TINY, "--out", "r"), TRAINED, (), "r"),
    Case(
        "train retriever mined",
        (
            *("train", "retriever", "mined.jsonl", *TINY, "--negatives", "bm25", "--similarity", "dot"),
            *("--guard", "golden.json", "--drop-contaminated", "--out", "d"),
        ),
        (*TRAINED, "guard"),
    ),
    Case(
        "train reranker",
        ("train", "reranker", "mined.jsonl", *TINY, "--query-tokens", "12", "--out", "c"),
        TRAINED,
        (),
        "c",
    ),
    Case(
        "train cross-encoder",
        ("train", "cross-encoder", "mined.jsonl", *TINY, "--out", "x"),
        TRAINED,
        listed="x",
        needed=True,
    ),
    Case(
        "search chain",
        ("search", "aspirin liver", "--name", "papers", "--reranker", "encoder,cross:x@4", "-k", "4"),
        HITS,
        may_grow=True,
    ),
    Case(
        "merge", ("merge", "a", "b", "--method", "linear", "--weights", "1,3", "--out", "m"), ("weights", "method"), ()
    ),
    Case(
        "merge search",
        (
            *("merge", "a", "b", "--method", "ties", "--base", "base", "--search", "questions"),
            *("--corpus", "corpus.jsonl", "--out", "s"),
        ),
        ("weights", "density", "scale", "search.points", "search.measure", "search.questions"),
        ("s/merge.json", "s/points.json"),
        "s",
    ),
    Case(
        "tune",
        (
            *("tune", "questions", "--param", "lambda", "--values", "0,0.1", "--no-rerank", "--name", "small"),
            *("--no-write", "--out", "t"),
        ),
        ("param", "measure", "method", "points", "best", "current", "side", "datasets", "written"),
        ("t/points.json", "t/report.json"),
        "t",
    ),
    Case(
        "tune prompt",
        (
            *("tune", "prompt", "questions", "--name", "small", *SERVER, "--validation", "0.5", "--calls", "30"),
            *("--no-write", "--out", "w"),
        ),
        ("questions", "development", "winner"),
        ("w/trials.jsonl",),
        "w",
    ),
    Case("graph build", ("graph", "build", "citations.csv", "--graph", "other"), ("papers", "edges", "added", "read")),
    Case(
        "graph info",
        ("graph", "info", "--graph", "papers", "--name", "papers"),
        ("citing", "papers", "edges", "out_degree", "index"),
    ),
    Case(
        "snapshot save",
        ("snapshot", "save", "papers.tar.gz", "--name", "papers"),
        ("name", "snippets"),
        needed=True,
    ),
    Case("snapshot load", ("snapshot", "load", "papers.tar.gz", "--name", "again"), ("name", "snippets")),
)


def observed(folder: Path) -> dict[str, dict[str, Any]]:
    """Run all cases, in their order, in a prepared folder."""
    server = LanguageModel()
    try:
        return {case.name: case.observed(folder, server.url) for case in CASES}
    finally:
        server.close()


# Command lines that are refused, and the nouns that the sentence names: the file, option or value, and the next step.
REFUSED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("search", "x", "--name", "absent"), ("'absent'", "demo", "papers")),
    (("search", "x", *DEMO, "--k-init", "0"), ("k_init=0",)),
    (("search", "x", *DEMO, "--mode", "sparse"), ("mode='sparse'", "bm25", "dense", "hybrid")),
    (("search", "x", *DEMO, "--filter", "year >>> 3"), ("year >>> 3",)),
    (("search", "x", *DEMO, "--encoder", "base"), ("'demo'", "base", "all-MiniLM-L6-v2")),
    (("search", "x", *DEMO, "--reranker", "encoder@30"), ("encoder@30", "30", "20")),
    (("search", "x", *DEMO, "--no-such-option"), ("--no-such-option",)),
    (("search", "x", "--name", "../x"), ("name='../x'",)),
    (("index", "absent.jsonl"), ("absent.jsonl", "'demo'")),
    (("index", "bad.jsonl", "--encoder", "base"), ("bad.jsonl", "line 2", "--on-bad-line skip")),
    (("index", "papers.jsonl", "--name", "papers", "--similarity", "dot"), ("cosine", "dot", "papers")),
    (("index", "papers.jsonl", "--encoder", "no-model"), ("no-model",)),
    (("--config", "absent.toml", "info"), ("absent.toml",)),
    (("--config", "colour.toml", "info"), ("'colour'", "colour.toml", "biorag info --settings")),
    (("--config", "bad.jsonl", "info"), ("bad.jsonl",)),
    (("ask", QUESTION, *DEMO, "--llm", "no.gguf"), ("no.gguf",)),
    (("ask", QUESTION, *DEMO, "--llm", "http://127.0.0.1:9", "--no-cache"), ("http://127.0.0.1:9", "--llm")),
    (("ask", QUESTION, *DEMO, "--option", "A"), ("A=",)),
    (("bench", "retrieval", "absent", *DEMO), ("absent", "queries.jsonl")),
    (("bench", "mirage", "--benchmark", "no.json", *DEMO, "--out", "e"), ("no.json", "'demo'")),
    (("bench", "mirage", "--benchmark", "demo", *DEMO, "--task", "none", "--out", "e"), ("'none'", "medqa", "mmlu")),
    (("bench", "mirage", "--benchmark", "demo", *DEMO, "--llm", "none", "--out", "e"), ("--llm", "'none'")),
    (("bench", "bioasq", "golden.json", "--name", "papers", "--system", "x"), ("'x'", "bm25", "hybrid+rerank")),
    (("mine", "questions", "--negatives", "hard", *DEMO, "--out", "e"), ("'hard'", "bm25", "citation", "random")),
    (
        ("mine", "questions", "--negatives", "bm25", "--margin", "0.1", *DEMO, "--out", "e"),
        ("--margin", "retriever", "bm25"),
    ),
    (("mine", "mined.jsonl", "--negatives", "citation", "--name", "papers", "--out", "e"), ("'default'", "graph")),
    (("train", "retriever", "bad.jsonl", *TINY, "--out", "e"), ("bad.jsonl", "line 1")),
    (("train", "retriever", "pairs.jsonl", *TINY, "--negatives", "bm25", "--out", "e"), ("bm25",)),
    (("train", "retriever", "mined.jsonl", *TINY, "--guard", "mined.jsonl", "--out", "e"), ("mined.jsonl",)),
    (
        ("train", "retriever", "mined.jsonl", *TINY, "--guard", "guarded.jsonl", "--out", "e"),
        ("guarded.jsonl", "--drop-contaminated"),
    ),
    (("train", "reranker", "questions", *TINY, "--out", "e"), ("questions", "--name")),
    (("merge", "a", "b", "--method", "slerp", "--out", "e"), ("'slerp'", "linear", "ties")),
    (("merge", "a", "b", "--method", "linear", "--weights", "1", "--out", "e"), ("--weights", "2")),
    (("tune", "questions", "--param", "mu", *DEMO, "--out", "e"), ("'mu'", "lambda", "k_init")),
    (("tune", "questions", "--param", "lambda", "--fusion", "rrf", *DEMO, "--out", "e"), ("--fusion linear",)),
    (("generate", "queries", "demo", "--llm", "none", "--out", "e"), ("--llm",)),
    (("generate", "filter", "absent.jsonl", *DEMO, "--out", "e"), ("absent.jsonl",)),
    (("graph", "info", "--graph", "absent"), ("'absent'", "biorag graph build")),
    (("snapshot", "load", "absent.tar.gz"), ("absent.tar.gz",)),
    (("snapshot", "load", "bad.jsonl"), ("bad.jsonl",)),
    (("ablate", "absent.toml", "--out", "e"), ("absent.toml",)),
    (("ablate", "colour.toml", "--out", "e"), ("colour.toml", "colour")),
    (("info", "absent"), ("'absent'", "demo")),
)


def prepare_refusals(folder: Path) -> None:
    """Write the files that some refused command lines name."""
    (folder / "bad.jsonl").write_text('{"id": "a", "title": "", "content": "Aspirin.", "PMID": 1}\n{"id"\n')
    (folder / "colour.toml").write_text('colour = "red"\n')
    query = lines_of(folder / "mined.jsonl")[0]["query"]
    (folder / "guarded.jsonl").write_text(json.dumps({"question": query.upper()}) + "\n")


def refusal(words: tuple[str, ...], folder: Path) -> tuple[int, str]:
    """Run a command line that is refused; return its exit code and what it says, on one line."""
    result = run(*words, folder=folder, BIORAG_RETRIES="0")
    assert result.stdout == "", words
    sentences = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return result.exit_code, " ".join((sentences or [result.stderr])[0].split())
