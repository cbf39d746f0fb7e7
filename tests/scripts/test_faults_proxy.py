"""Servers that fail, in small: what goes through a proxy that fails many requests arrives, and once."""

from __future__ import annotations

from contextlib import closing

import pytest

from biorag.types import Snippet
from scripts.faults.proxy import KINDS, FaultProxy, ask_through, index_through, repeating
from tests.conftest import write_medrag
from tests.loopback import Script
from tests.qdrant_standin import StandIn

pytestmark = [pytest.mark.faults, pytest.mark.long]


class Failing(FaultProxy):
    """Fails every other request, each way in turn."""

    def draw(self) -> str | None:
        with self._turn:
            self.requests += 1
            if self.requests % 2 == 0:
                return None
            kind = list(KINDS)[sum(self.faults.values()) % len(KINDS)]
            self.faults[kind] += 1
            return kind


def test_every_snippet_arrives_once_through_faults_of_every_kind(tmp_path):
    corpus = write_medrag(tmp_path / "c.jsonl", [Snippet(f"s{n}", f"T{n}", f"text number {n}.") for n in range(300)])
    server = StandIn()
    with closing(server), closing(Failing(server.url, delay=1.5)) as proxy:
        found = index_through(proxy, corpus, name="faults", timeout=1, batch_size=100, retries=20)
    assert {found[key] for key in ("snippets", "added", "points")} == {300}
    assert (found["missing"], found["twice"], found["wrong"]) == (0, 0, 0)
    assert found["faults"].keys() == KINDS.keys()


def test_every_reply_arrives_through_faults_of_every_kind():
    script = Script()
    script.rule = repeating
    with closing(script), closing(Failing(script.url, delay=1.5)) as proxy:
        found = ask_through(proxy, 20, timeout=0.3, retries=20)
    assert (found["replies"], found["right"]) == (20, 20)
    assert found["faults"].keys() == KINDS.keys()
