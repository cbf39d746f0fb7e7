"""Bringing a corpus into an index: what is encoded, what is skipped, duplicates, rejects, resuming."""

import hashlib
import json
import logging
import random
import re
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_client import QdrantClient
from qdrant_edge import Bm25, Bm25Config

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import Source, find_sources
from biorag.errors import BadInputError, MismatchError, ServiceError
from biorag.indexes.manifest import SourceRecord
from biorag.indexes.records import IndexingProgress, write_progress
from biorag.indexes.store import Store
from biorag.indexes.surveying import NAMED, Survey, survey
from biorag.indexes.updating import PendingChange
from biorag.indexes.writing import EncodeSnippets, Incoming, IndexReport, _still_fits, surveyed_changes, write_index
from biorag.types import Deletion, Snippet
from tests.conftest import write_medrag
from tests.fakes import HashEncoder, encoding_snippets
from tests.qdrant_standin import StandIn

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")


def row(snippet: Snippet) -> bytes:
    record = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "PMID": snippet.pmid}
    return json.dumps({**record, **snippet.metadata}, ensure_ascii=False).encode() + b"\n"


def corpus(path: Path, snippets: list[Snippet]) -> Path:
    path.write_bytes(b"".join(map(row, snippets)))
    return path


class Run:
    """One `biorag index`: what it reported, what it encoded, whether it loaded the encoder for it."""

    def __init__(self, settings, *paths: Path, skip: bool = False, encoder=None, split: Splitter = WHOLE) -> None:
        self.encoder = encoder or HashEncoder()
        self.loads = 0
        self.checked = self.written = 0
        self.store = Store(settings)
        sources = find_sources([str(path) for path in paths], settings.home / "spool")
        self.rejects = RejectsFile(self.store.folder / "rejects.jsonl") if skip else None
        manifest = self.store.manifest()
        taken = manifest.sources if manifest else ()
        self.survey = survey(sources, self.rejects, self._checked, split, taken)
        manifest = manifest or self.store.new_manifest(self.encoder.identity, self.survey.avg_len)
        incoming = surveyed_changes(sources, self.survey, (lambda _: None) if skip else None, split)
        self.report = write_index(self.store, manifest, incoming, self._load, self._written)
        assert self.written == self.survey.changes

    def _load(self) -> EncodeSnippets:
        self.loads += 1
        return encoding_snippets(self.encoder)

    def _checked(self, count: int) -> None:
        self.checked += count

    def _written(self, count: int) -> None:
        self.written += count


def counts(report: IndexReport) -> dict[str, int]:
    names = ("added", "updated", "unchanged", "deleted", "rejected", "duplicates", "snippets")
    return {name: value for name in names if (value := getattr(report, name))}


def held(settings) -> dict[str, Snippet]:
    """What the index of this configuration holds, read afresh."""
    store = Store(settings)
    with closing(store.open(store.require_manifest())) as index:
        found = index.fetch(list(index.ids()))
        assert index.count() == len(found)
        return dict(sorted(found.items()))


# --- what is encoded and written


def test_the_first_run_adds_everything(settings, corpus_file, snippets):
    run = Run(settings, corpus_file)
    assert run.report.name == "test"
    assert counts(run.report) == {"added": 12, "snippets": 12}
    assert run.encoder.encoded == [snippet.contents for snippet in snippets]
    assert (run.checked, run.written) == (12, 12)
    ids = [snippet.id for snippet in snippets]
    assert held(settings) == dict(zip(ids, snippets, strict=True))


def test_changed_and_new_snippets_and_they_alone_are_encoded(settings, corpus_file, snippets, tmp_path):
    Run(settings, corpus_file)
    changed = {
        "s2": replace(snippets[2], content="Heparin is given by injection."),
        "s4": replace(snippets[4], title="Insulin!"),
        "s6": replace(snippets[6], pmid=7),
        "s8": replace(snippets[8], metadata={"year": 2008.5}),
    }
    new = [Snippet("n1", "New", "Naïve β cells."), Snippet("n2", "", "Another.", None, {"ok": True})]
    now = [changed.get(snippet.id, snippet) for snippet in snippets] + new
    run = Run(settings, corpus(tmp_path / "now.jsonl", now))
    assert counts(run.report) == {"added": 2, "updated": 4, "unchanged": 8, "snippets": 14}
    assert run.encoder.encoded == [snippet.contents for snippet in [*changed.values(), *new]]
    assert run.loads == 1
    assert held(settings) == {snippet.id: snippet for snippet in now}


