"""One question by every way there is: the same answer, citations and verdicts."""

from __future__ import annotations

import html
import json
import os
import re
import sys

import anyio
import httpx
import pytest

import biorag
from biorag.utils.files import json_text
from tests.cli import done, invoke
from tests.faces.server.conftest import QUESTION, serving

openai = pytest.importorskip("openai", reason="the package openai is not installed")
mcp = pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
stdio = pytest.importorskip("mcp.client.stdio", reason="the extra 'mcp' is not installed")


def written(document) -> str:
    """Return a document as `--json` writes it, but for the times."""
    return json_text({**document, "timings_ms": {}})


def asked_by_mcp(server):
    async def ask():
        async with mcp.Client(server) as client:
            document = (await client.call_tool("ask", {"question": QUESTION})).structured_content
            return {name: value for name, value in document.items() if name != "notice"}

    return anyio.run(ask)


def test_every_way_to_ask_gives_the_same_answer(demo_home, monkeypatch):
    printed = written(done(invoke("ask", QUESTION, "--name", "default", "--json", home=demo_home)))
    monkeypatch.setenv("BIORAG_HOME", str(demo_home))
    with biorag.open("default") as index:
        answer = index.ask(QUESTION)
    words = ["-m", "biorag", "mcp", "--name", "default"]
    process = stdio.StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    with serving(demo_home) as served:
        ways = {
            "Python": json.loads(json.dumps(answer.to_json())),
            "API": httpx.post(f"{served.url}api/ask", json={"question": QUESTION}, timeout=240).json(),
            "MCP over HTTP": asked_by_mcp(f"{served.url}mcp"),
            "MCP over stdio": asked_by_mcp(process),
        }
        client = openai.OpenAI(base_url=f"{served.url}v1", api_key="unused", max_retries=0)
        message = {"role": "user", "content": QUESTION}
        completion = client.chat.completions.create(model="biorag/default", messages=[message])
        ways["OpenAI's client"] = completion.model_extra["biorag"]
        page = httpx.post(f"{served.url}ask", data={"question": QUESTION}, timeout=240, follow_redirects=True).text
    for way, document in ways.items():
        assert written(document) == printed, way
    assert completion.choices[0].message.content.startswith(f"{answer}\n\nReferences:\n[1] ")
    shown = " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())
    for sentence in answer.sentences:
        assert sentence.text in shown
    for citation in answer.citations:
        assert citation.quote in shown and citation.title in shown
