"""Which bytes go where: commands of biorag between a recording proxy and recording hosts.

    PYTHONPATH=. python -m scripts.attacks.recorded_hosts [--only PART]

Names like llm.example are reached only through the proxy, so that it sees all that leaves the machine. For each attack
the hosts that were reached, what was said of them, and which secrets stood where they must not; exit code 1 if any
attack succeeded.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.qdrant_standin import StandIn

QUESTION = "Does aspirin lower fever, canaryquestion?"
SNIPPETS = ("Aspirin lowers fever and relieves pain.", "Warfarin thins the blood.", "Metformin lowers glucose.")
LLM, OTHER, QDRANT = "llm.example", "other.example", "qdrant.example"
KEYS = {
    "BIORAG_LLM_API_KEY": "canary-llm-key",
    "QDRANT_API_KEY": "canary-qdrant-key",
    "NCBI_API_KEY": "canary-ncbi-key",
}
LOGIN = "canary-user:canary-password"
PROXY_LOGIN = "proxy-user:canary-proxy-password"
SECRETS = (*KEYS.values(), LOGIN, LOGIN.partition(":")[2], PROXY_LOGIN)
SPELLINGS = tuple(
    text for secret in SECRETS for text in (secret, base64.b64encode(secret.encode()).decode().rstrip("="))
)
CREDENTIALS = (*KEYS.values(), LOGIN, base64.b64encode(LOGIN.encode()).decode())  # as requests have them


UNTRUSTED = f"""
llm = "http://{OTHER}/v1"
llm_model = "evil"
qdrant = "http://{OTHER}:6333"
encoder = "evil/encoder"
home = "stolen"
"""


class Sent(NamedTuple):
    """A request: the host it was for, its headers and its body."""

    host: str
    head: str
    body: bytes

    @property
    def text(self) -> str:
        """All of it."""
        return self.head + self.body.decode("utf-8", "replace")


class Recorder:
    """A server on a loopback port that keeps what it is sent.

    For a host in `names` it passes requests on, as a proxy; its own requests it answers by `answer`, from the path and
    the headers: a status, headers and a JSON value.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.sent: list[Sent] = []
        self.names = dict(names or {})
        self.answer: Callable[[str, Mapping[str, str]], tuple[int, Mapping[str, str], Any]] = completion
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def reached(self) -> set[str]:
        """Return the hosts that something was sent to."""
        return {sent.host for sent in self.sent}

    def _handler(recorder) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = urlsplit(self.path)
                host = self.path.partition(":")[0] if self.command == "CONNECT" else parts.hostname or "loopback"
                recorder.sent.append(Sent(host, f"{self.command} {self.path}\n{self.headers}", body))
                if parts.hostname:
                    self._send(*recorder._passed_on(self.command, parts.hostname, parts.path, dict(self.headers), body))
                else:
                    status, headers, value = recorder.answer(parts.path, dict(self.headers))
                    self._send(status, headers, json.dumps(value).encode())

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = _serve  # noqa: N815

            def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler

    def _passed_on(
        self, method: str, host: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        if host not in self.names:
            return 502, {}, b"{}"
        with closing(HTTPConnection(urlsplit(self.names[host]).netloc)) as connection:
            connection.request(method, path, body, {**headers, "Connection": "close"})
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() in ("location", "x-echo")}
            return answer.status, kept, answer.read()


def completion(path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], Any]:
    """Answer as an OpenAI-compatible server does."""
    content = json.dumps({"answer": "canary", "citations": [1], "answer_choice": "A", "question": "q"})
    return 200, {}, {"data": [{"id": "m"}], "choices": [{"message": {"role": "assistant", "content": content}}]}


def echoed(status: int) -> Callable[[str, Mapping[str, str]], tuple[int, Mapping[str, str], Any]]:
    """Return an answer that repeats the credentials of the request, in a header and in the body."""

    def answer(path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], Any]:
        names = ("Authorization", "authorization", "api-key", "Api-Key")
        sent = " ".join(headers[name] for name in names if name in headers)
        reply = {"choices": [{"message": {"role": "assistant", "content": f'{{"answer": "{sent}"}}'}}]}
        return status, {"X-Echo": sent}, {"error": sent, **(reply if status == 200 else {})}

    return answer


def redirected(path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], Any]:
    """Answer that all of it is elsewhere."""
    return 307, {"Location": f"http://{OTHER}{path}"}, {}


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    stdout: str
    stderr: str


Run = Callable[[Sequence[str], Path, Mapping[str, str]], Ended]


