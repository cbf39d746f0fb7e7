"""What tests of the stages share: random corpora, the stages with a cheap encoder, and the direct way beside them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import FoundFiles, find_files
from biorag.indexes.manifest import WORDS, BlockParameters, Bm25Parameters, Manifest
from biorag.indexes.store import Store
from biorag.indexes.surveying import survey
from biorag.indexes.writing import IndexReport, surveyed_changes, write_index
from biorag.lab.scale.snippet_folder import Export, ExportForm, SnippetFolder, export_corpus
from biorag.lab.scale.stages import load_vectors
from biorag.lab.scale.vectors import (
    NONE,
    EmbedReport,
    Encode,
    EncodingJob,
    StoredVectors,
    VectorFolder,
    embed_snippets,
    encode_here,
)
from biorag.settings.settings import Settings
from biorag.types import Encoded, IndexQuery, Progress, Snippet
from biorag.utils.progress import silent
from tests.fakes import HashEncoder, encoding_snippets
from tests.pubmed_records import article, deletions, file_of

WORD_LIST = [f"word{letter}" for letter in "abcdefghijkl"]
QUERIES = [*WORD_LIST, " ".join(WORD_LIST[:3])]
BLOCKS = Splitter(6, 1, lambda text: [match.start() for match in re.finditer(r"\S+", text)])
BAD_LINES = [b'{"id": "x"', b"[]", b'{"id": "y", "content": ""}']


def random_file(draw: Random, path: Path, bad: bool = False) -> Path:
    """Write a PubMed file with updates, versions and deletions, or JSON Lines with duplicates and conflicts."""

    def words() -> str:
        return " ".join(draw.choices(WORD_LIST, k=draw.randint(1, 25)))

    if draw.random() < 0.6:
        days = [f"2024-01-{draw.randint(1, 28):02}" for _ in range(2)]
        pmids = draw.choices(range(1, 9), k=draw.randint(1, 6))
        records = [article(pmid, f"T{pmid}.", words(), draw.choice(days), draw.randint(1, 2)) for pmid in pmids]
        parts = [*records, deletions(*draw.sample(range(1, 9), draw.randint(0, 3)))]
        if draw.random() < 0.3:
            draw.shuffle(parts)
        path = path.with_suffix(".xml")
        path.write_bytes(file_of(*parts))
        return path
    names = draw.choices("abcdefgh", k=draw.randint(1, 8))
    texts = [words() for _ in range(3)]
    rows = [json.dumps({"id": name, "title": "", "content": draw.choice(texts)}).encode() for name in names]
    if bad:
        rows.insert(draw.randrange(len(rows)), draw.choice(BAD_LINES))
    path = path.with_suffix(".jsonl")
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


def write_lines(path: Path, *rows: tuple[str, str]) -> Path:
    """Write snippets of these ids and texts as JSON Lines."""
    path.write_text("".join(json.dumps({"id": id, "content": text}) + "\n" for id, text in rows))
    return path


@dataclass(frozen=True)
class HashLoad:
    """Gives a `HashEncoder` in any process, and writes to `log` who loaded it and which ids were encoded, in order."""

    log: Path
    sha256: str = "f" * 64

    def __call__(self, manifest: Manifest) -> HashEncoding:
        self.log.mkdir(parents=True, exist_ok=True)
        with (self.log / "loaded").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        return HashEncoding(self.log, HashEncoder(manifest.encoder.dimension, self.sha256))

    def loads(self) -> int:
        path = self.log / "loaded"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def encoded(self) -> list[str]:
        """Return the ids that were encoded, in order within each process."""
        return [json.loads(line) for path in sorted(self.log.glob("*.ids")) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class HashEncoding:
    """Encodes snippets, and notes their ids."""

    log: Path
    encoder: HashEncoder
    parameters: None = None

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        with (self.log / f"{os.getpid()}.ids").open("a") as stream:
            stream.writelines(json.dumps(snippet.id) + "\n" for snippet in snippets)
        return Encoded(self.encoder.encode_snippets([snippet.contents for snippet in snippets]), [])


@dataclass(frozen=True)
class Pipeline:
    """The three stages with a `HashEncoder`, into folders below `folder`."""

    folder: Path
    blocks: bool = False
    sha256: str = "f" * 64

    @property
    def snippets(self) -> Path:
        return self.folder / "snippets"

    @property
    def vectors(self) -> Path:
        return self.folder / "vectors"

    @property
    def load(self) -> HashLoad:
        return HashLoad(self.folder / "log", self.sha256)

    def export(self, *paths: Path, rejects: RejectsFile | None = None) -> Export:
        form = ExportForm(BlockParameters(BLOCKS.tokens, BLOCKS.overlap) if self.blocks else None, WORDS)
        split, files = BLOCKS if self.blocks else WHOLE, files_of(paths)
        surveyed = survey(files.sources, rejects, lambda count: None, split)
        return export_corpus(self.snippets, files, surveyed, split, form, rejects is not None, lambda count: None)

    def manifest(self, settings: Settings, bm25: Bm25Parameters | None = None) -> Manifest:
        """Return the manifest of an index of the vectors."""
        export = SnippetFolder(self.snippets, {}).export()
        identity = HashEncoder(sha256=self.sha256).identity
        manifest = replace(Store(settings).new_manifest(identity, export.avg_len), blocks=export.blocks)
        return replace(manifest, bm25=bm25 or manifest.bm25)

    def embed(
        self, manifest: Manifest, batch_size: int = 3, encode: Encode = encode_here, known: Any = NONE
    ) -> EmbedReport:
        folders = SnippetFolder(self.snippets, {}), VectorFolder(self.vectors, {})
        job = EncodingJob(self.snippets.resolve(), self.vectors.resolve(), manifest, self.load)
        return embed_snippets(*folders, job, batch_size, encode, silent, known)

    def write(self, settings: Settings, progress: Progress = silent) -> IndexReport:
        store, folder = Store(settings), VectorFolder(self.vectors, {})
        made = folder.made()
        assert made is not None
        vectors = StoredVectors(folder, made[0])
        return load_vectors(store, made[0], SnippetFolder(self.snippets, {}), vectors, progress)

    def index(self, settings: Settings, *paths: Path, rejects: RejectsFile | None = None) -> IndexReport:
        """Carry out all stages."""
        self.export(*paths, rejects=rejects)
        current = Store(settings).manifest()
        self.embed(self.manifest(settings, current.bm25 if current else None))
        return self.write(settings)


def files_of(paths: Sequence[Path]) -> FoundFiles:
    return find_files([str(path) for path in paths], Path("not-read"))


def direct(
    settings: Settings,
    *paths: Path,
    blocks: bool = False,
    rejects: RejectsFile | None = None,
    bm25: Bm25Parameters | None = None,
) -> IndexReport:
    """Index files as `biorag index` does without stages."""
    store, encoder = Store(settings), HashEncoder()
    split, sources, manifest = BLOCKS if blocks else WHOLE, files_of(paths).sources, store.manifest()
    found = survey(sources, rejects, lambda count: None, split, manifest.sources if manifest else ())
    if manifest is None:
        manifest = store.new_manifest(encoder.identity, found.avg_len)
        parameters = BlockParameters(BLOCKS.tokens, BLOCKS.overlap) if blocks else None
        manifest = replace(manifest, blocks=parameters, bm25=bm25 or manifest.bm25)
    incoming = surveyed_changes(sources, found, (lambda _: None) if rejects else None, split)
    return write_index(store, manifest, incoming, lambda: encoding_snippets(encoder), lambda count: None)


def points(settings: Settings) -> dict[str, tuple[Snippet, str, bytes]]:
    """Return each point of an index: its snippet, digest and vector."""
    store = Store(settings)
    with closing(store.open(store.require_manifest())) as index:
        ids = sorted(index.ids())
        snippets, digests, vectors = index.fetch(ids), index.digests(ids), index.dense_vectors(ids)
        assert index.count() == len(ids) == len(snippets)
        return {id: (snippets[id], digests[id], vectors[id].tobytes()) for id in ids}


def bm25_scores(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the BM25 scores of each word, to 4 places."""
    store = Store(settings)
    with closing(store.open(store.require_manifest())) as index:
        found = index.search([IndexQuery(query, 10_000) for query in QUERIES])
    return {query: {hit.id: round(hit.score, 4) for hit in hits} for query, hits in zip(QUERIES, found, strict=True)}


def facts(settings: Settings, *without: str) -> dict[str, Any]:
    """Return what a manifest says but for names and times."""
    manifest = Store(settings).require_manifest()
    left_out = {"name", "created", "updated", "seconds", "checksums", *without}
    return {name: value for name, value in manifest.to_json().items() if name not in left_out}


def counts(report: IndexReport) -> dict[str, Any]:
    """Return what a report counts."""
    return {name: value for name, value in asdict(report).items() if name not in ("name", "seconds", "files")}
