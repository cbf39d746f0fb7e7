"""PubMed's files in an index: what later ones replace and delete, in any order of runs, interrupted or not."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import find_sources
from biorag.errors import ServiceError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.progress import IndexingProgress, write_progress
from biorag.indexes.store import Store
from biorag.indexes.surveying import survey
from biorag.indexes.writing import IndexReport, surveyed_changes, write_index
from biorag.settings.settings import Settings
from tests.fakes import HashEncoder, encoding_snippets
from tests.pubmed_records import article, deletions, file_of

pytestmark = pytest.mark.slow

BLOCKS = Splitter(6, 1, lambda text: [match.start() for match in re.finditer(r"\S+", text)])


def bring(settings: Settings, *paths: Path, split: Splitter = WHOLE, encoder: HashEncoder | None = None) -> IndexReport:
    """One `biorag index` of these paths."""
    encoder = encoder or HashEncoder()
    store = Store(settings)
    sources = find_sources([str(path) for path in paths], settings.home / "spool")
    manifest = store.manifest()
    rejects = RejectsFile(settings.home / "rejects.jsonl")
    found = survey(sources, rejects, lambda count: None, split, manifest.sources if manifest else ())
    manifest = manifest or store.new_manifest(encoder.identity, found.avg_len)
    load = lambda: encoding_snippets(encoder)  # noqa: E731
    done: list[int] = []
    report = write_index(store, manifest, surveyed_changes(sources, found, rejects, split), load, done.append)
    assert sum(done) == found.changes
    return report


def held(settings: Settings) -> dict[str, str]:
    """The text of everything in the index, by id."""
    store = Store(settings)
    index = store.open(store.require_manifest())
    try:
        found = index.fetch(list(index.ids()))
        assert index.count() == len(found)
        return {id: snippet.contents for id, snippet in sorted(found.items())}
    finally:
        index.close()


def counts(report: IndexReport) -> dict[str, int]:
    names = ("added", "updated", "unchanged", "deleted", "duplicates", "snippets")
    return {name: value for name in names if (value := getattr(report, name))}


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
    assert held(settings) == AT_THE_END
    records = Store(settings).require_manifest().sources
    assert [(Path(record.name).name, record.snippets, record.deletions) for record in records] == [
        ("pubmed25n0001.xml", 6, 0),
        ("pubmed25n0002.xml", 2, 1),
        ("pubmed25n0003.xml", 1, 2),
    ]


def test_a_file_that_went_in_before_changes_nothing(settings, files):
    bring(settings, *files)
    for again in (files, files[:1], files[1:2], reversed(files)):
        encoder = HashEncoder()
        report = bring(settings, *again, encoder=encoder)
        assert (report.added, report.updated, report.deleted, report.snippets) == (0, 0, 0, 6)
        assert encoder.encoded == []
        assert held(settings) == AT_THE_END
    assert counts(bring(settings, files[0])) == {"unchanged": 6, "snippets": 6}
    assert len(Store(settings).require_manifest().sources) == 3


def test_an_older_record_leaves_a_newer_one_alone(settings, tmp_path):
    def one(name: str, revised: str, version: int) -> Path:
        return written(tmp_path, name, article(1, f"{version} {revised}.", "", revised, version))

    bring(settings, one("a.xml", "2024-05-05", 2))
    assert counts(bring(settings, one("b.xml", "2024-05-04", 2))) == {"unchanged": 1, "snippets": 1}
    assert counts(bring(settings, one("c.xml", "2025-01-01", 1))) == {"unchanged": 1, "snippets": 1}
    assert held(settings) == {"1": "2 2024-05-05."}
    same = written(tmp_path, "d.xml", article(1, "Mended.", "", "2024-05-05", 2))
    assert counts(bring(settings, same)) == {"updated": 1, "snippets": 1}
    assert held(settings) == {"1": "Mended."}
    assert counts(bring(settings, one("e.xml", "2024-05-06", 2))) == {"updated": 1, "snippets": 1}


# --- blocks


def numbered(count: int, text: str = "word") -> str:
    return " ".join(f"{text}{place}" for place in range(count))


def test_blocks_come_go_and_are_told_apart(settings, tmp_path):
    def day(number: int, words: int, text: str = "word") -> IndexReport:
        part = article(1, "T.", numbered(words, text), f"2024-01-{number:02}")
        return bring(settings, written(tmp_path, f"{number}.xml", part), split=BLOCKS)

    assert counts(day(1, 15)) == {"added": 1, "snippets": 3}
    assert list(held(settings)) == ["1#0", "1#1", "1#2"]
    assert counts(day(2, 10)) == {"updated": 1, "snippets": 2}
    assert counts(day(3, 3)) == {"updated": 1, "snippets": 1}
    assert held(settings) == {"1": "T. word0 word1 word2"}
    assert counts(day(4, 7, "other")) == {"updated": 1, "snippets": 2}
    assert list(held(settings)) == ["1#0", "1#1"]
    gone = written(tmp_path, "5.xml", deletions(1), article(2, "Two."))
    assert counts(bring(settings, gone, split=BLOCKS)) == {"added": 1, "deleted": 1, "snippets": 1}


def test_torn_blocks_without_their_first_are_removed_whatever_comes_next(settings, tmp_path):
    bring(settings, written(tmp_path, "1.xml", article(1, "T.", numbered(15)), article(2, "Two.")), split=BLOCKS)
    store = Store(settings)
    index = store.open(store.require_manifest(), writable=True)
    index.delete(["1#0"])  # the state of a parallel upload that was cut
    store.save(replace(store.require_manifest(), complete=False, checksums=None))
    index.close()
    write_progress(store.folder, IndexingProgress(0, ("1#0", "1#1", "1#2", "9#1"), {}))
    gone = bring(settings, written(tmp_path, "2.xml", deletions(1)), split=BLOCKS)
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


class FaultError(ServiceError):
    """What the engine does here in place of its work, or after it."""


@contextmanager
def faulty(at: int, after: bool):
    """The engine fails at its write number `at`, before or after it is done."""
    done = 0
    originals = {name: getattr(EdgeIndex, name) for name in ("upsert", "delete")}

    def failing(name):
        def call(self, *args):
            nonlocal done
            done += 1
            if done == at and not after:
                raise FaultError("before")
            originals[name](self, *args)
            if done == at:
                raise FaultError("after")

        return call

    for name in originals:
        setattr(EdgeIndex, name, failing(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(EdgeIndex, name, original)


@settings(derandomize=True, deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(st.lists(st.lists(facts, max_size=4), min_size=1, max_size=3), min_size=1, max_size=3),
    batch=st.integers(1, 4),
    fault=st.integers(0, 6),
    after=st.booleans(),
)
def test_an_index_is_what_its_files_say_however_they_came(tmp_path_factory, runs, batch, fault, after):
    folder = tmp_path_factory.mktemp("runs")
    settings = Settings.of(home=folder / "home", name="test", batch_size=batch)
    runs = [[[ANCHOR, *facts] for facts in files] for files in runs]
    for files in runs:
        paths = [written(folder, f"{place}.xml", *(fact.xml for fact in facts)) for place, facts in enumerate(files)]
        with faulty(fault, after):
            try:
                bring(settings, *paths, split=BLOCKS)
            except FaultError:
                assert not Store(settings).require_manifest().complete
        bring(settings, *paths, split=BLOCKS)
    assert held(settings) == dict(sorted(reference(runs).items()))
