"""biorag's encoder, reranker and pipeline as models that mteb evaluates."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from mteb.models import ModelMeta
from mteb.types import PromptType

from biorag.benchmarks.retrieval import DEPTH, run_scores
from biorag.benchmarks.tuning.instruction import PromptedEncoder, parted
from biorag.corpus.readers import beir_record
from biorag.corpus.rejects import RejectsFile
from biorag.engine import encoder_files, index_corpus, load_encoder, make_retriever
from biorag.errors import MismatchError
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store, check_settings, similarity_of
from biorag.models.text_encoder import TextEncoder
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Ranking, Retriever
from biorag.settings.settings import Settings
from biorag.training.instructions import dataset_key
from biorag.types import Encoder, Index, IndexQuery, OnProgress, Question, ScoredDoc, Snippet, Vectors
from biorag.utils.files import make_folder
from biorag.utils.progress import batched, counting
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

ENCODED = 1024  # texts encoded at once: the encoder makes its own batches of them, by length
Batch = Mapping[str, Any]
Run = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Searchable:
    """A task's corpus in an index, and a retriever over it."""

    index: Index
    retriever: Retriever


# Makes a task's corpus searchable; the text names the task and its part.
OpenCorpus = Callable[[str, Sequence[Snippet]], AbstractContextManager[Searchable]]


def model_meta(name: str, identity: Mapping[str, Any]) -> ModelMeta:
    """Return the model's name (of a directory its last part), and as revision a hash of everything behind results."""
    shown = name if name.count("/") == 1 and not name.startswith((".", "/", "~")) else f"biorag/{name.split('/')[-1]}"
    revision = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return ModelMeta.create_empty({"name": shown, "revision": revision})


class TaskPrompts:
    """Sets an encoder's query prompt to the instruction of a task, in the form of the encoder's own prompt.

    `encoder`: keeps its own prompt in tasks without an instruction; `instructions`: `dataset_key` of a task's name ->
    instruction.
    """

    def __init__(self, encoder: PromptedEncoder, instructions: Mapping[str, str]) -> None:
        self._encoder = encoder
        self._instructions = instructions
        self._own = encoder.query_prompt
        self._form = parted(self._own)[1]

    def of(self, task: str) -> str | None:
        """Return the instruction of a task, if it has one."""
        return self._instructions.get(dataset_key(task))

    def set(self, task: str) -> None:
        """Set the query prompt of a task."""
        instruction = self.of(task)
        self._encoder.query_prompt = self._own if instruction is None else self._form.prompt(instruction)


class EncoderModel:
    """A bi-encoder as mteb's `EncoderProtocol`: mteb searches exactly, by the product of the vectors.

    Documents are encoded as biorag indexes them: title and text joined by MedRAG's rule (`Snippet.contents`).
    Texts that are neither query nor document, as those of sentence similarity, are encoded as queries.
    """

    def __init__(
        self, encoder: Encoder, meta: ModelMeta, on_progress: OnProgress, prompts: TaskPrompts | None = None
    ) -> None:
        self.mteb_model_meta = meta
        self.prompts = prompts
        self._encoder = encoder
        self._advance = on_progress

    def encode(
        self, inputs: Iterable[Batch], *, task_metadata: Any = None, prompt_type: PromptType | None = None, **_: Any
    ) -> Vectors:
        """Encode the texts of a data loader, shape (texts, dimension)."""
        if self.prompts and task_metadata is not None:
            self.prompts.set(task_metadata.name)
        as_documents = prompt_type == PromptType.document
        encode = self._encoder.encode_snippets if as_documents else self._encoder.encode_queries
        parts: list[Vectors] = []
        for texts in batched(chain.from_iterable(_texts(batch, as_documents) for batch in inputs), ENCODED):
            parts.append(encode(texts))
            self._advance(len(texts))
        return np.concatenate(parts)

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return every product of two sets of vectors, shape (first, second)."""
        products: Vectors = np.asarray(embeddings1) @ np.asarray(embeddings2).T
        return products

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return the product of each pair of vectors, shape (pairs,)."""
        products: Vectors = (np.asarray(embeddings1) * np.asarray(embeddings2)).sum(axis=1)
        return products


class PipelineModel(EncoderModel):
    """The whole pipeline as mteb's `SearchProtocol`, and its encoder for tasks that search nothing.

    A ranking has `DEPTH` snippets, as `bench retrieval` takes them; where a task gives each query its candidates,
    the pipeline ranks these alone.
    """

    def __init__(
        self,
        encoder: Encoder,
        meta: ModelMeta,
        on_progress: OnProgress,
        open_corpus: OpenCorpus,
        prompts: TaskPrompts | None = None,
    ) -> None:
        super().__init__(encoder, meta, on_progress, prompts)
        self._open = open_corpus
        self._corpus: Sequence[Snippet] = ()

    def index(self, corpus: Iterable[Batch], **_: Any) -> None:
        """Take a task's corpus; it is indexed when it is searched."""
        self._corpus = [_snippet(row["id"], row.get("title"), row["text"]) for row in corpus]

    def search(
        self,
        queries: Iterable[Batch],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> Run:
        """Return query -> document -> score; the scores are 1/rank, whatever the stages' scales."""
        if self.prompts:
            self.prompts.set(task_metadata.name)
        texts = {row["id"]: _query(row) for row in queries}
        key = f"{task_metadata.name}-{task_metadata.revision}-{hf_split}-{hf_subset}"
        with self._open(key, self._corpus) as searchable:
            rankings = (
                self._search(searchable.retriever, texts, min(top_k, DEPTH))
                if top_ranked is None
                else self._rank(searchable, texts, top_ranked)
            )
            # mteb leaves a query without a ranking out of the means; an empty ranking counts as zero.
            return {id: {} for id in texts} | {id: _scores(ranking) for id, ranking in rankings}

    def _search(self, retriever: Retriever, texts: Mapping[str, str], limit: int) -> Iterator[tuple[str, Ranking]]:
        questions = (Question(id, text) for id, text in texts.items())
        rankings = search_questions(retriever, questions, limit, on_progress=self._advance)
        return ((question.id, ranking) for question, ranking in rankings)

    def _rank(
        self, searchable: Searchable, texts: Mapping[str, str], candidates: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, Ranking]]:
        blocks = _blocks(searchable.index, {snippet.id for snippet in self._corpus})
        for id, query in texts.items():
            listed = list(candidates.get(id, ()))
            among = frozenset(block for document in listed for block in blocks.get(document, ()))
            if among:
                retriever = searchable.retriever.over(CandidateIndex(searchable.index, among))
                yield id, retriever.search(query, len(listed))
            self._advance(1)


