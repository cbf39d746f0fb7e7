"""Random sequences of additions, changes, deletions, kills and resumed runs, each held against a fresh index.

python -m scripts.faults.update_sequences --sequences 60 --out update_sequences.json

A sequence indexes JSON Lines and PubMed files, some of them again, in runs of which many are killed: where biorag
writes, before it, halfway or after it, or at any time. After each run no document may be torn that the progress record
does not name, and none in an index that is complete. What was killed is run again at the end, and the index must then
be that of the last state made at once: ids, payloads, digests, vectors and BM25 scores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.readers import read_changes
from biorag.corpus.sources import Source, find_sources
from biorag.indexes import edge, writing
from biorag.indexes.records import read_progress
from biorag.indexes.store import Store
from biorag.indexes.surveying import survey
from biorag.indexes.updating import revision
from biorag.settings.settings import Settings
from biorag.types import Change, Deletion, IndexQuery, Snippet
from scripts.faults.runs import apart, write_report
from tests.fakes import HashEncoder, encoding_snippets
from tests.pubmed_records import article, deletions, file_of

WORDS = [f"word{letter}" for letter in "abcdefghijkl"]
BLOCKS = Splitter(6, 1, lambda text: [match.start() for match in re.finditer(r"\S+", text)])
# What biorag writes by, and how often a run may do so.
KILLABLE = [
    (edge.EdgeIndex, "upsert", 3),
    (edge.EdgeIndex, "delete", 2),
    (edge.EdgeIndex, "_flush", 5),
    (edge.EdgeIndex, "optimize", 1),
    (edge.EdgeIndex, "seal", 1),
    (Store, "save", 2),
    (writing, "write_progress", 5),
    (writing, "clear_progress", 1),
]
INDEXED_FROM = 1  # KB of vectors, in half of the sequences, so that segments are immutable and have a graph
NO_KILL = -1


@dataclass
class UpdateSequence:
    """One index, what its files say it must hold, and what a kill has left to be done."""

    folder: Path
    draw: random.Random
    split: Splitter
    state: dict[str, Snippet] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    taken: set[Path] = field(default_factory=set)
    pending: list[list[Path]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def settings(self) -> Settings:
        """The index's."""
        return Settings.of(home=self.folder / "home", name="changed", batch_size=3)

    def new_file(self) -> Path:
        """Write a file of records, and PubMed's deletions of some."""
        number = len(self.files)
        day = f"2024-01-{self.draw.randint(1, 28):02}"
        if self.draw.random() < 0.5:
            path = self.folder / f"{number}.jsonl"
            names = self.draw.sample("abcdefgh", self.draw.randint(1, 6))
            rows = [{"id": name, "title": f"T{number}.", "content": self._text()} for name in names]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            path = self.folder / f"{number}.xml"
            records = [article(pmid, f"T{number}.", self._text(), day) for pmid in self._pmids(1)]
            path.write_bytes(file_of(*records, deletions(*self._pmids(0))))
        self.files.append(path)
        return path

    def _pmids(self, least: int) -> list[int]:
        return self.draw.sample(range(1, 9), self.draw.randint(least, 5))

    def _text(self) -> str:
        # The first words of the list are in most texts, the last in few.
        return " ".join(WORDS[int(len(WORDS) * self.draw.random() ** 2)] for _ in range(self.draw.randint(1, 25)))

    def step(self) -> None:
        """Run over one or two files, one of them perhaps known, and perhaps kill it; resume or leave it."""
        paths = {self.new_file()}
        if self.draw.random() < 0.3:
            paths.add(self.draw.choice(self.files))
        self.run(sorted(paths), kill=self.draw.random() < 0.6)
        while self.pending and self.draw.random() < 0.4:
            self.run(self.pending[-1], kill=self.draw.random() < 0.5)

    def finish(self) -> None:
        """Run again what was killed, in its order."""
        while self.pending:
            self.run(self.pending[0], kill=False)

    def run(self, paths: list[Path], kill: bool) -> None:
        """Index files in a process of its own, and check what is left."""
        before = self.look()
        seed = self.draw.randrange(2**32) if kill else NO_KILL
        pid = os.fork()
        if pid == 0:
            _index_and_exit(self.settings, paths, self.split, seed)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0 or (kill and code in (-signal.SIGKILL, -signal.SIGALRM)), code
        self.counts["runs"] += 1
        after = self.look()
        # One that was killed once its manifest was saved has ended too.
        if ended := after["seconds"] > before["seconds"]:
            self.state = applied(self.state, paths, self.taken)
            self.taken |= {path for path in paths if path.suffix == ".xml"}
            self.pending = [other for other in self.pending if other != paths]
        elif paths not in self.pending:
            self.pending.append(paths)
        self.counts["kills"] += code != 0
        self.check(before, after, paths, ended)

    def look(self) -> dict[str, Any]:
        """Return what the index holds, whether it says that it is complete, and which documents it names as torn."""
        return dict(apart(_look, self.settings))

    def check(self, before: dict[str, Any], after: dict[str, Any], paths: list[Path], ended: bool) -> None:
        """Hold each document against every text that it ever had."""
        stored = _by_document(after["points"])
        versions = self._versions()
        torn = {name for name, points in stored.items() if points not in versions.get(name, [])}
        gone = {change.id for path in paths for change in changes_of(path) if isinstance(change, Deletion)}
        torn |= _by_document(before["points"]).keys() - stored.keys() - gone
        self.counts["torn documents found"] += len(torn)
        self.counts["documents named"] += len(after["torn"])
        assert torn <= set(after["torn"]), (torn, after["torn"])
        assert not (after["complete"] and (torn or after["torn"])), torn
        if ended:
            assert after["complete"] == (not after["torn"])
            assert not after["deleted_share"], after["deleted_share"]
            self.counts["ended incomplete"] += not after["complete"]

    def _versions(self) -> dict[str, list[dict[str, Any]]]:
        """Return all points of each document that a text of it gives."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in self.files:
            for change in changes_of(path):
                if isinstance(change, Snippet):
                    blocks = self.split(change)
                    vectors = HashEncoder().encode_snippets([block.contents for block in blocks])
                    rows = zip(blocks, vectors, strict=True)
                    points = {block.id: [block.digest, _rounded(vector)] for block, vector in rows}
                    found.setdefault(change.id, []).append(points)
        return found

    def is_as_fresh(self) -> None:
        """Compare the index, at its end, with one made at once of what the files say."""
        corpus = self.folder / "fresh.jsonl"
        corpus.write_text("".join(json.dumps(_row(snippet)) + "\n" for snippet in self.state.values()))
        fresh = self.settings.replace(name="fresh")
        pid = os.fork()
        if pid == 0:
            _index_and_exit(fresh, [corpus], self.split, NO_KILL, Store(self.settings).require_manifest().bm25)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        changed, made = apart(_everything, self.settings), apart(_everything, fresh)
        assert changed["points"] == made["points"]
        for query, scores in made["scores"].items():
            assert changed["scores"][query].keys() == scores.keys(), query
            worst = max((abs(changed["scores"][query][id] - score) for id, score in scores.items()), default=0.0)
            assert worst < 1e-5, (query, worst)


def applied(state: dict[str, Snippet], paths: Sequence[Path], taken: set[Path]) -> dict[str, Snippet]:
    """Return what an index holds after a run, change by change."""
    news: dict[str, Change] = {}
    revived: set[str] = set()
    for change in (change for path in paths if path not in taken for change in changes_of(path)):
        now = news.get(change.id)
        if isinstance(change, Deletion):
            revived.add(change.id)
        if not isinstance(change, Snippet) or not isinstance(now, Snippet) or revision(change) >= revision(now):
            news[change.id] = change
    after = dict(state)
    for id, change in news.items():
        if isinstance(change, Deletion):
            after.pop(id, None)
        elif id not in after or id in revived or revision(change) >= revision(after[id]):
            after[id] = change
    return after


def changes_of(path: Path) -> list[Change]:
    """Return a file's records and deletions."""
    return list(read_changes(Source(path.name, path)))


