"""Write `files/`: inputs, and what the frozen code leaves of runs that are killed; `runs.py` says what for.

To freeze another version, copy this folder into a checkout of it and start there, with nothing else on PYTHONPATH:

    PYTHONPATH=. python -m tests.compatibility.write

The files in the repository were written by biorag 0.1.0 at commit d87b5f6.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import biorag
from tests.compatibility.frozen import FILES, FOLDER, LanguageModel, process, report_of, selected, write_json
from tests.compatibility.runs import ASKED, FROZEN, MERGED, MERGED_VALUES, RUNS, SWEPT, Run, lay_out

WORDS = ["aspirin", "ibuprofen", "warfarin", "heparin", "liver", "kidney", "heart", "lung", "fever", "pain", "gene"]
# What is not needed to resume, or only shows what is: pickled arguments, plots,
# model cards, a candidate that a search measures.
LEFT_OUT = ("lock", "*.png", "training_args.bin", "candidate", "README.md")
SETTINGS = """\
# As a user may have written it.
name = "pubmed"
mode = "dense"
lambda = 0.07 # biorag tune 2026-11-01: nDCG@10 0.8720
fusion = "rrf"
rrf_k = 40
depth = 150
k_init = 50
k = 7
reranker = "encoder@40,cross:models/ce@10"
interpolation = 0.25
cross_interpolation = 4
include_retracted = true
encoder = "models/retriever"
similarity = "dot"
store_tokens = true
token_pooling = 2
block_tokens = 300
bm25_k = 1.2
bm25_b = 0.75
qdrant = "http://user:secret@localhost:6333"
llm = "http://localhost:8080/v1"
llm_model = "llama"
max_tokens = 128
timeout = 30
retries = 2
concurrency = 8
cache = false
seed = 11
precision = "bf16"
train_epochs = 2
train_batch_size = 16
train_learning_rate = 1e-5
train_mini_batch_size = 4
train_gradient_checkpointing = true
train_lora_rank = 8
train_validation = 0.08
"""
SWEEP = """\
train = ["questions"]
corpus = ["corpus.jsonl"]
evaluate = ["questions"]
base = "base"
negatives = ["in-batch"]
similarity = ["cosine"]
reranker = ["none", "aligned"]
k_init = [5]

[settings]
mode = "dense"
precision = "fp32"
train_max_tokens = 32
train_validation = 0.3
"""


def write_lines(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a JSONL file."""
    path = FILES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_questions() -> None:
    """Write twenty questions of the demonstration benchmark, and the snippets that answer them as a corpus."""
    demo = Path(biorag.__file__).parent / "demo"
    records = {id: record for task in json.loads((demo / "benchmark.json").read_bytes()).values()
               for id, record in task.items()}  # fmt: skip
    chosen = dict(list(records.items())[::2][:20])
    gold = {snippet for record in chosen.values() for snippet in record["snippets"]}
    snippets = map(json.loads, (demo / "snippets.jsonl").read_text(encoding="utf-8").splitlines())
    write_lines("corpus.jsonl", [snippet for snippet in snippets if snippet["id"] in gold])
    write_lines("questions/queries.jsonl", [{"_id": id, "text": record["question"]} for id, record in chosen.items()])
    judged = [f"{id}\t{snippet}\t1\n" for id, record in chosen.items() for snippet in record["snippets"]]
    (FILES / "questions" / "qrels").mkdir()
    (FILES / "questions" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))