def test_a_text_that_the_index_holds_keeps_its_vector_unless_a_kill_may_have_torn_it(settings, corpus_file, snippets):
    store = Run(settings, corpus_file).store
    manifest, encoder = store.require_manifest(), HashEncoder()
    changes = {
        "s1": replace(snippets[1], metadata={"year": 1}),  # its vector may be another's
        "s2": replace(snippets[2], metadata={"year": 2}),
        "s3": replace(snippets[3], content="Another text."),
        "new": replace(snippets[4], id="new"),  # of a file that was renamed
        "lost": replace(snippets[5], id="lost"),
    }
    like = {"new": "s4", "lost": "never there"}
    write_progress(store.folder, IndexingProgress(0, ("s1",), {}))
    winners = [PendingChange(change, False, "f", like.get(id, id)) for id, change in changes.items()]
    incoming = Incoming([*winners, PendingChange(Deletion("s4"), True, "f")], WHOLE, ())
    report = write_index(store, manifest, incoming, lambda: encoding_snippets(encoder), lambda _: None)
    assert (report.added, report.updated, report.deleted, report.complete) == (2, 3, 1, True)
    assert encoder.encoded == [changes[id].contents for id in ("s1", "s3", "lost")]
    index = store.open(store.require_manifest())
    try:
        assert index.fetch(list(changes)) == changes
        expected = HashEncoder().encode_snippets([change.contents for change in changes.values()])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        for id, vector in zip(changes, expected, strict=True):
            np.testing.assert_allclose(index.vectors([id])[id][0], vector, atol=1e-6)
    finally:
        index.close()


# --- duplicates


def test_of_a_duplicate_id_the_later_one_wins_and_is_reported(settings, tmp_path, caplog):
    first = [
        Snippet("a", "", "old text of a"),
        Snippet("b", "", "the same text of b"),
        Snippet("c", "", "only c"),
        Snippet("a", "", "middle text of a"),
    ]
    second = [Snippet("b", "", "the same text of b"), Snippet("a", "", "new text of a")]
    paths = corpus(tmp_path / "1.jsonl", first), corpus(tmp_path / "2.jsonl", second)
    with caplog.at_level(logging.WARNING, logger="biorag"):
        run = Run(settings.replace(batch_size=2), *paths)
    assert counts(run.report) == {"added": 3, "duplicates": 3, "snippets": 3}
    assert sorted(run.encoder.encoded) == ["new text of a", "only c", "the same text of b"]
    assert held(settings) == {"a": second[1], "b": second[0], "c": first[2]}
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["id 'a' appears again with other text; the later one wins (one of 2 such repetitions)"]
    assert run.written == 3

    again = Run(settings.replace(batch_size=2), *paths)
    assert counts(again.report) == {"unchanged": 3, "duplicates": 3, "snippets": 3}
    assert (again.loads, again.encoder.encoded) == (0, [])
    assert held(settings)["a"] == second[1]


# --- bad lines

BAD = [b"not JSON\n", b'{"id": "x"}\n', b'{"id": "y", "content": "na\xefve"}\n']


@pytest.fixture
def mixed(tmp_path, snippets) -> Path:
    """Two good lines, a bad one, a blank one, two bad ones, the other good ones."""
    good = [row(snippet) for snippet in snippets]
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"".join([*good[:2], BAD[0], b"\n", *BAD[1:], *good[2:]]))
    return path


def test_a_bad_line_stops_before_anything_is_indexed(settings, mixed):
    with pytest.raises(BadInputError, match=rf"^{re.escape(str(mixed))}, line 3: not JSON") as caught:
        Run(settings, mixed)
    assert caught.value.exit_code == 3
    assert not settings.home.exists()


