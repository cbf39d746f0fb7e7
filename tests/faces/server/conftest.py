"""An open session on the demonstration index, applications over it, and a server in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from biorag.api.session import Session
from biorag.settings.sources import load_settings
from tests.cli import invoke, succeeded
from tests.conftest import write_medrag
from tests.faces.server.studies import STUDIES

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from starlette.testclient import TestClient

from biorag.faces.server.app import create_app
from biorag.faces.server.options import ServeOptions

QUESTION = "Why is pyridoxine given together with isoniazid?"
BASE = "http://127.0.0.1:8765"
ROOT = Path(__file__).resolve().parents[3]
SECONDS = 240


@pytest.fixture(scope="session")
def demo_home(demo_home, tmp_path_factory) -> Path:
    """A home with the demonstration corpus, and studies that are made up, as `inhalers`."""
    home = shutil.copytree(demo_home, tmp_path_factory.mktemp("served") / "home", symlinks=True)
    studies = write_medrag(home / "studies.jsonl", STUDIES)
    succeeded(invoke("index", studies, "--name", "inhalers", "--store-tokens", "full", home=home))
    return home


@pytest.fixture(scope="session")
def session(demo_home) -> Iterator[Session]:
    with Session(load_settings({"home": demo_home, "name": "default"}, None), eager=True) as opened:
        yield opened


@pytest.fixture
def client(session) -> Iterator[TestClient]:
    with client_of(session) as made:
        yield made


def client_of(session: Session, token: str | None = None, **limits) -> TestClient:
    """Return a client of an application, as curl is one: without the headers of browsers."""
    options = ServeOptions(token=token, **{"rate": 0, **limits})
    return TestClient(create_app(session, options), base_url=BASE, follow_redirects=False)


class Served:
    """`biorag serve` in a process of its own, at `url`."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str], url: str) -> None:
        self.process, self.lines, self.url = process, lines, url
        self.port = int(url.rstrip("/").rsplit(":", 1)[1])

    def end(self, sent: int = signal.SIGINT) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(sent)
        return self.process.wait(SECONDS)


@contextmanager
def serving(home: Path, *arguments: object, name: str | None = "default", **variables: str) -> Iterator[Served]:
    """Run `biorag serve` on a free port until the end, over one index, or without a name over all of the home."""
    words = ["serve", *(["--name", name] if name else []), "--port", "0", *map(str, arguments)]
    environment = {**os.environ, "BIORAG_HOME": str(home), "PYTHONPATH": str(ROOT), **variables}
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from biorag.cli import main; main()"
    )
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-c", code, *words], text=True, env=environment, **pipes)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True)
    reader.start()
    try:
        yield Served(process, lines, _address(process, lines))
    finally:
        process.kill()
        process.wait()
        reader.join(5)
        process.stderr.close()


def _address(process: subprocess.Popen[str], lines: list[str]) -> str:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if address := re.search(r"ready at (http://\S+)", "".join(lines)):
            return address[1]
        assert process.poll() is None, lines
        time.sleep(0.02)
    raise AssertionError(f"the server does not get ready: {lines}")