def _index_and_exit(settings: Settings, paths: list[Path], split: Splitter, seed: int, bm25: Any = None) -> None:
    """Index files in this process, which a seed kills, and end it."""
    code = 1
    try:
        store, encoder = Store(settings), HashEncoder()
        sources = find_sources([str(path) for path in paths], settings.home / "spool")
        manifest = store.manifest()
        found = survey(sources, None, lambda count: None, split, manifest.sources if manifest else ())
        if manifest is None:
            manifest = store.new_manifest(encoder.identity, found.avg_len)
            manifest = replace(manifest, bm25=bm25 or manifest.bm25)
        if seed != NO_KILL:
            _kill_somewhere(random.Random(seed))
        load = lambda: encoding_snippets(encoder)  # noqa: E731
        incoming = writing.surveyed_changes(sources, found, None, split)
        writing.write_index(store, manifest, incoming, load, lambda count: None)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _kill_somewhere(draw: random.Random) -> None:
    """Let this process be killed at a moment, or where one of biorag's functions writes."""
    if draw.random() < 0.4:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.001, 0.15))
        return
    owner, name, most = draw.choice(KILLABLE)
    calls, when = draw.randint(1, most), draw.choice(["before", "half", "after"])
    original = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls -= 1
        if calls == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if calls == 0 and when == "half" and name == "upsert":
            index, snippets, vectors, tokens, _ = arguments
            half = len(snippets) // 2
            index._flush = lambda: None
            original(index, snippets[:half], vectors[:half], tokens[:half])
        if calls == 0 and when == "half":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments)
        if calls == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


