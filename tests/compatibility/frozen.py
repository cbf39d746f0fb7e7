"""What the tests of this folder and the scripts that wrote its files share; of biorag it knows the command line alone.

`snapshots.py` writes the JSON files beside it, `write.py` the folder `files/`. Both say with which code they were run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from biorag.cli import app

HERE = Path(__file__).resolve().parent
FILES = HERE / "files"
# fp32 on every machine, and one width of the terminal.
ENVIRONMENT = {
    **{"BIORAG_PRECISION": "fp32", "BIORAG_THREADS": "1", "COLUMNS": "200", "HF_HUB_OFFLINE": "1"},
    **{"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
}
FOLDER = "@FOLDER@"  # in text files, in place of the folder that a run was started in


def read_json(name: str) -> Any:
    """Return one of the snapshots, or a JSON file of `files/`."""
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def write_json(name: str, value: Any) -> None:
    """Write a snapshot, sorted, so that a change shows in a diff."""
    text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
    (HERE / name).write_text(text + "\n", encoding="utf-8")


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(*words: object, folder: Path, home: Path | None = None, **variables: str) -> Any:
    """Run a command in this process, in `folder`; its home is `folder/home` unless another is named."""
    env = {**ENVIRONMENT, "BIORAG_HOME": str(home or folder / "home"), **variables}
    with inside(folder):
        return CliRunner().invoke(app, [*map(str, words)], env=env)


def report_of(*words: object, folder: Path, home: Path | None = None, **variables: str) -> Any:
    """Run a command with `--json` in this process and return its document."""
    result = run(*words, "--json", folder=folder, home=home, **variables)
    assert result.exit_code == 0, (words, result.output, result.exception)
    return json.loads(result.stdout)


def process(*words: object, folder: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own, in `folder`."""
    env = {**os.environ, **ENVIRONMENT, "BIORAG_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "biorag", *map(str, words)]
    return subprocess.Popen(command, cwd=folder, env=env, **options)


def shape(value: Any, path: str = "") -> dict[str, set[str]]:
    """Return the type of every leaf by its path; elements of a list share a path, as do the packages of `versions`."""
    shapes: dict[str, set[str]] = {}
    if isinstance(value, dict) and value:
        for key, part in value.items():
            name = "*" if path.rpartition(".")[2] == "versions" else key
            _merge(shapes, shape(part, f"{path}.{name}" if path else name))
    elif isinstance(value, list) and value:
        for part in value:
            _merge(shapes, shape(part, f"{path}[]"))
    else:
        shapes[path] = {_type(value)}
    return shapes


def _merge(shapes: dict[str, set[str]], more: Mapping[str, set[str]]) -> None:
    for path, types in more.items():
        shapes.setdefault(path, set()).update(types)


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names[type(value)]


def selected(value: Any, paths: Sequence[str]) -> dict[str, Any]:
    """Return the parts of a document at dotted paths; `[]` is every element of a list."""
    return {path: _part(value, path.replace("[]", ".[]").split(".")) for path in paths}


def _part(value: Any, keys: Sequence[str]) -> Any:
    if not keys:
        return value
    if keys[0] == "[]":
        return [_part(each, keys[1:]) for each in value]
    return _part(value[keys[0]], keys[1:])


def differences(ours: Any, frozen: Any, path: str = "", tolerance: float = 1e-4, may_grow: bool = False) -> list[str]:
    """Return where two JSON values differ, numbers by more than the tolerance; keys may be added if it `may_grow`."""
    more = (tolerance, may_grow)
    if isinstance(ours, dict) and isinstance(frozen, dict):
        keys = sorted(frozen if may_grow else {*ours, *frozen})
        lacking = [f"{path}.{key}: only in one of both" for key in keys if (key in ours) != (key in frozen)]
        shared = [key for key in keys if key in ours and key in frozen]
        return lacking + [
            line for key in shared for line in differences(ours[key], frozen[key], f"{path}.{key}", *more)
        ]
    if isinstance(ours, list) and isinstance(frozen, list) and len(ours) == len(frozen):
        pairs = enumerate(zip(ours, frozen, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{path}[{place}]", *more)]
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (ours, frozen))
    same = abs(ours - frozen) <= tolerance if numbers else ours == frozen
    return [] if same else [f"{path}: {ours!r}, frozen as {frozen!r}"]


def lines_of(path: Path) -> list[Any]:
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- files written by the frozen code, as this machine would have written them ---------------------------------


def installed(frozen: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the same packages that are installed here; one that is not is left out, as biorag does."""
    versions = {}
    for package in frozen:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def localised(value: Any, folder: Path) -> Any:
    """Return JSON values with this machine's versions and with `folder` in place of its placeholder."""
    if isinstance(value, dict):
        return {
            key: installed(part) if key == "versions" and isinstance(part, dict) else localised(part, folder)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [localised(part, folder) for part in value]
    return value.replace(FOLDER, str(folder)) if isinstance(value, str) else value


def copied(name: str, folder: Path) -> Path:
    """Copy a part of `files/` into a folder; its JSON files get this machine's versions and paths, if they hold any.

    All other bytes stay as they are.
    """
    source, target = FILES / name, folder / Path(name).name
    if source.is_file():
        shutil.copyfile(source, target)
    else:
        shutil.copytree(source, target)
    for path in [target] if target.is_file() else target.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json" and ('"versions"' in text or FOLDER in text):
            path.write_text(json.dumps(localised(json.loads(text), folder)), encoding="utf-8")
    return target


def content_hash(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- a language model on a loopback port -------------------------------------------------------------------------


class LanguageModel:
    """An OpenAI-compatible server whose replies depend on the request alone; it holds back after `limit` of them."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit, self.replies = limit, 0
        self._open = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop."""
        self._open.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(model) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if model.limit is not None and model.replies >= model.limit:
                    model._open.wait()
                    return
                model.replies += 1
                message = {"role": "assistant", "content": _reply(body)}
                usage = {"prompt_tokens": 100, "completion_tokens": 7}
                reply = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
                text = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        return Handler


def _reply(body: Mapping[str, Any]) -> str:
    """Return a JSON object with the fields of the request's schema, of words of the prompt, its seed and its hash."""
    schema = body["response_format"]["json_schema"]["schema"]
    user, seed = body["messages"][1]["content"], body.get("seed", 0)
    number = int(hashlib.sha256(f"{seed} {user}".encode()).hexdigest()[:8], 16)
    about = next(line for line in user.splitlines() if len(line.split()) > 3)[:60]
    texts = {
        "question": f"What is known about {about} ({number})?",
        "scenarios": [f"Given drug {number}, find effect {place}." for place in range(10)],
        "query": f"What of {about} in case {number}?",
        "positive": f"A passage on {about} that answers it by {number}.",
        "hard_negative": f"Other words avoid {about}, of which {number} say nothing.",
        "passage": f"A passage on {about} that does not answer it, of {number}.",
        "instruction": f"Find what treats it {number % 7}.",
        "step_by_step_thinking": f"The documents speak of {about}.",
        "relevant_context": "YES",
        "answer": f"It is {about}.",
        "citations": [1],
    }
    choices = schema["properties"].get("answer_choice", {}).get("enum", ["A"])
    texts["answer_choice"] = choices[number % len(choices)]
    return json.dumps({name: texts[name] for name in schema["properties"]})