def test_skipped_lines_are_counted_and_written_with_reasons(settings, mixed, snippets):
    run = Run(settings, mixed, skip=True)
    assert counts(run.report) == {"added": 12, "rejected": 3, "snippets": 12}
    assert held(settings) == {s.id: s for s in snippets}
    lines = (settings.indexes / "test" / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"file": str(mixed), "line": 3, "reason": "not JSON (expected ident at line 1 column 2)", "text": "not JSON"},
        {"file": str(mixed), "line": 5, "reason": "snippet 'x' has no text", "text": '{"id": "x"}'},
        {
            "file": str(mixed),
            "line": 6,
            "reason": "not JSON (invalid unicode code point at line 1 column 27)",
            "text": '{"id": "y", "content": "na\ufffdve"}',
        },
    ]


# --- two writers


class Turns:
    """Lets one of two threads go on at a time, as a seed says; who has ended is not waited for."""

    def __init__(self, seed: int) -> None:
        self._order = random.Random(seed)
        self._changed = threading.Condition()
        self._running = {"mine", "other"}
        self._next = self._order.choice(sorted(self._running))

    def take(self) -> None:
        name = threading.current_thread().name
        if name not in ("mine", "other"):  # the server's
            return
        with self._changed:
            self._changed.wait_for(lambda: self._next == name or self._running == {name}, timeout=20)
            self._pass_on()

    def end(self) -> None:
        with self._changed:
            self._running.discard(threading.current_thread().name)
            self._pass_on()

    def _pass_on(self) -> None:
        if self._running:
            self._next = self._order.choice(sorted(self._running))
        self._changed.notify_all()


def in_turn(turns: Turns, call):
    """Return a method that waits for its turn."""

    def paced(*words, **more):
        turns.take()
        return call(*words, **more)

    return paced


