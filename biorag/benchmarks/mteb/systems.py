"""What mteb evaluates: the encoder, the reranker or the pipeline, over an index or a task's corpus indexed for it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from biorag.benchmarks.mteb.models import (
    EncoderModel,
    OpenCorpus,
    PipelineModel,
    Searchable,
    TaskPrompts,
    document_of,
    model_meta,
)
from biorag.corpus.rejects import RejectsFile
from biorag.engine import encoder_files, index_corpus, load_encoder, make_retriever
from biorag.errors import MismatchError
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store, check_settings, similarity_of
from biorag.models.text_encoder import TextEncoder
from biorag.settings.settings import Settings
from biorag.types import OnProgress, Snippet
from biorag.utils.files import make_folder
from biorag.utils.progress import counting
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)


def model_of(
    settings: Settings,
    manifest: Manifest | None,
    system: str,
    out: Path,
    on_progress: OnProgress,
    instructions: Mapping[str, str] | None = None,
) -> tuple[EncoderModel, dict[str, Any]]:
    """Return the model that mteb evaluates, and what determines its results.

    Parameters
    ----------
    instructions : of tasks, see `TaskPrompts`
    """
    files = encoder_files(settings, manifest)
    if manifest is None and settings.index.similarity is None:
        settings = settings.replace(similarity=files.similarity())
    similarity = similarity_of(settings, manifest)
    identity: dict[str, Any] = {
        "system": system,
        "encoder": {"id": files.id, "sha256": files.sha256},
        "similarity": similarity,
        "precision": settings.retrieval.precision,
        "versions": installed_versions(),
    }
    if system != "encoder":
        identity |= {
            "settings": settings.retrieval.identity(),
            "reranker": settings.retrieval.rerankers_hash(),
            "index": manifest.fingerprint() if manifest else None,
        }
    encoder = load_encoder(files, similarity, settings.retrieval.precision, settings.exports)
    identity["query_prompt"] = encoder.query_prompt
    if instructions:
        identity["instructions"] = dict(instructions)
    meta = model_meta(files.id, identity)
    prompts = TaskPrompts(encoder, instructions) if instructions else None
    if system == "encoder":
        return EncoderModel(encoder, meta, on_progress, prompts), identity
    opener = (
        _stored(settings, manifest, encoder)
        if manifest
        else _indexed(settings, encoder, out / "indexes" / str(meta.revision), on_progress)
    )
    return PipelineModel(encoder, meta, on_progress, opener, prompts), identity


@contextmanager
def _searchable(settings: Settings, manifest: Manifest, encoder: TextEncoder) -> Iterator[Searchable]:
    with closing(Store(settings).open(manifest)) as index:
        yield Searchable(index, make_retriever(settings, index, manifest, encoder))


def _stored(settings: Settings, manifest: Manifest, encoder: TextEncoder) -> OpenCorpus:
    """Return what searches the index of a name for any task whose corpus it holds.

    Raises
    ------
    MismatchError
        From the opener, if the index lacks documents of the corpus or has others.
    """
    check_settings(manifest, settings)

    @contextmanager
    def open_corpus(key: str, corpus: Sequence[Snippet]) -> Iterator[Searchable]:
        ids = {snippet.id for snippet in corpus}
        with _searchable(settings, manifest, encoder) as searchable:
            held = {document_of(id, ids) for id in searchable.index.ids()}
            if held != ids:
                raise MismatchError(
                    f"index {manifest.name!r} is not of the corpus of {key}: it lacks {len(ids - held)} of {len(ids)} "
                    f"documents and has {len(held - ids)} others; leave --name out, and the corpus is indexed"
                )
            yield searchable

    return open_corpus


def _indexed(settings: Settings, encoder: TextEncoder, folder: Path, on_progress: OnProgress) -> OpenCorpus:
    """Return what indexes a corpus under `folder` and searches it; the index goes when the task is done."""

    @contextmanager
    def open_corpus(key: str, corpus: Sequence[Snippet]) -> Iterator[Searchable]:
        home = folder / key
        scratch = settings.replace(home=home, name="corpus", qdrant=None, store_tokens="none")
        make_folder(home)
        write_corpus(home / "corpus.jsonl", corpus)
        rejected = RejectsFile(home / "rejects.jsonl")
        index_corpus(scratch, [str(home / "corpus.jsonl")], rejected, counting(on_progress), encoder)
        if rejected.count:
            logger.warning(
                "%s documents of the task cannot be indexed and are never found: %s", rejected.count, rejected.path
            )
        with _searchable(scratch, Store(scratch).require_manifest(), encoder) as searchable:
            yield searchable
        shutil.rmtree(home)

    return open_corpus


def write_corpus(path: Path, corpus: Sequence[Snippet]) -> None:
    """Write a task's corpus as BEIR's lines."""
    with path.open("w", encoding="utf-8") as stream:
        for snippet in corpus:
            row = {"_id": snippet.id, "title": snippet.title, "text": snippet.content}
            stream.write(json.dumps(row) + "\n")
