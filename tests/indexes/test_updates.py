"""The life of an index: PubMed's updates, interrupted runs, kills at every point, and what is torn by them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.corpus.blocks import Splitter
from biorag.errors import MismatchError, ServiceError
from biorag.indexes import catalogue, writing
from biorag.indexes.deleting import delete_documents, select_ids
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.records import PROGRESS, IndexingProgress, read_progress, shortfall, write_progress
from biorag.indexes.server import ServerIndex
from biorag.indexes.store import Store
from biorag.indexes.writing import IndexReport
from biorag.settings.settings import Settings
from biorag.types import Snippet
from tests.cli import invoke
from tests.indexes.test_writing import Run, counts, held
from tests.pubmed_records import article, deletions, file_of
from tests.qdrant_standin import StandIn

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Local mode performs exact")]

BLOCKS = Splitter(6, 1, lambda text: [match.start() for match in re.finditer(r"\S+", text)])


def bring(settings: Settings, *paths: Path, split: Splitter = BLOCKS) -> IndexReport:
    """One `biorag index` of these paths, long documents in blocks."""
    return Run(settings, *paths, split=split).report


def texts_held(settings: Settings) -> dict[str, str]:
    """The text of everything in the index, by id."""
    return {id: snippet.contents for id, snippet in held(settings).items()}


def numbered(count: int, text: str = "word") -> str:
    return " ".join(f"{text}{place}" for place in range(count))


def lines(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def texts(rows: Iterable[dict]) -> dict[str, str]:
    """What an index of these rows holds."""
    blocks = (block for row in rows for block in BLOCKS(Snippet(row["id"], "", row["content"])))
    return dict(sorted((block.id, block.contents) for block in blocks))


@contextmanager
def killed(owner: object, name: str, at: int = 1, after: bool = True, half: bool = False):
    """Let call number `at` of a method be the last thing that happens: done, half done, or not."""
    calls, original = 0, getattr(owner, name)

    def call(*words):
        nonlocal calls
        calls += 1
        if calls == at and half:
            index, snippets, vectors, tokens, _ = words
            original(index, snippets[::2], vectors[::2], tokens[::2])
        elif calls != at or after:
            result = original(*words)
        if calls == at:
            raise KilledError(name)
        return result

    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        patch.setattr(owner, name, call)
        yield


class KilledError(ServiceError):
    """Stands for a kill."""


# --- PubMed's updates


def written(folder: Path, name: str, *parts: str) -> Path:
    (folder / name).write_bytes(file_of(*parts))
    return folder / name


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """A baseline file and two daily updates."""
    baseline = [article(pmid, f"Title {pmid}.", f"Text of {pmid}.", "2024-01-01") for pmid in range(1, 7)]
    return [
        written(tmp_path, "pubmed25n0001.xml", *baseline),
        written(
            tmp_path,
            "pubmed25n0002.xml",
            article(2, "Title 2.", "New text.", "2024-02-01"),
            article(7, "Seven."),
            deletions(3),
        ),
        written(tmp_path, "pubmed25n0003.xml", article(3, "Back.", "", "2023-01-01"), deletions(4, 99)),
    ]


AT_THE_END = {"1": "Title 1. Text of 1.", "2": "Title 2. New text.", "3": "Back.", "5": "Title 5. Text of 5."}
AT_THE_END |= {"6": "Title 6. Text of 6.", "7": "Seven."}


def test_later_files_replace_and_delete_one_by_one(settings, files):
    assert counts(bring(settings, files[0])) == {"added": 6, "snippets": 6}
    assert counts(bring(settings, files[1])) == {"added": 1, "updated": 1, "deleted": 1, "snippets": 6}
    assert counts(bring(settings, files[2])) == {"added": 1, "deleted": 1, "snippets": 6}
    assert texts_held(settings) == AT_THE_END
    records = Store(settings).require_manifest().sources
    assert [(Path(record.name).name, record.snippets, record.deletions) for record in records] == [
        ("pubmed25n0001.xml", 6, 0),
        ("pubmed25n0002.xml", 2, 1),
        ("pubmed25n0003.xml", 1, 2),
    ]


def test_torn_blocks_without_their_first_are_removed_whatever_comes_next(settings, tmp_path):
    bring(settings, written(tmp_path, "1.xml", article(1, "T.", numbered(15)), article(2, "Two.")))
    store = Store(settings)
    index = store.open(store.require_manifest(), writable=True)
    index.delete(["1#0"])  # the state of a parallel upload that was cut
    store.save(replace(store.require_manifest(), complete=False, checksums=None))
    index.close()
    write_progress(store.folder, IndexingProgress(0, ("1#0", "1#1", "1#2", "9#1"), {}))
    gone = bring(settings, written(tmp_path, "2.xml", deletions(1)))
    assert counts(gone) == {"snippets": 1}
    assert list(held(settings)) == ["2"]


# --- any order of files, runs and faults, against a slow reference


@dataclass(frozen=True)
class Fact:
    """A record or (words None) a deletion in a file."""

    pmid: int
    words: int | None
    day: int = 1
    version: int = 1

    @property
    def xml(self) -> str:
        if self.words is None:
            return deletions(self.pmid)
        return article(self.pmid, f"T{self.day}.", numbered(self.words), f"2024-01-{self.day:02}", self.version)

    @property
    def texts(self) -> dict[str, str]:
        """The index's ids and texts of it."""
        assert self.words is not None
        title, words = f"T{self.day}.", numbered(self.words).split()
        if len(words) <= 6:
            return {str(self.pmid): " ".join([title, *words])}
        parts = [words[place : place + 6] for place in range(0, len(words) - 1, 5)]
        return {f"{self.pmid}#{n}": " ".join([title, *part]) for n, part in enumerate(parts)}


