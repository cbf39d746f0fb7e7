"""The three stages of a corpus, assembled from settings: exported, embedded and loaded, alone or together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from biorag import engine, indexing
from biorag.corpus.blocks import WHOLE
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import Columns, check_kinds, find_files
from biorag.errors import MismatchError, MissingError, UsageError
from biorag.indexes.bm25 import LengthCounter
from biorag.indexes.manifest import WORDS, Manifest
from biorag.indexes.store import Store, blocks_of, check_encoder, check_settings, similarity_of
from biorag.indexes.surveying import survey
from biorag.indexes.token_vectors import token_files
from biorag.indexes.updating import PendingChange
from biorag.indexes.writing import Incoming, IndexReport, write_index
from biorag.lab.scale.parquet import KEY, KEYS, NAMES
from biorag.lab.scale.snippet_folder import Export, ExportForm, SnippetFile, SnippetFolder, export_corpus
from biorag.lab.scale.vectors import (
    NAME,
    NONE,
    EmbedReport,
    Encode,
    EncodingJob,
    StoredVectors,
    VectorFolder,
    among,
    embed_snippets,
    encode_here,
)
from biorag.models.finding import ModelFiles
from biorag.settings.settings import Settings
from biorag.types import Deletion, Encoded, Progress, Snippet
from biorag.utils.cores import usable_cores
from biorag.utils.files import scratch_folder
from biorag.utils.progress import batched, silent
from biorag.utils.versions import require

# The settings that a worker is told: no servers, no keys. Models are found where it runs, and not downloaded.
TOLD = ("home", "precision")
PAGE = 4096  # snippets asked for at once


@contextmanager
def encoders(ray: str | None, count: int | None, gpus: int | None) -> Iterator[Encode]:
    """Give what encodes: this process, or the workers of a Ray cluster, whose session is open meanwhile.

    Raises `UsageError` if workers or GPUs are counted without Ray; `MissingError` if Ray is not installed;
    `ServiceError` if it does not answer, or its workers fail.

    `ray`: address of a cluster, `auto` or `local`; `count`: its workers, by default one a GPU, else one a core.
    """
    if ray is None:
        if count or gpus:
            raise UsageError("--workers and --gpus are for --ray: name a cluster, or start one here with --ray local")
        yield encode_here
        return
    require("ray")
    from biorag.lab.scale.ray_cluster import encode_by_ray, ray_session

    with ray_session(ray, count or gpus or usable_cores()):
        yield encode_by_ray(count or gpus, gpus or 0)


def export(
    settings: Settings,
    corpus: Sequence[str],
    out: Path,
    rejects: RejectsFile | None,
    progress: Progress = silent,
    columns: Columns = (),
    manifest: Manifest | None = None,
) -> Export:
    """Export a corpus, in blocks as the settings say or the manifest of its index; see `survey`, `export_corpus`."""
    terms = manifest.bm25.terms if manifest else settings.index.bm25_terms or WORDS
    form, split, length_of = ExportForm(blocks_of(settings, manifest), terms), WHOLE, LengthCounter()
    if form.blocks or terms != WORDS:
        files = engine.encoder_files(settings, manifest)
        form, split = replace(form, encoder=files.sha256), indexing.splitter(settings, files, manifest)
        length_of = indexing.length_counter(settings.replace(bm25_terms=terms), files)
    with scratch_folder() as spool:
        files_found = find_files(corpus, spool / "standard-input", settings.home, columns)
        check_kinds(files_found.sources)
        with progress("Checking", None) as advance:
            surveyed = survey(files_found.sources, rejects, advance, split, (), length_of)
        with progress("Exporting", surveyed.changes) as advance:
            return export_corpus(out, files_found, surveyed, split, form, rejects is not None, advance)


def embed(
    settings: Settings,
    snippets: Path,
    out: Path,
    encode: Encode = encode_here,
    progress: Progress = silent,
    index: Manifest | None = None,
) -> EmbedReport:
    """Encode an export, for the `index` with this manifest, or for one yet to be made; see `embed_snippets`.

    Raises `MissingError` if there is no finished export, or a model is missing; `MismatchError` if the folder holds
    vectors made otherwise, or the export has blocks of another encoder's tokens.
    """
    source, folder = SnippetFolder(snippets, {}), VectorFolder(out, {})
    exported, made = source.export(), folder.made()
    manifest = index or (made[0] if made else None)
    if manifest:
        check_settings(manifest, settings)
        folder.check(manifest)
    files = engine.encoder_files(settings, manifest)
    if exported.encoder not in ("", files.sha256):
        raise MismatchError(
            f"{snippets} was exported with the tokens of another encoder than {files.id!r}: name that one with "
            "--encoder, or export the corpus again"
        )
    if manifest is None:
        manifest = _manifest_of(settings, exported, source, files)
    elif (manifest.blocks, manifest.bm25.terms) != (exported.blocks, exported.terms):
        raise MismatchError(f"{out} has vectors of other blocks or BM25 terms than {snippets}: choose another --out")
    token_files(settings, manifest, files)
    settings_of_worker = {name: value for name, value in settings.flat().items() if name in TOLD}
    job = EncodingJob(snippets.resolve(), out.resolve(), manifest, partial(load_encoding, settings_of_worker))
    known = _held(settings, index, source, exported) if index else NONE
    return embed_snippets(source, folder, job, settings.index.batch_size, encode, progress, known)


def _manifest_of(settings: Settings, exported: Export, source: SnippetFolder, files: ModelFiles) -> Manifest:
    """Return the manifest of an index of vectors that are yet to be made."""
    if settings.index.similarity is None:
        settings = settings.replace(similarity=files.similarity())
    similarity = similarity_of(settings, None)
    token_model = token_files(settings, None, files)
    if token_model is None:  # then the exported encoder, which loads in a second, tells all
        encoder = engine.load_encoder(files, similarity, settings.retrieval.precision, settings.exports)
        identity, parameters = encoder.identity, None
    else:
        sample = source.sample()
        encoding = indexing.snippet_encoders(settings, files, token_model, similarity, None, sample=sample)
        identity, parameters = encoding.encoder.identity, encoding.parameters
    settings = settings.replace(qdrant=None, store=None, name=NAME, bm25_terms=exported.terms, quantize=False)
    manifest = Store(settings).new_manifest(identity, exported.avg_len, parameters)
    return replace(manifest, blocks=exported.blocks)


def load_encoding(told: Mapping[str, Any], manifest: Manifest) -> indexing.SnippetEncoders:
    """Load the models of an index where they are to encode."""
    settings = Settings.of(**told)
    files = engine.encoder_files(settings, manifest)
    token_model = token_files(settings, manifest, files)
    return indexing.snippet_encoders(settings, files, token_model, manifest.similarity, manifest)


def _held(settings: Settings, index: Manifest, source: SnippetFolder, exported: Export) -> np.ndarray:
    """Return the keys of the exported snippets that an index holds as they are, sorted."""
    keys: list[int] = []
    with closing(Store(settings).open(index)) as opened:
        for part in exported.parts:
            rows = source.rows(part, NAMES.append(KEYS.field(KEY))).to_pylist()
            for page in batched(rows, PAGE):
                digests = opened.digests([row["id"] for row in page])
                keys += [row[KEY] for row in page if digests.get(row["id"]) == row["digest"]]
    return np.unique(np.array(keys, np.uint64))


def load(settings: Settings, vectors: Path, snippets: Path | None, progress: Progress = silent) -> IndexReport:
    """Bring an export and its vectors into the configured index; see `load_vectors`.

    Raises `MissingError` if there are no vectors, or not of all snippets; `MismatchError` if the index was made with
    another encoder, or other settings.

    `snippets`: the export, where it does not lie where it was embedded.
    """
    folder = VectorFolder(vectors, {})
    if (made := folder.made()) is None:
        raise MissingError(f"{vectors} holds no vectors: run 'biorag embed SNIPPETS --out {vectors}'")
    manifest, source, complete = made
    if not complete:
        raise MissingError(f"the vectors in {vectors} are not finished: run 'biorag embed' to the end")
    store = Store(settings)
    _check_load(settings, current := store.manifest(), manifest)
    store.check_layout(current)
    exported = SnippetFolder(snippets or source, {})
    with exported.reading(), folder.reading():
        report = load_vectors(store, manifest, exported, StoredVectors(folder, manifest), progress)
    indexing.export_models(settings)
    return report


def _check_load(settings: Settings, current: Manifest | None, made: Manifest) -> None:
    """Hold vectors against the settings, and the index that they are to go into."""
    if settings.index.encoder or settings.index.store_tokens:
        files = engine.encoder_files(settings, made)
        token_files(settings, made, files)
    if current is None:
        kind = {"kind": settings.index.store or made.store["kind"]}
        check_settings(replace(made, store=kind, quantized=settings.index.quantize), settings)
        return
    check_settings(current, settings)
    check_encoder(current, made.encoder.sha256, made.encoder.id, made.encoder.configuration)
    for part in ("similarity", "blocks", "tokens"):
        if getattr(current, part) != getattr(made, part):
            raise MismatchError(
                f"index {current.name!r} was made with other {part} than the vectors: embed with --for-index "
                f"{current.name}, or index under another --name"
            )


def index_in_stages(
    settings: Settings,
    corpus: Sequence[str],
    rejects: RejectsFile | None,
    encode: Encode = encode_here,
    progress: Progress = silent,
    columns: Columns = (),
    folder: Path | None = None,
) -> IndexReport:
    """Export, embed and load a corpus; a run that ended early is resumed.

    `folder`: for snippets and vectors, which are kept; by default one under the home, removed at the end.
    """
    store = Store(settings)
    current = store.manifest()
    if current:
        check_settings(current, settings)
    store.check_layout(current)
    between = folder or settings.stages / settings.index.name
    snippets, vectors = between / "snippets", between / "vectors"
    try:
        export(settings, corpus, snippets, rejects, progress, columns, current)
        embed(settings, snippets, vectors, encode, progress, current)
    except MismatchError as error:
        raise MismatchError(f"{error}; what an earlier run left is in {between}: remove it to begin anew") from None
    report = load(settings, vectors, snippets, progress)
    if folder is None:
        shutil.rmtree(between, ignore_errors=True)
    return report


@dataclass(frozen=True, slots=True)
class GivenBlocks:
    """Gives the blocks that documents were split into before: a `BlockSplit` of the documents that are written next."""

    tokens: int
    blocks: dict[str, list[Snippet]]

    def __call__(self, document: Snippet) -> list[Snippet]:
        """Return the blocks of a document, once."""
        return self.blocks.pop(document.id)


def load_vectors(
    store: Store, made: Manifest, snippets: SnippetFolder, vectors: StoredVectors, progress: Progress
) -> IndexReport:
    """Bring an export and its vectors into an index; see `write_index`.

    Raises `MissingError` if snippets that the index does not hold have no vectors.

    `made`: the manifest of the vectors.
    """
    export, current = snippets.export(), store.manifest()
    held = {record.sha256 for record in current.sources} if current else set()
    # Files that the index has taken in before, and that later files may have changed since.
    skipped = {n for n, source in enumerate(export.sources) if source.incremental and source.record.sha256 in held}
    parts = [part for part in export.parts if part.source not in skipped]
    _check_vectors(store, current, snippets, parts, vectors)
    new = store.new_manifest(made.encoder, 0.0, made.tokens)
    planned = current or replace(new, bm25=made.bm25, similarity=made.similarity, blocks=made.blocks)
    blocks = GivenBlocks(export.blocks.tokens if export.blocks else 0, {})
    taken = [source for number, source in enumerate(export.sources) if number not in skipped]
    incoming = Incoming(
        winners=_winners(snippets, export, parts, skipped, blocks),
        split=blocks,
        sources=tuple(source.record for source in taken),
        rejected=export.rejected,
        duplicates=sum(source.duplicates for source in taken),
        known=sum(export.sources[number].record.snippets for number in skipped),
    )

    def encode(snippets: Sequence[Snippet]) -> Encoded:
        """Return vectors, with BM25 terms where they were counted as this index counts them."""
        encoded = vectors(snippets)
        return encoded if planned.bm25 == made.bm25 else encoded._replace(terms=())

    with progress("Indexing", sum(source.changes for source in taken)) as advance:
        report = write_index(store, planned, incoming, lambda: encode, advance)
    return replace(report, files=export.files)


def _check_vectors(
    store: Store,
    current: Manifest | None,
    snippets: SnippetFolder,
    parts: Sequence[SnippetFile],
    vectors: StoredVectors,
) -> None:
    """Check that every snippet has a vector, or is in the index as it is."""
    missing: dict[str, str] = {}
    for part in parts:
        lacks = ~among(snippets.keys(part), vectors.keys)
        if lacks.any():
            rows = snippets.rows(part, NAMES).take(np.flatnonzero(lacks))
            missing |= dict(zip(rows.column("id").to_pylist(), rows.column("digest").to_pylist(), strict=True))
    if missing and current:
        with closing(store.open(current)) as index:
            held = index.digests(list(missing))
        missing = {id: digest for id, digest in missing.items() if held.get(id) != digest}
    if missing:
        raise MissingError(
            f"{len(missing):,} snippets of {snippets.path} have no vectors ({next(iter(missing))!r} for one): "
            f"run 'biorag embed {snippets.path}' to the end"
        )


def _winners(
    snippets: SnippetFolder,
    export: Export,
    parts: Sequence[SnippetFile],
    skipped: AbstractSet[int],
    blocks: GivenBlocks,
) -> Iterator[PendingChange]:
    """Yield the documents of parts, whose blocks are given, then the deletions."""
    changed = snippets.changed_documents()
    restored = {document.id for document in changed if document.restored}
    names = [source.record.name for source in export.sources]
    for part in parts:
        for own in snippets.documents(part):
            document = replace(own[0], id=own[0].document)
            blocks.blocks[document.id] = own
            yield PendingChange(document, document.id in restored, names[part.source])
    for gone in changed:
        if not gone.restored and gone.source not in skipped:
            yield PendingChange(Deletion(gone.id), False, names[gone.source])
