"""Asking questions that experts answered, one row of results each, and the report over the rows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from biorag.answering.abstention.estimator import EvidenceEstimator
from biorag.answering.verification.checker import Checker
from biorag.benchmarks.answers.abstention import answered_share, measured, risk_panel
from biorag.benchmarks.answers.citations import citation_score
from biorag.benchmarks.answers.exact import factoid, listed, yes_no
from biorag.benchmarks.answers.questions import FACTOID, LIST, YES_NO, AnswerDataset, AnsweredQuestion
from biorag.benchmarks.answers.rouge import rouge_2, rouge_su4
from biorag.benchmarks.answers.systems import AnswerSystem, SystemReply
from biorag.benchmarks.significance import bootstrap_interval
from biorag.engine import OpenIndex
from biorag.retrieval.batches import in_batches
from biorag.retrieval.filters import exclude_documents
from biorag.retrieval.retriever import Ranking
from biorag.types import FieldFilter, IndexQuery, OnProgress, Snippet, Verdict, block_id
from biorag.utils.files import json_line, sha256_of_json
from biorag.utils.parsing import opened_regular
from biorag.utils.plots import write_plot
from biorag.utils.runs import RunDirectory, whole_rows

ROWS = "answers.jsonl"
GOLD = 100  # snippets of relevant documents that are looked at
AnswerRow = Mapping[str, Any]


class Sentence(TypedDict):
    """A sentence of an answer as a row has it."""

    text: str
    verdict: Verdict
    cited: list[str]
    citation_recall: float
    citation_precision: float | None


class Row(TypedDict):
    """A row of `answers.jsonl`."""

    id: str
    question: str
    sentences: list[Sentence]
    decision: str | None
    names: list[str]
    gold_in_index: int
    evidence_probability: float | None
    evidence_probability_without_gold: float | None
    answer_ms: float


class AnswersRun(RunDirectory):
    """A directory of one row a question, in the order asked, and the report."""

    kind = "run of 'bench answers'"
    manifest_name = "manifest.json"

    @property
    def rows_file(self) -> Path:
        """Where the rows are."""
        return self.path / ROWS

    def rows(self) -> dict[str, AnswerRow]:
        """Return the rows so far by question; the line that a kill tore is left out, and cut from the file."""
        if not self.rows_file.is_file():
            return {}
        rows = list(whole_rows(self.rows_file, Row))
        os.truncate(self.rows_file, sum(size for size, _ in rows))
        return {row["id"]: row for _, row in rows}


@dataclass(frozen=True, slots=True)
class Examination:
    """How questions are put: to which system, over which index, with an estimate of the evidence or without."""

    system: AnswerSystem
    opened: OpenIndex
    estimator: EvidenceEstimator | None

    def ask_all(self, data: AnswerDataset, run: AnswersRun, on_progress: OnProgress) -> list[AnswerRow]:
        """Ask every question that has no row yet, each row written as its question ends; return all rows."""
        with run.locked():
            if run.finished() is None:
                run.begin({})
            rows = run.rows()
            on_progress(len(rows))
            wanted = {question.id for question in data.questions} - rows.keys()
            with opened_regular(run.rows_file, "ab") as stream:
                for question, found in in_batches(self._search, data.questions, wanted):
                    rows[question.id] = self._row(question, *found)
                    stream.write(json_line(rows[question.id]))
                    stream.flush()
                    on_progress(1)
            run.finish({"questions": len(rows)})
        return [rows[question.id] for question in data.questions]

    def _search(self, questions: Sequence[AnsweredQuestion]) -> list[tuple[Ranking, Sequence[Snippet], Ranking | None]]:
        """Return each question's ranking, its gold snippets in the index, and the ranking without their documents."""
        texts = [question.text for question in questions]
        gold = [self._gold(question) for question in questions]
        rankings = self.opened.retriever.search_all(texts)
        without: Sequence[Ranking | None] = [None] * len(questions)
        if self.estimator:
            without = self.opened.retriever.search_all(texts, wheres=[exclude_documents(found) for found in gold])
        return list(zip(rankings, gold, without, strict=True))

    def _gold(self, question: AnsweredQuestion) -> list[Snippet]:
        """Return the relevant snippets that the index holds; of relevant documents those that share a word with it."""
        if question.pmids:
            among = (FieldFilter("pmid", "in", question.pmids),)
            (scored,) = self.opened.index.search([IndexQuery(question.text, GOLD, among)])
            return list(self.opened.index.fetch([id for id, _ in scored]).values())
        ids = [*question.relevant, *(block_id(id, 0) for id in question.relevant)]
        return list(self.opened.index.fetch(ids).values())

    def _row(
        self, question: AnsweredQuestion, ranking: Ranking, gold: Sequence[Snippet], without: Ranking | None
    ) -> AnswerRow:
        start = time.perf_counter()
        reply = self.system(question, ranking, gold)
        elapsed_ms = round((time.perf_counter() - start) * 1000, 3)
        estimate = self.estimator.probability if self.estimator else lambda ranking: None
        return {
            "id": question.id,
            "question": question.text,
            "sentences": checked(reply, question.text),
            "decision": reply.decision,
            "names": list(reply.names),
            "gold_in_index": len(gold),
            "evidence_probability": estimate(ranking),
            "evidence_probability_without_gold": estimate(without) if without and gold else None,
            "answer_ms": elapsed_ms,
        }


