"""Asking questions that experts answered, one row of results each, and the report over the rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from biorag.answering.answerer import EVIDENCE, Answerer, PromptTooLongError
from biorag.answering.guards.checker import Checker
from biorag.benchmarks.abstention import answered_share, measured, reliability, risk_coverage_curve
from biorag.benchmarks.answer_measures import citation_score, rouge_2, rouge_su4, yes_no
from biorag.benchmarks.golden import YES_NO, AnswerDataset, AnsweredQuestion
from biorag.benchmarks.significance import bootstrap_interval
from biorag.engine import OpenIndex, load_checker
from biorag.generators.source import require_generator
from biorag.retrieval.batches import in_batches
from biorag.retrieval.filters import exclude_documents
from biorag.retrieval.retriever import Ranking
from biorag.types import CheckedSentence, FieldFilter, Hit, IndexQuery, OnProgress, Question, Snippet, Verdict, block_id
from biorag.utils.files import sha256_of_json
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

EXTRACT, GENERATE = METHODS = "extract", "generate"
GOLD = 100  # snippets of relevant documents that are looked at
OPTIONS = {"A": "yes", "B": "no"}  # of a yes/no question, which is asked with options too
Evidence = tuple[Ranking, Sequence[Snippet], Ranking]  # the hits, the gold snippets, the hits without these


class AnswerSentence(TypedDict):
    """A sentence of an answer as a row has it."""

    text: str
    verdict: Verdict
    cited: list[str]
    citation_recall: float | None
    citation_precision: float | None


class AnswerRow(TypedDict):
    """A row of `answers.jsonl`."""

    id: str
    question: str
    sentences: list[AnswerSentence]
    decision: str | None
    gold_in_index: int
    evidence_probability: float | None
    evidence_probability_without_gold: float | None
    answer_ms: float


class AnswersRun(RunDirectory):
    """A directory of one row a question, in the order asked, and the report."""

    kind = "run of 'bench answers'"
    manifest_name = "manifest.json"


def examine(data: AnswerDataset, opened: OpenIndex, method: str, out: Path, on_progress: OnProgress) -> dict[str, Any]:
    """Ask the questions of a dataset, resuming in `out`, and return the report."""
    settings = opened.settings
    checker = load_checker(settings, opened.load_encoder)
    run = AnswersRun(out, _identity(opened, method, data) | {"reader": checker.identity()})
    run.finished()  # refuses another run's folder before anything is loaded
    generator = require_generator(settings) if method == GENERATE else None
    decide = GENERATE if generator else EVIDENCE
    examination = Examination(opened.answerer(generator, checker), decide, opened, checker)

    def work(left: Sequence[AnsweredQuestion]) -> Iterator[AnswerRow]:
        wanted = {question.id for question in left}
        for question, evidence in in_batches(examination.search, data.questions, wanted):
            yield examination.row(question, *evidence)

    rows = run.fill("answers.jsonl", AnswerRow, data.questions, work, on_progress)
    return {
        **report(data, rows, examination.answerer.threshold, settings.seed),
        "answer": method,
        "config": settings.public(),
    }


def _identity(opened: OpenIndex, method: str, data: AnswerDataset) -> dict[str, Any]:
    """Return everything that determines the rows."""
    settings = opened.settings
    questions = [(question.id, question.text, asdict(question.expert)) for question in data.questions]
    return {
        "answer": method,
        "settings": {**settings.retrieval.identity(), **(settings.generation.identity() if method == GENERATE else {})},
        "index": opened.fingerprint(),
        "questions": sha256_of_json(questions),
        "versions": installed_versions(),
    }


@dataclass(frozen=True, slots=True)
class Examination:
    """An answerer over an index, the method that decides yes or no, and the check."""

    answerer: Answerer
    decide: str
    opened: OpenIndex
    checker: Checker

    def search(self, questions: Sequence[AnsweredQuestion]) -> list[Evidence]:
        """Return each question's ranking, its gold snippets in the index, and the ranking without their documents."""
        texts = [question.text for question in questions]
        gold = [self._gold(question) for question in questions]
        hits = [self.opened.hits_of(Question(question.id, question.text)) for question in questions]
        deepest = self.opened.retriever.search_all(texts, max(hits, default=None))
        rankings = [replace(ranking, hits=ranking.hits[:count]) for ranking, count in zip(deepest, hits, strict=True)]
        without = self.opened.retriever.search_all(texts, wheres=[exclude_documents(snippets) for snippets in gold])
        return list(zip(rankings, gold, without, strict=True))

    def _gold(self, question: AnsweredQuestion) -> list[Snippet]:
        """Return the relevant snippets that the index holds; of relevant documents those that share a word with it."""
        if question.pmids:
            among = (FieldFilter("pmid", "in", question.pmids),)
            (scored,) = self.opened.index.search([IndexQuery(question.text, GOLD, among)])
            return list(self.opened.index.fetch([id for id, _ in scored]).values())
        ids = [*question.relevant, *(block_id(id, 0) for id in question.relevant)]
        return list(self.opened.index.fetch(ids).values())

    def row(self, question: AnsweredQuestion, ranking: Ranking, gold: Sequence[Snippet], without: Ranking) -> AnswerRow:
        """Ask one question."""
        start = time.perf_counter()
        sentences, decision = self._answered(question, ranking)
        elapsed_ms = round((time.perf_counter() - start) * 1000, 3)
        return {
            "id": question.id,
            "question": question.text,
            "sentences": checked(sentences, ranking.hits, self.checker),
            "decision": decision,
            "gold_in_index": len(gold),
            "evidence_probability": self.answerer.probability(question.text, ranking),
            "evidence_probability_without_gold": self.answerer.probability(question.text, without) if gold else None,
            "answer_ms": elapsed_ms,
        }

    def _answered(self, question: AnsweredQuestion, ranking: Ranking) -> tuple[Sequence[CheckedSentence], str | None]:
        """Return the sentences of the answer, and the decision on a yes/no question."""
        decision = None
        try:
            answer = self.answerer.answer_from(Question(question.id, question.text), ranking)
            if question.expert.type == YES_NO:
                asked = Question(question.id, question.text, OPTIONS)
                decision = OPTIONS.get(self.answerer.answer_from(asked, ranking, self.decide).choice or "")
        except PromptTooLongError:
            return (), None
        return answer.sentences, decision


