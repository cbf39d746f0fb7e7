"""Documents that an interrupted run leaves half written: the index is incomplete, and names them."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from pathlib import Path

import pytest

from biorag.errors import ServiceError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.progress import PROGRESS, read_progress
from biorag.indexes.store import Store
from biorag.types import Snippet
from tests.cli import invoke
from tests.indexes.test_pubmed import BLOCKS, bring, held, numbered
from tests.pubmed_records import article, deletions, file_of

pytestmark = pytest.mark.slow

OTHER = {"id": "other", "content": "Another corpus."}


class KilledError(ServiceError):
    """Stands for a kill."""


@contextmanager
def killed(name: str, at: int = 1, after: bool = True, half: bool = False):
    """The engine's write `name` number `at` is the last thing that happens: done, half done, or not."""
    calls, original = 0, getattr(EdgeIndex, name)

    def call(index, *arguments):
        nonlocal calls
        calls += 1
        if calls == at and half:
            snippets, vectors, tokens, _ = arguments
            original(index, snippets[::2], vectors[::2], tokens[::2])
        elif calls < at or after:
            original(index, *arguments)
        if calls == at:
            raise KilledError(name)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(EdgeIndex, name, call)
        yield


def lines(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def torn(settings) -> set[str]:
    return set(read_progress(Store(settings).folder).torn or ())


@pytest.fixture
def other(tmp_path) -> Path:
    return lines(tmp_path / "other.jsonl", OTHER)


def version(tmp_path: Path, name: str, words: int, word: str = "word") -> Path:
    """A corpus of two documents, one of them always short and the same."""
    return lines(
        tmp_path / name, {"id": "long", "content": numbered(words, word)}, {"id": "short", "content": "Short."}
    )


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (None, 20, {"name": "upsert", "half": True}),  # new, some blocks missing
        (20, 21, {"name": "upsert", "half": True}),  # some blocks old
        (20, 21, {"name": "upsert", "at": 1}),  # whole, but nothing tells
        (20, 9, {"name": "delete", "at": 1}),  # later blocks gone, nothing written
        (20, 3, {"name": "delete", "at": 2}),  # all gone, nothing written
        (3, 20, {"name": "delete", "at": 1}),
        (3, 20, {"name": "upsert", "half": True}),
        (3, 4, {"name": "upsert", "after": False}),  # one point, which the engine overwrites part by part
    ],
)
def test_a_run_over_another_corpus_leaves_torn_documents_named(settings, tmp_path, other, caplog, before, after, fault):
    if before:
        bring(settings, version(tmp_path, "before.jsonl", before, "old"), split=BLOCKS)
    corpus = version(tmp_path, "after.jsonl", after)
    with killed(**fault):
        bring(settings, corpus, split=BLOCKS)
    assert torn(settings) == {"long"}
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="biorag"):
            report = bring(settings, other, split=BLOCKS)
        assert (report.complete, report.torn) == (False, ("long",))
        assert not Store(settings).require_manifest().complete
        note = f"1 document is torn (long): index {corpus} again"
        assert [record.getMessage() for record in caplog.records] == [f"index 'test' stays incomplete: {note}"]
    report = bring(settings, corpus, split=BLOCKS)
    assert (report.complete, report.torn) == (True, ())
    assert Store(settings).require_manifest().complete
    assert not (Store(settings).folder / PROGRESS).exists()
    expected = {block.id: block.contents for block in BLOCKS(Snippet("long", "", numbered(after)))}
    assert held(settings) == {"other": "Another corpus.", "short": "Short.", **expected}


def test_any_corpus_with_the_whole_document_makes_it_whole(settings, tmp_path, other):
    with killed("upsert", half=True):
        bring(settings, version(tmp_path, "long.jsonl", 20), split=BLOCKS)
    bring(settings, other, split=BLOCKS)
    report = bring(settings, version(tmp_path, "shorter.jsonl", 2), split=BLOCKS)
    assert (report.complete, report.torn) == (True, ())
    assert held(settings) == {"long": "word0 word1", "other": "Another corpus.", "short": "Short."}
    assert not (Store(settings).folder / PROGRESS).exists()


def test_a_deletion_that_was_interrupted(settings, tmp_path, other):
    paths = [tmp_path / name for name in ("1.xml", "2.xml")]
    paths[0].write_bytes(file_of(article(1, "T.", numbered(20)), article(2, "Two.")))
    paths[1].write_bytes(file_of(deletions(1)))
    bring(settings, paths[0], split=BLOCKS)
    with killed("delete"):
        bring(settings, paths[1], split=BLOCKS)
    assert list(held(settings)) == ["1#0", "2"]
    assert bring(settings, paths[0], other, split=BLOCKS).torn == ("1",), "it was indexed before, and is skipped"
    assert bring(settings, paths[1], split=BLOCKS).complete
    assert list(held(settings)) == ["2", "other"]


def test_info_and_a_search_say_what_is_torn(settings, tmp_path, other):
    corpus = version(tmp_path, "long.jsonl", 20)
    with killed("upsert", half=True):
        bring(settings, corpus, split=BLOCKS)
    bring(settings, other, split=BLOCKS)
    note = f"index 'test' is incomplete: 1 document is torn (long): index {corpus} again"
    values = invoke("info", "test", "--json", home=settings.home)
    assert note in values.stderr
    shown = json.loads(values.stdout)
    assert (shown["complete"], shown["torn"], shown["deleted_share"]) == (False, ["long"], 0.0)
    found = invoke(
        "search", "another corpus", "--name", "test", "--mode", "bm25", "--no-rerank", "--json", home=settings.home
    )
    assert (found.exit_code, note in found.stderr) == (0, True)
    bring(settings, corpus, split=BLOCKS)
    whole = invoke("info", "test", home=settings.home)
    assert "torn" not in whole.stdout and "incomplete" not in whole.stderr
