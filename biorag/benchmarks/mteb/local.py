"""Tasks from local files: judged corpora, sentence pairs, mentions of concepts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import ir_measures
from datasets import Dataset
from ir_measures import RR, R
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from biorag.corpus.datasets import corpus_file, load_dataset, read_qrels
from biorag.corpus.readers import read_snippets, text_of
from biorag.corpus.sources import Source, read_lines
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.types import Question, Snippet
from biorag.utils.files import sha256_of
from biorag.utils.parsing import parsed, validated

SPLIT = "test"
LANGUAGE = "eng-Latn"
CONCEPTS, MENTIONS = "concepts.jsonl", "mentions.jsonl"
LINKED = {"mrr_at_5": RR @ 5, "recall_at_1": R @ 1, "recall_at_5": R @ 5}
UNSAFE = re.compile(r"[^\w.-]+")
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class SentencePair(TypedDict):
    """Two sentences, and the score that people gave their similarity."""

    sentence1: Text
    sentence2: Text
    score: Annotated[float, Field(allow_inf_nan=False)]


class _Concept(TypedDict):
    _id: Text
    names: Annotated[list[Text], Field(min_length=1)]


class _Mention(TypedDict):
    _id: Text
    text: Text
    concept: Text | Annotated[list[Text], Field(min_length=1)]


def _rows(path: Path, kind: Any) -> Iterator[tuple[int, Any]]:
    """Yield line numbers and values of a JSON Lines file; BadInputError names the line that does not fit `kind`."""
    for number, line in read_lines(Source(str(path), path)):
        try:
            yield number, parsed(kind, line, extra="ignore")
        except ValueError as error:
            raise BadInputError(f"{path}, line {number}: {error}") from None


def read_pairs(path: Path) -> list[SentencePair]:
    """Read sentence pairs with a score: tab-separated, with or without a header, or JSON Lines.

    Raises `MissingError` if the file is not there; `BadInputError` naming file, line and reason; or if all scores are
    equal.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: name a file of sentence pairs, .tsv or .jsonl")
    pairs = [pair for _, pair in _rows(path, SentencePair)] if path.suffix == ".jsonl" else list(_tab_pairs(path))
    if len({pair["score"] for pair in pairs}) < 2:
        raise BadInputError(f"{path} needs at least two different scores: a correlation has nothing to order")
    return pairs


def _tab_pairs(path: Path) -> Iterator[SentencePair]:
    fields = tuple(SentencePair.__annotations__)
    for number, line in read_lines(Source(str(path), path)):
        try:
            first, second, score = text_of(line).split("\t")
            if number > 1 or score != fields[-1]:
                yield validated(SentencePair, dict(zip(fields, (first, second, float(score)), strict=True)))
        except ValueError:
            raise BadInputError(f"{path}, line {number}: expected two sentences and a number, tab-separated") from None


class LocalTask:
    """The common part of tasks from local files: read when loaded, named and versioned by their files.

    `main` is the measure that counts, `measures` those reported, by mteb's names.
    """

    kind: str
    main: str
    measures: Sequence[str]
    data_loaded = False
    dataset: Any = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.metadata = self._metadata()
        super().__init__()

    def _metadata(self) -> TaskMetadata:
        """Return mteb's metadata of the task; its revision is the hash of the files."""
        files = self.files()
        for file in files:
            if not file.is_file():
                raise MissingError(f"{file} is not there: docs/mteb.md lists the files of a local task")
        resolved = self._path.resolve()
        name = UNSAFE.sub("-", resolved.stem if resolved.is_file() else resolved.name)
        revision = hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()[:16]
        return TaskMetadata(
            dataset={"path": name, "revision": revision},
            name=name,
            description=f"{type(self).__name__} from local files",
            type=self.kind,
            category="t2t",
            eval_splits=[SPLIT],
            eval_langs=[LANGUAGE],
            main_score=self.main,
        )

    def files(self) -> list[Path]:
        """Return the files that the task is made from."""
        return [self._path]

    def load_data(self, *_: Any, **__: Any) -> None:
        """Read the files."""
        if not self.data_loaded:
            self.dataset = self.read()
            self.data_loaded = True

    def unload_data(self) -> None:
        """Free the memory; mteb's own method forgets the metadata, too."""
        self.dataset, self.data_loaded = None, False

    def read(self) -> dict[str, Any]:
        """Return the data in the form of mteb's tasks of this kind."""
        raise NotImplementedError


class LocalRetrieval(LocalTask, AbsTaskRetrieval):  # type: ignore[misc]
    """A folder in BEIR's layout with its corpus: find the relevant snippets of each question."""

    kind, main = "Retrieval", "ndcg_at_10"
    measures: Sequence[str] = (
        *("ndcg_at_10", "map_at_10", "mrr_at_10", "recall_at_10", "recall_at_100"),
        *("ndcg_at_20", "recall_at_5", "recall_at_20", "hit_rate_at_5"),
    )
    judged_alone = False

    def files(self) -> list[Path]:
        """Return corpus, questions and judgements."""
        return [corpus_file(self._path), self._path / "queries.jsonl", self._path / "qrels" / f"{SPLIT}.tsv"]

    def read(self) -> dict[str, Any]:
        """Read the folder; BadInputError if its corpus has none of the judged snippets."""
        path, _, judgements = self.files()
        dataset = load_dataset(self._path, SPLIT)
        snippets = {snippet.id: snippet for snippet in read_snippets(Source(str(path), path))}
        if not any(id in snippets for grades in dataset.qrels.values() for id in grades):
            raise BadInputError(f"{path} holds none of the judged snippets: do the ids belong together?")
        candidates = None
        if self.judged_alone:
            judged = read_qrels(judgements, lowest=0)
            candidates = {
                question.id: [id for id in judged[question.id] if id in snippets] for question in dataset.questions
            }
        return _retrieval(list(snippets.values()), dataset.questions, dataset.qrels, candidates)