def checked(reply: SystemReply, question: str) -> list[dict[str, Any]]:
    """Return the sentences of a reply with the snippets they cite, their verdict over all hits, and ALCE's shares."""
    checker = Checker()
    snippets = [hit.snippet for hit in reply.hits]

    def supports(sentence: str, cited: Sequence[int]) -> bool:
        held = [snippets[n - 1] for n in cited if 1 <= n <= len(snippets)]
        return checker.check_claim(sentence, held, question).verdict is Verdict.SUPPORTED

    rows = []
    for text, cited in reply.sentences:
        score = citation_score([(text, cited)], supports)
        rows.append(
            {
                "text": text,
                "verdict": checker.check_claim(text, snippets, question).verdict,
                "cited": [snippets[n - 1].id for n in cited if 1 <= n <= len(snippets)],
                "citation_recall": score.recall,
                "citation_precision": score.precision,
            }
        )
    return rows


def report(
    data: AnswerDataset, rows: Sequence[AnswerRow], estimator: EvidenceEstimator | None, seed: int
) -> dict[str, Any]:
    """Return every measure of a dataset's rows, with 95 % bootstrap intervals of means over questions."""
    pairs = [(question, row) for question, row in zip(data.questions, rows, strict=True)]
    return {
        "dataset": data.name,
        "questions": len(pairs),
        "exact": exact_report(pairs, seed),
        "ideal": _ideal(pairs, seed),
        "sentences": _sentences(rows),
        "abstention": abstention_report(rows, estimator.threshold, seed) if estimator else None,
        "answer_ms": {"median": float(np.median([row["answer_ms"] for row in rows]))} if rows else None,
    }


def exact_report(pairs: Sequence[tuple[AnsweredQuestion, AnswerRow]], seed: int) -> dict[str, Any]:
    """Return BioASQ's measures of exact answers; None for a type that is not asked or not answered."""
    by_type = {kind: [pair for pair in pairs if pair[0].expert.type == kind] for kind in (YES_NO, FACTOID, LIST)}
    decided = [(q, row) for q, row in by_type[YES_NO] if q.expert.decision in ("yes", "no")]
    found: dict[str, Any] = {"yes_no": None, "factoid": None, "list": None}
    if any(row["decision"] for _, row in decided):
        score = yes_no([row["decision"] for _, row in decided], [str(q.expert.decision) for q, _ in decided])
        right = [float(row["decision"] == q.expert.decision) for q, row in decided]
        majority = max(("yes", "no"), key=lambda label: sum(q.expert.decision == label for q, _ in decided))
        baseline = yes_no([majority] * len(decided), [str(q.expert.decision) for q, _ in decided])
        found["yes_no"] = {
            "n": len(decided),
            **score._asdict(),
            "accuracy_interval": bootstrap_interval(right, seed),
            "majority": baseline._asdict(),
        }
    if asked := [(q, row) for q, row in by_type[FACTOID] if q.expert.things]:
        found["factoid"] = _means([factoid(row["names"], q.expert.things)._asdict() for q, row in asked], seed)
    if asked := [(q, row) for q, row in by_type[LIST] if q.expert.things]:
        found["list"] = _means([listed(row["names"], q.expert.things)._asdict() for q, row in asked], seed)
    return found


