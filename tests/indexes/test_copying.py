"""Copies of an index in other stores: the same hits, resumed where a run was killed, nothing replaced."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from biorag.indexes.edge import EdgeIndex
from biorag.indexes.server import ServerIndex
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag
from tests.qdrant_standin import StandIn

pytestmark = pytest.mark.models
QUERIES = ("vitamin K recycling", "What lowers fever?", "glucose in the liver")


@pytest.fixture
def server():
    with closing(StandIn()) as made:
        yield made


@pytest.fixture
def run(tmp_path, snippets, tiny_encoder):
    """Run a command in a home whose index `near` keeps the token vectors of twelve snippets."""
    run = partial(invoke, home=tmp_path / "home")
    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets)
    succeeded(run("index", corpus, "--encoder", tiny_encoder, "--name", "near"))
    return run


def hits(run, name: str, *more: str) -> list[list[tuple[str, float]]]:
    found = (done(run("search", query, "--name", name, "--json", "-k", "5", *more)) for query in QUERIES)
    return [[(hit["id"], round(hit["score"], 3)) for hit in one["hits"]] for one in found]


def test_a_copy_on_a_server_and_one_of_that_find_the_same(run, server):
    copied = done(run("indexes", "copy", "near", "far", "--qdrant", server.url, "--json"))
    assert (copied["name"], copied["snippets"], copied["store"]["url"]) == ("far", 12, server.url)
    succeeded(run("indexes", "copy", "far", "back"))
    for more in ((), ("--mode", "bm25", "--no-rerank"), ("--mode", "dense", "--no-rerank")):
        near = hits(run, "near", *more)
        assert [[id for id, _ in one] for one in hits(run, "far", *more)] == [[id for id, _ in one] for one in near]
        assert hits(run, "back", *more) == near
    failed(run("indexes", "copy", "near", "back"), 2, "index 'back' exists already")
    failed(run("indexes", "copy", "near", "near"), 2, "a copy needs another name")
    failed(run("indexes", "copy", "gone", "other"), 4, "'gone'")


@pytest.mark.faults
def test_a_killed_copy_of_an_index_that_has_lost_snippets_since_is_completed(run, tmp_path, snippets, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(EdgeIndex, "optimize", lambda index: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("indexes", "copy", "near", "copy").exit_code != 0
    write_medrag(tmp_path / "corpus.jsonl", snippets[:7])
    succeeded(run("index", tmp_path / "corpus.jsonl", "--name", "near", "--yes"))
    assert done(run("indexes", "copy", "near", "copy", "--json"))["snippets"] == 7
    assert hits(run, "copy") == hits(run, "near")


@pytest.mark.faults
@pytest.mark.parametrize("kind", [EdgeIndex, ServerIndex])
@pytest.mark.parametrize("calls", range(4))
def test_a_copy_that_was_killed_is_completed(run, server, monkeypatch, kind, calls):
    monkeypatch.setattr("biorag.indexes.copying.SNIPPETS", 3)
    more = ("--qdrant", server.url) if kind is ServerIndex else ()
    upsert, left = kind.upsert, iter(range(calls))

    def killed(index, *batch):
        if next(left, None) is None:
            raise KeyboardInterrupt
        upsert(index, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "upsert", killed)
        assert run("indexes", "copy", "near", "copy", *more).exit_code != 0
    written = []
    monkeypatch.setattr(kind, "upsert", lambda index, *batch: (written.extend(batch[0]), upsert(index, *batch)))
    succeeded(run("indexes", "copy", "near", "copy", *more))
    assert len(written) == 12 - 3 * calls, "what was copied is not copied again"
    assert [[id for id, _ in one] for one in hits(run, "copy")] == [[id for id, _ in one] for one in hits(run, "near")]
