"""Retrieval measured on judged questions by ir-measures: of an index, or of a run file."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np
from ir_measures import AP, RR, R, Success, nDCG

from biorag.benchmarks.significance import differences, paired
from biorag.corpus.datasets import Dataset, Qrels, trec_rows
from biorag.engine import OpenIndex
from biorag.errors import BadInputError, MissingError, check_name
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.types import FieldFilter, Index, IndexQuery, OnProgress, Where, block_id
from biorag.utils.files import json_line, replacing
from biorag.utils.outputs import RUN_TAG
from biorag.utils.progress import batched

logger = logging.getLogger(__name__)

DEPTH = 100
ASKED_AT_ONCE = 1000  # judged ids
LEAST_JUDGED = 0.1  # of the judged snippets, which an index must hold to be measured
PMID = re.compile(r"[0-9]{1,18}")
CUTOFFS = (3, 5, 10, 20, 100)
# "success@k", at least one relevant snippet in the top k, is the M+C paper's Recall@k.
MEASURES = {
    "nDCG@10": nDCG @ 10,
    "nDCG@20": nDCG @ 20,
    "MAP@10": AP @ 10,
    "MRR@10": RR @ 10,
    **{f"success@{k}": Success @ k for k in CUTOFFS},
    **{f"R@{k}": R @ k for k in CUTOFFS},
}
COMPARED = ("nDCG@10", "MAP@10", "MRR@10", "success@5", "R@100")
LISTED = "nDCG@10"
RUN_FIELDS = "six fields: qid Q0 docid rank score tag, with a whole number as rank and a number as score"


def check_measure(name: str) -> None:
    """Raise UsageError for a name that is not among `MEASURES`."""
    check_name("measure", name, MEASURES)


class JudgedCount(NamedTuple):
    """Numbers of the judged snippets that an index holds and lacks."""

    in_index: int
    missing: int


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Rankings of a dataset (question -> snippet ids, best first) and their measures."""

    dataset: Dataset
    run: Mapping[str, Sequence[str]]
    metrics: Mapping[str, float]
    per_question: Mapping[str, Mapping[str, float]]
    timings_ms: Mapping[str, Mapping[str, float]]
    judged: JudgedCount | None = None  # None of another system's run

    @property
    def unanswered(self) -> int:
        """How many questions have no ranking, and count with zeros."""
        return sum(not self.run[question.id] for question in self.dataset.questions)


def _summary(milliseconds: Sequence[float]) -> dict[str, float]:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {"mean": round(float(np.mean(milliseconds)), 3), "p50": round(float(p50), 3), "p95": round(float(p95), 3)}


def measure(dataset: Dataset, retriever: Retriever, where: Where, on_progress: OnProgress) -> RetrievalResult:
    """Retrieve the top 100 for each question and compute the measures and the milliseconds of each stage.

    A question's time is its share of its batch's. One for which nothing is found counts with zeros.
    """
    judged = {id for grades in dataset.qrels.values() for id in grades}
    run: dict[str, list[str]] = {}
    stages: dict[str, list[float]] = {}
    for question, ranking in search_questions(retriever, dataset.questions, DEPTH, where, on_progress):
        ids = (judged_id(hit.snippet.id, hit.snippet.pmid, judged) for hit in ranking.hits)
        run[question.id] = list(dict.fromkeys(ids))
        for stage, milliseconds in ranking.timings_ms.items():
            stages.setdefault(stage, []).append(milliseconds)
    metrics, per_question = evaluate(dataset.qrels, run)
    return RetrievalResult(
        dataset, run, metrics, per_question, {stage: _summary(times) for stage, times in stages.items()}
    )


def judged_in(index: Index, dimension: int, qrels: Qrels) -> JudgedCount:
    """Return how many judged snippets an index holds, under their ids or, for PubMed records, their PMIDs."""
    judged = sorted({id for grades in qrels.values() for id in grades})
    held: set[str] = set()
    for ids in batched(judged, ASKED_AT_ONCE):
        held |= index.digests(ids).keys()
        firsts = {block_id(id, 0): id for id in ids if id not in held}
        held |= {firsts[id] for id in index.digests(list(firsts))}
        held |= held_pmids(index, dimension, [id for id in ids if id not in held]) & set(ids)
    return JudgedCount(len(held), len(judged) - len(held))


