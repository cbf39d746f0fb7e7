"""biorag's encoder and pipeline as models that mteb evaluates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from mteb.models import ModelMeta
from mteb.types import PromptType

from biorag.benchmarks.retrieval import DEPTH, run_scores
from biorag.benchmarks.tuning.instruction import PromptedEncoder, parted
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Ranking, Retriever
from biorag.training.instructions import dataset_key
from biorag.types import Encoder, Index, IndexQuery, OnProgress, Question, ScoredDoc, Snippet, Vectors
from biorag.utils.batched import batched

ENCODED = 1024  # texts encoded at once: the encoder makes its own batches of them, by length
Batch = Mapping[str, Any]
Run = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Searchable:
    """A task's corpus in an index, and what searches it."""

    index: Index
    retriever: Retriever


# Makes a task's corpus searchable; the text names the task and its part.
OpenCorpus = Callable[[str, Sequence[Snippet]], AbstractContextManager[Searchable]]


def model_meta(name: str, identity: Mapping[str, Any]) -> ModelMeta:
    """Return what mteb files results under: the model's name, and as revision a hash of all that determines them.

    Of a directory's name only the last part is told.
    """
    shown = name if name.count("/") == 1 and not name.startswith((".", "/", "~")) else f"biorag/{name.split('/')[-1]}"
    revision = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return ModelMeta.create_empty({"name": shown, "revision": revision})


class TaskPrompts:
    """Gives an encoder the query prompt of the task at hand, in the form of its own; see `tuning.instruction.Form`.

    Parameters
    ----------
    encoder : its own prompt is that of the tasks without an instruction
    instructions : `dataset_key` of a task's name -> instruction
    """

    def __init__(self, encoder: PromptedEncoder, instructions: Mapping[str, str]) -> None:
        self._encoder = encoder
        self._instructions = instructions
        self._own = encoder.query_prompt
        self._form = parted(self._own)[1]

    def of(self, task: str) -> str | None:
        """Return the instruction of a task; None: there is none for it."""
        return self._instructions.get(dataset_key(task))

    def set(self, task: str) -> None:
        """Set the query prompt that a task is searched with."""
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
        found: Vectors = np.asarray(embeddings1) @ np.asarray(embeddings2).T
        return found

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Vectors:
        """Return the product of each pair of vectors, shape (pairs,)."""
        found: Vectors = (np.asarray(embeddings1) * np.asarray(embeddings2)).sum(axis=1)
        return found


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
        asked = {row["id"]: _query(row) for row in queries}
        key = f"{task_metadata.name}-{task_metadata.revision}-{hf_split}-{hf_subset}"
        with self._open(key, self._corpus) as searchable:
            found = (
                self._search(searchable.retriever, asked, min(top_k, DEPTH))
                if top_ranked is None
                else self._rank(searchable, asked, top_ranked)
            )
            # A query that mteb is told nothing of would be left out of the means; an empty ranking counts as zero.
            return {id: {} for id in asked} | {id: _scores(ranking) for id, ranking in found}

    def _search(self, retriever: Retriever, asked: Mapping[str, str], limit: int) -> Iterator[tuple[str, Ranking]]:
        questions = (Question(id, text) for id, text in asked.items())
        rankings = search_questions(retriever, questions, limit, on_progress=self._advance)
        return ((question.id, ranking) for question, ranking in rankings)

    def _rank(
        self, searchable: Searchable, asked: Mapping[str, str], candidates: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, Ranking]]:
        blocks = _blocks(searchable.index, {snippet.id for snippet in self._corpus})
        for id, query in asked.items():
            listed = list(candidates.get(id, ()))
            among = frozenset(block for document in listed for block in blocks.get(document, ()))
            if among:
                retriever = searchable.retriever.over(Candidates(searchable.index, among))
                yield id, retriever.search(query, len(listed))
            self._advance(1)


class Candidates:
    """An index of which some snippets alone are searched."""

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
    found: dict[str, list[str]] = {}
    for id in index.ids():
        found.setdefault(document_of(id, corpus), []).append(id)
    return found


def _texts(batch: Batch, as_documents: bool) -> list[str]:
    """Return a batch's texts; of documents mteb gives title and body apart, and joined by its own rule."""
    if not as_documents or "title" not in batch:
        return list(batch["text"])
    return [_snippet("", title, body).contents for title, body in zip(batch["title"], batch["body"], strict=True)]


def _snippet(id: str, title: str | None, text: str) -> Snippet:
    return Snippet(id, (title or "").strip(), text.strip())


def _query(row: Batch) -> str:
    """Return a query's text, with its instruction where the task has one, as mteb joins them."""
    text = row["text"] if isinstance(row["text"], str) else "; ".join(_turn(turn) for turn in row["text"])
    return f"{text} {row['instruction']}" if row.get("instruction") else text


def _turn(turn: Any) -> str:
    return turn if isinstance(turn, str) else f"{turn['role']}: {turn['content']}"
