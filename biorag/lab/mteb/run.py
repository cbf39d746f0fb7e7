"""biorag's bi-encoder as a model of mteb, and tasks evaluated into mteb's result files and biorag's report."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from heapq import nlargest
from io import StringIO
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
import mteb
import numpy as np
from mteb.abstasks import AbsTask
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from mteb.results import TaskResult
from mteb.types import PromptType

from biorag.benchmarks.per_question import NESTED, QuestionFigures, read_figures, write_figures
from biorag.engine import encoder_files, load_encoder
from biorag.errors import MissingError, ServiceError
from biorag.lab.mteb.tasks import TaskGroup
from biorag.models.colbert import ColBERT
from biorag.models.finding import first_line
from biorag.models.late_interaction import is_late_interaction, mean_maxsim
from biorag.models.text_encoder import TextEncoder
from biorag.settings.settings import Settings
from biorag.training.instructions import dataset_key, parted
from biorag.types import OnProgress, Snippet, TokenEncoder, Vectors
from biorag.utils.files import sha256_of_json
from biorag.utils.progress import batched
from biorag.utils.versions import installed_versions

BATCH = 256  # texts of a batch of mteb's loader
BM25S = "mteb/baseline-bm25s"
ENCODED = 1024  # texts encoded at once: the encoder makes its own batches of them, by length
# The measures reported beside the main one, by the type of a task.
MEASURES = {
    "Retrieval": (
        *("ndcg_at_10", "map_at_10", "mrr_at_10", "recall_at_10", "recall_at_100", "ndcg_at_20", "recall_at_5"),
        *("recall_at_20", "hit_rate_at_5", "recall_at_1", "mrr_at_5"),
    ),
    "Reranking": ("map_at_1000", "ndcg_at_1000", "ndcg_at_10"),
}
# Of a question, by pytrec_eval's names, which are the keys; mteb keeps no question's reciprocal rank.
OF_QUESTIONS = {"ndcg_cut": "ndcg_at", "map_cut": "map_at", "recall": "recall_at", "success": "hit_rate_at"}


def model_meta(name: str, identity: Mapping[str, Any]) -> ModelMeta:
    """Return the model's name (of a directory the last part), and as revision the hash of its identity."""
    shown = name if name.count("/") == 1 and not name.startswith((".", "/", "~")) else f"biorag/{name.split('/')[-1]}"
    revision = sha256_of_json(identity)[:16]
    return ModelMeta.create_empty(
        {"name": shown, "revision": revision, "similarity_fn_name": ScoringFunction.DOT_PRODUCT}
    )


@dataclass(frozen=True, slots=True)
class MtebModel:
    """What mteb evaluates; its identity, everything that determines results; and the instructions of its tasks.

    `kinds` are the types of tasks that it can do, all where there are none.
    """

    model: Any
    identity: Mapping[str, Any]
    instructions: Mapping[str, str] = field(default_factory=dict)
    kinds: Sequence[str] = ()


class EncoderModel(AbsEncoder):  # type: ignore[misc]
    """A bi-encoder as mteb's model: mteb searches exactly, by the product of the vectors.

    Documents are encoded as biorag indexes them: title and text joined by MedRAG's rule (`Snippet.contents`). Texts
    that are neither query nor document, such as those of sentence similarity, are encoded as queries.

    `instructions` (`dataset_key` of a task's name -> instruction) take the place of the one in the encoder's own query
    prompt; a task without one keeps that prompt.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        meta: ModelMeta,
        on_progress: OnProgress,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self.mteb_model_meta = meta
        self._encoder = encoder
        self._advance = on_progress
        self._instructions = instructions or {}
        self._own_prompt = encoder.query_prompt

    def instruction(self, task: str) -> str | None:
        """Return the instruction of a task, if it has one."""
        return self._instructions.get(dataset_key(task))

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        prompt_type: PromptType | None = None,
        **_: Any,
    ) -> Vectors:
        """Encode the texts of a data loader, shape (texts, dimension)."""
        instruction = self.instruction(task_metadata.name)
        form = parted(self._own_prompt)[1]
        self._encoder.query_prompt = self._own_prompt if instruction is None else form.prompt(instruction)
        as_documents = prompt_type == PromptType.document
        encode = self._encoder.encode_snippets if as_documents else self._encoder.encode_queries
        vectors: list[Vectors] = []
        for texts in batched(chain.from_iterable(_texts(batch, as_documents) for batch in inputs), ENCODED):
            vectors.append(encode(texts))
            self._advance(len(texts))
        return np.concatenate(vectors)


def _texts(batch: Mapping[str, Any], as_documents: bool) -> list[str]:
    """Return a batch's texts; mteb gives title and body of documents, and both joined by its own rule."""
    if not as_documents or "title" not in batch:
        return list(batch["text"])
    rows = zip(batch["title"], batch["body"], strict=True)
    return [Snippet("", (title or "").strip(), body.strip()).contents for title, body in rows]