def checked(sentences: Sequence[CheckedSentence], hits: Sequence[Hit], checker: Checker) -> list[AnswerSentence]:
    """Return an answer's sentences with the snippets they cite, their verdict over all hits, and ALCE's shares."""
    snippets = [hit.snippet for hit in hits]

    def supports(sentence: str, cited: Sequence[int]) -> bool:
        held = [snippets[n - 1] for n in cited if 1 <= n <= len(snippets)]
        return checker.check_claim(sentence, held).verdict is Verdict.SUPPORTED

    rows: list[AnswerSentence] = []
    for sentence in sentences:
        text, cited = sentence.text, sentence.citations
        score = citation_score([(text, cited)], supports)
        rows.append(
            {
                "text": text,
                "verdict": checker.check_claim(text, snippets).verdict,
                "cited": [snippets[n - 1].id for n in cited if 1 <= n <= len(snippets)],
                "citation_recall": score.recall,
                "citation_precision": score.precision,
            }
        )
    return rows


def report(data: AnswerDataset, rows: Sequence[AnswerRow], threshold: float, seed: int) -> dict[str, Any]:
    """Return every measure of a dataset's rows, with 95 % bootstrap intervals of means over questions."""
    pairs = list(zip(data.questions, rows, strict=True))
    return {
        "dataset": data.name,
        "questions": len(pairs),
        "exact": {"yes_no": _yes_no(pairs, seed)},
        "ideal": _ideal(pairs, seed),
        "sentences": _sentences(rows),
        "abstention": _abstention(rows, threshold, seed),
        "answer_ms": {"median": float(np.median([row["answer_ms"] for row in rows]))} if rows else None,
    }