def _look(settings: Settings) -> dict[str, Any]:
    """Return what an index holds and says, from a process of its own."""
    store = Store(settings)
    manifest = store.manifest()
    if manifest is None or not (store.folder / "shard" / "segments").is_dir():
        return {"points": {}, "complete": False, "torn": [], "deleted_share": 0.0, "seconds": 0.0}
    index = store.open(manifest)
    ids = list(index.ids())
    vectors, digests, snippets = index.dense_vectors(ids), index.digests(ids), index.fetch(ids)
    points = {id: [snippets[id].document, digests[id], _rounded(vectors[id])] for id in ids}
    torn = sorted(read_progress(store.folder).torn or ())
    return {
        "points": points,
        "complete": manifest.complete,
        "torn": torn,
        "deleted_share": index.deleted_share(),
        "seconds": manifest.seconds,
    }


def _everything(settings: Settings) -> dict[str, Any]:
    """Return all that an index's points hold, and the BM25 scores of every word and some phrases."""
    from scripts.faults.runs import held

    store = Store(settings)
    index = store.open(store.require_manifest())
    queries = [*WORDS, " ".join(WORDS[:3]), " ".join(WORDS[-4:])]
    found = index.search([IndexQuery(query, 10_000) for query in queries])
    scores = {query: {hit.id: hit.score for hit in hits} for query, hits in zip(queries, found, strict=True)}
    index.close()
    return {"points": held(store.folder), "scores": scores}


def _by_document(points: dict[str, list[Any]]) -> dict[str, dict[str, list[Any]]]:
    documents: dict[str, dict[str, list[Any]]] = {}
    for id, (document, digest, vector) in points.items():
        documents.setdefault(document, {})[id] = [digest, vector]
    return documents


def _rounded(vector: Any) -> list[float]:
    return [round(float(value), 4) + 0.0 for value in vector / max(float(np.linalg.norm(vector)), 1e-12)]


def _row(snippet: Snippet) -> dict[str, Any]:
    return {
        "id": snippet.id,
        "title": snippet.title,
        "content": snippet.content,
        "PMID": snippet.pmid,
        **snippet.metadata,
    }


def run_sequence(seed: int, folder: Path) -> Counter[str]:
    """Carry out one sequence and check its end; return what happened."""
    draw = random.Random(seed)
    sequence = UpdateSequence(folder, draw, BLOCKS if seed % 2 else WHOLE)
    plain = edge._shard_config
    if seed % 4 >= 2:
        edge._shard_config = _with_graphs(plain)
    try:
        for _ in range(draw.randint(4, 7)):
            sequence.step()
        sequence.finish()
        sequence.is_as_fresh()
    finally:
        edge._shard_config = plain
    return sequence.counts


def _with_graphs(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a configuration by which segments of few vectors are indexed as large ones are."""
    import qdrant_edge as qe

    def config(manifest: Any, optimizers: Any = None) -> Any:
        return plain(manifest, optimizers or qe.EdgeOptimizersConfig(indexing_threshold=INDEXED_FROM))

    return config


def main() -> None:
    """Run the sequences; the first that ends otherwise raises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("update_sequences.json"))
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.sequences):
        with tempfile.TemporaryDirectory(prefix="biorag-sequence-") as folder:
            try:
                counts += run_sequence(seed, Path(folder))
            except AssertionError as fault:
                raise AssertionError(f"the sequence of --seed {seed}: {fault}") from fault
        counts["sequences"] += 1
        write_report(options.out, dict(counts))
    sys.stdout.write(json.dumps(dict(counts), indent=2) + "\n")


if __name__ == "__main__":
    main()