def reference(runs: list[list[list[Fact]]]) -> dict[str, str]:
    """What an index holds after these runs of files, fact by fact."""
    index: dict[int, Fact] = {}
    seen: list[list[Fact]] = []
    for files in runs:
        news: dict[int, Fact] = {}
        fresh: set[int] = set()
        for facts in [file for file in files if file not in seen]:
            for fact in facts:
                now = news.get(fact.pmid)
                if fact.words is None or now is None or now.words is None:
                    fresh |= {fact.pmid} if fact.words is None else set()
                    news[fact.pmid] = fact
                elif (fact.version, fact.day) >= (now.version, now.day):
                    news[fact.pmid] = fact
        for pmid, fact in news.items():
            before = index.get(pmid)
            if fact.words is None:
                index.pop(pmid, None)
            elif before is None or pmid in fresh or (fact.version, fact.day) >= (before.version, before.day):
                index[pmid] = fact
        seen += files
    return {id: text for fact in index.values() for id, text in fact.texts.items()}


facts = st.builds(
    Fact, pmid=st.integers(1, 3), words=st.none() | st.integers(1, 20), day=st.integers(1, 3), version=st.integers(1, 2)
)
ANCHOR = Fact(9, 1)  # so that no run is without a snippet


@settings(derandomize=True, deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(st.lists(st.lists(facts, max_size=4), min_size=1, max_size=3), min_size=1, max_size=3),
    batch=st.integers(1, 4),
    fault=st.integers(0, 6),
    after=st.booleans(),
    write=st.sampled_from(["upsert", "delete"]),
)
def test_an_index_is_what_its_files_say_however_they_came(tmp_path_factory, runs, batch, fault, after, write):
    folder = tmp_path_factory.mktemp("runs")
    settings = Settings.of(home=folder / "home", name="test", batch_size=batch)
    runs = [[[ANCHOR, *facts] for facts in files] for files in runs]
    for files in runs:
        paths = [written(folder, f"{place}.xml", *(fact.xml for fact in facts)) for place, facts in enumerate(files)]
        with killed(EdgeIndex, write, fault, after):
            bring(settings, *paths)
        bring(settings, *paths)
    assert texts_held(settings) == dict(sorted(reference(runs).items()))


# --- one table of kill points for all writers

EDGE = [(EdgeIndex, name) for name in ("upsert", "delete", "_flush", "optimize", "seal")]
SERVER = [(ServerIndex, name) for name in ("upsert", "delete", "optimize")]
RECORDS = [(Store, "save"), (writing, "write_progress"), (writing, "clear_progress")]
ROWS = [{"id": f"d{n}", "content": numbered(3 * n + 1)} for n in range(8)]
LATER = [*ROWS[2:5], *({**row, "content": numbered(9, "new")} for row in ROWS[5:])]


def update(settings: Settings, target: Settings, folder: Path) -> None:
    bring(target, lines(folder / "later.jsonl", *LATER))


def delete(settings: Settings, target: Settings, folder: Path, *ids: str) -> None:
    store = Store(target)
    with closing(store.open(store.require_manifest())) as index:
        selection = select_ids(index, store.require_manifest(), ids or ["d1", "d4", "d7#0"])
    delete_documents(store, selection, lambda count: None)


def copy(settings: Settings, target: Settings, folder: Path) -> None:
    catalogue.copy_index(Store(settings), Store(target), lambda count: None)


WRITERS = {
    "update": (update, "test", texts({row["id"]: row for row in (*ROWS, *LATER)}.values()), [*EDGE, *RECORDS]),
    "delete": (delete, "test", texts(ROWS[n] for n in (0, 2, 3, 5, 6)), [*EDGE[1:], *RECORDS]),
    "copy": (copy, "copy", texts(ROWS[:7]), [*EDGE, RECORDS[0]]),
    "copy to a server": (copy, "served", texts(ROWS[:7]), [*SERVER, RECORDS[0]]),
}