def _yes_no(pairs: Sequence[tuple[AnsweredQuestion, AnswerRow]], seed: int) -> dict[str, Any] | None:
    """Return BioASQ's measures of yes and no, and those of the majority's answer; None without decisions."""
    decisions = [
        (str(question.expert.decision), row["decision"])
        for question, row in pairs
        if question.expert.type == YES_NO and question.expert.decision in ("yes", "no")
    ]
    expected, predicted = [right for right, _ in decisions], [decision for _, decision in decisions]
    if not any(predicted):
        return None
    majority = max(("yes", "no"), key=expected.count)
    return {
        "n": len(decisions),
        **yes_no(predicted, expected)._asdict(),
        "accuracy_interval": bootstrap_interval([float(right == decision) for right, decision in decisions], seed),
        "majority": yes_no([majority] * len(decisions), expected)._asdict(),
    }


def _ideal(pairs: Sequence[tuple[AnsweredQuestion, AnswerRow]], seed: int) -> dict[str, Any]:
    scores = []
    for question, row in pairs:
        if question.expert.ideal:
            text = " ".join(sentence["text"] for sentence in row["sentences"])
            two, su4 = rouge_2(text, question.expert.ideal), rouge_su4(text, question.expert.ideal)
            values = {"ROUGE-2 recall": two.recall, "ROUGE-2 F1": two.f1}
            values |= {"ROUGE-SU4 recall": su4.recall, "ROUGE-SU4 F1": su4.f1, "words": len(text.split())}
            scores.append(values)
    return _means(scores, seed)


def _means(scores: Sequence[Mapping[str, float]], seed: int) -> dict[str, Any]:
    """Return n, and the mean of each measure with its interval."""
    columns = {name: [score[name] for score in scores] for name in (scores[0] if scores else ())}
    means = {
        name: {"mean": float(np.mean(values)), "interval": bootstrap_interval(values, seed)}
        for name, values in columns.items()
    }
    return {"n": len(scores), **means}


def _sentences(rows: Sequence[AnswerRow]) -> dict[str, Any]:
    """Return the share of sentences of each verdict, and citation recall and precision as means over answers."""
    verdicts = [sentence["verdict"] for row in rows for sentence in row["sentences"]]
    shares = {str(verdict): verdicts.count(verdict) / max(1, len(verdicts)) for verdict in Verdict}
    answers = [row["sentences"] for row in rows if row["sentences"]]
    recalls = [[sentence["citation_recall"] for sentence in answer] for answer in answers]
    precisions = [[sentence["citation_precision"] for sentence in answer] for answer in answers]
    return {
        "n": len(verdicts),
        **shares,
        "citation_recall": _mean_of_means(recalls),
        "citation_precision": _mean_of_means(precisions),
        "unanswered": len(rows) - len(answers),
    }


def _mean_of_means(answers: Sequence[Sequence[float | None]]) -> float:
    """Return the mean over answers of the mean of their sentences' values, without those that have none."""
    known = [[value for value in answer if value is not None] for answer in answers]
    return float(np.mean([float(np.mean(values)) for values in known if values] or [0.0]))


def _abstention(rows: Sequence[AnswerRow], threshold: float, seed: int) -> dict[str, Any] | None:
    """Return how the estimate tells questions with their gold snippets from those without; None without any."""
    asked = [row for row in rows if row["evidence_probability_without_gold"] is not None]
    if not asked:
        return None
    inside = [row["evidence_probability"] for row in asked]
    outside = [row["evidence_probability_without_gold"] for row in asked]
    probabilities, answerable = np.array(inside + outside), np.arange(2 * len(asked)) < len(asked)
    return {
        "n": len(asked),
        "threshold": threshold,
        "answered": answered_share(probabilities[answerable], threshold),
        "answered_without_gold": answered_share(probabilities[~answerable], threshold),
        **measured(probabilities, answerable, np.array([row["id"] for row in asked] * 2), seed),
        "risk_coverage": risk_coverage_curve(probabilities, answerable),
        "reliability": reliability(probabilities, answerable),
    }
