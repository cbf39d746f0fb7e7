"""What a Qdrant server 1.18.3 answered (`data/qdrant`), against the stand-in, and against the sentences of refusals."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import closing
from itertools import cycle, islice

import httpx
import pytest

from biorag.errors import MissingError, ServiceError
from tests.indexes.test_collection import opened
from tests.qdrant_standin import StandIn

# What no stand-in has to tell: other nodes, times and sizes, and what biorag does not set or read.
UNTOLD = {"time", "peers", "message_send_failures", "consensus_thread_status", "role", "peer_id", "commit", "leader",
          "update_queue", "strict_mode_config", "read_fan_out_delay_ms", "on_disk_payload", "remote_shards",
          "local_shards", "shard_transfers", "next_page_offset", "operation_id"}  # fmt: skip
BY_FACT = {"result.config.optimizer_config", "result.config.hnsw_config.on_disk", "result.payload_schema"}

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact", "ignore:Payload indexes have no effect")


@pytest.fixture
def recorded(shared_data):
    """Give the exchanges of each file, in order."""
    folder = shared_data / "qdrant"
    if not folder.is_dir():
        pytest.skip(f"no recorded exchanges in {folder}")
    read = {path: path.read_bytes() for path in sorted(folder.glob("*.jsonl*"))}
    texts = {path: gzip.decompress(data) if path.suffix == ".gz" else data for path, data in read.items()}
    return {path.name: [json.loads(line) for line in text.splitlines()] for path, text in texts.items()}


@pytest.fixture
def server():
    made = StandIn()
    yield made
    made.close()


def cut(value) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return '"cut":' in text or "\u2026" in text


def filled(value):
    """Return a value with cut vectors as long as they were, of other numbers."""
    if isinstance(value, dict):
        return {key: filled(part) for key, part in value.items()}
    if isinstance(value, list) and value and str(value[-1]).endswith(" numbers"):
        return [*islice(cycle(value[:-1]), int(value[-1].split()[1]))]
    return [*map(filled, value)] if isinstance(value, list) else value


def missing(told, answered, path=""):
    """Yield what the server told and the stand-in does not: keys, and values of another kind."""
    if isinstance(told, dict) and isinstance(answered, dict):
        for key, value in told.items():
            place = f"{path}.{key}".lstrip(".")
            if key in UNTOLD or value is None or place in BY_FACT:
                continue
            yield from missing(value, answered[key], place) if key in answered else [place]
    elif isinstance(told, list) and isinstance(answered, list):
        for one, other in zip(told, answered, strict=False):
            yield from missing(one, other, f"{path}[]")
    elif not isinstance(answered, (int, float) if isinstance(told, (int, float)) else type(told)):
        yield f"{path}: {answered!r} for {told!r}"


def test_the_stand_in_answers_as_the_server_did(recorded):
    replayed: Counter[str] = Counter()
    for name, rows in recorded.items():
        server = StandIn()
        server.strict = name.startswith("strict")
        with closing(server), httpx.Client(base_url=server.url) as client:
            replayed += replay(client, name, rows, server.strict)
    assert replayed["by status"] > 600 and replayed["points"] > 10, replayed


def replay(client: httpx.Client, name: str, rows: list[dict], strict: bool) -> Counter[str]:
    """Send what was recorded whole, and compare status and shape, and the payloads of points that were sent."""
    replayed: Counter[str] = Counter()
    for number, row in enumerate(rows):
        sent = filled(row.get("sent"))
        compared_as_text = not strict and '"phrase"' in json.dumps(sent)  # biorag makes the index of words before
        refused = row.get("status", 200) >= 400 and not strict  # by what a stand-in has not: keys, rates, dead nodes
        if cut(sent) or refused or compared_as_text or "method" not in row or row["path"] == "/":
            continue
        got = client.request(row["method"], row["path"], json=sent)
        place = f"{name}:{number} {row['method']} {row['path']}"
        assert got.status_code == row["status"], place
        replayed["by status"] += 1
        if row["status"] >= 400:
            assert got.json()["status"] == row["reply"]["status"], place
        elif not cut(row["reply"]):
            assert not [*missing(row["reply"], got.json())], place
            told, answered = payloads(row["reply"]["result"]), payloads(got.json()["result"])
            common = told.keys() & answered.keys()
            assert all(told[id] == answered[id] for id in common), place
            replayed["points"] += len(common)
    return replayed


def payloads(result) -> dict:
    """Return the payloads of the points in a reply, by id."""
    if isinstance(result, dict):
        result = result.get("points", [])
    points = [one for one in result if "payload" in one] if isinstance(result, list) else []
    return {point["id"]: point["payload"] for point in points}


def test_every_refusal_that_a_real_server_gave_is_one_sentence(server, recorded):
    rows = [row for rows in recorded.values() for row in rows]
    refused = {(row["status"], json.dumps(row["reply"])) for row in rows if row.get("status", 200) >= 400}
    assert len(refused) > 10
    with closing(opened(server)) as index:
        for status, reply in sorted(refused):
            told = (status, json.loads(reply))
            server.refuse = lambda method, path, told=told: told
            with pytest.raises((ServiceError, MissingError)) as caught:
                index.count()
            sentence = str(caught.value)
            assert "{" not in sentence and "\n" not in sentence and "Os {" not in sentence, sentence
            assert "refused: 4" not in sentence, "its reason, not its status"
