"""What the measurements share: biorag processes to stop, an encoder that costs little, and what an index holds."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from string import ascii_lowercase
from typing import Any

LIBRARIES = [
    *("numpy", "pydantic", "torch", "transformers", "tokenizers", "sentence_transformers", "huggingface_hub", "httpx"),
    *("qdrant_edge", "qdrant_client", "ir_measures", "sklearn", "scipy.stats", "lxml.etree", "tomlkit", "biorag.cli"),
    *("biorag.engine", "biorag.indexes.edge", "biorag.models.colbert", "biorag.models.cross_encoder"),
]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "BIORAG_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Forked:
    """A biorag command in a process forked from this one, which has loaded the libraries; as `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], home: Path, said: Path) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, home, said)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)


def _become(arguments: Sequence[str], home: Path, said: Path) -> None:
    """Be the program from here on, with stdout and stderr in `said`."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.environ.update(ENVIRONMENT, BIORAG_HOME=str(home))
        sys.argv = ["biorag", *arguments]
        from biorag.cli import main

        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def load_libraries() -> None:
    """Load what commands take seconds to load, so that a forked one starts at once; starts no thread."""
    for name in LIBRARIES:
        importlib.import_module(name)


def start(arguments: Sequence[str], home: Path, said: Path, fresh: bool) -> Forked | subprocess.Popen[bytes]:
    """Start a biorag command: a new process, or one forked from this."""
    if not fresh:
        return Forked(arguments, home, said)
    # A shell's background jobs ignore SIGINT and hand that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with said.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "biorag", *arguments],
            stdout=stream,
            stderr=stream,
            env={**os.environ, **ENVIRONMENT, "BIORAG_HOME": str(home)},
        )


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function gives in a process of its own, through JSON: this one must start no thread."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with os.fdopen(writing, "w") as stream:
                json.dump(function(*arguments), stream)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"{function.__name__} failed in its process")
    return json.loads(text)


def held(folder: Path) -> dict[str, str]:
    """Return what an index holds: for each point's id, the SHA-256 of its payload and its vectors as they are kept."""
    import qdrant_edge as qe

    shard = qe.EdgeShard.load(str(folder / "shard"))
    found: dict[str, str] = {}
    offset = None
    while True:
        request = qe.ScrollRequest(offset=offset, limit=1000, with_payload=True, with_vector=True)
        records, offset = shard.scroll(request)
        for record in records:
            vectors = {name: _plain(vector) for name, vector in sorted(record.vector.items())}
            text = json.dumps([record.payload, vectors], sort_keys=True)
            assert str(record.id) not in found, f"point {record.id} is there twice"
            found[str(record.id)] = hashlib.sha256(text.encode()).hexdigest()
        if offset is None:
            break
    shard.close()
    return found


def _plain(vector: Any) -> Any:
    if hasattr(vector, "indices"):
        return sorted(zip(vector.indices, vector.values, strict=True))
    return list(vector)


def digest(points: dict[str, str]) -> str:
    """Return one hash of all points."""
    return hashlib.sha256(json.dumps(sorted(points.items())).encode()).hexdigest()


def copy_index(source: Path, target: Path) -> None:
    """Copy an index as it lies, holes kept; opening one tidies its files."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def first_snippets(data: Path, count: int, target: Path) -> list[str]:
    """Write the first snippets of the shared data into a corpus file; return their ids."""
    with gzip.open(data / "pubmed" / "snippets.jsonl.gz", "rt", encoding="utf-8") as lines:
        chosen = list(islice(lines, count))
    target.write_text("".join(chosen), encoding="utf-8")
    return [json.loads(line)["id"] for line in chosen]


def small_encoder(folder: Path) -> Path:
    """Make a random one-layer encoder: nothing to download, fast, and vectors large enough for a graph."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizer

    bert = folder / "bert"
    bert.mkdir(parents=True)
    pieces = [f"##{letter}" for letter in ascii_lowercase]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ascii_lowercase, *pieces]
    (bert / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizer(str(bert / "vocab.txt")).save_pretrained(bert)
    torch.manual_seed(0)
    sizes = {"hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 64, "num_hidden_layers": 1}
    BertModel(BertConfig(vocab_size=64, max_position_embeddings=64, **sizes)).save_pretrained(bert)
    model = SentenceTransformer(str(bert), device="cpu")
    model.max_seq_length = 32
    model.save(str(folder / "encoder"))
    return folder / "encoder"


def write_report(path: Path, values: dict[str, Any]) -> None:
    """Write what is measured so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**values, "written": time.strftime("%Y-%m-%d %H:%M:%S")}, indent=2) + "\n")