def write_papers() -> None:
    """Write thirty papers with what they cite, questions on them, and a golden file of two of these."""
    texts = {n: f"{WORDS[n % 11]} {WORDS[n % 7]} {WORDS[n % 5]} {WORDS[n % 3]}." for n in range(1, 31)}
    papers = [{"id": f"s{n}", "title": f"Paper {n}", "content": text, "PMID": n} for n, text in texts.items()]
    write_lines("papers.jsonl", papers)
    edges = [(n, other) for n in range(1, 20) for other in range(n + 1, min(n + 6, 31))]
    (FILES / "citations.csv").write_text("citing,referenced\n" + "".join(f"{one},{other}\n" for one, other in edges))
    rows = [
        {"query": f"Which {WORDS[n % 11]}?", "positive": f"Positive {n}.", "positive_id": f"s{n}"}
        for n in range(1, 31, 2)
    ]
    write_lines("cited.jsonl", rows)
    url = "http://www.ncbi.nlm.nih.gov/pubmed/"
    questions = []
    for n in (3, 8):
        span = {"beginSection": "abstract", "endSection": "abstract", "offsetInBeginSection": 0}
        snippet = {"document": f"{url}{n}", "text": texts[n], **span, "offsetInEndSection": len(texts[n])}
        body = f"Which of {WORDS[n % 11]} and {WORDS[n % 7]}?"
        documents = [f"{url}{n}", f"{url}{n + 1}"]
        asked = {"id": f"q{n}", "body": body, "type": "factoid", "documents": documents, "snippets": [snippet]}
        questions.append(asked)
    (FILES / "golden.json").write_text(json.dumps({"questions": questions}, indent=1))


def write_rows() -> None:
    """Write training rows with and without negatives."""
    couples = [(one, other) for one in WORDS for other in WORDS if one != other][::2]
    pairs = [{"query": f"{one} and {other}?", "positive": f"{one} heals the {other}."} for one, other in couples]
    write_lines("pairs.jsonl", pairs)
    mined = [
        {**pair, "negative_1": f"{other} hurts.", "negative_2": f"a {one}.", "kind": "bm25"}
        for pair, (one, other) in zip(pairs, couples, strict=True)
    ]
    write_lines("mined.jsonl", mined)


def write_encoders() -> None:
    """Write a tiny random encoder, and two experts whose weights have moved from it."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
    vocabulary = [*special, *WORDS, *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase), ".", ",", "?"]
    bare = FILES / "bare"
    bare.mkdir()
    (bare / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizer(str(bare / "vocab.txt")).save_pretrained(bare)
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)
    BertModel(config).save_pretrained(bare)
    model = SentenceTransformer(str(bare), device="cpu")
    model.save(str(FILES / "base"), create_model_card=False)
    shutil.rmtree(bare)
    for name, seed in (("a", 1), ("b", 2)):
        shutil.copytree(FILES / "base", FILES / name)
        random = np.random.default_rng(seed)
        weights = FILES / name / "model.safetensors"
        tensors = load_file(weights)
        moved = {key: tensor + random.normal(scale=0.3, size=tensor.shape) for key, tensor in tensors.items()}
        save_file({key: tensor.astype(np.float32) for key, tensor in moved.items()}, weights, {"format": "pt"})


def write_settings(folder: Path) -> None:
    """Write a configuration file that sets most of what can be set, and what it comes to."""
    (FILES / "biorag.toml").write_text(SETTINGS, encoding="utf-8")
    unset = dict.fromkeys(("BIORAG_PRECISION", "BIORAG_THREADS"), "")
    settings = report_of("--config", FILES / "biorag.toml", "info", "--settings", folder=folder, **unset)
    del settings["home"]
    write_json("files/settings.json", settings)


def write_home(folder: Path) -> None:
    """Write a home of two indexes and a graph, a snapshot, and what is found in them."""
    report_of("index", "corpus.jsonl", *FROZEN, folder=folder)
    tokens = ("--store-tokens", "--token-pooling", "2", "--quantize")
    report_of("index", "papers.jsonl", "--name", "papers", "--encoder", "base", *tokens, folder=folder)
    report_of("graph", "build", "citations.csv", "--graph", "papers", folder=folder)
    report_of("snapshot", "save", "snapshot.tar.gz", *FROZEN, folder=folder)
    # Deflated zeros are long; packed once more they are not, and the snapshot's bytes stay.
    (FILES / "snapshot.tar.gz.xz").write_bytes(lzma.compress((folder / "snapshot.tar.gz").read_bytes()))
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(FILES / "home.tar.xz", "w:xz") as archive:
        for name in ("indexes", "graphs"):
            keep(folder / "home" / name, Path(scratch) / name, folder)
            archive.add(Path(scratch) / name, name, filter=_anonymous)
    found = {name: selected(report_of(*words, folder=folder), values) for name, (words, values) in ASKED.items()}
    write_json("files/asked.json", found)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member of an archive without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def write_merged(folder: Path) -> None:
    """Write a merged encoder, and its report."""
    write_json("files/finished/merged.json", selected(report_of(*MERGED, folder=folder), MERGED_VALUES))
    keep(folder / "merged", FILES / "finished" / "merged", folder)


def keep(source: Path, target: Path, folder: Path) -> None:
    """Copy what a run wrote, without locks, plots, and the paths of this machine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    else:
        shutil.copyfile(source, target)
    for path in [target] if target.is_file() else filter(Path.is_file, target.rglob("*")):
        content = path.read_bytes()
        if str(folder).encode() in content:
            path.write_text(content.decode().replace(str(folder), FOLDER), encoding="utf-8")