def measure_index(dataset: Dataset, ready: OpenIndex, where: Where, on_progress: OnProgress) -> RetrievalResult:
    """Measure an open index as `measure` does; raises as `check_judged`."""
    judged = judged_in(ready.index, ready.manifest.encoder.dimension, dataset.qrels)
    check_judged(judged, dataset.name, ready.manifest.name)
    measured = measure(dataset, ready.retriever.keeping_tokens(), ready.checked(where), on_progress)
    return replace(measured, judged=judged)


def held_pmids(index: Index, dimension: int, ids: Iterable[str]) -> set[str]:
    """Return the PMIDs of which an index holds a snippet; texts that are not PMIDs are ignored."""
    wanted = {int(id) for id in ids if PMID.fullmatch(id)}
    probe = np.ones(dimension, np.float32)
    held: set[str] = set()
    # Several snippets may be of one record, so those found are asked for no more until nothing is left.
    while wanted:
        condition = FieldFilter("pmid", "in", tuple(sorted(wanted)))
        (hits,) = index.search([IndexQuery(probe, len(wanted), (condition,))])
        pmids = {snippet.pmid for snippet in index.fetch([scored.id for scored in hits]).values()} & wanted
        if not pmids:
            break
        held |= {str(pmid) for pmid in pmids}
        wanted -= {int(pmid) for pmid in pmids if pmid is not None}
    return held


def refuse_unjudged(judged: JudgedCount, what: str, index: str) -> None:
    """Raise BadInputError for an index that holds fewer than a tenth of the judged snippets."""
    total = judged.in_index + judged.missing
    if judged.in_index < LEAST_JUDGED * total:
        raise BadInputError(
            f"index {index!r} holds {judged.in_index:,} of {total:,} judged snippets of {what}, fewer than a tenth, so "
            "its figures would say nothing: index the corpus that the judgements are of, or choose its index with "
            "--name"
        )


def check_judged(judged: JudgedCount, what: str, index: str) -> None:
    """Warn of judged snippets that the index lacks; raises as `refuse_unjudged`."""
    refuse_unjudged(judged, what, index)
    if judged.missing:
        total = judged.in_index + judged.missing
        logger.warning(
            "index %r lacks %s of %s judged snippets of %s, which count as not found",
            *(index, f"{judged.missing:,}", f"{total:,}", what),
        )


def judged_id(id: str, pmid: int | None, judged: Collection[str]) -> str:
    """Return a snippet's id in the judgements: its PMID if they have that and not its id."""
    return str(pmid) if id not in judged and str(pmid) in judged else id


def evaluate(qrels: Qrels, run: Mapping[str, Sequence[str]]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the measures over all questions of `qrels`, and for each of them.

    `qrels`: question -> snippet -> relevance; `run`: question -> snippet ids, best first.
    """
    scored = {question: dict(zip(ids, run_scores(len(ids)), strict=True)) for question, ids in run.items()}
    names = {measure: name for name, measure in MEASURES.items()}
    per_question: dict[str, dict[str, float]] = {question: dict.fromkeys(MEASURES, 0.0) for question in qrels}
    for metric in ir_measures.iter_calc(list(MEASURES.values()), qrels, scored):
        per_question[metric.query_id][names[metric.measure]] = float(metric.value)
    metrics = {name: float(np.mean([values[name] for values in per_question.values()])) for name in MEASURES}
    return metrics, per_question


def score_run(dataset: Dataset, path: Path) -> RetrievalResult:
    """Compute the measures of another system's run file; the timings are empty.

    Questions that `dataset` lacks are skipped; a question without a ranking counts with zeros.

    Raises `MissingError` if the file is not there; `BadInputError` naming file, line and reason, or if it ranks nothing
    for any question.
    """
    ranked = read_run(path)
    run = {question.id: ranked.get(question.id, []) for question in dataset.questions}
    if not any(run.values()):
        raise BadInputError(f"no question of {path} has a judgement in {dataset.name}: check that the ids match")
    metrics, per_question = evaluate(dataset.qrels, run)
    return RetrievalResult(dataset, run, metrics, per_question, {})


def compare(ours: RetrievalResult, theirs: RetrievalResult, seed: int) -> dict[str, Any]:
    """Compare two runs of one dataset by the measures of `COMPARED`; return JSON values.

    Wins and losses are questions by `LISTED`, the largest differences (ours − theirs) first.
    """
    questions = ours.dataset.questions

    def values(result: RetrievalResult, name: str) -> list[float]:
        return [result.per_question[question.id][name] for question in questions]

    def tested(name: str) -> dict[str, Any]:
        means = {"ours": ours.metrics[name], "theirs": theirs.metrics[name]}
        return _rounded({**means, **asdict(paired(values(ours, name), values(theirs, name), seed))})

    mine, others = values(ours, LISTED), values(theirs, LISTED)
    rows = [
        {"id": question.id, "text": question.text, "ours": our, "theirs": their, "difference": gain}
        for question, our, their, gain in zip(questions, mine, others, differences(mine, others).tolist(), strict=True)
    ]
    rows.sort(key=lambda row: -abs(row["difference"]))
    return {
        "seed": seed,
        "unanswered": theirs.unanswered,
        "measures": {name: tested(name) for name in COMPARED},
        "wins": [_rounded(row) for row in rows if row["difference"] > 0],
        "losses": [_rounded(row) for row in rows if row["difference"] < 0],
    }


def report(measured: RetrievalResult, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of `bench retrieval --json`; with unanswered questions for another system's run."""
    values = {
        "dataset": measured.dataset.name,
        "questions": len(measured.dataset.questions),
        "config": dict(config),
        "metrics": _rounded(measured.metrics),
        "timings_ms": dict(measured.timings_ms),
    }
    if measured.judged:
        values["judged"] = measured.judged._asdict()
    return {**values, "unanswered": measured.unanswered} if "run" in config else values


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in values.items()}


