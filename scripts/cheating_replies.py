"""How many cheating replies of a generator `biorag ask` lets through: sentences that no snippet says, yet supported.

    biorag index demo --name demo
    python -m scripts.cheating_replies [--home HOME] [--replies FILE]

A server on a loopback port gives each reply of FILE, by default `cheating_replies.jsonl`, to its question; `{n}` in it
is the number of the case's snippet in the prompt, `{m}` that of another document. A case is flagged if none of its
`false` sentences comes back as supported. One that is `mended` is true but cites another document: the right number
will do as well. A case whose snippet is not in the prompt is invalid. HOME, by default that of biorag, is copied.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from biorag.cli import app
from biorag.corpus.sources import demo_file
from biorag.settings.settings import Settings

NOT_SAID = re.compile(r"【[^】]*】|\[\d+\]|\((?:document )?\d+\)|\^\d+|\W")  # marks, spaces and punctuation
DOCUMENT = re.compile(r'<document n="(\d+)">\n(.*)\n')


class CheatingServer(HTTPServer):
    """An OpenAI-compatible server that gives the reply of `case`; `filled` is the case with its numbers, if valid."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._ids = {snippet["title"]: snippet["id"] for snippet in _rows(demo_file("snippets.jsonl"))}
        self.case: dict[str, Any] = {}
        self.filled: dict[str, Any] | None = None

    def reply(self, prompt: str) -> str:
        """Return the reply, its numbers filled in from the documents of the prompt."""
        numbers = {self._ids[title]: number for number, title in DOCUMENT.findall(prompt)}
        own = numbers.pop(self.case["snippet"], None)
        if own is None:
            return json.dumps({"answer": "", "citations": [1]})
        other = next(iter(numbers.values()))
        self.filled = case = json.loads(json.dumps(self.case).replace("{n}", own).replace("{m}", other))
        return json.dumps({**case["reply"], "citations": [int(number) for number in case["reply"]["citations"]]})


class _Handler(BaseHTTPRequestHandler):
    server: CheatingServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = self.server.reply("\n".join(message["content"] for message in body["messages"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


def let_through(case: dict[str, Any], answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sentences of the answer that the case's false ones came back as, where all parts are supported."""
    found = []
    for false in map(_bare, case["false"]):
        shown = [s for s in answer["sentences"] if (bare := _bare(s["text"])) and (bare in false or false in bare)]
        cited = {answer["hits"][number - 1]["id"] for sentence in shown for number in sentence["citations"]}
        mended = case.get("mended") and cited == {case["snippet"]}
        if not mended and all(sentence["verdict"] == "supported" for sentence in shown):
            found += shown
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _bare(text: str) -> str:
    return NOT_SAID.sub("", text).casefold()


def main() -> None:
    """Print the counts by kind, then what was let through."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Settings().home, help="the home with the index demo")
    replies = Path(__file__).with_suffix(".jsonl")
    parser.add_argument("--replies", type=Path, default=replies, help="the replies, one case to a line")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, CheatingServer() as server:
        shutil.copytree(args.home / "indexes" / "demo", Path(home, "indexes", "demo"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        options = ["--name", "demo", "--llm", url, "--llm-model", "m", "--no-cache", "--answer-anyway", "--json"]
        asked, flagged, details = Counter[str](), Counter[str](), []
        for case in _rows(args.replies):
            server.case, server.filled = case, None
            result = CliRunner().invoke(app, ["ask", case["question"], *options], env={"BIORAG_HOME": home})
            if result.exit_code or server.filled is None:
                details.append(f"{case['id']} is invalid: {result.stderr or 'its snippet is not in the prompt'}")
                continue
            found = let_through(server.filled, json.loads(result.stdout))
            asked[case["kind"]] += 1
            flagged[case["kind"]] += not found
            for sentence in found:
                quotes = [f"\n    by {span['id']}: {span['quote']}" for span in sentence["evidence"]]
                details.append(f"{case['id']} ({case['kind']}): {sentence['text']}{''.join(quotes)}")
        server.shutdown()
    counts = [*((kind, asked[kind], flagged[kind]) for kind in asked), ("all", asked.total(), flagged.total())]
    table = [f"{kind:20}{cases:>6}{caught:>9}" for kind, cases, caught in [("kind", "cases", "flagged"), *counts]]
    sys.stdout.write("\n".join([*table, "", *details, ""]))


if __name__ == "__main__":
    main()