@pytest.mark.parametrize(
    ("at", "after"), [(1, True), *(pytest.param(*moment, marks=pytest.mark.long) for moment in ((1, False), (2, True)))]
)
@pytest.mark.parametrize(
    ("writer", "owner", "name"),
    [(writer, *point) for writer, (*_, points) in WRITERS.items() for point in points],
)
def test_the_same_command_completes_what_was_killed(tmp_path, monkeypatch, writer, owner, name, at, after):
    """A copy is completed after its index has lost a document."""
    monkeypatch.setattr(catalogue, "COPIED", 5)
    run, copied, expected, _ = WRITERS[writer]
    settings = Settings.of(home=tmp_path, name="test", batch_size=3, block_tokens=6, block_overlap=1)
    with closing(StandIn()) as server:
        target = settings.replace(name=copied, qdrant=server.url if copied == "served" else None)
        bring(settings, lines(tmp_path / "rows.jsonl", *ROWS))
        with killed(owner, name, at, after):
            run(settings, target, tmp_path)
        left, whole = Store(target).manifest(), expected
        if run is copy and left and left.complete:
            whole = texts(ROWS)
        elif run is copy:
            delete(settings, settings, tmp_path, "d7")
        if run is not copy or whole is expected:
            run(settings, target, tmp_path)
        assert (texts_held(target), Store(target).require_manifest().complete) == (whole, True)
        assert not (Store(target).folder / PROGRESS).exists()


# --- documents that are torn

OTHER = {"id": "other", "content": "Another corpus."}


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
        bring(settings, version(tmp_path, "before.jsonl", before, "old"))
    corpus = version(tmp_path, "after.jsonl", after)
    with killed(EdgeIndex, **fault):
        bring(settings, corpus)
    assert torn(settings) == {"long"}
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="biorag"):
            report = bring(settings, other)
        assert (report.complete, report.torn) == (False, ("long",))
        assert not Store(settings).require_manifest().complete
        note = f"1 document is torn (long): index {corpus} again"
        assert [record.getMessage() for record in caplog.records] == [f"index 'test' stays incomplete: {note}"]
    report = bring(settings, corpus)
    assert (report.complete, report.torn) == (True, ())
    assert Store(settings).require_manifest().complete
    assert not (Store(settings).folder / PROGRESS).exists()
    expected = {block.id: block.contents for block in BLOCKS(Snippet("long", "", numbered(after)))}
    assert texts_held(settings) == {"other": "Another corpus.", "short": "Short.", **expected}


def test_a_deletion_that_was_interrupted(settings, tmp_path, other):
    paths = [tmp_path / name for name in ("1.xml", "2.xml")]
    paths[0].write_bytes(file_of(article(1, "T.", numbered(20)), article(2, "Two.")))
    paths[1].write_bytes(file_of(deletions(1)))
    bring(settings, paths[0])
    with killed(EdgeIndex, "delete"):
        bring(settings, paths[1])
    assert list(held(settings)) == ["1#0", "2"]
    assert bring(settings, paths[0], other).torn == ("1",), "it was indexed before, and is skipped"
    assert bring(settings, paths[1]).complete
    assert list(held(settings)) == ["2", "other"]


def test_info_and_a_search_say_what_is_torn(settings, tmp_path, other):
    corpus = version(tmp_path, "long.jsonl", 20)
    with killed(EdgeIndex, "upsert", half=True):
        bring(settings, corpus)
    bring(settings, other)
    note = f"index 'test' is incomplete: 1 document is torn (long): index {corpus} again"
    values = invoke("info", "test", "--json", home=settings.home)
    assert note in values.stderr
    shown = json.loads(values.stdout)
    assert (shown["complete"], shown["torn"], shown["deleted_share"]) == (False, ["long"], 0.0)
    found = invoke(
        "search", "another corpus", "--name", "test", "--mode", "bm25", "--no-rerank", "--json", home=settings.home
    )
    assert (found.exit_code, note in found.stderr) == (0, True)
    bring(settings, corpus)
    whole = invoke("info", "test", home=settings.home)
    assert "torn" not in whole.stdout and "incomplete" not in whole.stderr


# --- the record of progress


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"done": -1, "batch": [], "torn": {}}', '{"done": 1}'])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / PROGRESS).write_text(text)
    with pytest.raises(MismatchError, match=r"progress\.json is damaged \(.*\): delete it"):
        read_progress(tmp_path)
    assert "progress.json is damaged" in shortfall(tmp_path)


def test_an_incomplete_index_says_what_it_lacks(tmp_path):
    again = "was interrupted: run the same command again"
    assert shortfall(tmp_path) == f"its copying or indexing {again}"
    write_progress(tmp_path, IndexingProgress(3, ("a",), {}))
    assert shortfall(tmp_path) == f"its last indexing run {again}"
    write_progress(tmp_path, IndexingProgress(0, (), dict.fromkeys("edcba", "x.jsonl") | {"f": "y.xml"}))
    assert shortfall(tmp_path) == "6 documents are torn (a, b, c and 3 more): index x.jsonl, y.xml again"


def test_a_killed_deletion_of_several_batches_is_completed(tmp_path):
    settings = Settings.of(home=tmp_path, name="test", batch_size=1, block_tokens=6, block_overlap=1)
    rows = [{"id": id, "content": text} for id, text in (("a", "Short."), ("b", numbered(20)), ("c", "Kept."))]
    bring(settings, lines(tmp_path / "rows.jsonl", *rows))
    with killed(EdgeIndex, "delete", 2):
        delete(settings, settings, tmp_path, "a", "b")
    assert torn(settings) == {"b"}
    delete(settings, settings, tmp_path, "a", "b")
    assert Store(settings).require_manifest().complete