def _ideal(pairs: Sequence[tuple[AnsweredQuestion, AnswerRow]], seed: int) -> dict[str, Any]:
    scores = []
    for question, row in pairs:
        if question.expert.ideal:
            text = " ".join(sentence["text"] for sentence in row["sentences"])
            two, su4 = rouge_2(text, question.expert.ideal), rouge_su4(text, question.expert.ideal)
            values = {"ROUGE-2 recall": two.recall, "ROUGE-2 F1": two.f1}
            scores.append(
                {**values, "ROUGE-SU4 recall": su4.recall, "ROUGE-SU4 F1": su4.f1, "words": len(text.split())}
            )
    return _means(scores, seed)


def _means(scores: Sequence[Mapping[str, float]], seed: int) -> dict[str, Any]:
    """Return n, and the mean of each measure with its interval."""
    if not scores:
        return {"n": 0}
    columns = {name: [score[name] for score in scores] for name in scores[0]}
    means = {
        name: {"mean": float(np.mean(values)), "interval": bootstrap_interval(values, seed)}
        for name, values in columns.items()
    }
    return {"n": len(scores), **means}


def _sentences(rows: Sequence[AnswerRow]) -> dict[str, Any]:
    """Return the share of sentences of each verdict, and citation recall and precision as means over answers."""
    sentences = [sentence for row in rows for sentence in row["sentences"]]
    shares = {
        str(verdict): sum(sentence["verdict"] == verdict for sentence in sentences) / max(1, len(sentences))
        for verdict in Verdict
    }
    answers = [row["sentences"] for row in rows if row["sentences"]]
    citations = {
        name: [_mean_of(answer, name) for answer in answers] for name in ("citation_recall", "citation_precision")
    }
    means = {
        name: float(np.mean([value for value in values if value is not None] or [0.0]))
        for name, values in citations.items()
    }
    return {"n": len(sentences), **shares, **means, "unanswered": len(rows) - len(answers)}


def _mean_of(answer: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [sentence[name] for sentence in answer if sentence[name] is not None]
    return float(np.mean(values)) if values else None


def abstention_report(rows: Sequence[AnswerRow], threshold: float, seed: int) -> dict[str, Any] | None:
    """Return how the estimate tells questions with their gold snippets from those without; None without any."""
    asked = [row for row in rows if row["evidence_probability_without_gold"] is not None]
    if not asked:
        return None
    probabilities, answerable, questions = abstention_arrays(asked)
    return {
        "n": len(asked),
        "threshold": threshold,
        "answered": answered_share(probabilities[answerable], threshold),
        "answered_without_gold": answered_share(probabilities[~answerable], threshold),
        **measured(probabilities, answerable, questions, seed),
    }


def abstention_arrays(rows: Sequence[AnswerRow]) -> tuple[Any, Any, Any]:
    """Return probabilities, whether gold snippets were there, and questions, (2 · rows,) each."""
    inside = [row["evidence_probability"] for row in rows]
    outside = [row["evidence_probability_without_gold"] for row in rows]
    ids = [row["id"] for row in rows]
    return np.array(inside + outside), np.arange(2 * len(rows)) < len(rows), np.array(ids + ids)


def write_risk_curve(path: Path, rows: Sequence[AnswerRow]) -> None:
    """Draw the risk-coverage curve of rows that have estimates; nothing where none has."""
    asked = [row for row in rows if row["evidence_probability_without_gold"] is not None]
    if asked:
        probabilities, answerable, _ = abstention_arrays(asked)
        write_plot(path, [risk_panel(probabilities, answerable)])


def identity(settings: Mapping[str, Any], opened: OpenIndex, method: str, data: AnswerDataset) -> dict[str, Any]:
    """Return what determines the rows."""
    from biorag.utils.versions import installed_versions

    questions = [(question.id, question.text, asdict(question.expert)) for question in data.questions]
    return {
        "answer": method,
        "settings": dict(settings),
        "index": opened.fingerprint(),
        "questions": sha256_of_json(questions),
        "versions": installed_versions(),
    }