@pytest.mark.parametrize("seed", range(20))
def test_two_writers_to_a_server_lose_no_source(settings, tmp_path, snippets, monkeypatch, seed):
    """Each has a home of its own; they are interleaved at each batch, and at each look at a manifest or its writing."""
    files = {
        "mine": write_medrag(tmp_path / "a.jsonl", snippets[:6]),
        "other": write_medrag(tmp_path / "b.jsonl", snippets[6:]),
    }
    turns = Turns(seed)

    class Paced(HashEncoder):
        def encode_snippets(self, texts):
            turns.take()
            return super().encode_snippets(texts)

    def write(settings, name):
        try:
            Run(settings, files[name], encoder=Paced())
        finally:
            turns.end()

    with closing(StandIn()) as server:
        served = settings.replace(qdrant=server.url, batch_size=1)
        homes = {"mine": served, "other": served.replace(home=settings.home / "other")}
        Run(served, write_medrag(tmp_path / "first.jsonl", snippets[:1]))
        for name in ("update_collection", "get_collection"):
            monkeypatch.setattr(QdrantClient, name, in_turn(turns, getattr(QdrantClient, name)))
        threads = [threading.Thread(target=write, args=(home, name), name=name) for name, home in homes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        monkeypatch.undo()
        for home in homes.values():
            manifest = Store(home).require_manifest()
            names = sorted(Path(record.name).name for record in manifest.sources)
            assert (names, manifest.complete) == (["a.jsonl", "b.jsonl", "first.jsonl"], True)
        assert held(served) == {one.id: one for one in snippets}


# --- interrupted runs


def test_no_room_stops_a_run_before_anything_is_written_and_it_goes_on(settings, corpus_file, tmp_path, monkeypatch):
    Run(settings, corpus_file)
    before = (settings.indexes / "test" / "manifest.json").read_bytes()
    other = corpus(tmp_path / "new.jsonl", [Snippet("new", "", "new")])
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
        with pytest.raises(ServiceError, match="is full: 0 MB are free and 34 MB are needed: free some space"):
            Run(settings, other)
    assert (settings.indexes / "test" / "manifest.json").read_bytes() == before
    assert counts(Run(settings, other).report) == {"added": 1, "snippets": 13}


# --- the manifest


# --- the survey, against a dictionary


def terms(text: str) -> list[int]:
    """The ids of a text's BM25 terms, repeats kept."""
    words = Bm25(Bm25Config(language="english"))
    return [id for word in re.findall(r"[^\W_]+", text) for id in words.embed_query(word).indices]


def reference(snippets: list[Snippet]) -> tuple[set[int], set[int], float]:
    """Superseded places, conflicts and mean length, the obvious way."""
    last = {snippet.id: place for place, snippet in enumerate(snippets)}
    superseded = {place for place, snippet in enumerate(snippets) if last[snippet.id] != place}
    conflicts = {place for place in superseded if snippets[place] != snippets[last[snippets[place].id]]}
    return superseded, conflicts, sum(len(terms(snippet.contents)) for snippet in snippets) / len(snippets)


rows = st.builds(
    Snippet,
    id=st.sampled_from("abcdé") | st.text("xyz", min_size=1, max_size=3),
    title=st.sampled_from(["", "Liver", "Livers?"]),
    content=st.sampled_from(["liver disease", "the of", "β cells of the heart, heart", "5.5 mg"]),
    pmid=st.sampled_from([None, None, 1]),
)


def test_a_corpus_without_a_snippet_says_why_of_each_file(tmp_path):
    sources = []
    for number in range(NAMED + 2):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(b"" if number == 0 else b"{not json}\n")
        sources.append(Source(path.name, path))
    with pytest.raises(BadInputError) as raised:
        survey(sources, RejectsFile(None), lambda n: None)
    message = str(raised.value)
    assert "0.jsonl: no record; 1.jsonl, line 1: " in message
    assert f"{NAMED - 1}.jsonl, line 1: " in message and f"{NAMED}.jsonl" not in message
    assert message.endswith("; and 2 more files")


@settings(derandomize=True, deadline=None, max_examples=25)
@given(files=st.lists(st.lists(rows | st.sampled_from(BAD), max_size=12), min_size=1, max_size=3))
def test_survey_is_the_obvious_one(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("survey")
    sources = []
    for number, lines in enumerate(files):
        path = folder / f"{number}.jsonl"
        path.write_bytes(b"".join(line if isinstance(line, bytes) else row(line) for line in lines))
        sources.append(Source(path.name, path))
    good = [[line for line in lines if isinstance(line, Snippet)] for lines in files]
    flat = [snippet for lines in good for snippet in lines]
    rejects = RejectsFile(folder / "rejects.jsonl")
    if not flat:
        with pytest.raises(BadInputError, match="holds no snippet"):
            survey(sources, rejects, lambda n: None)
        return
    found = survey(sources, rejects, lambda n: None)
    superseded, conflicts, mean = reference(flat)
    bad = sum(map(len, files)) - len(flat)
    assert Counter(map(repr, found.sample)) == Counter(map(repr, flat)), "so few are all drawn"
    assert replace(found, sample=()) == Survey(
        sources=tuple(
            SourceRecord(
                source.name,
                hashlib.sha256(source.path.read_bytes()).hexdigest(),
                source.path.stat().st_size,
                len(lines),
                rejected=len(read) - len(lines),
            )
            for source, lines, read in zip(sources, good, files, strict=True)
        ),
        snippets=len(flat),
        rejected=bad,
        superseded=frozenset(superseded),
        conflicts=frozenset(conflicts),
        avg_len=pytest.approx(mean),
        blocks=len(flat) - len(superseded),
        unread=frozenset(source for source, lines in zip(sources, good, strict=True) if not lines),
        documents={
            source: dict.fromkeys(snippet.id for snippet in lines) for source, lines in zip(sources, good, strict=True)
        },
    )
    assert rejects.count == bad == (len(rejects.path.read_text().splitlines()) if bad else 0)


def test_an_index_made_meanwhile_with_other_settings_is_not_mixed(settings):
    planned = Store(settings).new_manifest(HashEncoder().identity, 10.0)
    assert _still_fits(planned, planned) == planned
    with pytest.raises(MismatchError, match="was made meanwhile, with other settings"):
        _still_fits(replace(planned, bm25=replace(planned.bm25, avg_len=20.0)), planned)
