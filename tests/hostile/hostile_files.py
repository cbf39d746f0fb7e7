"""Hostile files, each made when it is needed, with the command that meets it and what that command must say.

A payload that could run writes the file `EXECUTED` into the case's folder.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.hostile.tiny_gguf import ARRAY, F32, I32, STRING, U32, Tensor, TinyGguf, Typed, tiny_llama

CANARY = "EXECUTED"
GOOD = b'{"id": "good", "title": "Aspirin", "content": "Aspirin lowers fever."}\n'
SNIPPETS = b"".join(b'{"id": "s%d", "content": "Snippet %d on fever."}\n' % (n, n) for n in range(8))
# What a terminal would act on: colours, a title, a clear, a link, C1's CSI, a backspace, marks that reorder.
ESCAPES = (
    "\x1b[31mred\x1b]0;owned\x07\x1b[2J\x1b]8;;http://e.example\x1b\\link\x9b5m\x08\x7f\u202eltr\u2066 [bold]b[/bold]"
)

Make = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Case:
    """One hostile file.

    `make` writes it into a folder and returns the command's arguments; `code` is the exit code it must give and
    `said` a part of what it must say. `family` names the clean command that it is measured against. `indexed` cases
    need a home with the index "default", `loads` ones reach a heavy library.
    """

    name: str
    family: str
    make: Make
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


def _line(**fields: Any) -> bytes:
    return json.dumps({"id": "a", "content": "Text", **fields}).encode() + b"\n"


def _corpus(name: str, data: bytes | Callable[[], bytes], code: int, said: str, file: str = "corpus.jsonl") -> Case:
    def make(folder: Path) -> list[str]:
        (folder / file).write_bytes(data if isinstance(data, bytes) else data())
        return ["index", str(folder / file)]

    return Case(name, "corpus", make, code, said, loads=code == 0)


def _long_line() -> bytes:
    return b'{"id": "a", "content": "' + b"x" * 100_000_000 + b'"}\n'


CORPORA = [
    _corpus("gzip bomb of blank lines", lambda: gzip.compress(b"\n" * 200_000_000, 9), 3, "as a bomb does"),
    _corpus("gzip bomb of snippets", lambda: gzip.compress(GOOD * 1_500_000, 9), 3, "as a bomb does"),
    _corpus("gzip bomb of one line", lambda: gzip.compress(b"x" * 200_000_000, 9), 3, "as a bomb does"),
    _corpus("gzip in gzip", gzip.compress(gzip.compress(SNIPPETS)), 3, "gzip inside gzip"),
    _corpus("gzip, truncated", gzip.compress(SNIPPETS)[:-12], 3, "truncated gzip"),
    _corpus("gzip, wrong checksum", gzip.compress(SNIPPETS)[:-8] + b"\0" * 8, 3, "damaged or truncated gzip"),
    _corpus("gzip, bytes flipped", gzip.compress(SNIPPETS)[:20] + b"\xff" * 9, 3, "damaged or truncated gzip"),
    _corpus("gzip, only its magic", b"\x1f\x8b", 3, "damaged or truncated gzip"),
    _corpus("zip", b"PK\x03\x04" + bytes(200), 3, "a zip archive"),
    _corpus("bzip2", bz2.compress(SNIPPETS), 3, "packed by bzip2"),
    _corpus("xz", lzma.compress(SNIPPETS), 3, "packed by xz"),
    _corpus("line of 100 MB", _long_line, 3, "longer than 16 MiB"),
    _corpus("text of 10 MB", lambda: _line(content="x" * 10_000_000), 3, "longer than 1,048,576 characters"),
    _corpus("UTF-16", SNIPPETS.decode().encode("utf-16"), 3, "UTF-16"),
    _corpus("UTF-16, big-endian", b"\xfe\xff" + SNIPPETS.decode().encode("utf-16-be"), 3, "UTF-16"),
    _corpus("JSON 100,000 deep", b"[" * 100_000, 3, "nested too deeply"),
    _corpus("field 200 deep", _line(x=json.loads("[" * 200 + "]" * 200)), 3, "64 levels deep"),
    _corpus("field twice", b'{"id": "a", "id": "b", "content": "Text"}', 3, "'id' appears twice"),
    _corpus("number of 100,000 digits", b'{"id": "a", "content": "T", "x": ' + b"9" * 100_000 + b"}", 3, "64 bits"),
    _corpus("number over 64 bits", _line(x=2**70), 3, "64 bits"),
    _corpus("NaN", _line(x=math.nan), 3, "NaN"),
    _corpus("1e999", b'{"id": "a", "content": "T", "x": 1e999}', 3, "NaN"),
    _corpus("NUL in the id", _line(id="a\0b"), 3, "control character"),
    _corpus("escape sequence in the id", _line(id=ESCAPES), 3, "control character"),
    _corpus("id of 100,000 characters", _line(id="a" * 100_000), 3, "longer than 1,024"),
    _corpus("raw NUL bytes", b'{"id": "a\0", "content": "T"}', 3, "not JSON"),
    _corpus("not UTF-8", b'{"id": "a", "content": "na\xefve"}', 3, "not UTF-8"),
    _corpus("half a surrogate pair", _line(content="\ud800"), 3, "unpaired surrogate"),
    _corpus("PMID of another type", _line(PMID={"$gt": ""}), 3, "PMID"),
    _corpus("empty file", b"", 3, "holds no snippet"),
    _corpus("blank lines", b"\n" * 1000, 3, "holds no snippet"),
    _corpus("random bytes", os.urandom(100_000), 3, "line 1"),
    _corpus("Git-LFS pointer", b"version https://git-lfs.github.com/spec/v1\n", 3, "Git-LFS"),
    _corpus("escape sequences in its name", b"{}", 3, "line 1", file="\x1b[31mred\x1b[2J [bold].jsonl"),
    _corpus("pickle", lambda: pickle.dumps(Payload(Path("/nowhere"))), 3, "line 1"),
    _corpus("byte order mark", b"\xef\xbb\xbf" + SNIPPETS, 0, ""),
    _corpus("control characters in texts", _line(title=ESCAPES, content=f"NUL \0 {ESCAPES}", x={"\0": "\0"}), 0, ""),
    _corpus("10,000 fields", _line(**{f"f{n}": n for n in range(10_000)}), 0, ""),
]


def _pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / "pipe.jsonl")
    return ["index", str(folder / "pipe.jsonl")]


def _folder_of_nothing(folder: Path) -> list[str]:
    (folder / "in").mkdir()
    (folder / "in" / "loop").symlink_to(folder / "in", target_is_directory=True)
    (folder / "in" / "self.jsonl").symlink_to(folder / "in" / "self.jsonl")
    (folder / "in" / "folder.jsonl").mkdir()
    os.mkfifo(folder / "in" / "pipe.jsonl")
    return ["index", str(folder / "in")]


def _named(name: str) -> Make:
    def make(folder: Path) -> list[str]:
        (folder / "corpus.jsonl").write_bytes(SNIPPETS)
        return ["index", str(folder / "corpus.jsonl"), "--name", name]

    return make


PLACES = [
    Case("a pipe", "corpus", _pipe, 4, "a pipe or a device"),
    Case("a device", "corpus", lambda _: ["index", "/dev/zero"], 4, "a pipe or a device"),
    Case("a folder of loops and pipes", "corpus", _folder_of_nothing, 3, "holds no corpus file"),
    Case(
        "a link to itself", "corpus", lambda f: [*_folder_of_nothing(f)[:1], str(f / "in/self.jsonl")], 4, "not there"
    ),
    Case("a name of 5,000 characters", "corpus", lambda _: ["index", "x" * 5000], 4, "too long"),
    *(
        Case(f"index name {name[:20]!r}", "corpus", _named(name), 2, "--name ")
        for name in ("../out", "a/b", "/tmp/x", "..", "a" * 101, ".hidden", "a\n", "\x1b[2J")
    ),
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


def _encoder(name: str, said: str, *extra: str, **files: Any) -> Case:
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

    return Case(name, "encoder", make, 4, said)


def _pickled(folder: Path) -> bytes:
    return pickle.dumps(Payload(folder / CANARY))


def _weights(name: str, said: str, data: bytes) -> Case:
    return _encoder(f"safetensors: {name}", said, model__safetensors=data)


def _sparse_vocabulary() -> Case:
    """A vocabulary of 300 MB, without its blocks on the disk."""
    whole = _encoder("tokenizer.json of 300 MB", "larger than 256 MiB")

    def make(folder: Path) -> list[str]:
        arguments = whole.make(folder)
        with (folder / "model" / "tokenizer.json").open("wb") as stream:
            stream.truncate(300 * 2**20)
        return arguments

    return Case(whole.name, whole.family, make, whole.code, whole.said)


RERANKER = ("--store-tokens", "--reranker")
ENCODERS = [
    _weights("empty", "beyond the end", b""),
    _weights("header beyond the file", "beyond the end", safetensors({}, length=2**40)),
    _weights("header of 2**63 bytes", "beyond the end", safetensors({}, length=2**63)),
    _weights("header no JSON", "not JSON", safetensors(b"\x80\x04pickled")),
    _weights("header a list", "not a JSON object", safetensors([])),
    _weights("header 100,000 deep", "not JSON", safetensors(b'{"a":' * 100_000)),
    _weights("tensor twice", "twice", safetensors(b'{"w": 1, "w": 2}')),
    _weights("tensor without a dtype", "no known dtype", safetensors({"w": {"shape": [], "data_offsets": [0, 4]}})),
    _weights("tensor of an unknown dtype", "no known dtype", safetensors({"w": _tensor([1], 0, 4, "O8")}, bytes(4))),
    _weights("tensor beyond the file", "follow the header", safetensors({"w": _tensor([2**20], 0, 2**22)}, bytes(64))),
    _weights("negative offsets", "negative", safetensors({"w": _tensor([-1], -4, 0)})),
    _weights("shape too large", "does not take", safetensors({"w": _tensor([2**40, 2**40], 0, 64)}, bytes(64))),
    _weights(
        "tensors that overlap",
        "where the one before it ends",
        safetensors({"a": _tensor([4], 0, 16), "b": _tensor([4], 8, 24)}, bytes(24)),
    ),
    _weights("bytes of no tensor", "follow the header", safetensors({"w": _tensor([4], 0, 16)}, bytes(640))),
    _encoder("pickled weights", "pickled checkpoint", model__safetensors=None, pytorch_model__bin=_pickled),
    _encoder("pickled weights of a module", "pickled checkpoint", **{"2_Dense___pytorch_model__bin": _pickled}),
    _encoder("a Lightning checkpoint", "pickled checkpoint", model__safetensors=None, epoch3__ckpt=_pickled),
    _encoder("a torch file of a module", "pickled checkpoint", **{"1_Pooling___weights__pt": _pickled}),
    _encoder("pickled reranker", "pickled checkpoint", *RERANKER, model__safetensors=None, pytorch_model__bin=_pickled),
    _encoder("no weights", "no .safetensors weights", model__safetensors=None, training_args__bin=_pickled),
    _encoder("modules.json: os.system", "'os.system'", modules__json=[{"type": "os.system", "path": "x"}]),
    _encoder(
        "modules.json: code beside it",
        "'evil.Module'",
        modules__json=[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}],
        evil__py=lambda folder: f"open({str(folder / CANARY)!r}, 'w')\n".encode(),
    ),
    _encoder("modules.json: a function of ours", "names the module class", modules__json=[{"type": TYPE + ".load"}]),
    _encoder(
        "modules.json: pickle by way of torch",
        "names the module class",
        modules__json=[{"type": "sentence_transformers.base.modules.module.torch.load", "path": ""}],
    ),
    _encoder("modules.json: path outside", "not in the model's", modules__json=[{"type": TYPE, "path": "../.."}]),
    _encoder("modules.json: absolute path", "not in the model's", modules__json=[{"type": TYPE, "path": "/etc"}]),
    _encoder("modules.json: no list", "lists no modules", modules__json={"a": 1}),
    _encoder("modules.json: not JSON", "is not JSON", modules__json=b"\0"),
    _encoder("router_config.json: os.system", "'os.system'", router_config__json={"types": {"a": "os.system"}}),
    _encoder("config.json: 100,000 deep", "is not JSON", config__json=b"[" * 100_000),
    _encoder("config.json: a list", "not a JSON object", config__json=[]),
    _encoder("config.json: 20 MB", "larger than 16 MiB", config__json=b" " * (20 * 2**20)),
    _encoder("config.json: huge layers", "do not support", config__json={**BERT, "hidden_size": 10**9}),
    _encoder("config.json: a million layers", "do not support", config__json={**BERT, "num_hidden_layers": 10**6}),
    _encoder(
        "config.json: attention to be fetched",
        "code to be fetched",
        config__json={**BERT, "attn_implementation": "nobody/kernel"},
    ),
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
    _sparse_vocabulary(),
]


def _auto_map(folder: Path) -> bytes:
    return json.dumps(
        {**BERT, "model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    ).encode()


ENCODERS_LOADED = [
    Case(case.name, case.family, case.make, 4, case.said, loads=True)
    for case in (
        _encoder(
            "config.json: code beside it",
            "cannot be loaded",
            config__json=_auto_map,
            evil__py=lambda folder: f"open({str(folder / CANARY)!r}, 'w')\n".encode(),
        ),
        _encoder("weights of another model", "cannot be loaded"),
    )
]


# --- generators


def _generator(name: str, said: str, gguf: TinyGguf | bytes, loads: bool = False) -> Case:
    def make(folder: Path) -> list[str]:
        path = folder / "model.gguf"
        path.write_bytes(gguf if isinstance(gguf, bytes) else gguf.bytes())
        return ["ask", "Why?", "--llm", str(path), "--mode", "bm25", "--no-rerank"]

    return Case(f"GGUF: {name}", "generator", make, 4, said, indexed=True, loads=loads)


TINY = tiny_llama()
HEAD = "token_embd.weight"
KEY = "general.name"
LOOP = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
ESCAPE = "{{ cycler.__init__.__globals__.os.system('touch EXECUTED') }}"


def _keyed(kind: int, raw: bytes) -> TinyGguf:
    """Return a file with a value of these bytes."""
    return TINY.keyed(general__name=Typed(kind, raw))


def _templated(name: str, said: str, template: str) -> Case:
    return _generator(
        f"template {name}", said, TINY.keyed(tokenizer__chat_template=Typed(STRING, template)), loads=True
    )


GENERATORS = [
    _generator("empty", "does not begin with", b""),
    _generator("text", "does not begin with", b"not a model" * 1000),
    _generator("version 99", "version is 99", replace(TINY, version=99)),
    _generator("big-endian", "its version is", replace(TINY, version=3 << 24)),
    _generator("2**60 tensors", "tensors", replace(TINY, tensor_count=2**60)),
    _generator("2**60 keys", "keys", replace(TINY, key_count=2**60)),
    _generator("a key of 2**63 bytes", "longer than", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63)),
    _generator("a text of 2**40 bytes", "beyond the end", _keyed(STRING, struct.pack("<Q", 2**40))),
    _generator("an array of 2**60 numbers", "beyond the end", _keyed(ARRAY, struct.pack("<IQ", U32, 2**60))),
    _generator("an array of 2**60 texts", "beyond the end", _keyed(ARRAY, struct.pack("<IQ", STRING, 2**60))),
    _generator("an array of arrays", "unknown type", _keyed(ARRAY, struct.pack("<IQ", ARRAY, 1))),
    _generator("a value of type 77", "unknown type 77", _keyed(77, b"")),
    _generator("alignment 0", "not a power of two", TINY.keyed(general__alignment=Typed(U32, 0))),
    _generator("alignment 3", "not a power of two", TINY.keyed(general__alignment=Typed(U32, 3))),
    _generator("tensor of type 250", "unknown type 250", TINY.shaped(HEAD, Tensor((32, 259), 250))),
    _generator("tensor of 9 dimensions", "9 dimensions", TINY.shaped(HEAD, Tensor((1,) * 9))),
    _generator("tensor of 2**63 weights", "beyond the end", TINY.shaped(HEAD, Tensor((2**32, 2**31), data=b""))),
    _generator("tensor without weights", "shape", TINY.shaped(HEAD, Tensor((0, 259), data=b""))),
    _generator("tensor beyond the file", "beyond the end", TINY.shaped(HEAD, Tensor((32, 259), offset=2**40))),
    _generator("tensors that overlap", "overlap", TINY.shaped("output_norm.weight", Tensor((32,), offset=0))),
    _generator("tensor out of line", "multiple of 32", TINY.shaped(HEAD, Tensor((32, 259), offset=1))),
    _generator("truncated", "beyond the end", TINY.bytes()[:20_000]),
    _generator("architecture unknown", "", TINY.keyed(general__architecture=Typed(STRING, "evil")), loads=True),
    _generator("no layers", "", TINY.keyed(llama__block_count=Typed(U32, 0)), loads=True),
    _generator("context of 7 tokens", "of 7 tokens", TINY.keyed(llama__context_length=Typed(U32, 7)), loads=True),
    _generator("every token the same", "", TINY.keyed(tokenizer__ggml__tokens=Typed(STRING, ["a"] * 259)), loads=True),
    _generator("token types unknown", "", TINY.keyed(tokenizer__ggml__token_type=Typed(I32, [99] * 259)), loads=True),
    _generator(
        "epsilon no number",
        "",
        TINY.keyed(llama__attention__layer_norm_rms_epsilon=Typed(F32, math.nan)),
        loads=True,
    ),
    _generator(
        "weights no numbers", "", TINY.shaped(HEAD, Tensor((32, 259), data=b"\xff" * (32 * 259 * 4))), loads=True
    ),
    _generator(
        "template that escapes",
        "cannot be rendered",
        TINY.keyed(tokenizer__chat_template=Typed(STRING, ESCAPE)),
        loads=True,
    ),
    _generator("template without end", "", TINY.keyed(tokenizer__chat_template=Typed(STRING, LOOP)), loads=True),
    _generator(
        "template of 1 GB",
        "cannot be rendered",
        TINY.keyed(tokenizer__chat_template=Typed(STRING, "{{ 'x' * 10**9 }}")),
        loads=True,
    ),
]


# --- settings, manifests, templates, benchmarks


def _file(name: str, family: str, file: str, data: bytes, code: int, said: str, *command: str) -> Case:
    """Return the case of one file; `{}` in the command stands for it, `{folder}` for its folder."""

    def make(folder: Path) -> list[str]:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return [word.replace("{}", str(path)).replace("{folder}", str(folder)) for word in command]

    return Case(name, family, make, code, said, indexed=family == "generator")


SETTINGS = ("--config", "{}", "info", "--settings")
MIRAGE = ("bench", "mirage", "--benchmark", "{}", "--llm", "none", "--out", "{folder}/out")
JUDGED = ("bench", "retrieval", "--qrels", "{}", "--run", "{}")
QUESTION = {"question": "Q?", "options": {"A": "yes", "B": "no"}, "answer": "A"}


def _benchmark(name: str, tasks: Any) -> Case:
    said = "task" if "task" in name else "question"
    return _file(f"benchmark: {name}", "benchmark", "b.json", json.dumps(tasks).encode(), 3, said, *MIRAGE)


OTHERS = [
    _file("settings: binary", "settings", "x.toml", bytes(range(256)), 2, "is not valid TOML", *SETTINGS),
    _file("settings: unknown", "settings", "x.toml", b'"\\u001b[2J" = 1', 2, "unknown setting", *SETTINGS),
    _file("settings: name with a path", "settings", "x.toml", b'name = "../../etc"', 2, "name=", *SETTINGS),
    _file("settings: 100,000 deep", "settings", "x.toml", b"a = " + b"[" * 100_000, 2, "is not valid TOML", *SETTINGS),
    _file("benchmark: 100,000 deep", "benchmark", "b.json", b"[" * 100_000, 3, "is not JSON", *MIRAGE),
    _benchmark("task with a path", {"../x": {"q": QUESTION}}),
    _benchmark("question with a path", {"t": {"../q": QUESTION}}),
    _benchmark("escape sequences", {"t": {ESCAPES: QUESTION}}),
    _benchmark("options of another type", {"t": {"q": {**QUESTION, "options": [["A"]]}}}),
    _file("judgements: NUL", "dataset", "q.tsv", b"q1\ts\0\t1\n", 3, "NUL", *JUDGED),
    _file("judgements: a grade of 10**12", "dataset", "q.tsv", b"q1\ts\t1000000000000\n", 3, "above", *JUDGED),
]

MANIFEST = {
    "name": "default",
    "encoder": {"id": "starter", "revision": "", "sha256": "0" * 64, "dimension": 384},
    "similarity": "cosine",
    "quantized": False,
    "bm25": {"k": 0.9, "b": 0.4, "avg_len": 10.0},
    "store": {"kind": "edge"},
    "created": "",
    "updated": "",
    "sources": [],
    "format": 1,
}


def _manifest(name: str, said: str, data: bytes | None = None, **changes: Any) -> Case:
    content = json.dumps({**MANIFEST, **changes}).encode() if data is None else data
    place = "home/indexes/default/manifest.json"
    return _file(f"manifest: {name}", "search", place, content, 5, said, "search", "fever", "--mode", "bm25")


OTHERS += [
    _manifest("not JSON", "damaged", b"\0"),
    _manifest("100,000 deep", "damaged", b"[" * 100_000),
    _manifest("a list", "damaged", b"[]"),
    _manifest("format 99", "format 99", format=99),
    _manifest("another similarity", "damaged", similarity="\x1b[2J"),
    _manifest("a dimension of 10**12", "damaged", encoder={**MANIFEST["encoder"], "dimension": 10**12}),
    _manifest("a dimension that is a text", "damaged", encoder={**MANIFEST["encoder"], "dimension": "many"}),
    _manifest("BM25 of another type", "damaged", bm25={"k": "a", "b": [], "avg_len": None}),
    _manifest("an encoder with a path", "damaged", encoder={**MANIFEST["encoder"], "id": ["../../x"]}),
    _manifest("a store of another kind", "damaged", store={"kind": "pickle"}),
    _manifest("fields of its own", "damaged", extra="x"),
]

CASES = [*CORPORA, *PLACES, *ENCODERS, *ENCODERS_LOADED, *GENERATORS, *OTHERS]