class LateInteractionModel:
    """A ColBERT checkpoint as mteb's model: every document is compared with every query, token by token."""

    def __init__(self, encoder: TokenEncoder, meta: ModelMeta, on_progress: OnProgress) -> None:
        self.mteb_model_meta = meta
        self._encoder = encoder
        self._advance = on_progress
        self._corpus: Any = ()

    def index(self, corpus: Any, **_: Any) -> None:
        """Keep the documents, which are encoded when they are searched: their token vectors may not fit into memory."""
        self._corpus = corpus

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, Sequence[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Return the documents of each query with the highest mean MaxSim, among its candidates if there are some."""
        asked = self._encoder.query_tokens(queries["text"])
        among = [set(top_ranked[id]) if top_ranked else None for id in queries["id"]]
        best: list[list[tuple[float, str]]] = [[] for _ in asked]
        for documents in batched(self._corpus, ENCODED):
            contents = [
                Snippet("", (row.get("title") or "").strip(), row["text"].strip()).contents for row in documents
            ]
            tokens = self._encoder.snippet_tokens(contents)
            for place, query in enumerate(asked):
                scored = zip(mean_maxsim(query, tokens).tolist(), (row["id"] for row in documents), strict=True)
                allowed = among[place]
                found = (pair for pair in scored if allowed is None or pair[1] in allowed)
                best[place] = nlargest(top_k, [*best[place], *found])
            self._advance(len(contents))
        return {id: {found: score for score, found in kept} for id, kept in zip(queries["id"], best, strict=True)}


class Bm25Model:
    """mteb's own BM25, by bm25s, with the stop words and the stemmer of a task's language; it draws no bars."""

    def __init__(self, meta: ModelMeta) -> None:
        self.mteb_model_meta = meta
        self._search = mteb.get_model(BM25S)
        logging.getLogger("bm25s").setLevel(logging.WARNING)

    def index(self, corpus: Any, **options: Any) -> None:
        """Index a corpus."""
        with redirect_stderr(StringIO()):
            self._search.index(corpus, **options)

    def search(self, queries: Any, **options: Any) -> dict[str, dict[str, float]]:
        """Return the documents of each query with the highest scores."""
        with redirect_stderr(StringIO()):
            found: dict[str, dict[str, float]] = self._search.search(queries, **options)
        return found


def bm25() -> MtebModel:
    """Return BM25 as a model to evaluate."""
    identity = {"encoder": {"id": BM25S}, "versions": installed_versions(("bm25s", "mteb"))}
    return MtebModel(Bm25Model(model_meta(BM25S, identity)), identity, kinds=tuple(MEASURES))


def model_of(settings: Settings, on_progress: OnProgress, instructions: Mapping[str, str] | None) -> MtebModel:
    """Return the encoder to evaluate."""
    files = encoder_files(settings, None)
    identity: dict[str, Any] = {
        "encoder": {"id": files.id, "sha256": files.sha256},
        "precision": settings.retrieval.precision,
        "versions": installed_versions(),
    }
    if is_late_interaction(files):
        colbert = ColBERT(files, settings.retrieval.precision)
        return MtebModel(
            LateInteractionModel(colbert, model_meta(files.id, identity), on_progress), identity, kinds=tuple(MEASURES)
        )
    similarity = settings.index.similarity or files.similarity() or "cosine"
    encoder = load_encoder(files, similarity, settings.retrieval.precision, settings.exports)
    identity |= {"similarity": similarity, "query_prompt": encoder.query_prompt}
    if instructions:
        identity["instructions"] = dict(instructions)
    model = EncoderModel(encoder, model_meta(files.id, identity), on_progress, instructions)
    return MtebModel(model, identity, instructions or {})


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """A task's row of the report, and what mteb measured of each of its questions.

    Tasks that are not of retrieval, such as sentence similarity, keep no questions.
    """

    row: Mapping[str, Any]
    questions: Sequence[QuestionFigures]


def measure_task(
    task: AbsTask, evaluated: MtebModel, out: Path, offline: bool, group: TaskGroup | None = None
) -> MeasuredTask:
    """Return a task's measures, and those of its subsets or parts, if it has several.

    A task that the model cannot do has None for its main measure. A group's measure replaces the main measure of its
    tasks. A task with a result file in `out` is not run again.

    Raises `MissingError` or `ServiceError` if the task's data cannot be loaded.
    """
    name = task.metadata.name
    main = group.measure if group and group.measure and name in group.tasks else task.metadata.main_score
    if evaluated.kinds and task.metadata.type not in evaluated.kinds:
        return MeasuredTask({"task": name, "type": task.metadata.type, "main": main, "measures": {main: None}}, ())
    if task.is_aggregate:
        parts = [measure_task(part, evaluated, out, offline) for part in task.tasks]
        subsets = {part.row["task"]: part.row["measures"] for part in parts}
        questions = [
            QuestionFigures(id=row["id"], set=f"{name}{NESTED}{row['set']}", metrics=row["metrics"])
            for part in parts
            for row in part.questions
        ]
    else:
        result, questions = _evaluated(task, evaluated.model, out, offline)
        subsets = _measures(task, result, tuple(dict.fromkeys((main, *MEASURES.get(task.metadata.type, ())))))
    means = {measure: fmean(part[measure] for part in subsets.values()) for measure in next(iter(subsets.values()))}
    row: dict[str, Any] = {"task": name, "type": task.metadata.type, "main": main, "measures": _rounded(means)}
    if instruction := evaluated.instructions.get(dataset_key(name)):
        row["instruction"] = instruction
    if len(subsets) > 1:
        row["subsets"] = {subset: _rounded(part) for subset, part in subsets.items()}
    return MeasuredTask(row, questions)


def report(tasks: Sequence[MeasuredTask], identity: Mapping[str, Any], group: TaskGroup | None) -> dict[str, Any]:
    """Return the document of `--json`; the average is that of the main measures, as mteb has it."""
    rows = [task.row for task in tasks]
    known = [value for row in rows if (value := row["measures"][row["main"]]) is not None]
    average = round(fmean(known), 6) if known else None
    averages = {"averages": group.means(rows)} if group else {}
    return {"model": dict(identity), "tasks": rows, "average": average, **averages}


def question_rows(tasks: Sequence[MeasuredTask], group: TaskGroup | None) -> Iterator[QuestionFigures]:
    """Yield the questions of measured tasks, with what each adds to the figures of the report.

    Averages that include a task without questions have none.
    """
    with_questions = {task.row["task"] for task in tasks if task.questions}
    averages = {"average": [task.row["task"] for task in tasks]}
    averages |= {f"averages.{name}": list(names) for name, names in (group.averages if group else {}).items()}
    averages = {path: names for path, names in averages.items() if with_questions.issuperset(names)}
    for task in tasks:
        name, main = task.row["task"], task.row["main"]
        for question in task.questions:
            values = question["metrics"]
            named = [measure for measure in task.row["measures"] if measure in values]
            metrics = {f"tasks.{name}.measures.{measure}": values[measure] for measure in named}
            if main in values:
                metrics |= {path: values[main] for path, names in averages.items() if name in names}
            yield {**question, "metrics": metrics}


def _evaluated(task: AbsTask, model: Any, out: Path, offline: bool) -> tuple[TaskResult, list[QuestionFigures]]:
    """Evaluate the missing parts of a task and write its result file, `out/results/MODEL/REVISION/TASK.json`.

    The measures of its questions stand beside it, in TASK.jsonl.
    """
    cache, name = mteb.ResultCache(out), task.metadata.name
    path = cache.get_task_result_path(name, model.mteb_model_meta).with_suffix(".jsonl")
    earlier = cache.load_task_result(name, model.mteb_model_meta)
    current = task.metadata.revision, mteb.__version__
    same = earlier is not None and (earlier.dataset_revision, earlier.mteb_version) == current
    rows = {(row["set"], row["id"]): row for row in read_figures(path)} if same else {}
    known = len(rows)
    _keep_questions(task, rows)
    datasets.disable_progress_bars()
    try:
        results = mteb.evaluate(
            model,
            task,
            cache=cache,
            overwrite_strategy="only-missing" if same else "always",
            co2_tracker=False,
            encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
            show_progress_bar=False,
        )
    except OSError as error:
        if task.data_loaded:
            raise
        if offline:
            raise MissingError(
                f"task {name!r} needs data that is not on this machine: run it once without --offline"
            ) from error
        reason = first_line(error).rstrip(".")
        raise ServiceError(
            f"the data of task {name!r} could not be downloaded ({reason}): try again with a connection"
        ) from error
    if len(rows) > known:
        write_figures(path, rows.values())
    return results.task_results[0], list(rows.values())


def _keep_questions(task: AbsTask, rows: dict[tuple[str, str], QuestionFigures]) -> None:
    """Have a retrieval task put each question's measures into `rows`, by its set and id, when they are computed."""
    task_specific_scores, name = getattr(task, "task_specific_scores", None), task.metadata.name
    if task_specific_scores is None:
        return

    def keep(scores: Any, qrels: Any, results: Any, hf_split: str, hf_subset: str) -> Any:
        subset = NESTED.join((name, hf_subset, hf_split))
        for id, values in scores.items():
            named = (((*measure.rsplit("_", 1), value)) for measure, value in values.items())
            metrics = {f"{OF_QUESTIONS[kind]}_{at}": value for kind, at, value in named if kind in OF_QUESTIONS}
            rows[subset, id] = {"id": id, "set": subset, "metrics": metrics}
        return task_specific_scores(scores, qrels, results, hf_split=hf_split, hf_subset=hf_subset)

    task.task_specific_scores = keep


def _measures(task: AbsTask, result: TaskResult, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return subset -> measure -> mean over the task's splits."""
    by_subset: dict[str, list[Mapping[str, Any]]] = {subset: [] for subset in task.hf_subsets}
    for scores in chain.from_iterable(result.scores[split] for split in task.eval_splits):
        if scores["hf_subset"] in by_subset:
            by_subset[scores["hf_subset"]].append(scores)
    known = [name for name in names if all(name in scores for rows in by_subset.values() for scores in rows)]
    return {
        subset: {name: fmean(scores[name] for scores in rows) for name in known} for subset, rows in by_subset.items()
    }


def _rounded(measures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in measures.items()}
