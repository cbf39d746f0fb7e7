"""Retrieval tasks from local folders in BEIR's layout."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from biorag.corpus.datasets import corpus_file, load_dataset, read_qrels
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, MissingError
from biorag.utils.files import sha256_of

SPLIT = "test"
UNSAFE = re.compile(r"[^\w.-]+")


class LocalRetrieval(AbsTaskRetrieval):  # type: ignore[misc]
    """A folder with `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`, named after it and versioned by its files.

    With `judged_only` each query orders the snippets judged for it, as RELISH's articles are, rather than all.

    Raises MissingError or BadInputError if a file is not there or cannot be read.
    """

    data_loaded = False
    dataset: Any = None

    def __init__(self, folder: Path, judged_only: bool = False) -> None:
        self._folder, self._judged_only = folder, judged_only
        files = [corpus_file(folder), folder / "queries.jsonl", folder / "qrels" / f"{SPLIT}.tsv"]
        for file in files:
            if not file.is_file():
                raise MissingError(f"{file} is not there: docs/mteb.md lists the files of a local task")
        name = UNSAFE.sub("-", folder.resolve().name)
        revision = hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()[:16]
        self.metadata = TaskMetadata(
            dataset={"path": name, "revision": revision},
            name=name,
            description="A local folder",
            type="Reranking" if judged_only else "Retrieval",
            category="t2t",
            eval_splits=[SPLIT],
            eval_langs=["eng-Latn"],
            main_score="map_at_1000" if judged_only else "ndcg_at_10",
        )
        super().__init__()
        self.load_data()

    def load_data(self, *_: Any, **__: Any) -> None:
        """Read the folder."""
        if not self.data_loaded:
            self.dataset = {"default": {SPLIT: self._read()}}
            self.data_loaded = True

    def unload_data(self) -> None:
        """Free the memory; mteb's own method also drops the metadata."""
        self.dataset, self.data_loaded = None, False

    def _read(self) -> dict[str, Any]:
        """Return the split in the form of mteb's retrieval tasks."""
        path = corpus_file(self._folder)
        dataset = load_dataset(self._folder, SPLIT)
        snippets = {snippet.id: snippet for snippet in read_snippets(Source(str(path), path))}
        if not any(id in snippets for grades in dataset.qrels.values() for id in grades):
            raise BadInputError(f"{path} holds none of the judged snippets: check that the ids match")
        candidates = None
        if self._judged_only:
            judged = read_qrels(self._folder / "qrels" / f"{SPLIT}.tsv", lowest=0)
            candidates = {
                question.id: [id for id in judged[question.id] if id in snippets] for question in dataset.questions
            }
        documents = [
            {"id": snippet.id, "title": snippet.title, "text": snippet.content} for snippet in snippets.values()
        ]
        return {
            "corpus": Dataset.from_list(documents),
            "queries": Dataset.from_list(
                [{"id": question.id, "text": question.text} for question in dataset.questions]
            ),
            "relevant_docs": {id: dict(grades) for id, grades in dataset.qrels.items()},
            "top_ranked": candidates,
        }