class CandidateIndex:
    """A view of an index that searches only some of its snippets."""

    def __init__(self, index: Index, among: frozenset[str]) -> None:
        self._index = index
        self._among = among

    def search(self, probes: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        """Answer each probe from the candidates."""
        return self._index.search(
            [
                replace(probe, among=self._among if probe.among is None else probe.among & self._among)
                for probe in probes
            ]
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def document_of(id: str, corpus: Collection[str]) -> str:
    """Return the document of `corpus` that an index's snippet is, or is a block of."""
    return id if id in corpus else id.rpartition("#")[0] or id


def _scores(ranking: Ranking) -> dict[str, float]:
    return dict(zip([hit.snippet.id for hit in ranking.hits], run_scores(len(ranking.hits)), strict=True))


def _blocks(index: Index, corpus: set[str]) -> dict[str, list[str]]:
    blocks: dict[str, list[str]] = {}
    for id in index.ids():
        blocks.setdefault(document_of(id, corpus), []).append(id)
    return blocks


def _texts(batch: Batch, as_documents: bool) -> list[str]:
    """Return a batch's texts; of documents mteb gives title and body apart, and joined by its own rule."""
    if not as_documents or "title" not in batch:
        return list(batch["text"])
    return [_snippet("", title, body).contents for title, body in zip(batch["title"], batch["body"], strict=True)]


def _snippet(id: str, title: str | None, text: str) -> Snippet:
    return Snippet(id, (title or "").strip(), text.strip())


def _query(row: Batch) -> str:
    """Return a query's text, with its instruction where the task has one, as mteb joins them."""
    turns = [row["text"]] if isinstance(row["text"], str) else row["text"]
    text = "; ".join(turn if isinstance(turn, str) else f"{turn['role']}: {turn['content']}" for turn in turns)
    return f"{text} {row['instruction']}" if row.get("instruction") else text


def model_of(
    settings: Settings,
    manifest: Manifest | None,
    system: str,
    out: Path,
    on_progress: OnProgress,
    instructions: Mapping[str, str] | None = None,
) -> tuple[EncoderModel, dict[str, Any]]:
    """Return the model that mteb evaluates, and everything that determines its results.

    `instructions` are those of tasks; see `TaskPrompts`.
    """
    files = encoder_files(settings, manifest)
    if manifest is None and settings.index.similarity is None:
        settings = settings.replace(similarity=files.similarity())
    similarity = similarity_of(settings, manifest)
    encoder = load_encoder(files, similarity, settings.retrieval.precision, settings.exports)
    identity: dict[str, Any] = {
        "system": system,
        "encoder": {"id": files.id, "sha256": files.sha256},
        "similarity": similarity,
        "precision": settings.retrieval.precision,
        "versions": installed_versions(),
        "query_prompt": encoder.query_prompt,
    }
    if system != "encoder":
        identity["settings"] = settings.retrieval.identity()
        identity["reranker"] = settings.retrieval.rerankers_hash()
        identity["index"] = manifest.fingerprint() if manifest else None
    if instructions:
        identity["instructions"] = dict(instructions)
    meta = model_meta(files.id, identity)
    prompts = TaskPrompts(encoder, instructions) if instructions else None
    if system == "encoder":
        return EncoderModel(encoder, meta, on_progress, prompts), identity
    indexes = out / "indexes" / str(meta.revision)
    opener = _stored(settings, manifest, encoder) if manifest else _indexed(settings, encoder, indexes, on_progress)
    return PipelineModel(encoder, meta, on_progress, opener, prompts), identity


@contextmanager
def _searchable(settings: Settings, manifest: Manifest, encoder: TextEncoder) -> Iterator[Searchable]:
    with closing(Store(settings).open(manifest)) as index:
        yield Searchable(index, make_retriever(settings, index, manifest, encoder))


def _stored(settings: Settings, manifest: Manifest, encoder: TextEncoder) -> OpenCorpus:
    """Return an opener of the named index, for any task whose corpus it holds."""
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
    """Return an opener that indexes a corpus under `folder`, and removes the index after the task."""

    @contextmanager
    def open_corpus(key: str, corpus: Sequence[Snippet]) -> Iterator[Searchable]:
        home = folder / key
        scratch = settings.replace(home=home, name="corpus", qdrant=None, store_tokens="none")
        make_folder(home)
        with (home / "corpus.jsonl").open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(beir_record(snippet)) + "\n" for snippet in corpus)
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