def in_a_process(arguments: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Ended:
    """Run a command in a folder, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "biorag", *arguments],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=600, input="",
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@dataclass(frozen=True, slots=True)
class Attack:
    """A command, what it is given, and where its bytes may go: secrets and questions to `may` alone."""

    name: str
    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    file: str = ""  # the biorag.toml of the current folder, which nothing may read
    may: frozenset[str] = frozenset()
    must: frozenset[str] = frozenset()  # hosts without which the attack shows nothing
    keys: Mapping[str, str] = field(default_factory=dict)  # the host that a key may stand at
    says: str = ""  # what stderr must have
    answer: Callable[[str, Mapping[str, str]], tuple[int, Mapping[str, str], Any]] = completion


class Range:
    """A home with indexes, a proxy, hosts, and what runs commands between them."""

    def __init__(self, root: Path, run: Run, encoder: str = "starter") -> None:
        self._root, self._run = root, run
        self.host, self._store = Recorder(), StandIn()
        self.proxy = Recorder({LLM: self.host.url, OTHER: self.host.url, QDRANT: self._store.url})
        self.home, self.folder = root / "home", root / "folder"
        self.folder.mkdir()
        self._make(encoder)

    def close(self) -> None:
        """Stop listening."""
        for server in (self.host, self.proxy, self._store):
            server.close()

    def _make(self, encoder: str) -> None:
        """Index something here and on the server, and copy the index with manifests that name other places."""
        corpus = self._root / "corpus.jsonl"
        rows = [{"id": f"s{n}", "title": "", "content": text, "PMID": n + 1} for n, text in enumerate(SNIPPETS)]
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for name, place in (("mine", []), ("remote", ["--qdrant", f"http://{QDRANT}:6333"])):
            ended = self._run(
                ["index", str(corpus), "--encoder", encoder, "--name", name, *place], self._root, self.variables()
            )
            assert ended.code == 0, ended
        copied = self.home / "indexes" / "evil-encoder"
        shutil.copytree(self.home / "indexes" / "mine", copied)
        manifest = json.loads((copied / "manifest.json").read_text())
        manifest |= {"name": copied.name, "encoder": manifest["encoder"] | {"id": "evil/encoder", "revision": "main"}}
        (copied / "manifest.json").write_text(json.dumps(manifest))
        (self._root / "dataset" / "qrels").mkdir(parents=True)
        (self._root / "dataset" / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": QUESTION}) + "\n")
        (self._root / "dataset" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ts0\t1\n")

    def variables(self) -> dict[str, str]:
        """Return the environment of all commands."""
        proxy = self.proxy.url.replace("://", f"://{PROXY_LOGIN}@")
        proxies = {name: proxy for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")}
        home = {
            "BIORAG_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self._root / "config"),
            "NO_PROXY": "",
            "no_proxy": "",
        }
        return {
            **home,
            **proxies,
            "BIORAG_RETRIES": "0",
            "BIORAG_TIMEOUT": "20",
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_ETAG_TIMEOUT": "1",
        }

    def faults(self, attack: Attack) -> tuple[Ended, list[str]]:
        """Run an attack; return how it ended, and what went wrong."""
        self.proxy.sent.clear()
        self.host.sent.clear()
        self.host.answer = attack.answer
        (self.folder / "biorag.toml").write_text(attack.file)
        ended = self._run(attack.arguments, self.folder, {**self.variables(), **attack.variables})
        return ended, list(self._faults(attack, ended))

    def _faults(self, attack: Attack, ended: Ended) -> Iterator[str]:
        reached = self.proxy.reached() | ({"loopback"} if self._direct() else set())
        yield from (f"{host} was reached" for host in self.proxy.reached() - attack.may)
        yield from (f"{host} was not reached" for host in attack.must - reached)
        for host in self.proxy.reached() & attack.may:
            if f"go to {host}" not in ended.stderr:
                yield f"it was not said that {host} is reached"
        for secret in CREDENTIALS:
            hosts = {sent.host for sent in self.proxy.sent if secret in sent.text}
            yield from (f"{secret} was sent to {host}" for host in hosts - {attack.keys.get(secret)})
        yield from (f"{text} was shown" for text in SPELLINGS if text in ended.stdout + ended.stderr)
        if "Traceback" in ended.stderr and "--debug" not in attack.arguments:
            yield "a traceback was shown"
        if attack.says not in ended.stderr:
            yield f"it was not said: {attack.says}"
        if (self.folder / "stolen").exists():
            yield "the home of an untrusted file was used"

    def _direct(self) -> bool:
        """Return whether the host was reached otherwise than through the proxy."""
        return len(self.host.sent) > sum(sent.host in (LLM, OTHER) for sent in self.proxy.sent)


def attacks(root: Path, host: str) -> dict[str, list[Attack]]:
    """Return the attacks by part; `host` is the URL of a host on loopback."""
    config = root / "named.toml"
    config.write_text(f'llm = "http://{LLM}/v1"\nllm_model = "m"\nllm_api_key = "{KEYS["BIORAG_LLM_API_KEY"]}"\n')
    ask = ["ask", QUESTION, "--name", "mine", "--llm-model", "m", "--no-cache", "--answer-anyway", "--json"]
    key, llm, llm_v1 = KEYS["BIORAG_LLM_API_KEY"], frozenset({LLM}), f"http://{LLM}/v1"
    with_login = llm_v1.replace("://", f"://{LOGIN}@")
    basic = base64.b64encode(LOGIN.encode()).decode()
    only, other = {"may": llm, "must": llm}, {"may": frozenset({OTHER}), "must": frozenset({OTHER})}
    return {
        "untrusted folder": [
            Attack("search", ["search", QUESTION, "--name", "mine", "--json"], KEYS, UNTRUSTED),
            Attack("ask", ["ask", QUESTION, "--name", "mine", "--json"], KEYS, UNTRUSTED),
            Attack("info", ["info", "mine", "--json"], KEYS, UNTRUSTED),
        ],
        "copied manifest": [
            Attack("hub", ["search", QUESTION, "--name", "evil-encoder"], KEYS, says="not on this machine")
        ],
        "keys": [
            Attack("the flag's", [*ask, "--llm", llm_v1], KEYS, keys={key: LLM}, **only),
            Attack("the file's", ["--config", str(config), *ask], keys={key: LLM}, **only),
            Attack("another flag, key of a file", ["--config", str(config), *ask, "--llm", f"http://{OTHER}/v1"],
                   **other, says=f"is not sent to {OTHER}"),
            Attack("another flag, key of the environment", [*ask, "--llm", f"http://{OTHER}/v1"],
                   {**KEYS, "BIORAG_LLM": llm_v1}, **other, says="is not sent to"),
            Attack("a login", [*ask, "--llm", with_login], keys={basic: LLM}, **only),
            Attack("the host of a redirect", [*ask, "--llm", llm_v1], KEYS, keys={key: LLM}, answer=redirected, **only),
            Attack("the index's server", ["search", QUESTION, "--name", "remote"], KEYS, may=frozenset({QDRANT}),
                   must=frozenset({QDRANT}), keys={KEYS["QDRANT_API_KEY"]: QDRANT}),
            Attack("E-utilities", ["graph", "fill", "--name", "mine", "--eutils", f"http://{OTHER}/e"],
                   {**KEYS, "BIORAG_EUTILS": "https://eutils.ncbi.nlm.nih.gov/e"}, **other,
                   says=f"is not sent to {OTHER}"),
        ],
        "loopback": [
            Attack("a generator", [*ask, "--llm", f"{host}/v1"], KEYS, must=frozenset({"loopback"})),
            Attack("E-utilities", ["graph", "fill", "-n", "mine", "--eutils", host], must=frozenset({"loopback"})),
        ],
        "offline": [
            Attack("a variable's host", ["--offline", *ask], {**KEYS, "BIORAG_LLM": llm_v1}, says="offline: "),
            Attack("another port", ["--offline", "search", QUESTION, "--name", "remote", "--qdrant", f"http://{QDRANT}:6333"],
                   {"BIORAG_QDRANT": f"http://{QDRANT}:6334"}, says="offline: "),
        ],
        "echoes": [
            Attack(f"{status}{' '.join(debug)}", [*debug, *ask, "--llm", url], KEYS, keys={key: LLM, basic: LLM},
                   answer=echoed(status), **only)
            for status in (200, 400, 401, 500)
            for debug in ([], ["--debug"])
            for url in (llm_v1, with_login)
        ],
    }  # fmt: skip


def main() -> None:
    """Run all attacks, or those of one part, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="copied manifest, keys, loopback, offline or echoes")
    asked = parser.parse_args().only
    succeeded = 0
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        place = Path(root)
        shooting = stack.enter_context(closing(Range(place, in_a_process)))
        (place / "out").mkdir()
        for part, of_part in attacks(place, shooting.host.url).items():
            for attack in of_part if asked in (None, part) else ():
                ended, faults = shooting.faults(attack)
                succeeded += bool(faults)
                sent = shooting.proxy.sent
                reached = {
                    host: sum(len(to.text) for to in sent if to.host == host) for host in {to.host for to in sent}
                }
                row = {"part": part, "attack": attack.name, "exit": ended.code, "bytes": reached, "faults": faults}
                sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()
                sys.stderr.write(ended.stderr[-2000:] if faults else "")
    sys.exit(1 if succeeded else 0)


if __name__ == "__main__":
    main()