class LocalRecommendation(LocalRetrieval):
    """A folder in BEIR's layout: order the snippets that were judged for each query, as RELISH's articles are.

    The measures go over the whole ranking: MAP takes every relevance above 0 alike, nDCG takes it as the gain.
    """

    kind, main = "Reranking", "map_at_1000"
    measures = ("map_at_1000", "ndcg_at_1000", "ndcg_at_10")
    judged_alone = True


class LocalLinking(LocalTask, AbsTaskRetrieval):  # type: ignore[misc]
    """Entity linking: find the concept that a mention means, which ranks where the best of its names does."""

    kind, main = "Retrieval", "concept_recall_at_1"
    measures = tuple(f"concept_{name}" for name in LINKED)

    def files(self) -> list[Path]:
        """Return concepts and mentions."""
        return [self._path / CONCEPTS, self._path / MENTIONS]

    def read(self) -> dict[str, Any]:
        """Read `concepts.jsonl` (`_id`, `names`) and `mentions.jsonl` (`_id`, `text`, `concept`)."""
        concepts, path = self.files()
        names: dict[str, list[str]] = {}
        for _, row in _rows(concepts, _Concept):
            names.setdefault(row["_id"], []).extend(row["names"])
        mentions: list[Question] = []
        self._meant: dict[str, dict[str, int]] = {}
        for number, row in _rows(path, _Mention):
            meant = [row["concept"]] if isinstance(row["concept"], str) else row["concept"]
            if unknown := [concept for concept in meant if concept not in names]:
                raise BadInputError(f"{path}, line {number}: concept {unknown[0]!r} is not in {CONCEPTS}")
            if row["_id"] in self._meant:
                raise BadInputError(f"{path}, line {number}: {row['_id']!r} appears a second time")
            mentions.append(Question(row["_id"], row["text"]))
            self._meant[row["_id"]] = dict.fromkeys(meant, 1)
        if not mentions:
            raise BadInputError(f"{path} holds no mention")
        texts = {f"{concept}#{n}": name for concept, listed in names.items() for n, name in enumerate(listed)}
        self._concept = {id: id.rpartition("#")[0] for id in texts}
        qrels: dict[str, dict[str, int]] = {
            mention: {id: 1 for id, concept in self._concept.items() if concept in meant}
            for mention, meant in self._meant.items()
        }
        return _retrieval([Snippet(id, "", text) for id, text in texts.items()], mentions, qrels, None)

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: Mapping[str, Mapping[str, float]], **_: Any
    ) -> dict[str, float]:
        """Return MRR@5, Recall@1 and Recall@5 of concepts."""
        run = {mention: concept_scores(of_names, self._concept) for mention, of_names in results.items()}
        values = ir_measures.calc_aggregate(list(LINKED.values()), self._meant, run)
        return {f"concept_{name}": float(values[measure]) for name, measure in LINKED.items()}


class LocalSimilarity(LocalTask, AbsTaskSTS):  # type: ignore[misc]
    """A file of sentence pairs: Spearman's correlation of the vectors' similarity with people's scores."""

    kind, main = "STS", "cosine_spearman"
    measures = ("cosine_spearman", "spearman", "cosine_pearson")

    def read(self) -> dict[str, Any]:
        """Read the file; see `read_pairs`."""
        pairs = read_pairs(self._path)
        scores = [pair["score"] for pair in pairs]
        self.min_score, self.max_score = min(scores), max(scores)
        return {SPLIT: Dataset.from_list(pairs)}


# The options of `biorag bench mteb` that name files, and the tasks they make.
KINDS: Mapping[str, type[LocalTask]] = {
    "local": LocalRetrieval,
    "similarity": LocalSimilarity,
    "linking": LocalLinking,
    "recommendation": LocalRecommendation,
}


def local_tasks(paths: Mapping[str, Sequence[Path]]) -> list[LocalTask]:
    """Return the tasks of files, read; `paths` by the keys of `KINDS`.

    Raises `MissingError` or `BadInputError` if a file is not there or cannot be read; `UsageError` if two tasks have
    one name.
    """
    tasks = {}
    for kind, listed in paths.items():
        for path in listed:
            task = KINDS[kind](path)
            task.load_data()
            if task.metadata.name in tasks:
                raise UsageError(f"two local tasks are named {task.metadata.name!r}, after their files: rename one")
            tasks[task.metadata.name] = task
    return list(tasks.values())


def concept_scores(scores: Mapping[str, float], concepts: Mapping[str, str]) -> dict[str, float]:
    """Return concept -> best score of its names; `concepts` is name id -> concept."""
    best: dict[str, float] = {}
    for name, score in scores.items():
        concept = concepts[name]
        best[concept] = max(score, best.get(concept, score))
    return best


def _retrieval(
    corpus: Sequence[Snippet],
    questions: Sequence[Question],
    qrels: Mapping[str, Mapping[str, int]],
    candidates: Mapping[str, Sequence[str]] | None,
) -> dict[str, Any]:
    """Return the one split of a task in the form of mteb's retrieval tasks."""
    documents = [{"id": snippet.id, "title": snippet.title, "text": snippet.content} for snippet in corpus]
    return {
        "default": {
            SPLIT: {
                "corpus": Dataset.from_list(documents),
                "queries": Dataset.from_list([{"id": question.id, "text": question.text} for question in questions]),
                "relevant_docs": {id: dict(grades) for id, grades in qrels.items()},
                "top_ranked": candidates,
            }
        }
    }
