"""Every hostile file through the command that meets it: one sentence, its exit code, and no code run."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import pickle
import shutil
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from biorag.utils.text import UNSHOWABLE
from tests.cli import invoke, succeeded
from tests.hostile.tiny_gguf import ARRAY, STRING, U32, Tensor, TinyGguf, Typed, tiny_llama

pytestmark = pytest.mark.faults
CANARY = "EXECUTED"  # a payload that could run writes this file into the case's folder
GOOD = b'{"id": "good", "title": "Aspirin", "content": "Aspirin lowers fever."}\n'
SNIPPETS = b"".join(b'{"id": "s%d", "content": "Snippet %d on fever."}\n' % (n, n) for n in range(8))
# What a terminal would act on: colours, a title, a clear, a link, C1's CSI, a backspace, marks that reorder.
ESCAPES = (
    "\x1b[31mred\x1b]0;owned\x07\x1b[2J\x1b]8;;http://e.example\x1b\\link\x9b5m\x08\x7f\u202eltr\u2066 [bold]b[/bold]"
)


@dataclass(frozen=True)
class Case:
    """A hostile file: `make` writes it and returns a command, which must exit with `code` and say `said`.

    `indexed` cases need a home with the index "default", `loads` ones reach a heavy library.
    """

    name: str
    make: Callable[[Path], list[str]]
    code: int
    said: str
    indexed: bool = False
    loads: bool = False


class Payload:
    """Pickled, it runs a command when it is loaded."""

    def __init__(self, canary: Path) -> None:
        self._command = f"touch {canary}"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self._command,)


# --- corpora


def _line(**fields: Any) -> bytes:
    return json.dumps({"id": "a", "content": "Text", **fields}).encode() + b"\n"


def _corpus(name: str, data: bytes | Callable[[], bytes], said: str, file: str = "corpus.jsonl") -> Case:
    def make(folder: Path) -> list[str]:
        (folder / file).write_bytes(data if isinstance(data, bytes) else data())
        return ["index", str(folder / file)]

    return Case(name, make, 3 if said else 0, said, loads=not said)


CORPORA = [
    _corpus("gzip bomb of blank lines", lambda: gzip.compress(b"\n" * 50_000_000, 9), "as a bomb does"),
    _corpus("gzip in gzip", gzip.compress(gzip.compress(SNIPPETS)), "gzip inside gzip"),
    _corpus("gzip, wrong checksum", gzip.compress(SNIPPETS)[:-8] + b"\0" * 8, "damaged or truncated gzip"),
    _corpus("bzip2", bz2.compress(SNIPPETS), "packed by bzip2"),
    _corpus("line of 20 MB", lambda: b'{"id": "a", "content": "' + b"x" * 20_000_000 + b'"}\n', "longer than 16 MiB"),
    _corpus("text of 10 MB", lambda: _line(content="x" * 10_000_000), "longer than 1,048,576 characters"),
    _corpus("escape sequence in the id", _line(id=ESCAPES), "control character"),
    _corpus("Git-LFS pointer", b"version https://git-lfs.github.com/spec/v1\n", "Git-LFS"),
    _corpus("escape sequences in its name", b"{}", "line 1", file="\x1b[31mred\x1b[2J [bold].jsonl"),
    _corpus("control characters in texts", _line(title=ESCAPES, content=f"NUL \0 {ESCAPES}", x={"\0": "\0"}), ""),
]


def _folder_of_nothing(folder: Path) -> list[str]:
    (folder / "in").mkdir()
    (folder / "in" / "loop").symlink_to(folder / "in", target_is_directory=True)
    (folder / "in" / "self.jsonl").symlink_to(folder / "in" / "self.jsonl")
    os.mkfifo(folder / "in" / "pipe.jsonl")
    return ["index", str(folder / "in")]


def _named(name: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder / "corpus.jsonl").write_bytes(SNIPPETS)
        return ["index", str(folder / "corpus.jsonl"), "--name", name]

    return make


PLACES = [
    Case("a device", lambda _: ["index", "/dev/zero"], 4, "a pipe or a device"),
    Case("a folder of loops and pipes", _folder_of_nothing, 3, "holds no corpus file"),
    Case("a name of 5,000 characters", lambda _: ["index", "x" * 5000], 4, "too long"),
    *(Case(f"index name {name!r:.20}", _named(name), 2, "--name ") for name in ("../out", "/tmp/x", "a\n", "\x1b[2J")),
]


# --- models that sentence-transformers would load


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a safetensors file of a header as it is given, JSON or bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def _tensor(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


WHOLE = safetensors({"w": _tensor([4, 4], 0, 64)}, bytes(64))
BERT = {"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 1, "vocab_size": 4}
TYPE = "sentence_transformers.models.Transformer"
RERANKER = ("--store-tokens", "compact", "--reranker")


def _encoder(name: str, said: str, *extra: str, loads: bool = False, **files: Any) -> Case:
    """Return the case of a model folder; `files` are by name, with `__` for a dot and `___` for a slash."""

    def make(folder: Path) -> list[str]:
        model = folder / "model"
        for file, content in {"model__safetensors": WHOLE, "config__json": BERT, **files}.items():
            if content is None:
                continue
            path = model / file.replace("___", "/").replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = content(folder) if callable(content) else content
            path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        (folder / "corpus.jsonl").write_bytes(SNIPPETS)
        return ["index", str(folder / "corpus.jsonl"), *(extra or ("--encoder",)), str(model)]

    return Case(name, make, 4, said, loads=loads)


def _pickled(folder: Path) -> bytes:
    return pickle.dumps(Payload(folder / CANARY))


def _code(folder: Path) -> bytes:
    return f"open({str(folder / CANARY)!r}, 'w')\n".encode()


def _modules(name: str, said: str, *modules: Any, **files: Any) -> Case:
    return _encoder(f"modules.json: {name}", said, modules__json=list(modules), **files)


AUTO_MAP = {**BERT, "model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
ENCODERS = [
    _encoder("safetensors beyond the file", "model.safetensors", model__safetensors=safetensors({}, length=2**40)),
    _encoder("pickled weights", "pickled checkpoint", model__safetensors=None, pytorch_model__bin=_pickled),
    _encoder("pickled weights of a module", "pickled checkpoint", **{"2_Dense___pytorch_model__bin": _pickled}),
    _encoder("pickled reranker", "pickled checkpoint", *RERANKER, model__safetensors=None, pytorch_model__bin=_pickled),
    _encoder("no weights", "no .safetensors weights", model__safetensors=None, training_args__bin=_pickled),
    _modules("code beside it", "'evil.Module'", {"type": "evil.Module", "path": ""}, evil__py=_code),
    _modules("a function of ours", "names the module class", {"type": TYPE + ".load", "path": ""}),
    _modules("path outside", "not in the model's", {"type": TYPE, "path": "../.."}),
    _encoder("router_config.json: os.system", "'os.system'", router_config__json={"types": {"a": "os.system"}}),
    _encoder("config.json: 100,000 deep", "is not JSON", config__json=b"[" * 100_000),
    _encoder("config.json: 20 MB", "larger than 16 MiB", config__json=b" " * (20 * 2**20)),
    _encoder("config.json: heads below 0", "do not support", config__json={**BERT, "num_attention_heads": -1}),
    _encoder("a window below 0", "do not support", sentence_bert_config__json={"max_seq_length": -1}),
    _encoder("config.json: huge layers", "do not support", config__json={**BERT, "hidden_size": 10**9}),
    _encoder("attention to be fetched", "code to be fetched", config__json={**BERT, "attn_implementation": "x/kernel"}),
    _encoder(
        "a Dense layer's activation: os.system",
        "names the activation",
        **{"2_Dense___config__json": {"in_features": 4, "activation_function": "os.system"}},
    ),
    _encoder(
        "weights index: files outside",
        "of its own folder",
        model__safetensors__index__json={"weight_map": {"w": "../../secret.safetensors"}},
    ),
    _encoder("config.json: code beside it", "cannot be loaded", loads=True, config__json=AUTO_MAP, evil__py=_code),
    _encoder("weights of another model", "cannot be loaded", loads=True),
]


# --- generators


def _generator(name: str, said: str, gguf: TinyGguf | bytes, loads: bool = False) -> Case:
    def make(folder: Path) -> list[str]:
        path = folder / "model.gguf"
        path.write_bytes(gguf if isinstance(gguf, bytes) else gguf.bytes())
        return ["ask", "Why?", "--llm", str(path), "--mode", "bm25", "--no-rerank"]

    return Case(f"GGUF: {name}", make, 4, said, indexed=True, loads=loads)


TINY = tiny_llama()
HEAD = "token_embd.weight"
ESCAPE = "{{ cycler.__init__.__globals__.os.system('touch EXECUTED') }}"


def _keyed(kind: int, raw: bytes) -> TinyGguf:
    return TINY.keyed(general__name=Typed(kind, raw))


def _template(text: str) -> TinyGguf:
    return TINY.keyed(tokenizer__chat_template=Typed(STRING, text))


GENERATORS = [
    _generator("text", "model.gguf", b"not a model" * 1000),
    _generator("version 99", "model.gguf", replace(TINY, version=99)),
    _generator("2**60 tensors", "model.gguf", replace(TINY, tensor_count=2**60)),
    _generator("a text of 2**40 bytes", "model.gguf", _keyed(STRING, struct.pack("<Q", 2**40))),
    _generator("an array of 2**60 texts", "model.gguf", _keyed(ARRAY, struct.pack("<IQ", STRING, 2**60))),
    _generator("a value of type 77", "model.gguf", _keyed(77, b"")),
    _generator("alignment 0", "model.gguf", TINY.keyed(general__alignment=Typed(U32, 0))),
    _generator("tensor of 9 dimensions", "model.gguf", TINY.shaped(HEAD, Tensor((1,) * 9))),
    _generator("tensor beyond the file", "model.gguf", TINY.shaped(HEAD, Tensor((32, 259), offset=2**40))),
    _generator("truncated", "model.gguf", TINY.bytes()[:20_000]),
    _generator("no layers", "", TINY.keyed(llama__block_count=Typed(U32, 0)), loads=True),
    _generator("context of 7 tokens", "of 7 tokens", TINY.keyed(llama__context_length=Typed(U32, 7)), loads=True),
    _generator("every token the same", "", TINY.keyed(tokenizer__ggml__tokens=Typed(STRING, ["a"] * 259)), loads=True),
    _generator("template that escapes", "cannot be rendered", _template(ESCAPE), loads=True),
    _generator("template of 1 GB", "cannot be rendered", _template("{{ 'x' * 10**9 }}"), loads=True),
]


# --- settings, manifests, benchmarks


def _file(name: str, file: str, data: bytes, code: int, said: str, *command: str) -> Case:
    """Return the case of one file; `{}` in the command stands for it, `{folder}` for its folder."""

    def make(folder: Path) -> list[str]:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return [word.replace("{}", str(path)).replace("{folder}", str(folder)) for word in command]

    return Case(name, make, code, said)


SETTINGS = ("--config", "{}", "info", "--settings")
MIRAGE = ("bench", "mirage", "--benchmark", "{}", "--llm", "none", "--out", "{folder}/out")
QUESTION = {"question": "Q?", "options": {"A": "yes", "B": "no"}, "answer": "A"}
ENCODER = {"id": "starter", "revision": "", "sha256": "0" * 64, "dimension": 384}
MANIFEST = {
    **{"name": "default", "encoder": ENCODER, "similarity": "cosine", "quantized": False, "created": "", "updated": ""},
    **{"bm25": {"k": 0.9, "b": 0.4, "avg_len": 10.0}, "store": {"kind": "edge"}, "sources": [], "format": 1},
}


def _manifest(name: str, said: str, **changes: Any) -> Case:
    content = json.dumps({**MANIFEST, **changes}).encode()
    path = "home/indexes/default/manifest.json"
    return _file(f"manifest: {name}", path, content, 5, said, "search", "fever", "--mode", "bm25")


def _benchmark(name: str, tasks: Any) -> Case:
    said = "task" if "task" in name else "question"
    return _file(f"benchmark: {name}", "b.json", json.dumps(tasks).encode(), 3, said, *MIRAGE)


OTHERS = [
    _file("settings: binary", "x.toml", bytes(range(256)), 2, "is not valid TOML", *SETTINGS),
    _file("settings: 100,000 deep", "x.toml", b"a = " + b"[" * 100_000, 2, "is not valid TOML", *SETTINGS),
    _file("benchmark: 100,000 deep", "b.json", b"[" * 100_000, 3, "is not JSON", *MIRAGE),
    _benchmark("task with a path", {"../x": {"q": QUESTION}}),
    _benchmark("escape sequences", {"t": {ESCAPES: QUESTION}}),
    _manifest("format 99", "format 99", format=99),
    _manifest("a dimension of 10**12", "damaged", encoder={**ENCODER, "dimension": 10**12}),
    _manifest("an encoder with a path", "damaged", encoder={**ENCODER, "id": ["../../x"]}),
    _manifest("a store of another kind", "damaged", store={"kind": "pickle"}),
]


@pytest.fixture(scope="session")
def indexed_home(tmp_path_factory, tiny_encoder) -> Path:
    """A home whose index "default" holds eight snippets."""
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "corpus.jsonl").write_bytes(SNIPPETS)
    succeeded(invoke("index", folder / "corpus.jsonl", "--encoder", tiny_encoder, home=folder / "home"))
    return folder / "home"


def marked(case: Case):
    return pytest.param(case, marks=[pytest.mark.slow] if case.loads else [], id=ascii(case.name))


@pytest.mark.parametrize("case", map(marked, [*CORPORA, *PLACES, *ENCODERS, *GENERATORS, *OTHERS]))
def test_a_hostile_file_gives_one_sentence(case, tmp_path, monkeypatch, request):
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    if case.indexed:
        shutil.copytree(request.getfixturevalue("indexed_home"), tmp_path / "home")
    if case.loads:
        monkeypatch.setenv("BIORAG_ENCODER", str(request.getfixturevalue("tiny_encoder")))
    monkeypatch.chdir(tmp_path)
    command = case.make(tmp_path)
    before = set(sys.modules)
    result = invoke(*command)
    said = result.output
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert result.exit_code == case.code, said
    assert "Traceback" not in said and "internal error" not in said
    assert case.said in said.replace("\n", " ") or case.said in said.replace("\n", "")
    assert not UNSHOWABLE.findall(said.replace("\r\n", "\n"))
    assert not list(tmp_path.rglob(CANARY)), "code ran"
    assert len([line for line in said.splitlines() if line.startswith("error: ")]) == (1 if case.code else 0)
    if not case.loads:
        assert not {"torch", "llama_cpp"} & (set(sys.modules) - before), "it was refused before anything was loaded"