def run_scores(length: int) -> list[float]:
    """Return falling scores for a ranking: 1/rank.

    Reranked hits and the first-stage hits below them are on different scales, so a run file holds these.
    """
    return [round(1.0 / rank, 9) for rank in range(1, length + 1)]


def write_run(path: Path, run: Mapping[str, Sequence[str]]) -> None:
    """Write a TREC run file: `qid Q0 docid rank score tag`; raises as `check_run_ids` does."""
    check_run_ids([*run, *(id for ids in run.values() for id in ids)])
    with replacing(path) as stream:
        for question, ids in run.items():
            for rank, (id, score) in enumerate(zip(ids, run_scores(len(ids)), strict=True), 1):
                stream.write(f"{question} Q0 {id} {rank} {score} {RUN_TAG}\n".encode())


def check_run_ids(ids: Iterable[str]) -> None:
    """Refuse ids that a TREC run file cannot hold, since white space separates its fields.

    Raises `BadInputError` naming the first such id.
    """
    if unfit := next((id for id in ids if id.encode().split() != [id.encode()]), None):
        raise BadInputError(
            f"id {unfit!r} has white space, which separates the fields of a run file: leave out --run-file and take "
            "--per-question, or index the corpus with other ids"
        )


def read_run(path: Path) -> dict[str, list[str]]:
    """Return question -> snippet ids, best first, the top `DEPTH` of a TREC run file of any system.

    The order is that of falling scores, as in trec_eval, then of the ranks and of the lines. trec_eval orders equal
    scores (in single precision) by falling ids, so its figures differ there.

    Raises `MissingError` if the file is not there; `BadInputError` naming file, line and reason.
    """
    if not path.is_file():
        raise MissingError(f"run file {path} is not there")
    positions: dict[str, dict[str, tuple[float, int]]] = {}
    for number, fields in trec_rows(path):
        try:
            question, _, id, rank, score, _ = fields
            position = (-float(score), int(rank))
        except ValueError:
            raise BadInputError(f"{path}, line {number}: expected {RUN_FIELDS}") from None
        if math.isnan(position[0]):
            raise BadInputError(f"{path}, line {number}: the score is not a number")
        ranking = positions.setdefault(question, {})
        if id in ranking:
            raise BadInputError(f"{path}, line {number}: {id} stands a second time in the ranking of {question}")
        ranking[id] = position
    return {question: sorted(ranking, key=ranking.__getitem__)[:DEPTH] for question, ranking in positions.items()}


def write_per_question(path: Path, measured: RetrievalResult) -> None:
    """Write one JSON line per question: its text, its measures and its top ten."""
    with replacing(path) as stream:
        for question in measured.dataset.questions:
            row: dict[str, Any] = {
                "id": question.id,
                "text": question.text,
                "metrics": measured.per_question[question.id],
                "top": measured.run[question.id][:10],
            }
            stream.write(json_line(row))