def write_run(run: Run, folder: Path) -> None:
    """Start a run, kill it halfway, and let it end; keep both."""
    while not killed(run, folder):
        print(f"{run.name} came to its end before it was killed", flush=True)  # noqa: T201
    for path in run.parts(folder):
        keep(path, FILES / "half" / path.name, folder)
    model = LanguageModel()
    run.adopt(folder, model.url)
    report = report_of(*run.arguments(model.url), folder=folder, BIORAG_CONCURRENCY="1")
    model.close()
    write_json(f"files/finished/{run.name}.json", selected(report, run.values))
    for path in run.parts(folder):
        keep(path, FILES / "finished" / path.name, folder)


def killed(run: Run, folder: Path) -> bool:
    """Start a run anew and kill it halfway; return whether there was still something to do."""
    for path in run.parts(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    model = LanguageModel(limit=7)
    os.environ["BIORAG_CONCURRENCY"] = "1"
    started = process(*run.arguments(model.url), folder=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while started.poll() is None and not run.halfway(folder / run.name):
        time.sleep(0.0005)
    started.kill()
    model.close()
    return started.wait() == -signal.SIGKILL


def write_sweep(folder: Path) -> None:
    """Write what a sweep of tiny models leaves: its steps' records, and what its report is made of.

    It takes a folder of its own: a file that has the name of a word in a step's command would count in its key.
    """
    lay_out(folder)
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    shutil.copyfile(folder / "sweep.toml", FILES / "sweep.toml")
    report = report_of("ablate", "sweep.toml", "--out", "sweep", "--jobs", "2", folder=folder)
    place = FILES / "finished" / "sweep"
    for path in (folder / "sweep").rglob("*.json*"):
        if path.parent.name == "steps" or path.name == "per-question.jsonl":
            keep(path, FILES / "finished" / path.relative_to(folder), folder)
    keep(folder / "sweep" / "biorag.toml", place / "biorag.toml", folder)
    assert len(list(place.glob("steps/*.json"))) == 9
    write_json("files/finished/sweep.json", selected(report, SWEPT))


def main() -> None:
    """Write all of it anew."""
    shutil.rmtree(FILES, ignore_errors=True)
    write_questions()
    write_papers()
    write_rows()
    write_encoders()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lay_out(folder)
        (FILES / "finished").mkdir()
        write_settings(folder)
        write_home(folder)
        write_merged(folder)
        for run in RUNS.values():
            print(run.name, flush=True)  # noqa: T201
            write_run(run, folder)
    with tempfile.TemporaryDirectory() as scratch:
        write_sweep(Path(scratch))


if __name__ == "__main__":
    main()
